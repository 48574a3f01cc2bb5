"""Turns at connecting: bounded, given back once, and never a reason to wait for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from anyio import Event, Semaphore, create_task_group, wait_all_tasks_blocked
from attrs import Factory, define

from sandbox_exec._docker import dialing
from sandbox_exec._docker.dialing import TurnTaking, considerate
from sandbox_exec._docker.interface import NO_VARIABLES, Argv, Completed, NoAnswer

pytestmark = pytest.mark.anyio


@define
class Program:
    """A program that says something once it is told to."""

    connected: Event = Factory(Event)
    sent: list[bytes] = Factory(list)
    killed: bool = False

    async def send(self, data: bytes) -> None:
        self.sent.append(data)

    async def close_stdin(self) -> None:
        self.sent.append(b"end")

    async def receive_stdout(self) -> bytes:
        await self.connected.wait()
        return b"hello"

    async def receive_stderr(self) -> bytes:
        return b"err"

    async def wait(self) -> int:
        return 3

    @property
    def pid(self) -> int:
        return 4711

    def kill(self) -> None:
        self.killed = True


@define
class Engine:
    """A runner that shows how many of its programs run."""

    running: int = 0
    most: int = 0
    may_end: Event = Factory(Event)
    programs: list[Program] = Factory(list)

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] = NO_VARIABLES
    ) -> Completed | NoAnswer:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.may_end.wait()
        self.running -= 1
        return Completed(0, argv[0].encode())

    @asynccontextmanager
    async def open(
        self, argv: Argv, *, env: Mapping[str, str] = NO_VARIABLES
    ) -> AsyncIterator[Program]:
        self.programs.append(Program())
        yield self.programs[-1]


async def test_only_ssh_takes_turns() -> None:
    """A socket has no such limits."""
    engine = Engine()
    assert considerate(engine, {"DOCKER_HOST": "unix:///x"}) is engine
    assert considerate(engine, {}) is engine
    assert isinstance(considerate(engine, {"DOCKER_HOST": "ssh://x"}), TurnTaking)


async def test_control_calls_take_turns() -> None:
    """So many at once and no more; each gets its own answer."""
    engine = Engine()
    runner = TurnTaking(engine, Semaphore(2))
    answers: list[object] = []

    async def call() -> None:
        answers.append(await runner.run(("docker",), timeout=1))

    async with create_task_group() as group:
        for _ in range(6):
            group.start_soon(call)
        await wait_all_tasks_blocked()
        assert engine.running == 2
        engine.may_end.set()
    assert answers == [Completed(0, b"docker")] * 6
    assert engine.most == 2


async def test_a_command_gives_its_turn_back_once_it_is_through() -> None:
    """And not only when it has ended; nor twice."""
    engine = Engine()
    turns = Semaphore(1)
    runner = TurnTaking(engine, turns)
    async with runner.open(("docker",)) as first:
        assert turns.value == 0
        engine.programs[0].connected.set()
        assert await first.receive_stdout() == b"hello"
        assert turns.value == 1
        async with runner.open(("docker",)) as second:
            assert await first.receive_stdout() == b"hello"
            assert turns.value == 0
            await second.send(b"x")
            await second.close_stdin()
            assert (await second.receive_stderr(), await second.wait()) == (b"err", 3)
            second.kill()
        assert turns.value == 1
    assert turns.value == 1
    assert (engine.programs[1].sent, engine.programs[1].killed) == ([b"x", b"end"], True)


async def test_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that hangs holds its own turn, and nobody up."""
    monkeypatch.setattr(dialing, "PATIENCE", 0.05)
    turns = Semaphore(1)
    await turns.acquire()
    runner = TurnTaking(Engine(), turns)
    async with runner.open(("docker",)):
        assert turns.value == 0
    assert turns.value == 0
