"""The script of a user's command: the request, its output, its limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from anyio import move_on_after
from attrs import frozen

from sandbox_exec._channel import Channel, send
from sandbox_exec._frames import KILL

__all__ = ["CommandScript", "within_limit"]


@frozen
class CommandScript:
    """Runs one command.

    :param pieces: the request.
    """

    pieces: Sequence[bytes]

    async def __call__(self, channel: Channel) -> None:
        """Send the request and collect the output to its end; see :class:`Script`."""
        if await channel.request(self.pieces):
            await within_limit(channel, channel.finish)


async def within_limit(channel: Channel, collect: Callable[[], Awaitable[None]]) -> None:
    """Collect to the end; the guest holds the limit, and is told to once it should have."""
    bounds = channel.bounds
    with move_on_after(bounds.limit + bounds.grace):
        await collect()
    if not channel.report.over:
        channel.report.overdue = True
        await send(channel.process, KILL)
        with move_on_after(bounds.grace):
            await collect()
