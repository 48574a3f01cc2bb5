"""Puts the parts of one executor together."""

from __future__ import annotations

from collections.abc import Callable

from anyio.abc import TaskGroup
from attrs import frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._image import ImageSource
from sandbox_exec._models import SandboxInfo
from sandbox_exec._oneoff import OneOffs
from sandbox_exec._reach import Reach
from sandbox_exec._reapers.loop import Reapers
from sandbox_exec._roster import Roster
from sandbox_exec._sessions import SessionMap
from sandbox_exec._slots import Slots
from sandbox_exec._startup import Starter
from sandbox_exec._storage import Storage
from sandbox_exec._tidy import Tidy

__all__ = ["Parts", "compose", "describe"]


@frozen
class Parts:
    """What an executor that is open consists of."""

    sessions: SessionMap
    one_offs: OneOffs
    reapers: Reapers


def describe(config: SandboxConfig) -> SandboxInfo:
    """Return what sandboxes made under these settings are like."""
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


def compose(
    config: SandboxConfig,
    runner: CommandRunner,
    group: TaskGroup,
    clock: Callable[[], float],
    wall: Callable[[], float],
) -> Parts:
    """Return the parts of an executor whose background work belongs to ``group``."""
    client = EngineClient(runner, config.engine, config.control_timeout, Breaker(clock))
    tidy = Tidy(config, client)
    storage = Storage(config, client, tidy)
    starter = Starter(config, client, ImageSource(config, client), storage, clock)
    slots = Slots(config.max_parallel, config.queue_timeout)
    reach = Reach(config, client)
    roster = Roster(clock)
    return Parts(
        SessionMap(group, client, starter, reach, slots, clock, roster),
        OneOffs(group, client, starter, reach, slots),
        Reapers.of(config, client, roster, reach, tidy, clock, wall),
    )
