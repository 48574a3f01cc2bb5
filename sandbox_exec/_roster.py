"""Each session's live state, and which of them this process holds, uses or may forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from attrs import Factory, define, field

from sandbox_exec._singleflight import Flight
from sandbox_exec._startup import Started
from sandbox_exec._visits import Visits

__all__ = ["Held", "Roster", "Session"]


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

    @property
    def started(self) -> Started | None:
        """The container it has, as far as is known here."""
        return None if self.flight is None else self.flight.value

    @property
    def in_use(self) -> bool:
        """Whether an operation, a start or a disposal is in flight."""
        flights = (self.flight, self.disposal)
        return bool(self.visits) or any(one is not None and not one.landed for one in flights)


class Held(NamedTuple):
    """A session's container that no operation of this process is in, and its last use here."""

    key: str
    id: str
    last_used: float


@define
class Roster:
    """The sessions of one executor, by key."""

    _clock: Callable[[], float]
    _sessions: dict[str, Session] = field(factory=dict)

    def get(self, key: str) -> Session:
        """Return a session's state, made if there is none."""
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = Session(key, self._clock())
        return session

    def find(self, key: str) -> Session | None:
        """Return a session's state, if there is any."""
        return self._sessions.get(key)

    def all(self) -> tuple[Session, ...]:
        """Return the sessions there are now."""
        return tuple(self._sessions.values())

    def drop(self, key: str) -> None:
        """Forget a session altogether."""
        self._sessions.pop(key, None)

    def claims(self, key: str) -> bool:
        """Return whether an operation or a start of this process is in flight at this moment."""
        session = self._sessions.get(key)
        return session is not None and session.in_use

    def holds(self, key: str) -> bool:
        """Return whether this process uses a container for ``key``, or may without looking."""
        session = self._sessions.get(key)
        return session is not None and (session.in_use or session.started is not None)

    def resting(self) -> tuple[Held, ...]:
        """Return the containers of the sessions that are not in use."""
        return tuple(
            Held(session.key, session.started.id, session.last_used)
            for session in self._sessions.values()
            if session.started is not None and not session.in_use
        )

    def release(self, held: Held) -> None:
        """Have a container looked at before its next use, unless it is in use or not the one."""
        session = self._sessions.get(held.key)
        if session is None or session.in_use or session.started is None:
            return
        if session.started.id == held.id:
            session.flight = None

    def forget(self, seconds: float) -> None:
        """Forget the sessions that were not used for so long and hold nothing.

        Not as soon as they hold nothing: what is known of them says what was lost (hazard S16).
        """
        cutoff = self._clock() - seconds
        for session in self.all():
            if session.last_used < cutoff and not self.holds(session.key):
                self.drop(session.key)
