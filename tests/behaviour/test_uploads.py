"""A request that does not arrive whole runs nothing, so it may be sent again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from anyio import create_task_group, fail_after, move_on_after
from attrs import define

from sandbox_exec import (
    DaemonUnavailableError,
    ExecSpec,
    LocalDockerExecutor,
    MissingPath,
    SandboxConfig,
    SandboxDisposedError,
    SandboxError,
)
from sandbox_exec._docker.interface import Argv, CliProcess, Completed, NoAnswer

from . import vocabulary as do
from .places import IMAGE, FakePlace

pytestmark = pytest.mark.anyio

LARGE = 300_000


class Unforeseen(BaseException):
    """What no caller of the library catches by accident."""


@define
class Sending:
    """A program before whose large input something happens."""

    _process: CliProcess
    _act: Callable[[], None]

    async def send(self, data: bytes) -> None:
        if len(data) >= LARGE:
            self._act()
        await self._process.send(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._process, name)


@define
class Interfering:
    """A runner that lets something happen once, between READY and a large request."""

    _place: FakePlace
    _act: Callable[[], None]
    acted: bool = False

    def act(self) -> None:
        if not self.acted:
            self.acted = True
            self._act()

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] | None = None
    ) -> Completed | NoAnswer:
        return await self._place.daemon.run(argv, timeout=timeout)

    @asynccontextmanager
    async def open(
        self, argv: Argv, *, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[CliProcess]:
        async with self._place.daemon.open(argv, env=env or {}) as process:
            yield cast("CliProcess", Sending(process, self.act))


def executor(place: FakePlace, act: Callable[[], None]) -> LocalDockerExecutor:
    """Return an executor under which something happens."""
    config = SandboxConfig(image=IMAGE, deployment=place.deployment, control_timeout=0.2, grace=0.1)
    return LocalDockerExecutor(config, runner=Interfering(place, act), clock=time.monotonic)


@pytest.mark.parametrize("act", ["remove", "stop", "restart"])
async def test_a_sandbox_that_goes_during_an_upload(place: FakePlace, act: str) -> None:
    """The command cannot have begun: it runs once, in the sandbox there is afterwards."""

    def go() -> None:
        getattr(place, act)("chat")

    async with executor(place, go) as opened:
        await opened.run(ExecSpec(do.counts, "chat"))
        result = await opened.run(ExecSpec(do.copies, "chat", stdin=b"y" * LARGE))
    assert (result.exit_code, result.stdout[:1]) == (0, "y")
    assert [command for _, command in place.daemon.executed] == [do.counts, do.copies]


async def test_an_engine_that_freezes_during_an_upload(place: FakePlace) -> None:
    """Given up in time, killed before the rest can arrive, and said not to have started."""
    async with executor(place, place.daemon.hang) as opened:
        await opened.run(ExecSpec(do.counts, "chat"))
        with pytest.raises(DaemonUnavailableError) as caught:
            await opened.run(ExecSpec(do.copies, "chat", stdin=b"y" * LARGE))
        assert caught.value.started is False
        place.daemon.thaw()
        assert (await opened.run(ExecSpec(do.shows_count, "chat"))).stdout == "x\n"
    assert do.copies not in [command for _, command in place.daemon.executed]


def _cancelled() -> BaseException:
    return asyncio.CancelledError()


@pytest.mark.parametrize("make", [_cancelled, GeneratorExit, Unforeseen])
@pytest.mark.parametrize("where", ["source", "progress"])
async def test_callers_code_that_ends_oddly_ends_its_own_call_only(
    place: FakePlace, make: Callable[[], BaseException], where: str
) -> None:
    """Such as a source that awaits a task which somebody has cancelled."""

    async def source() -> AsyncIterator[bytes]:
        yield b"x"
        if where == "source":
            raise make()

    def progress(_done: int, _total: int | None) -> None:
        if where == "progress":
            raise make()

    async with place.executor() as executor, create_task_group() as group:
        ended: list[str] = []

        async def neighbour() -> None:
            with pytest.raises(SandboxDisposedError):
                await executor.run(ExecSpec(do.lasts, "other"))
            ended.append("other")

        group.start_soon(neighbour)
        await executor.run(ExecSpec(do.awaits_begun, "other"))
        with pytest.raises(SandboxError) as caught:
            await executor.put_file("chat", "f", source(), progress=progress)
        assert caught.value.code == "source-failed"
        assert isinstance(caught.value.__cause__, type(make()))
        assert isinstance(await executor.read_file("chat", "f"), MissingPath)
        assert ended == []
        await executor.dispose_session("other")
    assert (ended, place.daemon.conversations) == (["other"], 0)


async def test_a_source_of_something_else_is_refused(place: FakePlace) -> None:
    """In words, and nothing is written."""

    async def source() -> AsyncIterator[bytes]:
        yield "text"  # type: ignore[misc]  # the mistake

    async with place.executor() as executor:
        with pytest.raises(ValueError, match="must be bytes, not str"):
            await executor.put_file("chat", "f", source())
        assert isinstance(await executor.read_file("chat", "f"), MissingPath)


async def test_a_pipe_that_nobody_writes_holds_nobody_up(place: FakePlace, tmp_path: Path) -> None:
    """Neither the caller that gives up nor the executor that closes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with fail_after(10):
        async with place.executor() as executor:
            with move_on_after(0.3) as scope:
                await executor.put_file("chat", "f", pipe)
            assert scope.cancelled_caught
    # For the thread that was left behind.
    os.close(os.open(pipe, os.O_RDWR))
