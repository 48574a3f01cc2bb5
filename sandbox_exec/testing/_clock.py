"""Time that moves only when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["NEVER", "FakeClock"]

_EPOCH: Final = 1_900_000_000.0

NEVER: Final = "0001-01-01T00:00:00Z"
"""How the engine writes that something has not happened."""


class FakeClock:
    """A stand-in for :func:`time.monotonic`, and the clock of a :class:`FakeDaemon`.

    :param start: what it shows at first, in seconds.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        """Return the seconds shown."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass.

        :raises ValueError: for a negative number, since no clock here runs backwards.
        """
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} seconds")
        self._now += seconds

    def wall(self) -> float:
        """Return the same moment in epoch seconds, a stand-in for :func:`time.time`."""
        return _EPOCH + self._now

    def stamp(self) -> str:
        """Return the same moment as the engine writes it."""
        return datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
