"""What an open executor is made of, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from anyio.abc import TaskGroup
from attrs import frozen

from sandbox_exec._address import Bounds
from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._files import Files
from sandbox_exec._image import ImageSource
from sandbox_exec._keeper import Keeper
from sandbox_exec._models import SandboxInfo
from sandbox_exec._oneoff import OneOffs
from sandbox_exec._policy import session_preset
from sandbox_exec._reach import Reach
from sandbox_exec._reapers.loop import Reapers
from sandbox_exec._roster import Roster
from sandbox_exec._sessions import SessionMap
from sandbox_exec._slots import Slots
from sandbox_exec._startup import Starter
from sandbox_exec._storage import Storage
from sandbox_exec._tidy import Tidy

__all__ = ["Parts", "sandbox_info"]

_READY_PART: Final = 0.6
"""Part of the control timeout a guest gets to say READY; the rest is for asking the engine why."""


def sandbox_info(config: SandboxConfig) -> SandboxInfo:
    """Return the shape of the sandboxes that these settings make."""
    return SandboxInfo(
        image=config.image,
        network=config.network,
        durable_workspace=config.workspace_root is not None,
        default_timeout=config.default_timeout,
        max_timeout=config.max_timeout,
        memory=config.memory,
        cpus=config.cpus,
        pids_limit=config.pids_limit,
        unbounded=("disk",),
    )


@frozen
class Parts:
    """The parts of an executor while it is open."""

    config: SandboxConfig
    clock: Callable[[], float]
    group: TaskGroup
    sessions: SessionMap
    one_offs: OneOffs
    reapers: Reapers

    @classmethod
    def assemble(
        cls,
        config: SandboxConfig,
        group: TaskGroup,
        runner: CommandRunner,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> Self:
        """Put the parts together; nothing runs yet."""
        client = EngineClient(runner, config.engine, config.control_timeout, Breaker(clock))
        tidy = Tidy(config, client)
        preset = session_preset(config)
        images, storage = ImageSource(config, client, preset), Storage(config, client, tidy)
        starter = Starter(config, client, preset, images, storage, clock)
        slots = Slots(config.max_parallel, config.queue_timeout)
        reach, roster = Reach(config, client), Roster(clock)
        return cls(
            config,
            clock,
            group,
            SessionMap(
                Keeper(group, client, starter, reach, clock),
                client,
                starter,
                reach,
                slots,
                clock,
                roster,
            ),
            OneOffs(group, client, starter, reach, slots),
            Reapers.of(config, client, roster, reach, tidy, clock, wall),
        )

    @property
    def files(self) -> Files:
        """The file operations."""
        bounds = self.bounds(self.config.max_timeout, session=True)
        return Files(self.sessions, bounds, self.config.max_read_bytes)

    def bounds(self, limit: float, *, session: bool) -> Bounds:
        """Return what limits a call in a session, or in a sandbox that is started for it."""
        config = self.config
        ready = config.control_timeout * _READY_PART if session else config.start_timeout
        return Bounds(ready, limit, config.grace, config.max_output_bytes, self.clock)

    async def close(self) -> None:
        """Let nothing begin, end what is in flight, and wait for it, in bounded time."""
        await self.sessions.close()
        await self.one_offs.close()
