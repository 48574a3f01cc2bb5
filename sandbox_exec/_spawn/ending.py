"""Ends a tree inside through a second guest, or with its container where none can start."""

from __future__ import annotations

from typing import Final

from anyio import move_on_after
from attrs import frozen

from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.inventory import EngineState
from sandbox_exec._errors import SandboxError
from sandbox_exec._log import Log
from sandbox_exec._reach import Reach
from sandbox_exec._startup import Started

__all__ = ["Ending"]

_TRIES: Final = 3
_SILENCE: Final = 0.9
"""Part of the control timeout after which no answer is silence, and not a guest that died."""

log = Log(__name__)


@frozen
class Ending:
    """Ends what carries a tag."""

    _client: EngineClient
    _reach: Reach

    async def __call__(self, started: Started, tag: int) -> bool:
        """Kill whatever carries ``tag`` in a container.

        A tree that has taken every process there is (a fork bomb) leaves none for a guest. Then
        the container, of no use to anybody in that state, is stopped; the next spawn wakes it.
        Nothing is stopped because an engine is slow. A paused container is let go on, as it would
        be for the next spawn: nothing in it can be ended before.

        :returns: whether nothing of it is left for certain.
        """
        for _ in range(_TRIES):
            with move_on_after(self._client.timeout * _SILENCE) as patience:
                if await self._reach.reap(started.id, tag):
                    return True
            if patience.cancelled_caught:
                return False
            try:
                inventory = await self._client.inspect(started.id)
                states = {one.state for one in inventory.containers}
                if EngineState.PAUSED in states:
                    await self._client.control(command_line.unpause(started.id))
                elif not states & {EngineState.RUNNING, EngineState.UNKNOWN}:
                    return True
            except SandboxError:
                return False
        return await self._stop(started)

    async def _stop(self, started: Started) -> bool:
        log.warning("spawn.container_stopped", container=started.id)
        try:
            answer = await self._client.control(command_line.stop(started.id))
        except SandboxError:
            return False
        return answer.exit_code == 0
