"""What can go wrong, by whose fault, and what a caller should do.

Rejected input is a plain :class:`ValueError`; everything here is about the sandbox or the engine
behind it. Each error carries its facts as data, so that nobody has to parse a message.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

__all__ = [
    "CommandFailedError",
    "ContainerStartError",
    "DaemonUnavailableError",
    "EngineNotFoundError",
    "ExecutorBusyError",
    "ExecutorClosedError",
    "FileTransferError",
    "SandboxBrokenError",
    "SandboxDisposedError",
    "SandboxError",
]


class SandboxError(Exception):
    """A sandbox, or the engine behind it, failed.

    :ivar code: a stable, machine-readable name for the fault, e.g. ``"daemon-unavailable"``.
    :ivar retryable: whether the same call may succeed later without anybody changing anything.
    :ivar started: whether the caller's command (or transfer) had begun: ``True``, ``False``, or
        ``None`` when nobody can know. Only ``False`` makes a retry free of double execution.
    :ivar hint: words for a language model: what this means for its turn. May be empty.
    :ivar argv: the engine command line that failed, without any environment value; may be empty.
    :ivar stderr: the engine's own words, decoded, for people who debug; never command output.
    :ivar path: the file the fault is about, if any.
    :ivar partial_stdout: what the command had printed before the fault, where it had started.
    :ivar partial_stderr: likewise for its standard error.

    Source: S0 threw bare ``Error`` objects; the split by fault is hazards S2, S3, S12 and S13.
    """

    default_code: ClassVar[str] = "sandbox-error"
    default_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        started: bool | None = False,
        hint: str = "",
        argv: tuple[str, ...] = (),
        stderr: str = "",
        path: str | None = None,
        partial_stdout: str = "",
        partial_stderr: str = "",
    ) -> None:
        super().__init__(message)
        self.code: str = self.default_code if code is None else code
        self.retryable: bool = self.default_retryable if retryable is None else retryable
        self.started = started
        self.hint = hint
        self.argv = argv
        self.stderr = stderr
        self.path = path
        self.partial_stdout = partial_stdout
        self.partial_stderr = partial_stderr

    def fresh(self, **changes: Any) -> Self:  # noqa: ANN401  # the constructor's own arguments
        """Return a new error with the same facts, so that each of several waiters raises its own.

        One exception object raised in many tasks would collect all their tracebacks.
        """
        facts = {**self.__dict__, **changes}
        message = facts.pop("message", str(self))
        return type(self)(message, **facts)


class DaemonUnavailableError(SandboxError):
    """The container engine did not answer, or answered that it is not there.

    Nothing was removed or assumed missing on the strength of it (hazard S3). Source: S0's
    ``DAEMON_DOWN_MESSAGE``.
    """

    default_code = "daemon-unavailable"
    default_retryable = True


class EngineNotFoundError(SandboxError):
    """The engine's command-line program is not on this host."""

    default_code = "engine-not-found"


class ContainerStartError(SandboxError):
    """A container could not be made or started; ``argv`` and ``stderr`` say what was tried.

    Source: S0's "sandbox container failed to start".
    """

    default_code = "container-start"


class SandboxBrokenError(SandboxError):
    """The container is there, but cannot serve calls and could not be healed.

    Its files may still matter to somebody, so it is left as it is: dispose the session to go on
    with an empty one (hazards S14, S15).
    """

    default_code = "sandbox-broken"


class SandboxDisposedError(SandboxError):
    """The session was disposed while this call was waiting or running (hazard S10)."""

    default_code = "sandbox-disposed"


class FileTransferError(SandboxError):
    """Bytes could not be moved into or out of the sandbox; ``path`` says which file."""

    default_code = "file-transfer"


class ExecutorClosedError(SandboxError):
    """The executor is not open, or closed while this call was waiting or running."""

    default_code = "executor-closed"


class ExecutorBusyError(SandboxError):
    """No slot for another engine process came free in time (hazard C10).

    The wait is not part of the command's own limit, and nothing was started.
    """

    default_code = "executor-busy"
    default_retryable = True


class CommandFailedError(SandboxError):
    """Raised by :meth:`ExecResult.check` for a command that did not exit with 0.

    :ivar exit_code: as in the result; ``-1`` when the command was killed by its limit.
    :ivar stdout: the command's output, as kept.
    :ivar stderr: the command's error output, as kept.
    """

    default_code = "command-failed"

    def __init__(
        self,
        message: str,
        *,
        exit_code: int = -1,
        stdout: str = "",
        **facts: Any,  # noqa: ANN401  # the base class's arguments
    ) -> None:
        super().__init__(message, **{"started": True, **facts})
        self.exit_code = exit_code
        self.stdout = stdout
