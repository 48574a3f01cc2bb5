"""What an open executor is made of, put together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from anyio.abc import TaskGroup
from attrs import frozen

from sandbox_exec._address import Bounds
from sandbox_exec._command import CommandScript
from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.facts import EngineFacts
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._engine_source import EngineSource
from sandbox_exec._files import Files
from sandbox_exec._frames import Conversation, run_request
from sandbox_exec._guest import WORKSPACE
from sandbox_exec._image import ImageSource
from sandbox_exec._keeper import Keeper
from sandbox_exec._models import ExecResult, ExecSpec, SandboxInfo, encode_text
from sandbox_exec._naming import session_key
from sandbox_exec._oneoff import OneOffs
from sandbox_exec._policy import session_preset
from sandbox_exec._reach import Reach
from sandbox_exec._reapers.loop import Reapers
from sandbox_exec._remedy import Rejected
from sandbox_exec._roster import Roster
from sandbox_exec._sessions import SessionMap
from sandbox_exec._slots import Slots
from sandbox_exec._startup import Starter
from sandbox_exec._storage import Storage
from sandbox_exec._tidy import Tidy

__all__ = ["Parts", "sandbox_info"]

_READY_PART: Final = 0.6
"""Part of the control timeout a guest gets to say READY; the rest is for asking the engine why."""


def sandbox_info(config: SandboxConfig, facts: EngineFacts | None = None) -> SandboxInfo:
    """Return the shape of the sandboxes that these settings make.

    :param facts: what the engine says of itself, once that is known.
    """
    ignored = () if facts is None else facts.limits.ignored
    return SandboxInfo(
        image=config.image,
        network=config.network,
        durable_workspace=config.workspace_root is not None,
        default_timeout=config.default_timeout,
        max_timeout=config.max_timeout,
        memory=config.memory,
        cpus=config.cpus,
        pids_limit=config.pids_limit,
        unbounded=("disk", *(name for name in ignored if name != "disk")),
    )


@frozen
class Parts:
    """The parts of an executor while it is open."""

    config: SandboxConfig
    clock: Callable[[], float]
    group: TaskGroup
    engine: EngineSource
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
        preset, engine = session_preset(config), EngineSource(client)
        images, storage = ImageSource(config, client, preset), Storage(config, engine, tidy)
        starter = Starter(config, client, preset, images, storage, clock)
        slots = Slots(config.max_parallel, config.queue_timeout)
        reach, roster = Reach(config, client), Roster(clock)
        return cls(
            config,
            clock,
            group,
            engine,
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

    async def run(self, spec: ExecSpec) -> ExecResult:
        """Run one command to its end; see :meth:`sandbox_exec.LocalDockerExecutor.run`."""
        command = encode_text(spec.command, "command")
        env = {name: encode_text(value, name) for name, value in spec.env.items()}
        directory = _directory(spec.cwd)
        cwd = encode_text(directory, "cwd")
        limit = min(spec.timeout or self.config.default_timeout, self.config.max_timeout)

        def script(conversation: Conversation) -> CommandScript:
            return CommandScript(
                run_request(conversation, command, limit=limit, cwd=cwd, env=env, stdin=spec.stdin)
            )

        try:
            if spec.session is None:
                bounds = self.bounds(limit, session=False)
                return await self.one_offs.run(script, bounds, user=spec.user)
            key, bounds = session_key(spec.session), self.bounds(limit, session=True)
            return await self.sessions.run(key, script, bounds, user=spec.user)
        except Rejected as error:
            words = str(error).format(user=spec.user or "root", cwd=directory)
            raise ValueError(words) from None

    async def close(self) -> None:
        """Let nothing begin, end what is in flight, and wait for it, in bounded time."""
        await self.sessions.close()
        await self.one_offs.close()


def _directory(cwd: str | None) -> str:
    if cwd is None:
        return WORKSPACE
    return cwd if cwd.startswith("/") else f"{WORKSPACE}/{cwd}"
