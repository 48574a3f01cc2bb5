"""Remembers for a moment that the engine is down, so that calls do not find it out one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import define, field

from sandbox_exec._errors import DaemonUnavailableError

__all__ = ["MEMO_SECONDS", "PROBE_SECONDS", "Breaker"]

MEMO_SECONDS: Final = 15.0
"""How long one answer stands for the calls behind it."""

PROBE_SECONDS: Final = 1.0
"""How often one call is let through meanwhile, to see whether the engine is back."""


@define
class Breaker:
    """The memo that the engine is down.

    It is short, as an engine can come back between two calls and a stale "it is down" would be an
    error of its own. Only an answer that is certain may :meth:`trip` it, never a guess and never
    the lack of an answer to one call; any success must :meth:`clear` it.

    One call a second is let through all the same, since only a call can find out that the engine
    is back.

    :param clock: monotonic seconds.
    :param memo: seconds that an answer stands.

    Source: S0's ``daemonDownUntil`` and ``DAEMON_DOWN_MEMO_MS``; hazard S12.
    """

    _clock: Callable[[], float]
    _memo: float = MEMO_SECONDS
    _error: DaemonUnavailableError | None = field(default=None, init=False)
    _until: float = field(default=0.0, init=False)
    _probe_at: float = field(default=0.0, init=False)

    def trip(self, error: DaemonUnavailableError) -> None:
        """Remember from now on that the engine is down, and why."""
        self._error = error
        now = self._clock()
        self._until = now + self._memo
        self._probe_at = now + PROBE_SECONDS

    def clear(self) -> None:
        """Forget it: the engine has answered."""
        self._error = None

    def check(self) -> None:
        """Return if nothing is known against the engine, or if it is time to ask again.

        :raises DaemonUnavailableError: a new one while the memo stands, with ``started=False``
            whatever became of the call that tripped it: this one has not begun.
        """
        if self._error is None:
            return
        now = self._clock()
        if now >= self._until:
            self._error = None
            return
        if now >= self._probe_at:
            self._probe_at = now + PROBE_SECONDS
            return
        raise self._error.fresh(started=False, partial_stdout="", partial_stderr="")
