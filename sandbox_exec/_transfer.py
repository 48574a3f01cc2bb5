"""The scripts that move one file: in, whole or not at all, and out, with a verdict."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Final, TypeAlias

from attrs import define, field, frozen

from sandbox_exec._channel import Channel, each
from sandbox_exec._command import within_limit
from sandbox_exec._frames import Conversation, Frame, put_request, read_request

__all__ = ["Progress", "PutScript", "ReadScript", "Source"]

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes done and, if it is known, the total."""

_CHUNK: Final = 16 * 2**20
_SLICE: Final = 256 * 2**10


@frozen
class Source:
    """Bytes to be sent.

    :param data: all of them, or an iterable of them.
    :param total: how many there are, if it is known.
    :param repeatable: iterating a second time begins anew.
    """

    data: bytes | AsyncIterable[bytes]
    total: int | None
    repeatable: bool = False


@define
class PutScript:
    """Sends one file.

    :ivar consumed: some of an iterable was taken, so it cannot be sent again.
    """

    _conversation: Conversation
    _path: bytes
    _source: Source
    _progress: Progress | None = None
    consumed: bool = False

    async def __call__(self, channel: Channel) -> None:
        """Send the path and the chunks, and wait for the guest's word; see :class:`Script`."""
        if await channel.request(self._pieces()):
            await within_limit(channel, channel.finish)

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield put_request(self._conversation, self._path)
        done = 0
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                yield b"%d\n" % len(chunk)
                for start in range(0, len(chunk), _SLICE):
                    piece = bytes(chunk[start : start + _SLICE])
                    yield piece
                    done += len(piece)
                    if self._progress is not None:
                        self._progress(done, self._source.total)
        yield b"end\n"

    async def _chunks(self) -> AsyncGenerator[memoryview, None]:
        """Cut and gather: each chunk costs the guest a process or two."""
        data = self._source.data
        if isinstance(data, bytes):
            view = memoryview(data)
            for start in range(0, len(view), _CHUNK):
                yield view[start : start + _CHUNK]
            return
        gathered = bytearray()
        self.consumed = not self._source.repeatable
        async with each(data) as items:
            async for item in items:
                _check_bytes(item)
                gathered += item
                while len(gathered) >= _CHUNK:
                    yield memoryview(bytes(gathered[:_CHUNK]))
                    del gathered[:_CHUNK]
                if len(gathered) >= _SLICE * 4:
                    yield memoryview(bytes(gathered))
                    gathered.clear()
        if gathered:
            yield memoryview(bytes(gathered))


def _check_bytes(item: object) -> None:
    if not isinstance(item, bytes | bytearray | memoryview):
        message = f"what is to be sent must be bytes, not {type(item).__name__}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always


@define
class ReadScript:
    """Reads one file.

    :ivar kind: the guest's verdict, ``None`` while there is none.
    :ivar size: the file's size in bytes, in the file system's words.
    :ivar data: what was read, at most one byte more than wanted.
    """

    _conversation: Conversation
    _path: bytes
    _limit: float
    _max_bytes: int
    kind: str | None = None
    size: int = 0
    data: bytearray = field(factory=bytearray)

    async def __call__(self, channel: Channel) -> None:
        """Ask, take the verdict, then the bytes; see :class:`Script`."""
        pieces = (read_request(self._conversation, self._path, self._limit, self._max_bytes),)
        if await channel.request(pieces):
            await within_limit(channel, partial(self._collect, channel))

    async def _collect(self, channel: Channel) -> None:
        while not channel.report.over:
            seen, frame = await channel.next()
            self.data += seen[: self._max_bytes + 1 - len(self.data)]
            if frame is not None and frame.word == "kind":
                self._take_kind(frame)

    def _take_kind(self, frame: Frame) -> None:
        kind, size, *_ = (*frame.arguments, "", "")
        if self.kind is None and size.isascii() and size.isdigit() and len(size) < 20:  # noqa: PLR2004
            self.kind, self.size = kind, int(size)
