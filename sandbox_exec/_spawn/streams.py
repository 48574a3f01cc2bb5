"""The ends of a spawned process's streams that its user holds, bounded in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, Event
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import checkpoint

from sandbox_exec._docker.interface import CliProcess
from sandbox_exec._errors import SandboxError

__all__ = ["Inlet", "Outlet"]

_ROOM: Final = 256 * 1024


class Outlet(ByteReceiveStream):
    """What a process prints on one stream; whoever fills it waits while nobody reads.

    :param failure: returns why the stream ended, if that was not its own end: a reader must not
        take half of the output for all of it.
    """

    def __init__(self, failure: Callable[[], SandboxError | None]) -> None:
        self._failure = failure
        self._data = bytearray()
        self._ended = False
        self._closed = False
        self._changed = Event()

    async def put(self, data: bytes) -> None:
        """Add what was printed; dropped once the reader has closed its end."""
        while len(self._data) >= _ROOM and not self._closed:
            await self._changed.wait()
        if data and not self._closed:
            self._data += data
            self._notify()

    def end(self) -> None:
        """Let nothing more come; what is there can still be read."""
        self._ended = True
        self._notify()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Return what was printed next.

        :raises EndOfStream: when the process has closed the stream.
        :raises SandboxError: when it was lost, so that nobody knows what else there was.
        """
        await checkpoint()
        while not self._data and not self._closed:
            if self._ended:
                if (error := self._failure()) is not None:
                    raise error.fresh()
                raise EndOfStream
            await self._changed.wait()
        if self._closed:
            raise ClosedResourceError
        found = bytes(memoryview(self._data)[:max_bytes])
        del self._data[:max_bytes]
        self._notify()
        return found

    async def aclose(self) -> None:
        """Read no more; what comes is dropped, and the process is not told."""
        self._closed = True
        self._data.clear()
        self._notify()
        await checkpoint()

    def _notify(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()


class Inlet(ByteSendStream):
    """Standard input of a process; closing it gives it the end of its input."""

    def __init__(self, program: CliProcess) -> None:
        self._program = program
        self._closed = False

    async def send(self, item: bytes) -> None:
        """Hand on all of ``item``.

        :raises BrokenResourceError: when nobody reads it any more.
        """
        if self._closed:
            raise ClosedResourceError
        try:
            await self._program.send(item)
        except BrokenPipeError as error:
            raise BrokenResourceError from error

    async def aclose(self) -> None:
        """End the input; safe to repeat."""
        self._closed = True
        await self._program.close_stdin()
