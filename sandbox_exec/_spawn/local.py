"""``LocalBackend``: the same surface without any isolation."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Final, Self

from anyio import CancelScope, Event, create_task_group, to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process, TaskGroup

from sandbox_exec._docker.interface import CliProcess
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._errors import ExecutorClosedError
from sandbox_exec._lifetime import leave
from sandbox_exec._spawn.checks import refuse_extra
from sandbox_exec._spawn.streams import Inlet, Outlet
from sandbox_exec._spawn.values import SandboxEnvHint, SpawnRequest, WrappedSpawn

__all__ = ["LocalBackend"]


class LocalBackend:
    """Runs processes on this host, as this user, with nothing between them and everything.

    The surface is :class:`DockerBackend`'s, for the machines where there is no engine and somebody
    has decided that it is fine without. Paths are this host's. A killed process takes its process
    group along, but what has left that lives on.

    Source: S1's fall-back.
    """

    mode: Final = "none"
    label: Final = "none"

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._living: set[_LocalProcess] = set()

    async def __aenter__(self) -> Self:
        if self._group is not None:
            raise ExecutorClosedError("a backend can be entered only once")
        self._group = create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.dispose()
        if self._group is not None:
            await leave(self._group, error, "spawn.background_failure")

    async def wrap_spawn(self, request: SpawnRequest) -> WrappedSpawn:
        """Return the request as it is, once its files are in place."""
        await _place(request.options.files)
        return WrappedSpawn(request.command, request.args, request.options)

    @asynccontextmanager
    async def spawn(self, request: SpawnRequest) -> AsyncIterator[Process]:
        """Start a process; leaving the block kills its process group.

        :raises ValueError: for ``extra`` options.
        :raises ProgramMissing: when there is no such program.
        """
        refuse_extra(request.options.extra)
        if self._group is None:
            raise ExecutorClosedError("the backend is not open: use it in an 'async with' block")
        await _place(request.options.files)
        environment = os.environ if request.options.env is None else request.options.env
        runner = SubprocessRunner(dict(environment), request.options.cwd)
        async with runner.open((request.command, *request.args)) as program:
            process = _LocalProcess(program)
            self._living.add(process)
            self._group.start_soon(process.watch)
            try:
                yield process
            finally:
                self._living.discard(process)
                await process.aclose()

    async def dispose(self) -> None:
        """Kill what is running."""
        for process in tuple(self._living):
            process.kill()

    def env_hint(self) -> SandboxEnvHint:
        """Return where processes run, in words."""
        return SandboxEnvHint(
            mode=self.mode,
            label=self.label,
            inner_os=sys.platform,
            workspace_mount=None,
            scope="spawned processes run on the host like everything else, without isolation",
        )


class _LocalProcess(Process):
    """A process of this host; see :class:`DockerProcess`."""

    def __init__(self, program: CliProcess) -> None:
        self._program = program
        self._ended = Event()
        self._code: int | None = None
        self._stdin = Inlet(program)
        self._stdout, self._stderr = Outlet(_never), Outlet(_never)

    async def watch(self) -> None:
        """Hand on its output and notice its end, to be started as a task."""
        async with create_task_group() as pumps:
            pumps.start_soon(_pump, self._program.receive_stdout, self._stdout)
            pumps.start_soon(_pump, self._program.receive_stderr, self._stderr)
            self._code = await self._program.wait()
            self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return self._code or 0

    def kill(self) -> None:
        if self._code is None:
            # Its own session and group, as the runner gives each process one.
            with suppress(ProcessLookupError):
                os.killpg(self._program.pid, signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def send_signal(self, signal: int) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self._program.pid, signal)

    async def aclose(self) -> None:
        self.kill()
        with CancelScope(shield=True):
            for outlet in (self._stdout, self._stderr):
                await outlet.aclose()
            await self._ended.wait()

    @property
    def pid(self) -> int:
        return self._program.pid

    @property
    def returncode(self) -> int | None:
        return self._code

    @property
    def stdin(self) -> ByteSendStream:
        return self._stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        return self._stdout

    @property
    def stderr(self) -> ByteReceiveStream:
        return self._stderr


def _never() -> None:
    """No process of this host is lost."""


async def _pump(receive: Callable[[], Awaitable[bytes]], outlet: Outlet) -> None:
    while data := await receive():
        await outlet.put(data)
    outlet.end()


async def _place(files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        await to_thread.run_sync(_put, Path(path), data)


def _put(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, as a sandbox's guest does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=".sandbox-exec-put-", delete=False) as file:
        try:
            file.write(data)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
