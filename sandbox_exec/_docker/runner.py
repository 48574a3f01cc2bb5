"""Starts the engine's program, bounds it, and leaves nothing of it behind.

The only module that starts processes. Each gets a session of its own, so that Ctrl-C at our
terminal does not reach it: an interrupted engine program exits 0 as if all were well (hazard F3).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from subprocess import DEVNULL, PIPE
from typing import Final, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from attrs import define, field, frozen

from sandbox_exec._docker.interface import (
    NO_VARIABLES,
    Argv,
    Completed,
    NoAnswer,
    ProgramMissing,
)

__all__ = ["SubprocessRunner"]

# What is killed is gone at once, unless the kernel holds it (state D): then it is left to end when
# it can, as nobody may have to wait for that.
_REAP_SECONDS: Final = 5.0
_NO_PROGRAM: Final = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ELOOP),
        errno.ENAMETOOLONG,
    }
)
_CHUNK_BYTES: Final = 65536
# All the output of a control call: that of an inspect of 500 containers has some 5 MiB.
_MOST_BYTES: Final = 64 * 2**20
_GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError)


@frozen
class SubprocessRunner:
    """Runs real programs: what stands behind the seam outside of tests.

    :param environment: everything that programs find in their environment; nothing is inherited,
        because it decides where untrusted code runs (hazard R7).
    :param directory: where programs start; ``None`` for this process's own.
    """

    _environment: Mapping[str, str] = field(repr=False)
    _directory: str | None = None

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] = NO_VARIABLES
    ) -> Completed | NoAnswer:
        """Run a control call to its end, or kill it after ``timeout`` seconds.

        Output is read whole, up to a bound that anyio's own ``run_process`` does not have, and
        standard input is empty, never inherited (hazard F15).
        """
        answers: list[Completed] = []
        output = _Output()

        async def call() -> None:
            with anyio.move_on_after(timeout) as output.patience:
                async with self._running(argv, env, DEVNULL) as child:
                    async with anyio.create_task_group() as readers:
                        readers.start_soon(output.read, child.receive_stdout, output.stdout)
                        readers.start_soon(output.read, child.receive_stderr, output.stderr)
                        status = await child.wait()
                    answers.append(Completed(status, bytes(output.stdout), bytes(output.stderr)))

        await _in_own_task(call)
        return answers[0] if answers else NoAnswer(timeout, output.excess)

    def open(
        self, argv: Argv, *, env: Mapping[str, str] = NO_VARIABLES
    ) -> AbstractAsyncContextManager[_Child]:
        """Start a command call; leaving the block kills it, reaps it and closes its pipes."""
        return self._running(argv, env, PIPE)

    @asynccontextmanager
    async def _running(
        self, argv: Argv, env: Mapping[str, str], stdin: int
    ) -> AsyncIterator[_Child]:
        children: list[_Child] = []

        async def start() -> None:
            process = await anyio.open_process(
                argv,
                stdin=stdin,
                env={**self._environment, **env},
                cwd=self._directory,
                start_new_session=True,
            )
            children.append(_Child(process))

        async def finish() -> None:
            for child in children:
                await child.finish()

        try:
            with _program_of(argv):
                await _in_own_task(start, shield=True)
            yield children[0]
        finally:
            await _in_own_task(finish, shield=True)


@contextmanager
def _program_of(argv: Argv) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_PROGRAM:
            raise
        message = f"cannot run {argv[0]!r}: {error.strerror}"
        raise ProgramMissing(message) from error


async def _in_own_task(work: Callable[[], Awaitable[None]], *, shield: bool = False) -> None:
    """Await ``work`` where asyncio's own cancellation becomes anyio's, which a shield holds off.

    ``Task.cancel`` knows no shields and is said once: swallowed by one wait, it would let anyio
    wait for the program's own end in the next. And a child that it caught between start and
    registration would be nobody's.
    """
    failures: list[Exception] = []

    async def contained() -> None:
        with anyio.CancelScope(shield=shield):
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # raised below, outside of the group
                failures.append(error)

    with anyio.CancelScope(shield=shield):
        async with anyio.create_task_group() as group:
            group.start_soon(contained)
    for failure in failures:
        raise failure


async def _receive(stream: ByteReceiveStream) -> bytes:
    try:
        return await stream.receive(_CHUNK_BYTES)
    except (anyio.EndOfStream, *_GONE):
        return b""


@define
class _Output:
    """What a control call prints, read whole unless it is more than any answer has."""

    patience: anyio.CancelScope = field(factory=anyio.CancelScope)
    stdout: bytearray = field(factory=bytearray)
    stderr: bytearray = field(factory=bytearray)
    excess: bool = False

    async def read(self, receive: Callable[[], Awaitable[bytes]], into: bytearray) -> None:
        while data := await receive():
            into += data
            if len(self.stdout) + len(self.stderr) > _MOST_BYTES:
                self.excess = True
                self.patience.cancel()


@define
class _Child:
    """A running program; see :class:`CliProcess`."""

    _process: Process

    async def send(self, data: bytes) -> None:
        try:
            await self._stdin.send(data)
        except _GONE as error:
            raise BrokenPipeError("the program no longer reads") from error

    async def close_stdin(self) -> None:
        with suppress(*_GONE):
            if self._process.stdin is not None:
                await self._process.stdin.aclose()

    async def receive_stdout(self) -> bytes:
        return await _receive(cast("ByteReceiveStream", self._process.stdout))

    async def receive_stderr(self) -> bytes:
        return await _receive(cast("ByteReceiveStream", self._process.stderr))

    async def wait(self) -> int:
        return await self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        # Not the process's own kill(): asyncio's looks first whether the child has ended, which
        # reaps it before asyncio's watcher does, and its exit status is lost. And with its group,
        # which is its own: a docker that is a script runs the real one as a child.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def finish(self) -> None:
        """End it, whatever it does."""
        if self._process.returncode is None:
            self.kill()
        with anyio.move_on_after(_REAP_SECONDS):
            await self._process.wait()
            await self._process.aclose()
            return
        # Closing the process would wait for its end as well.
        await self.close_stdin()

    @property
    def _stdin(self) -> ByteSendStream:
        return cast("ByteSendStream", self._process.stdin)
