"""Stops the sandboxes of this process's sessions that were not used for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import frozen

from sandbox_exec._reapers.asking import Asker
from sandbox_exec._roster import Held, Roster

__all__ = ["IdleReaper", "idle"]


def idle(resting: Iterable[Held], now: float, idle_after: float) -> tuple[Held, ...]:
    """Return which sandboxes, of those not in use, this process has not used for so long."""
    return tuple(held for held in resting if now - held.last_used >= idle_after)


@frozen
class IdleReaper:
    """Source: S0's ``evictIdle``; hazards S6 and S11."""

    _roster: Roster
    _asker: Asker
    _clock: Callable[[], float]
    _idle_after: float
    _ttl: float

    async def sweep(self) -> int:
        """Have idle sandboxes stop themselves; return how many did.

        Another process may have used one since, so its guest has the last word. One that does not
        answer is no longer counted as held, and so is looked at as an unclaimed one.
        """
        due = {
            held.id: held
            for held in idle(self._roster.resting(), self._clock(), self._idle_after)
            if self._asker.is_due(held.id)
        }
        keys = {container: held.key for container, held in due.items()}
        answers = await self._asker.ask(keys, self._roster.claims)
        for container in answers.retired | answers.silent:
            self._roster.release(due[container])
        self._roster.forget(self._ttl)
        return len(answers.retired)
