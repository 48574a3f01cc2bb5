"""A conversation that breaks on this side is still ended, and looked after, on the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import pytest
from attrs import Factory, define

from sandbox_exec._address import Address, Bounds
from sandbox_exec._call import Call
from sandbox_exec._channel import Channel
from sandbox_exec._docker.interface import Argv, CliProcess, CommandRunner, Completed, NoAnswer
from sandbox_exec._frames import new_conversation
from sandbox_exec._guest import PROTOCOL

pytestmark = pytest.mark.anyio


@define
class Broken:
    """A guest that gets ready and then only listens; its standard error cannot be read."""

    nonce: str
    asked: anyio.Event = Factory(anyio.Event)
    closed: anyio.Event = Factory(anyio.Event)
    greeted: bool = False
    pid: int = 1

    async def send(self, data: bytes) -> None:
        """Take a piece."""
        if data == b"request\n":
            self.asked.set()

    async def close_stdin(self) -> None:
        """Be told that the client left."""
        self.closed.set()

    async def receive_stdout(self) -> bytes:
        """Get ready, and say nothing more until the client has left."""
        if self.greeted:
            await self.closed.wait()
            return b""
        self.greeted = True
        return f"\x1e{self.nonce} ready {PROTOCOL} -\n".encode()

    async def receive_stderr(self) -> bytes:
        """Fail once there is a request."""
        await self.asked.wait()
        raise RuntimeError("a bug")

    async def wait(self) -> int:
        """End."""
        return 0

    def kill(self) -> None:
        """Do nothing, as it ends anyway."""


@define
class Runner(CommandRunner):
    """Opens one process."""

    process: CliProcess

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] | None = None
    ) -> Completed | NoAnswer:
        """Answer nothing."""
        raise NotImplementedError(argv, timeout, env)

    @asynccontextmanager
    async def open(
        self, argv: Argv, *, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[CliProcess]:
        """Give the process."""
        assert argv
        assert env is not None
        yield self.process


async def test_a_reader_that_fails_leaves_nothing_behind() -> None:
    """The caller gets what it raised, once the fallback has hunted for what was started."""
    talk = new_conversation()
    hunted: list[int] = []

    async def fallback(tag: int) -> bool:
        hunted.append(tag)
        return True

    async def script(channel: Channel) -> None:
        await channel.request((b"request\n",))
        await channel.finish()

    process = Broken(talk.nonce)
    call = Call(
        Runner(process), Address(("x",), {}, fallback), talk, script, Bounds(5, 5, 0.5, 100)
    )
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(call.run)
            with pytest.raises(RuntimeError, match="a bug"):
                await call.outcome()
    assert process.closed.is_set()
    assert (hunted, call.report.reaped) == ([talk.tag], True)
