"""``LocalBackend``: the same surface without any isolation."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Final, Self

from anyio import CancelScope, Event, create_task_group, lowlevel, move_on_after, to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process, TaskGroup

from sandbox_exec._docker.interface import CliProcess, ProgramMissing
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._errors import ExecutorClosedError, FileTransferError
from sandbox_exec._lifetime import leave, refuse_other_loop
from sandbox_exec._spawn.checks import refuse_extra, signal_number
from sandbox_exec._spawn.child import unconfirmed
from sandbox_exec._spawn.line import check_environment
from sandbox_exec._spawn.streams import Inlet, Outlet
from sandbox_exec._spawn.values import SandboxEnvHint, SpawnRequest, WrappedSpawn, check_request

__all__ = ["LocalBackend"]

_SHELL: Final = ("/bin/sh", "-c", 'exec "$@"', "sh")
"""Runs its further arguments, or says why it cannot, and ends with 127 or 126 as inside."""

_PATIENCE: Final = 5.0
"""Seconds for what was killed to end, which takes longer only where the kernel holds it."""

_UPLOAD_CODES: Final = {
    errno.EISDIR: "is-directory",
    errno.ENOSPC: "no-space",
    errno.EDQUOT: "no-space",
}


class LocalBackend:
    """Runs processes on this host, as this user, with nothing between them and everything.

    The surface is :class:`DockerBackend`'s, for the machines where there is no engine and somebody
    has decided that it is fine without: exit codes, errors and streams are the same. What differs
    follows from the lack of a container. Paths, a relative ``cwd`` and none are this process's own,
    ``env`` is the whole environment, and a killed process takes its process group along, but what
    has left that lives on.

    Source: S1's fall-back.
    """

    mode: Final = "none"
    label: Final = "none"

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._loop: object = None
        self._closing = False
        self._living: set[_LocalProcess] = set()

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
        await self.dispose()
        self._closing = True
        # Whoever holds a process in another task waits for its end, which the group notices.
        with move_on_after(_PATIENCE, shield=True):
            for process in tuple(self._living):
                await process.ended.wait()
        await leave(group, error, "spawn.background_failure")

    async def wrap_spawn(self, request: SpawnRequest) -> WrappedSpawn:
        """Return the request as it is, once its files are in place.

        :raises ValueError: for too many variables.
        :raises FileTransferError: when a file could not be placed.
        """
        check_request(request)
        check_environment(request.options.env)
        self._opened()
        await _place(request.options.files)
        return WrappedSpawn(request.command, request.args, request.options)

    @asynccontextmanager
    async def spawn(self, request: SpawnRequest) -> AsyncIterator[Process]:
        """Start a process; leaving the block kills its process group.

        A program that is not there shows as exit code 127, and one that cannot be run as 126, with
        the shell's words on standard error.

        :raises ValueError: for a directory that cannot be entered, for too many variables, and for
            ``extra`` options.
        :raises FileTransferError: when a file could not be placed.
        """
        check_request(request)
        refuse_extra(request.options.extra)
        check_environment(request.options.env)
        self._opened()
        await _place(request.options.files)
        async with AsyncExitStack() as stack:
            process = _LocalProcess(await _started(request, stack))
            # It may have been left meanwhile.
            group = self._opened()
            self._living.add(process)
            group.start_soon(process.watch)
            try:
                yield process
            finally:
                self._living.discard(process)
                await process.aclose()

    async def dispose(self) -> None:
        """Kill what is running."""
        self._opened()
        for process in tuple(self._living):
            process.kill()

    def _opened(self) -> TaskGroup:
        if self._group is None or self._closing:
            raise ExecutorClosedError("the backend is not open: use it in an 'async with' block")
        refuse_other_loop(self._loop, "backend")
        return self._group

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
        self.ended = Event()
        self._code: int | None = None
        self._stdin = Inlet(program)
        self._stdout, self._stderr = Outlet(_never), Outlet(_never)

    async def watch(self) -> None:
        """Hand on its output and notice its end, to be started as a task."""
        try:
            async with create_task_group() as pumps:
                pumps.start_soon(_pump, self._program.receive_stdout, self._stdout)
                pumps.start_soon(_pump, self._program.receive_stderr, self._stderr)
                code = await self._program.wait()
                # As a shell has it, and so a sandbox; Python's own is a negative number.
                self._code = _BY_SIGNAL - code if code < 0 else code
                self.ended.set()
        finally:
            # With the backend this ends as well, and nobody may have to wait for it then.
            self.ended.set()
            self._stdout.end()
            self._stderr.end()

    async def wait(self) -> int:
        await self.ended.wait()
        if self._code is None:
            raise unconfirmed()
        return self._code

    def kill(self) -> None:
        if self._code is None:
            # Its own session and group, as the runner gives each process one.
            with suppress(ProcessLookupError):
                os.killpg(self._program.pid, signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def send_signal(self, signal: int) -> None:
        number = signal_number(signal)
        if number == _KILL:
            self.kill()
        elif self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self._program.pid, number)

    async def aclose(self) -> None:
        self.kill()
        with CancelScope(shield=True):
            for outlet in (self._stdout, self._stderr):
                await outlet.aclose()
            await self.ended.wait()

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


_KILL: Final = signal.SIGKILL
_BY_SIGNAL: Final = 128


async def _started(request: SpawnRequest, stack: AsyncExitStack) -> CliProcess:
    """Return the program that was asked for, or else a shell that says why it does not run.

    :raises ValueError: for a directory that cannot be entered.
    """
    options = request.options
    environment = os.environ if options.env is None else options.env
    runner = SubprocessRunner(dict(environment), options.cwd)
    line = (request.command, *request.args)
    try:
        return await stack.enter_async_context(runner.open(line))
    except ProgramMissing:
        # The same is said of a directory, which is not the program's fault.
        await to_thread.run_sync(_enter, options.cwd)
        return await stack.enter_async_context(runner.open((*_SHELL, *line)))


def _enter(cwd: str | None) -> None:
    """Look whether a directory can be entered.

    :raises ValueError: if not.
    """
    if cwd is None:
        return
    try:
        # The dot is only found by whoever may enter.
        os.stat(f"{cwd}/.")  # noqa: PTH116  # a Path would drop the dot
    except OSError as error:
        raise ValueError(
            f"the working directory {cwd!r} cannot be entered: {error.strerror}"
        ) from error


def _never() -> None:
    """No process of this host is lost."""


async def _pump(receive: Callable[[], Awaitable[bytes]], outlet: Outlet) -> None:
    while data := await receive():
        await outlet.put(data)
    outlet.end()


async def _place(files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        try:
            await to_thread.run_sync(_put, Path(path), data)
        except OSError as error:
            raise FileTransferError(
                f"{path}: {error.strerror}",
                code=_UPLOAD_CODES.get(error.errno or 0, "bad-parent"),
                path=path,
            ) from error


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
