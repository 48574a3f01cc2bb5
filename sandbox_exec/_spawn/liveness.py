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


def birth(pid: int, proc: str = "/proc") -> str | None:
    """Return when a process of this host began, if it is a PID 1 of ours, else ``None``.

    An engine elsewhere has its own numbers, so the process has to look like one.
    """
    try:
        if b"sandbox-exec-init" not in Path(f"{proc}/{pid}/cmdline").read_bytes():
            return None
        # The program's name may hold anything, blanks and parentheses too, but for what follows.
        return (
            Path(f"{proc}/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
        )
    except (OSError, IndexError):
        return None


@define
class Liveness:
    """What is known about one container.

    :param birth: returns when a process of this host began.
    :ivar _pid: its first process, with its beginning, if that can be seen from here: then its end
        is seen at once, so that a container which is removed behind our back costs no second spawn.
    """

    _client: EngineClient
    _clock: Callable[[], float]
    _birth: Callable[[int], str | None] = birth
    _known: Started | None = None
    _asked: float = 0.0
    _pid: tuple[int, str] | None = None

    async def is_gone(self, started: Started) -> bool:
        """Return whether it certainly does not run; an engine that is slow abandons nothing.

        :raises DaemonUnavailableError: when the engine says that it is not there.
        """
        recent = self._known is started and self._clock() - self._asked < PROBE_EVERY
        if recent and (self._pid is None or self._birth(self._pid[0]) == self._pid[1]):
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
        began = self._birth(pid)
        self._pid = None if began is None else (pid, began)
        return False
