"""Ends what a backend has started, then removes its container unless somebody else is using it."""

from __future__ import annotations

from typing import Final

from anyio import create_task_group
from attrs import define, field

from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.inventory import ContainerFacts, EngineState
from sandbox_exec._errors import SandboxDisposedError
from sandbox_exec._frames import new_conversation
from sandbox_exec._log import Log
from sandbox_exec._reach import Reach
from sandbox_exec._roster import Session
from sandbox_exec._spawn.child import Child
from sandbox_exec._spawn.ending import Ending
from sandbox_exec._startup import Started, Starter

__all__ = ["Removal"]

_NOW: Final = 0.0

log = Log(__name__)


@define(eq=False)
class Removal:
    """What was started in the container, and how it goes.

    :ivar living: the processes of ``spawn``.
    :ivar tag: of all wrapped spawns, so that one pass ends them all; those too that are started
        after a disposal, in a container that was left to others.
    :ivar wrapped: how many there were.
    """

    _client: EngineClient
    _starter: Starter
    _reach: Reach
    _ending: Ending
    living: set[Child] = field(factory=set)
    tag: int = field(factory=lambda: new_conversation().tag)
    wrapped: int = 0

    def next_mark(self) -> str:
        """Return the mark of one more wrapped spawn."""
        self.wrapped += 1
        return f"{self.wrapped}-{self.tag}"

    async def __call__(self, session: Session) -> None:
        """Remove the container that the session has, if it has one; never a newer one.

        :raises SandboxError: when the engine does not answer, so that it may still be there.
        """
        await self._end_living()
        if session.flight is None and not self.wrapped:
            return
        container = await self._starter.find(session.key)
        if container is None:
            return
        if session.flight is None or not _is_that_of(session, container):
            if container.state is EngineState.RUNNING:
                await self._end_wrapped(container)
            return
        if container.state is EngineState.PAUSED:
            await self._client.control(command_line.unpause(container.id))
        elif container.state is not EngineState.RUNNING:
            await self._starter.discard(container)
            return
        await self._end_wrapped(container)
        if await self._is_free(container):
            await self._starter.discard(container)
            log.info("spawn.removed", container=container.name)
        else:
            log.info("spawn.left_to_others", container=container.name)

    async def _end_living(self) -> None:
        living, self.living = self.living, set()
        async with create_task_group() as group:
            for child in living:
                child.leave(SandboxDisposedError("the backend was disposed", started=True))
                group.start_soon(child.settled.wait)

    async def _end_wrapped(self, container: ContainerFacts) -> None:
        if self.wrapped:
            await self._ending(Started(container.id), self.tag)

    async def _is_free(self, container: ContainerFacts) -> bool:
        """Have the container stop itself, unless somebody has a process in it."""
        frame = await self._reach.retire(container.id, _NOW)
        if frame is not None:
            return frame.word == "retired"
        # One whose guest does not answer is of no use to anybody, unless it is in use.
        inventory = await self._client.inspect(container.id)
        return not any(one.exec_ids for one in inventory.containers)


def _is_that_of(session: Session, container: ContainerFacts) -> bool:
    """Whether a container is what a session has, and not a newer one of somebody else."""
    return session.started is None or session.started.id == container.id
