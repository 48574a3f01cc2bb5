"""``LocalDockerExecutor``: the public operations, and the lifetime they are bound to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import Self

from anyio import CancelScope, create_task_group, lowlevel

from sandbox_exec._config import SandboxConfig, check_config
from sandbox_exec._docker.dialing import considerate
from sandbox_exec._docker.engine import cli_environment
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._errors import ExecutorClosedError
from sandbox_exec._files import Content
from sandbox_exec._lifetime import leave, refuse_other_loop
from sandbox_exec._models import ExecResult, ExecSpec, SandboxInfo
from sandbox_exec._naming import session_key
from sandbox_exec._parts import Parts, sandbox_info
from sandbox_exec._read_result import HarvestedFile, ReadResult
from sandbox_exec._transfer import Progress

__all__ = ["LocalDockerExecutor", "create_executor", "get_executor"]

_open: list[LocalDockerExecutor] = []


class LocalDockerExecutor:
    """Runs commands in docker containers with limits and, by default, no network.

    A call with a session runs in that conversation's long-lived container: files and packages
    persist across calls, it is adopted after a restart of this process, and replaced when the
    policy changes. A call without one runs in a container of its own.

    Use it as an async context manager, entered and left in one task; leaving it ends the calls in
    flight and leaves the containers running. Works on asyncio and on trio.

    :param config: the settings.
    :param runner: what starts the engine's program; for tests.
    :param clock: monotonic seconds; for tests.
    :param wall: epoch seconds; for tests.
    :param reaps: whether idle and old sandboxes are swept in the background. Without it, a program
        that is here for one command leaves that to the servers, whose settings may be others; the
        methods that sweep work all the same.

    Source: S0's ``LocalDockerExecutor``.
    """

    def __init__(
        self,
        config: SandboxConfig,
        *,
        runner: CommandRunner | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        reaps: bool = True,
    ) -> None:
        check_config(config)
        self._config = config
        # Read once: a later change of this process's environment must not move sandboxes to
        # another daemon (hazard R7).
        environment = cli_environment(os.environ, docker_host=config.docker_host)
        self._runner = runner or considerate(SubprocessRunner(environment), environment)
        self._clock = clock
        self._wall = wall
        self._reaps = reaps
        self._loop: object = None
        self._parts: Parts | None = None

    @property
    def kind(self) -> str:
        """A short tag for logs: the runtime if one is set, else the engine. Source: S0."""
        return self._config.runtime or PurePath(self._config.engine).name

    @property
    def info(self) -> SandboxInfo:
        """The shape of the sandbox, so that tool text can describe it truthfully.

        Which limits the engine ignores is in ``unbounded`` from the first start of a sandbox on:
        then the engine is asked, once, since asking costs a call. Source: S0.
        """
        facts = None if self._parts is None else self._parts.engine.facts
        return sandbox_info(self._config, facts)

    async def __aenter__(self) -> Self:
        if self._parts is not None:
            raise ExecutorClosedError("an executor can be entered only once")
        group = create_task_group()
        await group.__aenter__()
        self._loop = lowlevel.current_token()
        self._parts = Parts.assemble(self._config, group, self._runner, self._clock, self._wall)
        if self._reaps:
            self._parts.reapers.start(group)
        _open.append(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        parts = self._opened()
        _open.remove(self)
        with CancelScope(shield=True):
            await parts.close()
        await leave(parts.group, error, "executor.background_failure")

    async def run(self, spec: ExecSpec) -> ExecResult:
        """Run one command to its end, in its session's sandbox or in one of its own.

        :returns: how it ended; a status other than 0, and a time-out, are results.
        :raises ValueError: for input that only the sandbox can reject: its user, its directory.
        :raises DaemonUnavailableError: the engine did not answer; ``started`` says whether the
            command had begun. So for all :class:`SandboxError`.
        :raises ContainerStartError: the sandbox cannot be made.
        :raises SandboxBrokenError: it cannot serve calls, or was lost while the command ran.
        :raises SandboxDisposedError: the session was disposed meanwhile.
        :raises ExecutorBusyError: no slot came free in time.
        :raises ExecutorClosedError: the executor is not open, or closed meanwhile.

        Source: S0's ``run``; hazards S2 to S6 and C1 to C10.
        """
        parts = self._opened()
        given: object = spec
        if not isinstance(given, ExecSpec):
            message = f"what is run must be an ExecSpec, not {type(spec).__name__}"
            raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always
        return await parts.run(spec)

    async def put_file(
        self, session: str, path: str, data: Content, *, progress: Progress | None = None
    ) -> None:
        """Write a file in a session's sandbox, whole or not at all; its directories are made.

        A new file belongs to root and has mode 0644; one that replaces another takes on its mode
        and owner. The old content stays until all of the new has arrived, and survives any failure.

        :param path: a relative one starts at ``/workspace``; surrogate escapes stand for bytes.
        :param data: bytes; the path of a file on this host; or an asynchronous iterable of bytes.
            The last two are streamed, of any size.
        :param progress: called with the bytes sent and their total, ``None`` if it is not known.
        :raises ValueError: for a path that cannot name a file.
        :raises OSError: the file of this host cannot be read.
        :raises FileTransferError: the file could not be written.
        :raises SandboxError: as for :meth:`run`.

        Source: S0's ``putFile``; hazards P1 and P3.
        """
        key = session_key(session)
        await self._opened().files.put(key, path, data, progress)

    async def read_file(self, session: str, path: str) -> ReadResult:
        """Read a file of a session's sandbox, or say what else is there.

        :returns: one of a closed union, told apart by ``kind``; a file of more than the configured
            ``max_read_bytes`` is ``too-large``.
        :raises ValueError: for a path that cannot name a file.
        :raises FileTransferError: the file could not be read to its end, or not in time.
        :raises SandboxError: as for :meth:`run`.

        Source: S0's ``readFile``; hazards P2 and P4.
        """
        return await self._opened().files.read(session_key(session), path)

    async def harvest(
        self,
        session: str,
        directory: str,
        *,
        max_files: int,
        max_bytes: int,
        max_total_bytes: int | None = None,
    ) -> list[HarvestedFile]:
        """Drain an outbox: return its files and remove what was returned.

        In the order of their paths. A file that is rewritten meanwhile comes again, in its later
        version; what is too large, or beyond the limits, stays. Links are not followed. It is
        removed once the calling task waits for something again: what it has stored by then is safe
        from any crash, and what it has not is delivered again.

        :param max_files: how many files at most.
        :param max_bytes: larger files are left where they are; inclusive.
        :param max_total_bytes: of all files together; ``None`` for no limit of its own.
        :returns: nothing when the session has no sandbox.
        :raises ValueError: for limits below 1, or a path that cannot name a directory.
        :raises FileTransferError: the outbox is a link or no directory, or it could not be drained;
            then nothing is lost.
        :raises SandboxError: as for :meth:`run`.

        Source: S0's ``harvest``; hazards P5 to P10.
        """
        return await self._opened().files.harvest(
            session_key(session),
            directory,
            max_files=max_files,
            max_bytes=max_bytes,
            max_total_bytes=max_total_bytes,
        )

    def pending_reset(self, session: str) -> str | None:
        """Return what the next command's result will say in ``reset``, as far as is known now.

        For whoever reads or writes files first, whose results have no such place: a file may be
        missing because its sandbox was rebuilt.

        :raises ValueError: for an empty id.

        Source: hazard S16.
        """
        return self._opened().sessions.pending(session_key(session))

    async def dispose_session(self, session: str) -> None:
        """Remove a conversation's container and workspace; end what runs in it first.

        Awaited to the end, in order, and safe to repeat. Calls in flight get
        :class:`SandboxDisposedError`; a call made afterwards gets a new sandbox.

        :raises ValueError: for an empty id.
        :raises DaemonUnavailableError: the engine did not answer, so it may all still be there.

        Source: S0's ``disposeSession``; hazard S10.
        """
        await self._opened().sessions.dispose(session_key(session))

    async def evict_idle(self) -> int:
        """Have the sandboxes of this process's idle sessions stop now; return how many did.

        Stopped, not removed: the next call wakes them, with their files. The sandbox itself checks
        that nobody uses it, so that one in use, by whichever process, is never stopped.

        Source: S0's ``evictIdle``.
        """
        return await self._opened().reapers.idle.sweep()

    async def sweep_unclaimed(self) -> int:
        """Sweep the containers that no session here holds now; return how many went.

        Idle ones are stopped; those stopped longer ago than ``ttl``, and those beyond
        ``max_dormant``, are removed, and so are leftovers of starts and one-offs.

        :raises SandboxError: the engine gave no certain answer; the next sweep finds what is left.

        Source: S0's ``sweepUnclaimed``.
        """
        return await self._opened().reapers.unclaimed.sweep()

    async def sweep_workspaces(self) -> int:
        """Remove the workspaces now that no container holds and nobody used for ``ttl`` seconds.

        :returns: how many there were.
        :raises SandboxError: as for :meth:`sweep_unclaimed`.

        Source: S0's ``sweepWorkspaces``, without its hourly gate.
        """
        return await self._opened().reapers.workspaces.sweep()

    def _opened(self) -> Parts:
        if self._parts is None or self._parts.sessions.closing:
            raise ExecutorClosedError("the executor is not open: use it in an 'async with' block")
        refuse_other_loop(self._loop, "executor")
        return self._parts


def create_executor(config: SandboxConfig) -> LocalDockerExecutor | None:
    """Return the configured executor, not yet entered, or ``None`` when there is to be none.

    ``None`` for ``enabled=False`` and for a backend that is not known here.

    Source: S0's ``createExecutor``.
    """
    check_config(config)
    if not config.enabled or config.backend != "docker":
        return None
    return LocalDockerExecutor(config)


def get_executor() -> LocalDockerExecutor | None:
    """Return the executor this process has open, the last entered of several, or ``None``.

    Source: S0's ``getExecutor``, without its hidden construction.
    """
    return _open[-1] if _open else None
