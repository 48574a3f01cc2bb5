"""The background rounds: each reaper goes its own way, so that one that hangs delays no other."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from anyio import sleep
from anyio.abc import TaskGroup
from attrs import frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._frames import Frame
from sandbox_exec._log import Log
from sandbox_exec._reach import Reach
from sandbox_exec._reapers.asking import Asker
from sandbox_exec._reapers.fleet import FleetReaper
from sandbox_exec._reapers.idle import IdleReaper
from sandbox_exec._reapers.workspaces import WorkspaceReaper
from sandbox_exec._roster import Roster
from sandbox_exec._tidy import Tidy

__all__ = ["Reapers", "pause_after"]

_JITTER: Final = 0.2
_MOST_BACKED_OFF: Final = 16

Sweep = Callable[[], Awaitable[int]]

log = Log(__name__)


def pause_after(every: float, failures: int, chance: float) -> float:
    """Return the seconds to the next round.

    :param failures: how many rounds have failed in a row; each doubles the pause, to a bound.
    :param chance: from 0 to 1; spreads the rounds of several processes.
    """
    backed_off: float = every * min(2**failures, _MOST_BACKED_OFF)
    return backed_off * (1 - _JITTER + 2 * _JITTER * chance)


@frozen
class Reapers:
    """The reapers of one executor, and their rounds."""

    idle: IdleReaper
    unclaimed: FleetReaper
    workspaces: WorkspaceReaper
    _config: SandboxConfig
    _sleep: Callable[[float], Awaitable[None]] = sleep

    @classmethod
    def of(
        cls,
        config: SandboxConfig,
        client: EngineClient,
        roster: Roster,
        reach: Reach,
        tidy: Tidy,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> Reapers:
        """Return reapers that watch from now on."""

        async def retire(container: str) -> Frame | None:
            return await reach.retire(container, config.idle_after)

        asker = Asker(retire, clock, config.idle_after)
        return cls(
            IdleReaper(roster, asker, clock, config.idle_after, config.ttl),
            FleetReaper(config, client, roster, asker, tidy, clock, wall, clock()),
            WorkspaceReaper(config, client, roster, tidy, wall),
            config,
        )

    def start(self, group: TaskGroup) -> None:
        """Begin the rounds. The first for unclaimed containers is at once."""
        every = self._config.sweep_every
        group.start_soon(self._rounds, "idle", self.idle.sweep, every, every)
        group.start_soon(self._rounds, "unclaimed", self.unclaimed.sweep, every, 0.0)
        if self._config.workspace_root is not None:
            hourly = self._config.workspace_sweep_every
            first = min(every, hourly)
            group.start_soon(self._rounds, "workspaces", self.workspaces.sweep, hourly, first)

    async def _rounds(self, name: str, sweep: Sweep, every: float, first: float) -> None:
        failures = 0
        await self._sleep(pause_after(first, 0, random.random()))  # noqa: S311  # not a secret
        while True:
            cause = await _try(sweep)
            failures = 0 if cause is None else failures + 1
            pause = pause_after(every, failures, random.random())  # noqa: S311  # as above
            if cause is not None:
                log.warning("reaper.failed", reaper=name, cause=cause, again_in=round(pause, 1))
            await self._sleep(pause)


async def _try(sweep: Sweep) -> str | None:
    """Make a round; return why it failed, if it did: the next one may well succeed."""
    try:
        await sweep()
    except Exception as error:  # noqa: BLE001  # logged by the caller; nothing may end the rounds
        return repr(error)
    return None
