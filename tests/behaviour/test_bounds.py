"""What an executor takes on at once, how long it waits, and how limits are clamped."""

from __future__ import annotations

import time

import pytest
from anyio import create_task_group, sleep

from sandbox_exec import ExecSpec, ExecutorBusyError
from sandbox_exec.testing import FakeCall

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import FakePlace

pytestmark = pytest.mark.anyio


async def test_only_so_many_commands_run_at_once(place: FakePlace) -> None:
    """Of sessions and one-offs together (C10)."""
    most = now = 0

    async def work(_call: FakeCall) -> int:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await sleep(0.005)
        now -= 1
        return 0

    place.daemon.commands["work"] = work
    async with place.executor(max_parallel=3) as executor:
        callers = [Caller(executor, "work", (None, "a", "b")[n % 3]) for n in range(15)]
        async with create_task_group() as group:
            for caller in callers:
                group.start_soon(caller)
    assert [caller.result.exit_code for caller in callers if caller.result] == [0] * 15
    assert most == 3


async def test_sessions_take_turns(place: FakePlace) -> None:
    """One that asks for many does not make another wait for all of them (C10)."""
    order: list[str] = []

    async def work(call: FakeCall) -> int:
        order.append(call.container.name)
        await sleep(0.002)
        return 0

    place.daemon.commands["work"] = work
    async with place.executor(max_parallel=1) as executor:
        for session in ("greedy", "modest", "holder"):
            await executor.run(ExecSpec(do.speaks, session))
        async with create_task_group() as group:
            group.start_soon(Caller(executor, do.lasts, "holder"))
            await until(lambda: len(place.daemon.executed) == 4)
            for session in ["greedy"] * 5 + ["modest"]:
                group.start_soon(Caller(executor, "work", session))
                await until(lambda: True)
            place.remove("holder")
    assert order.index(place.name("modest")) <= 1


@pytest.mark.parametrize("session", ["other", None])
async def test_a_wait_for_a_slot_is_bounded(place: FakePlace, session: str | None) -> None:
    """Its end is a typed error, and nothing was started (C10)."""
    async with (
        place.executor(max_parallel=1, queue_timeout=0.05) as executor,
        create_task_group() as group,
    ):
        group.start_soon(Caller(executor, do.lasts))
        await until(lambda: place.daemon.executed)
        error = await failure(executor, ExecutorBusyError, do.counts, session)
        assert (error.code, error.started, error.retryable) == ("executor-busy", False, True)
        assert error.hint
        place.stop("chat")
        await until(lambda: place.daemon.conversations == 0)
        assert (await executor.run(ExecSpec(do.counts, session))).exit_code == 0


async def test_a_wait_for_a_slot_is_not_the_commands(place: FakePlace) -> None:
    """Its limit begins when it does, and so does its duration."""

    async def quick(call: FakeCall) -> int:
        assert call.limit == 0.1
        return 0

    place.daemon.commands["quick"] = quick
    async with place.hasty(max_parallel=1) as executor, create_task_group() as group:
        await executor.run(ExecSpec(do.speaks, "other"))
        group.start_soon(Caller(executor, do.lasts))
        await until(lambda: len(place.daemon.executed) == 2)
        caller = Caller(executor, "quick", "other", timeout=0.1)
        group.start_soon(caller)
        await sleep(0.25)
        place.stop("chat")
    assert caller.result is not None
    assert (caller.result.exit_code, caller.result.timed_out) == (0, False)
    assert caller.result.duration < 0.3


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_duration_is_told_by_the_executors_clock(
    place: FakePlace, session: str | None
) -> None:
    """One clock for all, so that a test may move it."""

    async def think(call: FakeCall) -> int:
        await call.sleep(7)
        return 0

    place.daemon.commands["think"] = think
    async with place.executor() as executor:
        assert (await executor.run(ExecSpec("think", session))).duration == 7


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_slow_start_is_not_the_commands(place: FakePlace, session: str | None) -> None:
    """Neither a session's nor a one-off's (C3)."""
    async with place.executor(grace=0.05) as executor, create_task_group() as group:
        hold = place.daemon.hold("run" if session else "run --rm")
        caller = Caller(executor, do.speaks, session, timeout=0.05)
        group.start_soon(caller)
        await hold.reached()
        await sleep(0.2)
        hold.release()
    assert caller.result is not None
    assert (caller.result.exit_code, caller.result.duration < 0.15) == (3, True)


@pytest.mark.parametrize(
    ("asked", "given"), [(None, 7), (3, 3), (11, 10), (float("inf"), 10), (1e300, 10), (1e-9, 0.01)]
)
async def test_limits_are_clamped(place: FakePlace, asked: float | None, given: float) -> None:
    """Longer than the maximum means the maximum; none means the default (C8)."""
    limits: list[float] = []

    async def note(call: FakeCall) -> int:
        limits.append(call.limit)
        return 0

    place.daemon.commands["note"] = note
    async with place.executor(default_timeout=7, max_timeout=10) as executor:
        for session in ("chat", None):
            await executor.run(ExecSpec("note", session, asked))
    assert limits == [given] * 2


async def test_a_survivor_does_not_delay_its_call(place: FakePlace) -> None:
    """The guest stays with the background process; the caller and the slot do not (C5)."""
    async with place.executor(max_parallel=1) as executor:
        begun = time.monotonic()
        for _ in range(3):
            await chat(executor, do.serves)
        await chat(executor, do.speaks)
        assert time.monotonic() - begun < 5
    assert place.container("chat").background == [do.serves] * 3


async def test_a_survivor_whose_guest_says_nothing_delays_a_little(place: FakePlace) -> None:
    """The farewell is awaited for a grace at most, and not by the caller."""
    async with place.hasty() as executor:
        await chat(executor, do.serves)
        place.daemon.hang()
        place.daemon.thaw()
        assert (await chat(executor, do.speaks)).exit_code == 3
