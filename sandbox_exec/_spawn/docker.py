"""``DockerBackend``: one shared container that a program's child processes are moved into."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Final, Self

from anyio import CancelScope, Lock, create_task_group, lowlevel
from anyio.abc import Process, TaskGroup
from attrs import evolve

from sandbox_exec._detect import detect_engine
from sandbox_exec._docker.dialing import considerate
from sandbox_exec._docker.engine import cli_environment
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._errors import ExecutorClosedError, SandboxError
from sandbox_exec._lifetime import leave, refuse_other_loop
from sandbox_exec._log import Log
from sandbox_exec._remedy import Rejected
from sandbox_exec._spawn.checks import refuse_extra
from sandbox_exec._spawn.engine import Detect, advised
from sandbox_exec._spawn.launch import launched
from sandbox_exec._spawn.line import check_environment, spawn_line
from sandbox_exec._spawn.options import (
    DockerBackendOptions,
    check_options,
    env_hint,
    inner_directory,
)
from sandbox_exec._spawn.parts import Parts
from sandbox_exec._spawn.placing import Placing
from sandbox_exec._spawn.process import DockerProcess
from sandbox_exec._spawn.values import SandboxEnvHint, SpawnRequest, WrappedSpawn, check_request
from sandbox_exec._startup import Started

__all__ = ["DockerBackend"]

log = Log(__name__)


class DockerBackend:
    """Runs child processes in one shared, hardened container instead of on this host.

    The container is started by the first spawn, kept while it is of use, and adopted by the next
    program with the same settings. Use it as an async context manager, entered and left in one
    task; leaving it disposes. Works on asyncio and on trio.

    :param options: the settings.
    :param runner: what starts the engine's program; for tests.
    :param detect: finds the engine; for tests.
    :param clock: monotonic seconds; for tests.
    :param wall: epoch seconds; for tests.

    Source: S1's ``DockerBackend``; hazards B1 to B8.
    """

    mode: Final = "docker"

    def __init__(
        self,
        options: DockerBackendOptions,
        *,
        runner: CommandRunner | None = None,
        detect: Detect = detect_engine,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        check_options(options)
        self._options = options
        # Read once: a later change of this process's environment must not move what is spawned to
        # another daemon (hazard R7).
        self._environment = cli_environment(os.environ, docker_host=options.docker_host)
        self._runner = runner or considerate(SubprocessRunner(self._environment), self._environment)
        self._detect = detect
        self._clock, self._wall = clock, wall
        self._group: TaskGroup | None = None
        self._loop: object = None
        self._parts: Parts | None = None
        self._assembling = Lock()
        self._swept = False
        self._closing = False

    @property
    def label(self) -> str:
        """``docker:`` and the image, with ``+workspace`` when one is mounted. Source: S1."""
        return self._options.label

    def env_hint(self) -> SandboxEnvHint:
        """Return where processes run, in words. Source: S1's ``envHint``."""
        return env_hint(self._options)

    async def __aenter__(self) -> Self:
        if self._group is not None:
            raise ExecutorClosedError("a backend can be entered only once")
        self._group = create_task_group()
        await self._group.__aenter__()
        self._loop = lowlevel.current_token()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        group = self._opened()
        with CancelScope(shield=True):
            try:
                await self.dispose()
            except SandboxError as failure:
                log.warning("spawn.not_disposed", error=str(failure))
            self._closing = True
            if self._parts is not None:
                await self._parts.sessions.close()
        await leave(group, error, "spawn.background_failure")

    async def wrap_spawn(self, request: SpawnRequest) -> WrappedSpawn:
        """Return what to start, as a plain process of this host, in place of a request.

        Its exit code and its streams are the command's. It is the engine's program, though: killing
        it leaves the command running inside, until :meth:`dispose` (hazard B6); :meth:`spawn` has
        no such gap. Start it with ``options.env`` as its whole environment.

        :raises ValueError: for a directory outside of the workspace, or too many variables.
        :raises FileTransferError: when a file could not be placed.
        :raises SandboxError: when there is no container to be had: :class:`ContainerStartError`,
            :class:`DaemonUnavailableError`, :class:`EngineNotFoundError`.

        Source: S1's ``wrapSpawn``; hazards B1, B2, B3, B5.
        """
        check_request(request)
        options = request.options
        cwd = inner_directory(self._options, options.cwd)
        check_environment(options.env)
        parts = await self._assembled()
        placing = Placing(parts, request)
        with _advice(parts):
            started = await self._alive(parts, placing)
        line = spawn_line(
            # Not its name: in a successor, nothing would know of this one, and nobody would end it.
            started.id,
            mark=parts.removal.next_mark(),
            cwd=cwd,
            env=options.env,
            command=(request.command, *request.args),
            start=placing.start,
        )
        env = {**self._environment, **line.env}
        return WrappedSpawn(
            parts.engine.program, line.argv, evolve(options, cwd=None, env=env, files={})
        )

    @asynccontextmanager
    async def spawn(self, request: SpawnRequest) -> AsyncIterator[Process]:
        """Start a process inside; leaving the block kills it and everything that it has started.

        A container that was stopped or removed meanwhile is replaced first, as long as nothing of
        the command can have run. A program that is not there shows as exit code 127, and one that
        cannot be run as 126, with the shell's words on standard error.

        :raises ValueError: for a directory outside of the workspace, or one that cannot be entered,
            for too many variables, and for ``extra`` options.
        :raises SandboxError: as for :meth:`wrap_spawn`; ``started`` says whether the command had
            begun. What happens to it later is raised by its streams and its ``wait``.

        Source: hazards B3 and B6.
        """
        check_request(request)
        options = request.options
        refuse_extra(options.extra)
        cwd = inner_directory(self._options, options.cwd)
        check_environment(options.env)
        parts = await self._assembled()
        with _advice(parts):
            try:
                child = await launched(parts, request, cwd, self._options.control_timeout)
            except Rejected as error:
                raise ValueError(str(error).format(cwd=cwd, user="")) from None
        self._sweep_once(parts)
        group = self._opened()
        sending = Lock()

        async def send(number: int) -> None:
            async with sending:
                await child.signal(number)

        process = DockerProcess(child, lambda number: group.start_soon(send, number))
        try:
            yield process
        finally:
            await process.aclose()
            parts.removal.living.discard(child)
            if child.unreaped:
                parts.session.unreaped.append(child.tag)

    async def dispose(self) -> None:
        """End what this backend has started, and remove the container unless others use it.

        Waits for a start in flight, and is safe to repeat. A spawn afterwards gets a container
        again. Processes that are being waited for get :class:`SandboxDisposedError`.

        :raises SandboxError: the engine did not answer, so it may all still be there.

        Source: S1's ``dispose``; hazards B3, S10.
        """
        self._opened()
        async with self._assembling:
            parts = self._parts
        if parts is not None:
            await parts.sessions.dispose(parts.key)

    def _opened(self) -> TaskGroup:
        if self._group is None or self._closing:
            raise ExecutorClosedError("the backend is not open: use it in an 'async with' block")
        refuse_other_loop(self._loop, "backend")
        return self._group

    async def _assembled(self) -> Parts:
        """Return the parts, finding the engine first if nobody has."""
        group = self._opened()
        async with self._assembling:
            if self._parts is None:
                engine = await self._detect(
                    self._options.engine,
                    docker_host=self._options.docker_host,
                    runner=self._runner,
                )
                self._parts = Parts.assemble(
                    self._options, engine, group, self._runner, self._clock, self._wall
                )
            return self._parts

    async def _alive(self, parts: Parts, placing: Placing) -> Started:
        """Return a container that runs, as far as was seen lately, and has the files."""
        async with parts.sessions.visit(parts.key) as (session, _):
            keeper = parts.sessions.keeper
            started = await keeper.acquire(session)
            self._sweep_once(parts)
            keeper.reap_lost(session, started)
            if await parts.liveness.is_gone(started):
                keeper.forget(session, started)
            return await placing.container(session)

    def _sweep_once(self, parts: Parts) -> None:
        if not self._swept:
            self._swept = True
            self._opened().start_soon(_sweep, parts)


async def _sweep(parts: Parts) -> None:
    """Sweep what crashed programs of the same deployment have left of this kind (hazard B4)."""
    try:
        await parts.reaper.sweep()
    except SandboxError as error:
        log.warning("spawn.not_swept", cause=repr(error))


@contextmanager
def _advice(parts: Parts) -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        better = advised(error, parts.engine.family)
        if better is error:
            raise
        raise better from error
