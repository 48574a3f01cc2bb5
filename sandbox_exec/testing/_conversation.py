"""One engine program that carries a guest's conversation: both of its ends, and how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from anyio import CancelScope, Event
from anyio.lowlevel import checkpoint

from sandbox_exec._docker.interface import Completed
from sandbox_exec.testing._faults import Freeze
from sandbox_exec.testing._guest import Guest
from sandbox_exec.testing._pipes import LineReader, Pipe
from sandbox_exec.testing._spawned import Spawned

__all__ = ["Conversation"]

_SIGKILLED: Final = -9
_NO_PROCESS: Final = 2**22 + 1


class Conversation:
    """A program whose streams the caller drives; see :class:`CliProcess`.

    :param connect: returns the guest, or how the program ends because there is none.
    :param close: called when a guest was there and is no longer.
    """

    def __init__(
        self,
        freeze: Freeze,
        connect: Callable[[Conversation], Awaitable[Guest | Spawned | Completed]],
        close: Callable[[Guest | Spawned], None],
    ) -> None:
        self.stdin, self.stdout, self.stderr = Pipe(), Pipe(), Pipe()
        self.input = LineReader(self.stdin, self._passed)
        self.error: Exception | None = None
        self._freeze = freeze
        self._connect = connect
        self._close = close
        self._guest: Guest | Spawned | None = None
        self._connecting = CancelScope()
        self._serving = CancelScope()
        self._exited = Event()
        self._exit_code: int | None = None
        self._cut_code: int | None = None
        self._gone = False
        self._closed = False

    async def run(self) -> None:
        """Be the program, and the guest at its other end, until both are done."""
        # Shielded because a client that is cancelled is seen by the guest as one that is gone.
        with CancelScope(shield=True):
            try:
                with self._connecting:
                    await self._connected(await self._connect(self))
            except Exception as error:  # noqa: BLE001  # raised where the block is left
                self.error = error
            finally:
                if self._guest is not None:
                    self._close(self._guest)
                self._exit(self._cut_code if self._cut_code is not None else 1)

    async def _connected(self, found: Guest | Spawned | Completed) -> None:
        if isinstance(found, Completed):
            await self.stdout.write(found.stdout)
            await self.stderr.write(found.stderr)
            self._exit(found.exit_code)
            return
        self._guest = found
        with self._serving:
            code = await found.serve()
            while found.lingers and not self._gone:
                await self._freeze.changed()
            await self._passed()
            if self._cut_code is None:
                self._exit(code)

    async def send(self, data: bytes) -> None:
        await checkpoint()
        if self._closed or self._exit_code is not None or not await self.stdin.write(data):
            raise BrokenPipeError("the program no longer reads")

    async def close_stdin(self) -> None:
        self._closed = True
        self.stdin.end()
        await checkpoint()

    async def receive_stdout(self) -> bytes:
        return await self._receive(self.stdout)

    async def receive_stderr(self) -> bytes:
        return await self._receive(self.stderr)

    async def wait(self) -> int:
        await self._exited.wait()
        return self._exit_code or 0

    @property
    def pid(self) -> int:
        """The number of a process that is none: above what Linux gives out."""
        return _NO_PROCESS

    def kill(self) -> None:
        if self._exit_code is None:
            self._exit(_SIGKILLED)
            self.leave()

    def leave(self) -> None:
        """Take the client away."""
        self._gone = True
        self.stdin.end()
        self.stdout.discard()
        self.stderr.discard()
        if self._guest is None:
            self._connecting.cancel()
        elif isinstance(self._guest, Spawned):
            self._guest.detach()
            self._serving.cancel()
        self._freeze.change()

    def cut(self, exit_code: int) -> None:
        """End without a word: the container, or the engine, has gone."""
        if self._cut_code is not None:
            return
        self._cut_code = exit_code
        if self._guest is not None and self._guest.execution is not None:
            self._guest.execution.kill("container")
        if self._guest is None:
            self._connecting.cancel()
        self._serving.cancel()
        self._exit(exit_code)

    def _exit(self, code: int) -> None:
        if self._exit_code is None:
            self._exit_code = code
            self._exited.set()
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.end()

    async def _receive(self, pipe: Pipe) -> bytes:
        await checkpoint()
        await pipe.filled()
        await self._passed()
        return pipe.read()

    async def _passed(self) -> None:
        """Wait while the engine passes nothing on, unless nobody is left to pass it to."""
        while self._freeze.frozen and not self._gone and self._exit_code is None:
            await self._freeze.changed()
