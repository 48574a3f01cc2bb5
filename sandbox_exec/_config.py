"""Validated settings and the clamps between them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from attrs import Attribute, field, frozen

from sandbox_exec._naming import is_deployment

__all__ = ["SandboxConfig", "check_config", "check_docker_host", "parse_size"]

DAY: Final = 86_400.0
MIN_MEMORY: Final = 16 * 1024 * 1024
LONGEST: Final = 1e10
"""Seconds, some three hundred years: what any clock and any shell can reckon with."""

_LARGEST: Final = 1e6
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)i?b?\s*\Z", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_Validator: TypeAlias = "Callable[[object, Attribute[Any], object], None]"
_HOSTS: Final = ("unix://", "tcp://", "ssh://", "npipe://")
"""What docker's program can dial: its fd:// is for daemons, and http:// it does not take."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")


def parse_size(value: int | str) -> int:
    """Return a size in bytes from an ``int`` or from text such as ``"512m"``, as docker reads it.

    :raises ValueError: for anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (match := _SIZE.match(value)):
        return int(match[1]) * _UNITS[match[2].lower()]
    message = f"{value!r} is not a size: bytes as an int, or text like '512m'"
    raise ValueError(message)


def _fail(attribute: Attribute[Any], value: object, rule: str) -> None:
    message = f"{attribute.name} must be {rule}, not {value!r}"
    raise ValueError(message)


def _seconds(_instance: object, attribute: Attribute[Any], value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= LONGEST:  # type: ignore[operator]
        _fail(attribute, value, f"a number of seconds above 0, and at most {LONGEST:g}")


def _at_least(low: float) -> _Validator:
    def check(_instance: object, attribute: Attribute[Any], value: object) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= _LARGEST:  # type: ignore[operator]
            _fail(attribute, value, f"a number from {low} to {_LARGEST:g}")

    return check


def _count(low: int) -> _Validator:
    def check(_instance: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            _fail(attribute, value, f"an integer of at least {low}")

    return check


def _memory(_instance: object, attribute: Attribute[Any], value: int) -> None:
    if value < MIN_MEMORY:
        message = (
            f"{attribute.name} must be at least {MIN_MEMORY // 2**20} MiB ({MIN_MEMORY} bytes), "
            f"not {value} bytes"
        )
        raise ValueError(message)


def _flag(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        _fail(attribute, value, "True or False")


def _argument(_instance: object, attribute: Attribute[Any], value: object) -> None:
    # A leading dash would be read as an option by the engine's command line.
    if (
        not isinstance(value, str)
        or not value
        or value.startswith("-")
        or any(c.isspace() or not c.isprintable() for c in value)
    ):
        _fail(attribute, value, "a name without blanks that does not start with '-'")


def check_docker_host(value: object, what: str = "docker_host") -> None:
    """Refuse an address that docker's program could not even read.

    A host's name with or without a port is docker's short form of ``tcp://``, so it will do.

    :raises ValueError: for a scheme that is not known, for a path, and for what is no text.
    """
    if isinstance(value, str) and value and value.isprintable() and " " not in value:
        scheme, known = "://" in value, value.startswith(_HOSTS)
        if (known and value != "ssh://") or not (scheme or value.startswith(("/", ".", "-"))):
            return
    message = (
        f"{what} must be an address as DOCKER_HOST has it, unix:///PATH, tcp://HOST:PORT, "
        f"ssh://USER@HOST or HOST:PORT, not {value!r}"
    )
    raise ValueError(message)


def _docker_host(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    if value is not None:
        check_docker_host(value)


def _plain_name(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not _NAME.match(value):
        _fail(attribute, value, "a name of letters, digits, '_', '.' and '-'")


def _optional_name(instance: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None:
        _plain_name(instance, attribute, value)


def _deployment(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not is_deployment(value):
        _fail(attribute, value, "1 to 32 of a-z, 0-9, '_' and '-', starting with a letter or digit")


# What is of another type is handed on by these, for the validators to refuse.
def _blank_is_none(value: str | None) -> str | None:
    return value.strip() or None if isinstance(value, str) else value


def _clean_root(value: str | os.PathLike[str] | None) -> str | None:
    path = _blank_is_none(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return posixpath.normpath(path) if isinstance(path, str) else path


def _workspace_root(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if value is None:
        return
    # ':' and ',' are separators in the engine's mount options (hazard R4); '/' would hand every
    # directory of the host to the workspace reaper.
    if (
        not isinstance(value, str)
        or not value.startswith("/")
        or not value.strip("/")
        or any(c in ":," or not c.isprintable() for c in value)
    ):
        _fail(attribute, value, "an absolute path below '/', without ':' or ','")


def _backend(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not value:
        _fail(attribute, value, "the name of a backend, such as 'docker'")


@frozen(kw_only=True)
class SandboxConfig:
    """Settings of an executor. Keyword only, frozen, checked at construction.

    :param image: the image sandboxes are made from. Nothing is needed in it but ``sh``.
    :param enabled: ``False`` makes :func:`create_executor` return ``None``.
    :param backend: ``"docker"``; for any other :func:`create_executor` returns ``None``.
    :param default_timeout: seconds for a command that asks for none.
    :param max_timeout: seconds no command gets more than; never below ``default_timeout``.
    :param network: whether sandboxes get a network at all.
    :param docker_network: which one, when they do. Restricting where they may connect to is the
        job of a firewalled network named here.
    :param idle_after: seconds without use after which a sandbox is stopped, not removed.
    :param ttl: seconds a stopped sandbox, and then its workspace, is kept after its last use; never
        below ``idle_after``.
    :param max_dormant: how many stopped sandboxes are kept; 0 or less for any number.
    :param workspace_root: a directory on the *daemon's* host that holds one workspace a session;
        ``None`` keeps ``/workspace`` inside the container. A path object will do. Made and kept
        with mode 0700.
    :param runtime: the OCI runtime, such as ``"runsc"`` or ``"kata"``; ``None`` for the engine's.
    :param docker_host: which daemon, as ``DOCKER_HOST`` would say it: ``unix:///PATH``,
        ``tcp://HOST:PORT``, ``ssh://USER@HOST``, or ``HOST:PORT`` for ``tcp``.
    :param memory: memory in bytes, or text like ``"512m"``; no swap on top (hazard F9).
    :param cpus: processors' worth of time.
    :param pids_limit: processes and threads at once.
    :param engine: the command-line program, ``"docker"`` or ``"podman"``, or a path to one.
    :param deployment: a namespace: containers of another deployment are never listed, adopted or
        removed. Two servers with the same name share their sessions.
    :param max_output_bytes: what is kept of each output stream, half head and half tail.
    :param max_read_bytes: the largest file a read returns.
    :param control_timeout: seconds a bookkeeping call to the engine may take.
    :param start_timeout: seconds a container may take to start.
    :param pull_timeout: seconds an image may take to be fetched.
    :param sweep_every: seconds between the reapers' rounds.
    :param workspace_sweep_every: seconds between rounds of the workspace reaper.
    :param grace: seconds by which the host's timer trails the limit inside the sandbox.
    :param max_parallel: engine processes for commands at once; further calls wait their turn.
    :param queue_timeout: seconds a call waits for its turn before :class:`ExecutorBusyError`.
    :param min_free_bytes: no container is started with less free disk on the daemon's host than
        this, where that can be seen (hazard R8); 0 turns the check off.
    :raises ValueError: for a setting that cannot work.

    Source: S0's ``SandboxConfig`` and its constants; the defaults are S0's.
    """

    image: str = field(validator=_argument)
    enabled: bool = field(default=True, validator=_flag)
    backend: str = field(default="docker", validator=_backend)
    default_timeout: float = field(default=30.0, validator=_seconds)
    max_timeout: float = field(default=300.0, validator=_seconds)
    network: bool = field(default=False, validator=_flag)
    docker_network: str = field(default="bridge", validator=_argument)
    idle_after: float = field(default=1800.0, validator=_seconds)
    ttl: float = field(default=30 * DAY, validator=_seconds)
    max_dormant: int = field(default=50, validator=_count(-(2**31)))
    workspace_root: str | None = field(
        default=None, converter=_clean_root, validator=_workspace_root
    )
    runtime: str | None = field(default=None, converter=_blank_is_none, validator=_optional_name)
    docker_host: str | None = field(default=None, converter=_blank_is_none, validator=_docker_host)
    memory: int = field(default=512 * 2**20, converter=parse_size, validator=_memory)
    cpus: float = field(default=1.0, validator=_at_least(0.01))
    pids_limit: int = field(default=512, validator=_count(16))
    engine: str = field(default="docker", validator=_argument)
    deployment: str = field(default="default", validator=_deployment)
    max_output_bytes: int = field(default=100_000, validator=_count(64))
    max_read_bytes: int = field(default=256 * 1024, validator=_count(1))
    control_timeout: float = field(default=10.0, validator=_seconds)
    start_timeout: float = field(default=60.0, validator=_seconds)
    pull_timeout: float = field(default=600.0, validator=_seconds)
    sweep_every: float = field(default=60.0, validator=_seconds)
    workspace_sweep_every: float = field(default=3600.0, validator=_seconds)
    grace: float = field(default=2.0, validator=_seconds)
    max_parallel: int = field(default=32, validator=_count(1))
    queue_timeout: float = field(default=60.0, validator=_seconds)
    min_free_bytes: int = field(default=128 * 2**20, converter=parse_size, validator=_count(0))

    def __attrs_post_init__(self) -> None:
        # Never shorter than the idle window: such a TTL would remove sandboxes that were only just
        # stopped in order to be kept. Source: S0's constructor.
        object.__setattr__(self, "max_timeout", max(self.max_timeout, self.default_timeout))
        object.__setattr__(self, "ttl", max(self.ttl, self.idle_after))


def check_config(given: object) -> None:
    """Refuse settings that were not checked.

    :raises ValueError: for anything but a :class:`SandboxConfig`.
    """
    if not isinstance(given, SandboxConfig):
        message = f"config must be a SandboxConfig, not {type(given).__name__}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always
