"""A sandbox that others stop and start all the time: waited for, and never restarted by us."""

from __future__ import annotations

import pytest
from anyio import create_task_group, sleep

from sandbox_exec import SandboxBrokenError

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import FakePlace

pytestmark = pytest.mark.anyio

STOPPED = "cannot exec in a stopped state: unknown\n"
LOST = (
    "OCI runtime exec failed: exec failed: unable to start container process: "
    "read init-p: connection reset by peer: unknown\n"
)


def fail(place: FakePlace, words: str, times: int) -> None:
    """Let so many execs find that their container just ends."""
    place.daemon.fail_next("exec", stdout=words, exit_code=126, times=times)


@pytest.mark.parametrize(("words", "times"), [(STOPPED, 5), (LOST, 2)])
async def test_an_end_is_looked_at_again(place: FakePlace, words: str, times: int) -> None:
    """However often it is said: what runs in the sandbox belongs to others, too."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        fail(place, words, times)
        assert (await chat(executor, do.counts)).reset is None
    assert place.ran("restart") == []
    assert place.container("chat").starts == 1


def restart(place: FakePlace) -> None:
    """Restart the sandbox behind our back, at another time than before."""
    place.daemon.clock.advance(1)
    place.restart("chat")


async def test_others_who_restart_it_again_and_again(place: FakePlace) -> None:
    """Each call ends well, with a true word of what was lost."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        callers = [Caller(executor, do.counts) for _ in range(8)]
        for caller in callers:
            fail(place, STOPPED, 2)
            place.daemon.die_before_ready_next()
            async with create_task_group() as group:
                group.start_soon(caller)
                # Refused twice, it waits before it looks again, so that no command runs now.
                await until(lambda: not place.daemon._faults.failures)
                restart(place)
    assert [caller.error for caller in callers] == [None] * 8
    told = " ".join(str(caller.result and caller.result.reset) for caller in callers)
    assert ("had been restarted" in told, "run out" in told) == (True, False)
    assert place.ran("restart") == []


async def test_others_who_never_leave_it_alone(place: FakePlace) -> None:
    """That is what the error says, in bounded time, and a later call may do better."""
    async with place.hasty() as executor, create_task_group() as group:
        await chat(executor, do.counts)

        async def meddle() -> None:
            while True:
                await sleep(0.05)
                restart(place)

        group.start_soon(meddle)
        fail(place, STOPPED, 1000)
        error = await failure(executor, SandboxBrokenError, do.counts)
        group.cancel_scope.cancel()
    assert (error.code, error.retryable, error.started) == ("sandbox-unsettled", True, False)
    assert "kept being stopped or restarted by others" in str(error)
    assert place.ran("restart") == []


async def test_an_end_that_is_none_is_healed_in_the_end(place: FakePlace) -> None:
    """An engine that takes a container for running whose processes are gone: nobody lost any."""
    hold = place.daemon.hold("restart")
    async with place.hasty() as executor, create_task_group() as group:
        await chat(executor, do.counts)
        fail(place, STOPPED, 1000)
        caller = Caller(executor, do.counts)
        group.start_soon(caller)
        await hold.reached()
        place.daemon._faults.failures.clear()
        hold.release()
    assert caller.result is not None
    assert "no longer answered" in str(caller.result.reset)


async def test_a_full_sandbox_is_told_by_looking_often(place: FakePlace) -> None:
    """What a runtime says in one whose processes have run out (S15)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        fail(place, LOST, 4)
        assert "run out of processes" in str((await chat(executor, do.counts)).reset)
    assert len(place.ran("restart")) == 1
