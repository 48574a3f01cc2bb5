"""The two ends of one conversation, once a guest is ready: pieces out, bytes and frames in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

from anyio import Event, move_on_after
from attrs import define

from sandbox_exec._address import Bounds
from sandbox_exec._docker.interface import CliProcess
from sandbox_exec._frames import Frame, FrameScanner, parse_end
from sandbox_exec._outcome import Report

__all__ = ["Channel", "Pieces", "Script", "each", "send", "take"]

Pieces: TypeAlias = Iterable[bytes] | AsyncIterable[bytes]

_SLOWEST_UPLOAD: Final = 512 * 1024
"""Bytes a second below which sending is given up."""

_CLOSING: Final = 2.0
"""Seconds that a source of bytes gets to clean up, when it is left before its end."""


async def send(process: CliProcess, data: bytes) -> bool:
    """Write ``data``; return whether anybody still reads."""
    try:
        await process.send(data)
    except BrokenPipeError:
        return False
    return True


def take(report: Report, frame: Frame) -> None:
    """Note in the report what a frame says about how the request ended."""
    if (end := parse_end(frame)) is not None:
        report.end = end
    elif frame.word == "refused":
        report.refused = " ".join(frame.arguments)[:64]


@define
class Channel:
    """What a script talks through.

    :ivar report: what becomes of the request; the script and this class write it.
    """

    process: CliProcess
    _scanner: FrameScanner
    _stderr_end: Event
    report: Report
    bounds: Bounds

    async def request(self, pieces: Pieces) -> bool:
        """Send a request whole; return whether that came to pass.

        A request that is not whole runs nothing, which makes a failure here "not started". Each
        piece has its own bound, so that a long upload may take as long as it makes progress.
        """
        report = self.report
        report.sending = True
        async with each(pieces) as iterator:
            async for piece in iterator:
                with move_on_after(self.bounds.ready + len(piece) / _SLOWEST_UPLOAD) as patience:
                    if not await send(self.process, piece):
                        # The guest may have said why it stopped reading.
                        with move_on_after(self.bounds.grace):
                            await self.finish()
                        return False
                if patience.cancelled_caught:
                    # At once, before the rest can leave our buffer.
                    self.process.kill()
                    report.silent = True
                    return False
        report.sent = True
        return True

    async def next(self) -> tuple[bytes, Frame | None]:
        """Return the next bytes up to a frame, and that frame, already noted in the report.

        At the end of the stream there is neither, and the report has the program's exit status.
        """
        seen, frame = self._scanner.feed(b"")
        while not seen and frame is None:
            data = await self.process.receive_stdout()
            if not data:
                self.report.exit_code = await self.process.wait()
                self.report.killed_by = max(-self.report.exit_code, 0)
                return self._scanner.flush(), None
            seen, frame = self._scanner.feed(data)
        if frame is not None:
            take(self.report, frame)
        return seen, frame

    async def finish(self) -> None:
        """Collect output to the end frame, a refusal, or the end of the stream."""
        report = self.report
        while not report.over:
            seen, _ = await self.next()
            report.stdout.feed(seen)
        # The guest writes the other frame first, so that one is only still on its way.
        if report.end is not None:
            with move_on_after(self.bounds.grace):
                await self._stderr_end.wait()


class Script(Protocol):
    """What is said to a guest from READY on; sets nothing but the report and itself."""

    async def __call__(self, channel: Channel) -> None:
        """Hold this side of the conversation, until the report is over or time ran out."""


@asynccontextmanager
async def each(pieces: Pieces) -> AsyncIterator[AsyncIterator[bytes]]:
    """Iterate over pieces; a generator is closed in the end, however the block is left."""
    iterator = aiter(pieces) if isinstance(pieces, AsyncIterable) else _awaited(pieces)
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            with move_on_after(_CLOSING, shield=True):
                await iterator.aclose()


async def _awaited(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
