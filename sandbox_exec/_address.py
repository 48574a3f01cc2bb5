"""How a call reaches its guest, what bounds it, and when to doubt that it ever will."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from attrs import field, frozen

from sandbox_exec._docker.interface import Argv

__all__ = ["Address", "Bounds", "Doubt"]


@frozen
class Address:
    """How to reach a guest, and how to be rid of what it runs when it no longer answers.

    :param argv: the engine command that starts the guest.
    :param env: variables for that program.
    :param fallback: called with the conversation's tag when the guest could not be made to end
        its command; returns whether nothing of it is left. Bounded by its maker.
    :param ephemeral: the container lives for this call only, and ends with it.
    """

    argv: Argv
    env: Mapping[str, str] = field(repr=False)
    fallback: Callable[[int], Awaitable[bool]]
    ephemeral: bool = False


@frozen
class Bounds:
    """What limits a call, and what measures it. Seconds, and bytes for the cap.

    :param ready: from starting the program to READY.
    :param limit: the command's own; the guest enforces it.
    :param grace: by which the host's timer trails it, and how long an ending may take.
    :param cap: kept of each output stream.
    :param clock: monotonic seconds, for the duration.
    """

    ready: float
    limit: float
    grace: float
    cap: int
    clock: Callable[[], float] = time.monotonic


@frozen
class Doubt:
    """A check to make when there is no READY after so many seconds; it raises if all is lost."""

    after: float
    check: Callable[[], Awaitable[object]]
