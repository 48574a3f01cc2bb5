"""A call cancelled at any moment at all: nothing is left, lost or run twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from anyio import CancelScope, create_task_group, sleep, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from sandbox_exec import ExecSpec, LocalDockerExecutor
from sandbox_exec.testing import FakeDaemon

from . import vocabulary as do
from .calls import Caller, chat, until
from .places import FakePlace

pytestmark = pytest.mark.anyio

STEPS = 400


async def cancelled_after(ticks: int, operation: Callable[[], Awaitable[object]]) -> bool:
    """Cancel an operation when everybody had so many turns; return whether it was early enough."""
    scope = CancelScope()
    done = False

    async def operate() -> None:
        nonlocal done
        with scope:
            await operation()
            done = True

    async with create_task_group() as group:
        group.start_soon(operate)
        for _ in range(ticks):
            await checkpoint()
        scope.cancel()
    return not done


async def books_are_straight(place: FakePlace, executor: LocalDockerExecutor) -> None:
    """No operation is counted that is over; soon no slot is taken and nobody talks to a guest."""
    assert executor._parts is not None
    sessions = executor._parts.sessions
    assert all(len(session.visits) == 0 for session in sessions.roster.all())
    # A call is answered a moment before its program has ended.
    await until(lambda: place.daemon.conversations == 0)
    assert sessions._slots._free == 2


async def fresh_call(executor: LocalDockerExecutor) -> None:
    await chat(executor, do.counts)


async def one_off(executor: LocalDockerExecutor) -> None:
    await executor.run(ExecSpec(do.counts))


async def woken_call(executor: LocalDockerExecutor) -> None:
    await chat(executor, do.counts, stdin=b"x" * 200_000)


async def disposal(executor: LocalDockerExecutor) -> None:
    await executor.dispose_session("chat")


async def healed_call(executor: LocalDockerExecutor) -> None:
    await chat(executor, do.counts)


def prepare(place: FakePlace, operation: object) -> None:
    """Let the operation have something to do."""
    if operation is fresh_call:
        place.remove("chat")
    if operation is woken_call:
        place.stop("chat")
    if operation is healed_call:
        place.daemon.die_before_ready_next()
        place.daemon.die_before_ready_next()


@pytest.mark.parametrize("operation", [fresh_call, woken_call, healed_call, one_off, disposal])
async def test_cancelled_at_every_step(
    place: FakePlace, operation: Callable[[LocalDockerExecutor], Awaitable[None]]
) -> None:
    """Wherever it was: the books are straight at once, and the next call is served."""
    for ticks in range(STEPS):
        place.daemon = FakeDaemon(dict(place.daemon.commands))
        async with place.executor(max_parallel=2, min_free_bytes=0) as executor:
            await chat(executor, do.speaks)
            prepare(place, operation)
            early = await cancelled_after(ticks, partial(operation, executor))
            await books_are_straight(place, executor)
            place.daemon._faults.guests.clear()
            assert (await chat(executor, do.shows_count)).exit_code == 0
            assert (await executor.run(ExecSpec(do.speaks))).exit_code == 3
            await books_are_straight(place, executor)
        ran = [command for _, command in place.daemon.executed].count(do.counts)
        assert ran <= 1
        assert place.containers() == [place.name("chat")]
        if not early:
            return
    pytest.fail("it never ended")


async def test_a_caller_cancelled_in_a_queue_loses_no_slot(place: FakePlace) -> None:
    """Nor does it make the others wait for longer."""
    async with place.executor(max_parallel=1) as executor, create_task_group() as group:
        group.start_soon(Caller(executor, do.lasts))
        await until(lambda: place.daemon.executed)
        scope = CancelScope()

        async def queue() -> None:
            with scope:
                await executor.run(ExecSpec(do.counts, "other"))

        group.start_soon(queue)
        await until(lambda: place.name("other") in place.containers())
        last = Caller(executor, do.counts, "third")
        group.start_soon(last)
        await until(lambda: place.name("third") in place.containers())
        scope.cancel()
        place.stop("chat")
        await until(lambda: last.result)
    assert place.daemon.executed.count((place.name("other"), do.counts)) == 0


async def test_many_cancelled_calls_leave_a_clean_house(place: FakePlace) -> None:
    """In parallel and in two sessions, over and over."""
    async with place.executor(max_parallel=2) as executor:
        for round_ in range(15):
            async with create_task_group() as group:
                for number in range(6):
                    session = (None, "chat", "b")[number % 3]
                    group.start_soon(executor.run, ExecSpec(do.lasts, session))
                for _ in range(round_ * 7):
                    await checkpoint()
                group.cancel_scope.cancel()
            await books_are_straight(place, executor)
        assert (await chat(executor, do.speaks)).exit_code == 3
    assert len(place.containers()) <= 2


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("session", ["chat", None])
async def test_asyncios_own_cancellation(place: FakePlace, session: str | None) -> None:
    """``Task.cancel`` and ``wait_for`` know no scopes, and end the command all the same."""
    async with place.executor() as executor:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(executor.run(ExecSpec(do.lasts, session)), 1)
        assert [kill.why for kill in place.daemon.killed] == ["client-gone"]
        assert place.daemon.conversations == 0
        task = asyncio.create_task(executor.run(ExecSpec(do.lasts, session)))
        await until(lambda: len(place.daemon.executed) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(place.daemon.killed) == 2
        assert (await executor.run(ExecSpec(do.speaks, session))).exit_code == 3


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncios_own_cancellation_at_every_step(place: FakePlace) -> None:
    """Said once, whatever it interrupts."""
    for ticks in range(STEPS):
        place.daemon = FakeDaemon(dict(place.daemon.commands))
        async with place.executor(max_parallel=2, min_free_bytes=0) as executor:
            task = asyncio.create_task(executor.run(ExecSpec(do.counts, "chat")))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            await books_are_straight(place, executor)
            assert (await chat(executor, do.shows_count)).exit_code == 0
        assert [command for _, command in place.daemon.executed].count(do.counts) <= 1
        assert len(place.ran("run")) <= 2
        if not isinstance(outcome, BaseException):
            return
        assert isinstance(outcome, asyncio.CancelledError)
    pytest.fail("it never ended")


async def test_a_second_cancellation_while_the_first_is_served(place: FakePlace) -> None:
    """The clean-up is shielded, and bounded by the grace."""
    async with place.hasty() as executor:
        await chat(executor, do.speaks)
        async with create_task_group() as outer:
            scope = CancelScope()

            async def call() -> None:
                with scope:
                    await chat(executor, do.lasts)

            outer.start_soon(call)
            await until(lambda: len(place.daemon.executed) == 2)
            place.daemon.hang()
            scope.cancel()
            await sleep(0.02)
            outer.cancel_scope.cancel()
        assert place.daemon.conversations == 0
        place.daemon.thaw()
        await wait_all_tasks_blocked()
        assert (await chat(executor, do.shows_end)).stdout == "ended early\n"
