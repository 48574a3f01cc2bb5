"""A request that does not arrive whole runs nothing, so it may be sent again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from socket import AF_UNIX, socket
from typing import cast

import pytest
from anyio import create_task_group, fail_after
from attrs import define

from sandbox_exec import (
    DaemonUnavailableError,
    ExecSpec,
    FileTransferError,
    LocalDockerExecutor,
    MissingPath,
    SandboxConfig,
    SandboxDisposedError,
    SandboxError,
    TextFile,
)
from sandbox_exec._docker.interface import Argv, CliProcess, Completed, NoAnswer
from sandbox_exec._host_file import HostFile

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


async def test_only_regular_files_are_taken_by_their_path(place: FakePlace, tmp_path: Path) -> None:
    """Of others nobody knows whether they end, or ever begin."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with fail_after(5), socket(AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        async with place.executor() as executor:
            for odd in (pipe, tmp_path / "s", Path("/dev/zero"), Path("/dev/null")):
                with pytest.raises(ValueError, match=f"{odd} is no regular file"):
                    await executor.put_file("chat", "f", odd)
            with pytest.raises(IsADirectoryError):
                await executor.put_file("chat", "f", tmp_path)
            assert isinstance(await executor.read_file("chat", "f"), MissingPath)


async def test_a_pipe_that_takes_the_place_of_a_file(tmp_path: Path) -> None:
    """It is not waited for either."""
    path = tmp_path / "f"
    path.write_bytes(b"x")
    file = HostFile(path)
    assert await file.size() == 1
    path.unlink()
    os.mkfifo(path)
    with fail_after(5), pytest.raises(ValueError, match="no regular file"):
        _ = [data async for data in file]


@pytest.mark.parametrize("size", [1000, 0])
async def test_a_file_that_shrinks_meanwhile(place: FakePlace, tmp_path: Path, size: int) -> None:
    """Whole or not at all: the error names it, and the old content stays."""
    path = tmp_path / "s"
    path.write_bytes(b"g" * 10 * LARGE)
    async with place.executor() as executor:
        await executor.put_file("chat", "f", b"old")
        with pytest.raises(FileTransferError, match=f"{path} was cut while it was read") as caught:
            await executor.put_file("chat", "f", path, progress=lambda *_: os.truncate(path, size))
        error = caught.value
        assert (error.code, error.retryable, error.started) == ("source-changed", True, False)
        assert await executor.read_file("chat", "f") == TextFile("old", 3)


async def test_a_file_that_grows_meanwhile(place: FakePlace, tmp_path: Path) -> None:
    """What it had at the start is what is taken, so that a log comes to an end."""
    path = tmp_path / "g"
    path.write_bytes(b"g" * 10 * LARGE)

    def grow(*_: object) -> None:
        with path.open("ab") as stream:
            stream.write(b"h" * 100_000)

    async with place.executor() as executor:
        await executor.put_file("chat", "f", path, progress=grow)
    assert place.container("chat").files["/workspace/f"] == b"g" * 10 * LARGE


@pytest.mark.parametrize(
    "odd", ["/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"]
)
async def test_files_whose_size_is_made_up(place: FakePlace, odd: str) -> None:
    """The kernel's own say 0, or a page, and are read to their end."""
    if not Path(odd).exists():
        pytest.skip("this kernel has no such file")
    async with place.executor() as executor:
        await executor.put_file("chat", "f", Path(odd))
    assert 0 < len(place.container("chat").files["/workspace/f"]) < 4096
