"""A request that does not arrive whole runs nothing, so it may be sent again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

import pytest
from attrs import define

from sandbox_exec import (
    DaemonUnavailableError,
    ExecSpec,
    LocalDockerExecutor,
    SandboxConfig,
)
from sandbox_exec._docker.interface import Argv, CliProcess, Completed, NoAnswer

from . import vocabulary as do
from .places import IMAGE, FakePlace

pytestmark = pytest.mark.anyio

LARGE = 300_000


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
