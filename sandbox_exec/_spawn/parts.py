"""What a spawn backend is made of, once it knows its engine: the machinery of sessions, reused."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Final, Self

from anyio.abc import TaskGroup
from attrs import frozen

from sandbox_exec._address import Bounds
from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.facts import EngineInfo
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._engine_source import EngineSource
from sandbox_exec._files import Files
from sandbox_exec._frames import Frame
from sandbox_exec._image import ImageSource
from sandbox_exec._keeper import Keeper
from sandbox_exec._policy import spawn_preset
from sandbox_exec._reach import Reach
from sandbox_exec._reapers.asking import Asker
from sandbox_exec._reapers.fleet import FleetReaper
from sandbox_exec._roster import Roster, Session
from sandbox_exec._sessions import SessionMap
from sandbox_exec._slots import Slots
from sandbox_exec._spawn.ending import Ending
from sandbox_exec._spawn.liveness import Liveness
from sandbox_exec._spawn.options import DockerBackendOptions, confinement, spawn_key
from sandbox_exec._spawn.removal import Removal
from sandbox_exec._startup import Starter
from sandbox_exec._storage import Storage
from sandbox_exec._tidy import Tidy

__all__ = ["Parts"]

_PUT_LIMIT: Final = 300.0
"""Seconds for one file to be placed."""


@frozen
class Parts:
    """The parts of a backend.

    :ivar key: of its one container.
    :ivar container: the name of that.
    :ivar sessions: that container's state, as if it were a session's.
    :ivar reaper: sweeps what crashed programs have left of this kind.
    """

    engine: EngineInfo
    key: str
    container: str
    client: EngineClient
    reach: Reach
    ending: Ending
    sessions: SessionMap
    files: Files
    liveness: Liveness
    removal: Removal
    reaper: FleetReaper

    @classmethod
    def assemble(
        cls,
        options: DockerBackendOptions,
        engine: EngineInfo,
        group: TaskGroup,
        runner: CommandRunner,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> Self:
        """Put the parts together; nothing runs yet."""
        config = options.config(engine.program)
        what = confinement(options, engine.family, (os.getuid(), os.getgid()))
        key, preset = spawn_key(what), spawn_preset(what)
        client = EngineClient(runner, config.engine, config.control_timeout, Breaker(clock))
        tidy = Tidy(config, client)
        images = ImageSource(config, client, preset)
        storage = Storage(config, EngineSource(client, engine), tidy)
        starter = Starter(config, client, preset, images, storage, clock)
        # A workspace is somebody's project here, so guests make nothing in it.
        reach, roster = Reach(config, client, ""), Roster(clock)
        ending = Ending(client, reach)
        removal = Removal(client, starter, reach, ending)
        sessions = SessionMap(
            # Whatever else runs in the container may be another program's.
            Keeper(group, client, starter, reach, clock, restarts=False),
            client,
            starter,
            reach,
            Slots(config.max_parallel, config.queue_timeout),
            clock,
            roster,
            removal,
        )

        async def retire(container: str) -> Frame | None:
            return await reach.retire(container, config.idle_after)

        bounds = Bounds(config.control_timeout, _PUT_LIMIT, config.grace, 64, clock)
        asker = Asker(retire, clock, config.idle_after)
        return cls(
            engine,
            key,
            starter.name(key),
            client,
            reach,
            ending,
            sessions,
            Files(sessions, bounds, config.max_read_bytes),
            Liveness(client, clock),
            removal,
            # Guests know their last use, so nothing has to be watched for it first.
            FleetReaper(
                config, client, roster, asker, tidy, clock, wall, -math.inf, kind=preset.kind
            ),
        )

    @property
    def session(self) -> Session:
        """The container's state at this moment."""
        return self.sessions.roster.get(self.key)
