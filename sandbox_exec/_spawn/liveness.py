"""Whether a container is still there: asked of the engine, remembered for a while (hazard B3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import define

from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.inventory import EngineState
from sandbox_exec._errors import DaemonUnavailableError
from sandbox_exec._startup import Started

__all__ = ["Liveness"]

PROBE_TIMEOUT: Final = 3.0
"""Seconds that the engine gets to answer. Source: S1."""

PROBE_EVERY: Final = 30.0
"""Seconds for which an answer is good. Source: S1's ``ALIVE_PROBE_TTL_MS``."""


def _is_in(pid: int, container: str) -> bool:
    """Return whether a process of this host belongs to a container, by its control group."""
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return False


@define
class Liveness:
    """What is known about one container.

    :ivar _pid: its first process, if that can be seen from here: then its end is seen at once, so
        that a container which is removed behind our back costs no second spawn.
    """

    _client: EngineClient
    _clock: Callable[[], float]
    _belongs: Callable[[int, str], bool] = _is_in
    _known: Started | None = None
    _asked: float = 0.0
    _pid: int | None = None

    async def is_gone(self, started: Started) -> bool:
        """Return whether it certainly does not run; an engine that is slow abandons nothing.

        :raises DaemonUnavailableError: when the engine says that it is not there.
        """
        recent = self._known is started and self._clock() - self._asked < PROBE_EVERY
        if recent and (self._pid is None or self._belongs(self._pid, started.id)):
            return False
        try:
            inventory = await self._client.inspect(started.id, timeout=PROBE_TIMEOUT)
        except DaemonUnavailableError:
            self._client.breaker.check()
            return False
        running = [one for one in inventory.containers if one.state is EngineState.RUNNING]
        if not running:
            self._known = None
            return True
        self._known, self._asked = started, self._clock()
        pid = running[0].pid
        self._pid = pid if pid and self._belongs(pid, started.id) else None
        return False
