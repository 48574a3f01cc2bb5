"""The streams between a program and who drives it: bounded like real ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from anyio import Event

__all__ = ["LineReader", "Pipe"]

_ROOM: Final = 65536


class Pipe:
    """Bytes from one task to another; a writer waits while it is full."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ended = False
        self._unread = False
        self._changed = Event()

    async def write(self, data: bytes) -> bool:
        """Write all of ``data``; return false if the end came before all of it was in."""
        rest = memoryview(data)
        while rest and not self._unread:
            while len(self._data) >= _ROOM and not self._ended:
                await self._changed.wait()
            if self._ended:
                return False
            room = _ROOM - len(self._data)
            self._data += rest[:room]
            rest = rest[room:]
            self._notify()
        return not self._ended

    async def filled(self) -> None:
        """Wait until there is something to read, or nothing ever will be."""
        while not self._data and not self._ended:
            await self._changed.wait()

    def read(self, most: int = _ROOM) -> bytes:
        """Return what is there."""
        found = bytes(self._data[:most])
        del self._data[:most]
        self._notify()
        return found

    def end(self) -> None:
        """Let nothing more in; what is in it can still be read."""
        self._ended = True
        self._notify()

    def discard(self) -> None:
        """Drop what is in it and what comes: its reader has gone."""
        self._unread = True
        self._data.clear()
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()


class LineReader:
    """Reads a pipe as a shell does.

    :param passed: awaited before each piece, so that a frozen engine passes none on.
    """

    def __init__(self, pipe: Pipe, passed: Callable[[], Awaitable[None]]) -> None:
        self._pipe = pipe
        self._passed = passed
        self._data = bytearray()

    async def line(self) -> bytes | None:
        """Return the next line without its end, or ``None`` when there is no whole one left."""
        searched = 0
        while (end := self._data.find(b"\n", searched)) < 0:
            searched = len(self._data)
            if not await self._more():
                return None
        return self._take(end, 1)

    async def lines(self, number: int) -> bytes | None:
        """Return so many lines, joined, or ``None`` when there are not as many."""
        found = []
        for _ in range(number):
            if (line := await self.line()) is None:
                return None
            found.append(line)
        return b"\n".join(found)

    async def exactly(self, number: int) -> bytes | None:
        """Return so many bytes, or ``None`` when there are not as many."""
        while len(self._data) < number:
            if not await self._more():
                return None
        return self._take(number, 0)

    async def some(self) -> bytes:
        """Return what there is, at least a byte, and ``b""`` at the end."""
        if not self._data:
            await self._more()
        return self._take(len(self._data), 0)

    async def _more(self) -> bool:
        await self._pipe.filled()
        await self._passed()
        data = self._pipe.read()
        self._data += data
        return bool(data)

    def _take(self, number: int, skip: int) -> bytes:
        found = bytes(self._data[:number])
        del self._data[: number + skip]
        return found
