"""Values that cross the public boundary.

All are frozen: a result handed to one task cannot be changed under another. Seconds are ``float``,
sizes are ``int`` bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from attrs import Attribute, field, frozen

from sandbox_exec._errors import CommandFailedError

__all__ = [
    "MAX_COMMAND_BYTES",
    "MAX_STDIN_BYTES",
    "ExecResult",
    "ExecSpec",
    "Gap",
    "SandboxInfo",
    "StreamName",
    "check_env",
    "check_text",
    "encode_text",
]

MAX_COMMAND_BYTES = 16 * 1024 * 1024
"""The longest command text, and the largest environment, that a call may carry (hazard C6)."""

MAX_STDIN_BYTES = 64 * 1024 * 1024
"""The most standard input a call may carry; larger inputs belong into a file."""

StreamName = Literal["stdout", "stderr"]
"""One of a command's two output streams."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OPTIND = re.compile(r"[0-9]{1,9}\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?\Z")


def check_text(text: object, what: str) -> str:
    """Return a ``str`` that a program can be given.

    :raises ValueError: for anything else, and for a NUL, which ends every argument (hazard F8).
    """
    if not isinstance(text, str):
        message = f"{what} must be a str, not {type(text).__name__}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always
    if "\0" in text:
        raise ValueError(f"{what} must not contain a NUL character")
    return text


def encode_text(text: object, what: str) -> bytes:
    """Return a ``str`` as the bytes it stands for, surrogate escapes included.

    :raises ValueError: as :func:`check_text`, and for a surrogate that stands for no byte.
    """
    try:
        return check_text(text, what).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} contains a lone surrogate at index {error.start}") from None


def _check_command(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    _check_size("command", len(encode_text(value, "command")), MAX_COMMAND_BYTES)


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"{what} is {size} bytes long; at most {limit} are possible")


def _check_timeout(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"timeout must be a number of seconds, not {value!r}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always
    # Not the other way round, for the sake of NaN.
    if not value > 0:
        raise ValueError(f"timeout must be more than 0 seconds, not {value!r}")


def _check_session(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"session must be a non-empty str or None, not {value!r}")


def check_env(value: object) -> None:
    """Refuse what no shell can export.

    :raises ValueError: for anything but a mapping of shell names to text.
    """
    if not isinstance(value, Mapping):
        message = f"env must be a mapping, not {type(value).__name__}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always
    size = 0
    for name, text in value.items():
        if not isinstance(name, str) or not _ENV_NAME.match(name):
            raise ValueError(f"env has a name that is no shell name: {name!r}")
        size += len(name) + len(encode_text(text, f"env variable {name}"))
        if name == "OPTIND" and not _OPTIND.match(text):
            # With any other, dash does not even start.
            raise ValueError(f"env variable OPTIND must be a number for a shell, not {text!r}")
    _check_size("env", size, MAX_COMMAND_BYTES)


def _check_env(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    check_env(value)


def _check_cwd(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    if value is not None and not encode_text(value, "cwd"):
        raise ValueError("cwd must not be empty; leave it out for /workspace")


def _check_user(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, str) or not _USER.match(value)):
        raise ValueError(f"user must be a name or number, optionally with :group, not {value!r}")


# What is of another type is handed on by these, for the validators to refuse.
def _to_env(value: Mapping[str, str]) -> Mapping[str, str]:
    given: object = value
    return MappingProxyType(dict(value)) if isinstance(given, Mapping) else value


def _to_stdin(value: bytes | bytearray | memoryview | str | None) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _check_stdin(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, bytes):
        message = f"stdin must be bytes or a str, not {type(value).__name__}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always
    _check_size("stdin", len(value), MAX_STDIN_BYTES)


@frozen
class ExecSpec:
    """One command to run, and where.

    :param command: a shell command line, run by ``sh -c`` inside the sandbox; at most
        :data:`MAX_COMMAND_BYTES` once encoded. Surrogate escapes stand for raw bytes.
    :param session: the conversation whose persistent sandbox to run in; ``None`` for a one-off.
    :param timeout: seconds the command may take, not counting the time to get the sandbox ready;
        ``None`` for the configured default. Longer than the configured maximum means the maximum.
    :param env: variables for the command only. Values travel on standard input and never appear
        in any argument list (hazard F14).
    :param cwd: the directory to run in, made when missing; relative paths start at ``/workspace``.
    :param user: the user to run as, ``name``, ``uid`` or either with ``:group``; root if left out.
    :param stdin: what the command reads on standard input, at most :data:`MAX_STDIN_BYTES`;
        text is encoded as UTF-8; nothing if left out.
    :raises ValueError: for anything that cannot be run as given, before anything starts.

    Source: S0's ``ExecSpec`` (``command``, ``session``, ``timeoutMs``); hazards C6 and C8.
    """

    command: str = field(validator=_check_command)
    session: str | None = field(default=None, validator=_check_session)
    timeout: float | None = field(default=None, validator=_check_timeout)
    env: Mapping[str, str] = field(
        factory=dict,
        kw_only=True,
        repr=False,
        validator=_check_env,
        converter=_to_env,
    )
    cwd: str | None = field(default=None, kw_only=True, validator=_check_cwd)
    user: str | None = field(default=None, kw_only=True, validator=_check_user)
    stdin: bytes | None = field(
        default=None, kw_only=True, repr=False, converter=_to_stdin, validator=_check_stdin
    )


@frozen
class Gap:
    """Where the middle of a stream was left out because it was longer than the cap.

    :param at: index into the text, in characters, between the kept head and the kept tail.
    :param omitted_bytes: how many bytes are missing there.
    """

    at: int
    omitted_bytes: int


@frozen
class ExecResult:
    """How a command ended.

    :param stdout: standard output; UTF-8, with what is not UTF-8 replaced. At most the configured
        ``max_output_bytes``, head and tail.
    :param stderr: standard error, likewise.
    :param exit_code: the command's own exit status, 0 to 255 (128 + n for signal n), or -1 when it
        was killed by its limit.
    :param timed_out: killed by its limit; the output up to then is there.
    :param duration: seconds from handing over the request to the end of the command.
    :param stdout_gap: where standard output was cut, if it was.
    :param stderr_gap: where standard error was cut, if it was.
    :param oom_killed: the kernel killed something in the sandbox for want of memory meanwhile
        (hazard F9).
    :param reset: why the sandbox was rebuilt or restarted before this call, so that processes or
        packages of earlier calls are gone (hazard S16); ``None`` when it was not.

    Source: S0's ``ExecResult``: its four fields come first and mean the same.
    """

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool = False
    duration: float = field(default=0.0, kw_only=True)
    stdout_gap: Gap | None = field(default=None, kw_only=True)
    stderr_gap: Gap | None = field(default=None, kw_only=True)
    oom_killed: bool = field(default=False, kw_only=True)
    reset: str | None = field(default=None, kw_only=True)

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0."""
        return self.exit_code == 0

    @property
    def truncated(self) -> frozenset[StreamName]:
        """Which of the two streams were longer than the cap; empty, hence false, for none."""
        gaps: tuple[tuple[StreamName, Gap | None], ...] = (
            ("stdout", self.stdout_gap),
            ("stderr", self.stderr_gap),
        )
        return frozenset(name for name, gap in gaps if gap is not None)

    def check(self) -> ExecResult:
        """Return this result if the command exited with 0.

        :raises CommandFailedError: if it did not.
        """
        if self.ok:
            return self
        how = "was killed by its time limit" if self.timed_out else f"exited with {self.exit_code}"
        message = f"the command {how}"
        raise CommandFailedError(
            message, exit_code=self.exit_code, stdout=self.stdout, stderr=self.stderr
        )


@frozen(kw_only=True)
class SandboxInfo:
    """What the sandbox is, for whoever has to describe it truthfully.

    :param image: the image reference it is made from.
    :param network: whether it reaches a network at all.
    :param durable_workspace: whether ``/workspace`` outlives the container.
    :param default_timeout: seconds a command gets when it asks for none.
    :param max_timeout: seconds no command gets more than.
    :param memory: bytes of memory, with no swap beyond it.
    :param cpus: processors' worth of time.
    :param pids_limit: processes and threads at once.
    :param unbounded: what nothing limits: ``disk`` (hazard R8), and those of ``memory``, ``swap``,
        ``pids`` and ``cpus`` that the engine says it ignores, as podman without root does under
        cgroups v1.

    Source: S0's ``SandboxInfo``.
    """

    image: str
    network: bool
    durable_workspace: bool
    default_timeout: float
    max_timeout: float
    memory: int
    cpus: float
    pids_limit: int
    unbounded: tuple[str, ...] = ()
