"""Starting: names that are taken, states in between, failures, and who waits for whom."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from anyio import create_task_group, move_on_after, sleep

from sandbox_exec import (
    ContainerStartError,
    ExecSpec,
    SandboxBrokenError,
    SandboxDisposedError,
)

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import FakePlace

pytestmark = pytest.mark.anyio

CONFLICT = (
    'docker: Error response from daemon: Conflict. The container name "/x" is already in use by '
    'container "0123". You have to remove (or rename) that container to be able to reuse that '
    "name.\n"
)
REMOVING = "Error response from daemon: removal of container x is already in progress\n"
MARKED = (
    "Error response from daemon: container is marked for removal and cannot be started\n"
    "Error: failed to start containers: x\n"
)


async def later(act: Callable[[], object]) -> None:
    """Do something to a container while a start waits for it."""
    await sleep(0.05)
    act()


async def test_a_lost_race_for_the_name_adopts(place: FakePlace) -> None:
    """The winner's container has the same policy, so it serves both (S9)."""
    hold = place.daemon.hold("run")
    async with place.executor() as one, place.executor() as two, create_task_group() as group:
        callers = [Caller(one, do.counts), Caller(two, do.counts)]
        for caller in callers:
            group.start_soon(caller)
        await hold.reached(2)
        hold.release()
    assert [caller.result is not None and caller.result.reset for caller in callers] == [None] * 2
    assert (len(place.containers()), len(place.ran("run"))) == (1, 2)
    assert place.ran("rm") == []


async def test_a_lost_race_against_another_policy_replaces(place: FakePlace) -> None:
    """What the winner made is not what the loser may use (S8)."""
    async with place.executor(memory="100m") as other, place.executor() as executor:
        hold = place.daemon.hold("run")
        async with create_task_group() as group:
            caller = Caller(executor, do.shows_count)
            group.start_soon(caller)
            await hold.reached()
            place.daemon._faults.stalls.clear()
            await chat(other, do.counts)
            hold.release()
        assert caller.result is not None
        assert (caller.result.stdout, "limits" in str(caller.result.reset)) == ("none\n", True)
    assert len(place.containers()) == 1


@pytest.mark.parametrize("words", [CONFLICT, REMOVING])
async def test_a_name_that_comes_free_is_taken(place: FakePlace, words: str) -> None:
    """Somebody else's removal is awaited, not joined (S9)."""
    place.daemon.fail_next("run", stderr=words, exit_code=125)
    async with place.executor() as executor:
        assert (await chat(executor, do.counts)).exit_code == 0
    assert (len(place.ran("run")), place.ran("rm")) == (2, [])


async def test_a_name_that_never_comes_free_is_given_up(place: FakePlace) -> None:
    """Within the start's budget, and it may be tried again."""
    place.daemon.fail_next("run", stderr=CONFLICT, exit_code=125, times=100)
    async with place.hasty() as executor:
        begun = time.monotonic()
        error = await failure(executor, ContainerStartError, do.counts)
        assert time.monotonic() - begun < 1.5
        assert (error.code, error.retryable, error.started) == ("start-timeout", True, False)
        place.daemon._faults.failures.clear()
        assert (await chat(executor, do.counts)).exit_code == 0


@pytest.mark.parametrize("state", ["removing", "restarting", "stopping"])
async def test_a_state_in_between_is_awaited(place: FakePlace, state: str) -> None:
    """Nothing is done to a container that somebody else is at work on (S7)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    place.daemon.set_state(place.name("chat"), state)
    act = place.remove if state == "removing" else place.daemon.start
    async with place.executor() as executor, create_task_group() as group:
        group.start_soon(later, lambda: act("chat" if state == "removing" else place.name("chat")))
        result = await chat(executor, do.shows_count)
    assert result.stdout == ("none\n" if state == "removing" else "x\n")
    assert place.ran("rm") == []


@pytest.mark.parametrize("state", ["removing", "restarting"])
async def test_a_state_in_between_that_lasts_is_given_up(place: FakePlace, state: str) -> None:
    """Bounded, and still nothing was done to it."""
    async with place.hasty() as executor:
        await chat(executor, do.counts)
        place.daemon.set_state(place.name("chat"), state)
        error = await failure(executor, ContainerStartError, do.counts)
        assert (error.code, place.state("chat")) == ("start-timeout", state)


@pytest.mark.parametrize("state", ["dead", "created"])
async def test_containers_that_never_serve(place: FakePlace, state: str) -> None:
    """A dead one is rebuilt, and one that never ran is started without a word (F11)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.daemon.set_state(place.name("chat"), state)
    async with place.executor() as executor:
        result = await chat(executor, do.shows_count)
    if state == "dead":
        assert (result.stdout, "rebuilt" in str(result.reset)) == ("none\n", True)
    else:
        assert (result.stdout, result.reset) == ("x\n", None)


async def test_a_removal_under_way_is_awaited(place: FakePlace) -> None:
    """Both want the same, so losing that race is no failure (F11)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    place.daemon.fail_next("rm", stderr=REMOVING)
    async with place.executor(memory="100m") as executor, create_task_group() as group:
        group.start_soon(later, lambda: place.remove("chat"))
        result = await chat(executor, do.shows_count)
    assert (result.stdout, "limits" in str(result.reset)) == ("none\n", True)
    assert len(place.ran("rm")) == 1


async def test_a_removal_that_is_refused_is_an_error(place: FakePlace) -> None:
    """With the engine's words; for a disposal as well, which can be repeated."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.daemon.fail_next("rm", stderr="Error response from daemon: not today\n")
        with pytest.raises(ContainerStartError, match="not today") as caught:
            await executor.dispose_session("chat")
        assert caught.value.argv[:2] == ("docker", "rm")
        await executor.dispose_session("chat")
    assert place.containers() == []


async def test_a_disposal_joins_a_removal_under_way(place: FakePlace) -> None:
    """Somebody else removes it, which is as good."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.daemon.fail_next("rm", stderr=REMOVING)
        async with create_task_group() as group:
            group.start_soon(later, lambda: place.remove("chat"))
            await executor.dispose_session("chat")
    assert place.containers() == []


async def test_a_wake_that_meets_a_removal_looks_again(place: FakePlace) -> None:
    """And makes a new sandbox once the old one is gone."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.stop("chat")
        place.daemon.fail_next("start", stderr=MARKED)
        async with create_task_group() as group:
            group.start_soon(later, lambda: place.remove("chat"))
            result = await chat(executor, do.shows_count)
    assert (result.stdout, "removed" in str(result.reset)) == ("none\n", True)


async def test_a_container_that_never_ran_and_does_not_start_is_made_anew(
    place: FakePlace,
) -> None:
    """It holds nothing that anybody could miss, so nothing is said."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    place.daemon.set_state(place.name("chat"), "created")
    place.daemon.fail_next("start", stderr="no\n")
    async with place.executor() as executor:
        result = await chat(executor, do.shows_count)
    assert (result.stdout, result.reset, len(place.ran("rm"))) == ("none\n", None, 1)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Error response from daemon: mkdir /x: no space left on device\n", "disk-full"),
        ("Error response from daemon: network 0123abcd not found\n", "bad-network"),
        ("Error response from daemon: something that nobody knows\n", "container-start"),
    ],
)
async def test_a_wake_that_fails_destroys_nothing(place: FakePlace, words: str, code: str) -> None:
    """Full disks pass, networks come back, and unknown words are no proof (S3)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        before = place.identity("chat")
        place.stop("chat")
        place.daemon.fail_next("start", stderr=words)
        error = await failure(executor, ContainerStartError, do.counts)
        assert (error.code, error.started, place.ran("rm")) == (code, False, [])
        assert (await chat(executor, do.shows_count)).stdout == "x\n"
        assert place.identity("chat") == before


FAULTS = [
    ("network nosuch not found", "bad-network"),
    ("Unknown runtime specified nosuch", "bad-runtime"),
    ('invalid mount config for type "bind": bind source path does not exist: /x', "bad-mount"),
    ("mkdir /x: no space left on device", "disk-full"),
    ("a fault that nobody knows", "container-start"),
]


@pytest.mark.parametrize("session", ["chat", None])
@pytest.mark.parametrize(("words", "code"), FAULTS)
async def test_a_failed_start_says_what_was_tried(
    place: FakePlace, session: str | None, words: str, code: str
) -> None:
    """Typed, with its command line, leaving nothing behind; and it is forgotten (S5)."""
    verb = "run" if session else "run --rm"
    async with place.executor() as executor:
        stderr = f"docker: Error response from daemon: {words}.\n"
        place.daemon.fail_next(verb, stderr=stderr, exit_code=125, creates=session is not None)
        error = await failure(executor, ContainerStartError, do.counts, session)
        assert (error.code, error.started, words in error.stderr) == (code, False, True)
        assert error.argv[1] == "run"
        assert place.containers() == []
        assert (await executor.run(ExecSpec(do.counts, session))).exit_code == 0


async def test_a_failed_start_fails_all_who_waited(place: FakePlace) -> None:
    """Each with an error of its own, and none of the later callers."""
    hold = place.daemon.hold("run")
    place.daemon.fail_next("run", stderr="no\n", exit_code=125)
    async with place.executor() as executor:
        callers = [Caller(executor, do.counts) for _ in range(3)]
        async with create_task_group() as group:
            for caller in callers:
                group.start_soon(caller)
            await hold.reached()
            hold.release()
        errors = {id(caller.failed(ContainerStartError)) for caller in callers}
        assert len(errors) == 3
        assert (await chat(executor, do.counts)).exit_code == 0
    assert len(place.ran("run")) == 2


async def test_a_start_outlives_the_caller_that_asked_for_it(place: FakePlace) -> None:
    """The first caller's cancellation is not everybody's (S5)."""
    hold = place.daemon.hold("run")
    async with place.executor() as executor, create_task_group() as group:
        other = Caller(executor, do.counts)
        with move_on_after(0.1) as patience:
            group.start_soon(other)
            await chat(executor, do.counts)
        assert patience.cancelled_caught
        hold.release()
        await until(lambda: other.result)
    assert (len(place.ran("run")), len(place.daemon.executed)) == (1, 1)


async def test_a_start_that_nobody_awaits_any_more_is_kept(place: FakePlace) -> None:
    """For the next caller, who starts nothing."""
    hold = place.daemon.hold("run")
    async with place.executor() as executor:
        for _ in range(2):
            with move_on_after(0.05):
                await chat(executor, do.counts)
        hold.release()
        assert (await chat(executor, do.counts)).exit_code == 0
    assert (len(place.ran("run")), len(place.daemon.executed)) == (1, 1)


async def test_a_disposal_during_a_start_leaves_nothing(place: FakePlace) -> None:
    """Not even the container that the engine was still making (S10)."""
    hold = place.daemon.hold("run")
    async with place.executor() as executor, create_task_group() as group:
        caller = Caller(executor, do.counts)
        group.start_soon(caller)
        await hold.reached()
        group.start_soon(executor.dispose_session, "chat")
        await until(lambda: caller.error)
        after = Caller(executor, do.counts)
        group.start_soon(after)
        await sleep(0.02)
        hold.release()
    assert caller.failed(SandboxDisposedError).started is False
    assert after.result is not None
    assert after.result.reset is None
    assert len(place.daemon.executed) == len(place.containers()) == 1


async def test_a_sandbox_that_ends_as_soon_as_it_starts(place: FakePlace) -> None:
    """Started a few times, then called broken, and left as it is (S14)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        before = place.identity("chat")
        place.stop("chat")
        place.daemon.fail_next("start", exit_code=0, times=20)
        error = await failure(executor, SandboxBrokenError, do.counts)
        assert (error.code, error.started, place.identity("chat")) == ("no-shell", False, before)
        assert (1 < len(place.ran("start")) < 10, place.ran("rm")) == (True, [])


async def test_a_sandbox_whose_shell_is_gone(place: FakePlace) -> None:
    """Cannot be woken by anything, and is left for who wants its files (S14)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.stop("chat")
        words = (
            "Error response from daemon: OCI runtime create failed: runc create failed: unable to "
            'start container process: exec: "sh": executable file not found in $PATH: unknown\n'
        )
        place.daemon.fail_next("start", stderr=words)
        error = await failure(executor, SandboxBrokenError, do.counts)
        assert (error.code, error.started, place.ran("rm")) == ("no-shell", False, [])
