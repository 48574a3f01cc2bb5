"""A running command as the coroutine that stands for it sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from anyio import sleep_forever
from anyio.lowlevel import checkpoint
from attrs import define, field

from sandbox_exec.testing._containers import FakeContainer
from sandbox_exec.testing._execution import Execution
from sandbox_exec.testing._pipes import LineReader, Pipe

__all__ = ["FakeCall", "Handler"]


@define(eq=False)
class FakeCall:
    """What a command was started with, and what it can do.

    :ivar env: the variables the call added.
    :ivar cwd: the directory asked for.
    :ivar user: the user asked for, or the container's.
    :ivar stdin: its standard input, if it was given one; for a spawned process, see
        :meth:`receive`.
    """

    _execution: Execution = field(repr=False)
    env: Mapping[str, str]
    cwd: str
    user: str
    stdin: bytes | None
    _stdout: Pipe = field(repr=False)
    _stderr: Pipe = field(repr=False)
    _reader: LineReader | None = field(default=None, repr=False)

    @property
    def command(self) -> str:
        """The command's text."""
        return self._execution.command

    @property
    def limit(self) -> float:
        """Seconds it may take."""
        return self._execution.limit

    @property
    def container(self) -> FakeContainer:
        """Where it runs."""
        return self._execution.container

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of the container's files by absolute path."""
        return self.container.files

    async def receive(self) -> bytes:
        """Return what comes next on the standard input of a spawned process; ``b""`` at its end."""
        return b"" if self._reader is None else await self._reader.some()

    async def stdout(self, data: bytes) -> None:
        """Print on standard output; waits while nobody reads."""
        await checkpoint()
        await self._stdout.write(data)

    async def stderr(self, data: bytes) -> None:
        """Print on standard error; waits while nobody reads."""
        await checkpoint()
        await self._stderr.write(data)

    async def sleep(self, seconds: float) -> None:
        """Let so much of the clock's time pass, or what is left of the limit, which ends this."""
        left = self._execution.left()
        self._execution.clock.advance(max(min(seconds, left), 0.0))
        if seconds >= left:
            self._execution.kill("limit")
        await checkpoint()

    async def forever(self) -> None:
        """Wait, really, until somebody ends this; the limit does not, as no time passes."""
        await sleep_forever()

    def background(self) -> None:
        """Leave a process running that outlives the command."""
        self._execution.survives = True

    def unkillable(self) -> None:
        """Let something of the command outlive its kill."""
        self._execution.unkillable = True

    def oom_killed(self) -> None:
        """Let the kernel have killed something for want of memory."""
        self._execution.oom = True


Handler = Callable[[FakeCall], Awaitable[int]]
"""What a command does; returns its exit status, 0 to 255."""
