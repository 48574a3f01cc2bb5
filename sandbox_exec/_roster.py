"""What this process knows of a session, which it holds until the session is disposed."""

from __future__ import annotations

from attrs import Factory, define

from sandbox_exec._singleflight import Flight
from sandbox_exec._startup import Started
from sandbox_exec._visits import Visits

__all__ = ["Session"]


@define(eq=False)
class Session:
    """One conversation's live state.

    :ivar flight: the start of its container, under way or done; a failed one is forgotten.
    :ivar visits: operations in flight; a session with any is never idle.
    :ivar last_used: when the last operation ended (hazard S6).
    :ivar boot: which start of its container the last call met, to notice one that nobody told of.
    :ivar unreaped: tags of lost commands that nobody could be asked to end.
    :ivar untold: what was lost in restarts and rebuilds, and no result has said yet (hazard S16).
    """

    key: str
    last_used: float
    flight: Flight[Started] | None = None
    known: bool = False
    visits: Visits = Factory(Visits)
    disposal: Flight[None] | None = None
    untold: list[str] = Factory(list)
    boot: str | None = None
    unreaped: list[int] = Factory(list)
