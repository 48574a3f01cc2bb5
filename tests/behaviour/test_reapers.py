"""The reapers on the engine in memory, with time moved: what they stop, remove, ask and leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from anyio import create_task_group, sleep, wait_all_tasks_blocked

from sandbox_exec import ExecResult, ExecSpec, LocalDockerExecutor, SandboxError
from sandbox_exec._naming import LABEL_DEPLOYMENT, LABEL_KEY, LABEL_KIND, session_key
from sandbox_exec.testing import FakeDaemon

from . import vocabulary as do
from .calls import chat
from .places import FakePlace

pytestmark = pytest.mark.anyio

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
ROOT: Final = "/srv/w"


async def use(executor: LocalDockerExecutor, *sessions: str) -> None:
    """Use sessions, to the very end: a call is answered a moment before its guest has left."""
    for session in sessions:
        await executor.run(ExecSpec(do.counts, session))
    daemon = executor._runner
    assert isinstance(daemon, FakeDaemon)
    await until(lambda: daemon.conversations == 0)


async def until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110  # the engine in memory tells nobody
        await sleep(0.001)


def since(place: FakePlace, before: int) -> list[str]:
    """The engine commands made after the first ``before``, by name."""
    return [argv[1] for argv in place.daemon.calls[before:]]


def workspaces(place: FakePlace) -> set[str]:
    """The keys of the workspaces there are on the daemon's host."""
    names = (path.partition(f"{ROOT}/")[2] for path in place.daemon.disks)
    return {name for name in names if name and not name.startswith(".")}


def keys(*sessions: str) -> set[str]:
    return {session_key(session) for session in sessions}


async def test_an_idle_sandbox_is_stopped_and_woken(place: FakePlace) -> None:
    """With its files; the call that wakes it says that its processes are gone."""
    async with place.executor(idle_after=60) as executor:
        await use(executor, "chat")
        assert await executor.evict_idle() == 0
        place.daemon.clock.advance(61)
        assert await executor.evict_idle() == 1
        assert place.state("chat") == "exited"
        found = await chat(executor, do.shows_count)
        assert found.stdout == "x\n"
        assert "stopped" in str(found.reset)


async def test_idleness_counts_from_the_end_of_the_last_call(place: FakePlace) -> None:
    """However long that took (S6)."""
    async with place.executor(idle_after=60) as executor, create_task_group() as group:
        group.start_soon(chat, executor, do.lasts)
        await chat(executor, do.awaits_begun)
        place.daemon.clock.advance(1000)
        before = len(place.daemon.calls)
        assert await executor.evict_idle() == 0
        assert await executor.sweep_unclaimed() == 0
        assert "exec" not in since(place, before)
        group.cancel_scope.cancel()
    assert place.state("chat") == "running"


async def test_a_sandbox_that_another_server_uses_is_kept(place: FakePlace) -> None:
    """Its guest has the last word, and is not asked again before it may matter (S11, R2)."""
    async with place.executor(idle_after=60) as one, place.executor(idle_after=60) as two:
        await use(one, "chat")
        place.daemon.clock.advance(50)
        await use(two, "chat")
        place.daemon.clock.advance(20)
        before = len(place.daemon.calls)
        for _ in range(3):
            assert await one.evict_idle() == 0
        assert since(place, before) == ["exec"]
        place.daemon.clock.advance(41)
        assert await one.evict_idle() == 1


async def test_a_call_that_meets_a_retirement_waits_and_wakes(place: FakePlace) -> None:
    """It was asked for while the sandbox went to sleep, and succeeds (S6)."""
    async with place.executor(idle_after=60) as executor:
        await use(executor, "chat")
        place.daemon.clock.advance(61)
        async with create_task_group() as group:
            for _ in range(5):
                group.start_soon(executor.evict_idle)
                group.start_soon(use, executor, "chat")
        assert (await chat(executor, do.shows_count)).stdout == "x\n" * 6


async def test_a_restart_never_stops_the_fleet(place: FakePlace) -> None:
    """What ran unwatched is idle only after this process has watched it for as long."""
    async with place.executor() as executor:
        await use(executor, "a", "b")
    place.daemon.clock.advance(10 * DAY)
    async with place.executor(idle_after=60) as executor:
        before = len(place.daemon.calls)
        assert await executor.sweep_unclaimed() == 0
        assert since(place, before) == ["ps", "info", "inspect"]
        place.daemon.clock.advance(61)
        assert await executor.sweep_unclaimed() == 2
    assert (place.state("a"), place.state("b")) == ("exited", "exited")


async def test_an_old_one_is_removed(place: FakePlace) -> None:
    """By its end, on the daemon's clock; a use in between renews it."""
    async with place.executor(idle_after=60, ttl=DAY) as executor:
        await use(executor, "a", "b")
        place.daemon.clock.advance(61)
        assert await executor.evict_idle() == 2
        place.daemon.clock.advance(DAY - 1)
        await use(executor, "b")
        assert await executor.sweep_unclaimed() == 0
        place.daemon.clock.advance(61)
        assert await executor.evict_idle() == 1
        assert await executor.sweep_unclaimed() == 1
        assert place.containers() == [place.name("b")]


async def test_this_hosts_clock_makes_nothing_older(place: FakePlace) -> None:
    """It may be years ahead of the daemon's (R1)."""
    async with place.executor(idle_after=60, ttl=DAY, wall=lambda: 9e9) as executor:
        await use(executor, "a")
        place.daemon.clock.advance(61)
        assert await executor.evict_idle() == 1
        assert await executor.sweep_unclaimed() == 0
        place.daemon.fail_next("info", stdout="{}\n", exit_code=0)
        place.daemon.clock.advance(2 * DAY)
        assert await executor.sweep_unclaimed() == 0
        assert await executor.sweep_unclaimed() == 1


async def test_the_cap_takes_the_longest_cold(place: FakePlace) -> None:
    """Not one that runs, and none in use."""
    async with place.executor(idle_after=60, max_dormant=2) as executor:
        for session in "abcd":
            await use(executor, session)
            place.daemon.clock.advance(61)
            await executor.evict_idle()
        await use(executor, "a")
        assert await executor.sweep_unclaimed() == 1
        assert sorted(place.containers()) == sorted(place.name(s) for s in "acd")


@pytest.mark.parametrize("kind", ["session", "one-off", "reaper"])
@pytest.mark.parametrize("state", ["created", "exited", "dead", "paused", "restarting", "running"])
async def test_leftovers_go_and_others_stay(place: FakePlace, kind: str, state: str) -> None:
    """What never ran, and what served one call: by age. Nobody's container: never."""
    key = session_key("left")
    labels = {LABEL_DEPLOYMENT: "test", LABEL_KIND: kind, LABEL_KEY: key}
    name = place.name("left") if kind == "session" else "sbx.test.once.00"
    place.daemon.take_name(name, labels=labels, state=state)
    place.daemon.take_name("mine", labels=labels, state=state)
    place.daemon.take_name("sbx.other.x", labels={LABEL_DEPLOYMENT: "other"}, state=state)
    goes = state in {"created", "dead"} or (state == "exited" and kind != "session")
    async with place.executor(idle_after=900) as executor:
        place.daemon.clock.advance(899)
        await executor.sweep_unclaimed()
        assert name in place.containers()
        place.daemon.clock.advance(2)
        await executor.sweep_unclaimed()
        assert (name in place.containers()) != goes
        assert {"mine", "sbx.other.x"} <= set(place.containers())


async def test_one_being_made_is_not_asked_about(place: FakePlace) -> None:
    """An inspect would wait for it (F7)."""
    async with place.executor() as executor:
        labels = {LABEL_DEPLOYMENT: "test", LABEL_KIND: "session", LABEL_KEY: session_key("a")}
        made = place.daemon.take_name(place.name("a"), labels=labels, state="created")
        await executor.sweep_unclaimed()
        assert all(made.id not in argv for argv in place.ran("inspect"))


def sleepers(place: FakePlace, count: int, *, state: str = "exited") -> None:
    for number in range(count):
        key = session_key(f"{state}-{number}")
        labels = {LABEL_DEPLOYMENT: "test", LABEL_KIND: "session", LABEL_KEY: key}
        place.daemon.take_name(f"sbx.test.{key}", labels=labels, state=state)


async def test_three_hundred_containers_cost_four_calls(place: FakePlace) -> None:
    """One list, one time, one look, one more before acting; an exec for each that may be idle, and
    one call for each thing done (R2).
    """
    sleepers(place, 290)
    async with place.executor(idle_after=60, ttl=DAY, max_dormant=0) as executor:
        await use(executor, *(str(n) for n in range(10)))
        place.daemon.clock.advance(2 * DAY)
    async with place.executor(idle_after=60, ttl=DAY, max_dormant=0) as executor:
        place.daemon.clock.advance(61)
        before = len(place.daemon.calls)
        assert await executor.sweep_unclaimed() == 300
        made = since(place, before)
        assert sorted(made) == sorted(["ps", "info", "inspect", "inspect", "rm", *["exec"] * 10])
        assert "--force" not in place.ran("rm")[-1]
        before = len(place.daemon.calls)
        assert await executor.sweep_unclaimed() == 0
        assert since(place, before) == ["ps", "info", "inspect"]


async def test_a_long_fleet_is_asked_in_batches(place: FakePlace) -> None:
    """No command line is longer than the kernel takes."""
    sleepers(place, 1201)
    async with place.executor(ttl=DAY) as executor:
        place.daemon.clock.advance(2 * DAY)
        assert await executor.sweep_unclaimed() == 1201
    longest = max(len(" ".join(argv)) for argv in place.daemon.calls)
    assert longest < 100_000


async def test_a_mute_container_is_stopped_at_the_second_time(place: FakePlace) -> None:
    """From outside, since its guest does not answer, and nothing can be in it."""
    async with place.executor() as executor:
        await use(executor, "a")
    async with place.executor(idle_after=60) as executor:
        place.daemon.clock.advance(61)
        for stopped in (0, 1):
            place.daemon.die_before_ready_next()
            assert await executor.sweep_unclaimed() == stopped
    assert place.state("a") == "exited"
    assert place.ran("stop")[-1][2:4] == ("-t", "0")


async def test_a_mute_container_that_may_be_in_use_is_left(place: FakePlace) -> None:
    """Something runs in it, or it was started anew in between."""
    async with place.executor() as one, place.executor(idle_after=60) as executor:
        await use(one, "a")
        place.daemon.clock.advance(61)
        async with create_task_group() as group:
            group.start_soon(chat, one, do.lasts)
            await chat(one, do.awaits_begun)
            place.daemon.clock.advance(61)
            for _ in range(3):
                place.daemon.die_before_ready_next()
                place.daemon.die_before_ready_next()
                assert await executor.sweep_unclaimed() == 0
                place.restart("a")
                place.daemon.clock.advance(61)
            group.cancel_scope.cancel()
    assert place.state("a") == "running"
    assert place.ran("stop") == []


async def test_a_held_one_that_is_mute_is_looked_at_as_unclaimed(place: FakePlace) -> None:
    """It does not stay for ever because this process once used it."""
    async with place.executor(idle_after=60) as executor:
        await use(executor, "a")
        place.daemon.clock.advance(61)
        place.daemon.die_before_ready_next()
        assert await executor.evict_idle() == 0
        for stopped in (0, 1):
            place.daemon.die_before_ready_next()
            assert await executor.sweep_unclaimed() == stopped


async def test_claims_are_read_at_the_moment_of_acting(place: FakePlace) -> None:
    """A session that is used again while a sweep looks around is not swept (R1)."""
    async with place.executor(idle_after=60, ttl=DAY) as executor:
        await use(executor, "a", "b")
        place.daemon.clock.advance(61)
        await executor.evict_idle()
        place.daemon.clock.advance(2 * DAY)
        hold = place.daemon.hold("inspect")
        async with create_task_group() as group:
            group.start_soon(executor.sweep_unclaimed)
            await hold.reached()
            group.start_soon(use, executor, "a")
            await hold.reached(2)
            hold.release()
        assert place.containers() == [place.name("a")]
        assert (await chat_in(executor, "a")).stdout == "x\nx\n"


async def chat_in(executor: LocalDockerExecutor, session: str) -> ExecResult:
    return await executor.run(ExecSpec(do.shows_count, session))


async def test_a_workspace_outlives_its_container_by_its_own_age(place: FakePlace) -> None:
    """It goes when nobody holds it and its last use is older than the TTL (R3)."""
    settings: dict[str, Any] = {
        "idle_after": 60,
        "ttl": DAY,
        "workspace_root": ROOT,
        "max_dormant": 1,
    }
    async with place.executor(**settings) as executor:
        await use(executor, "a")
        place.daemon.clock.advance(HOUR)
        await executor.evict_idle()
        await use(executor, "b")
        place.daemon.clock.advance(61)
        await executor.evict_idle()
        # The cap removes the colder one's container, long before its time.
        assert await executor.sweep_unclaimed() == 1
        assert await executor.sweep_workspaces() == 0
        assert workspaces(place) == keys("a", "b")
        assert (await chat_in(executor, "a")).stdout == "x\n"
        place.daemon.clock.advance(61)
        await executor.evict_idle()
        assert await executor.sweep_unclaimed() == 1
        place.daemon.clock.advance(DAY - 61)
        assert await executor.sweep_workspaces() == 0
        place.daemon.clock.advance(62)
        assert await executor.sweep_workspaces() == 1
        assert workspaces(place) == keys("a")
        await executor.sweep_unclaimed()
        assert await executor.sweep_workspaces() == 1
        assert workspaces(place) == set()
        assert not [path for path in place.daemon.disks if "/.aside" in path or "/.rem" in path]


async def test_a_workspace_that_lost_its_container_is_kept_for_as_long(place: FakePlace) -> None:
    """Somebody pruned the containers; what was used until then counts from then."""
    async with place.executor(ttl=DAY, workspace_root=ROOT) as executor:
        await use(executor, "a")
        for _ in range(50):
            await executor.sweep_workspaces()
            place.daemon.clock.advance(HOUR)
        place.remove("a")
        place.daemon.clock.advance(DAY - HOUR)
        assert await executor.sweep_workspaces() == 0
        place.daemon.clock.advance(2 * HOUR)
        assert await executor.sweep_workspaces() == 1


async def test_a_workspace_nobody_ever_saw_begins_to_age_now(place: FakePlace) -> None:
    """There is no telling when it was used."""
    async with place.executor(ttl=DAY, workspace_root=ROOT) as executor:
        await use(executor, "a")
        place.remove("a")
        place.daemon.clock.advance(10 * DAY)
        assert await executor.sweep_workspaces() == 0
        place.daemon.clock.advance(DAY + 1)
        assert await executor.sweep_workspaces() == 1


async def test_a_session_that_starts_meanwhile_has_its_workspace_back(place: FakePlace) -> None:
    """Set aside, it is found claimed, and put back (R3)."""
    async with place.executor(ttl=DAY, workspace_root=ROOT) as executor:
        await use(executor, "a")
        await executor.sweep_workspaces()
        place.remove("a")
        place.daemon.clock.advance(3 * DAY)
        (path,) = (path for path in place.daemon.disks if path.endswith(session_key("a")))
        hold = place.daemon.hold("ps")
        async with create_task_group() as group:
            group.start_soon(executor.sweep_workspaces)
            await hold.reached()
            hold.release()
            tidied = place.daemon.hold("run --rm")
            await tidied.reached()
            # Between the list and the rename: it mounts what is about to be renamed.
            made = place.daemon.take_name(
                place.name("a"), labels={LABEL_KEY: session_key("a"), LABEL_DEPLOYMENT: "test"}
            )
            made.disks["/workspace"] = place.daemon.disks[path]
            tidied.release()
        assert workspaces(place) == keys("a")
        assert place.daemon.disks[path].files == {"count": b"x\n"}


async def test_disposal_outranks_all(place: FakePlace) -> None:
    """Whatever is set aside, stamped or young goes with its session."""
    async with place.executor(ttl=DAY, workspace_root=ROOT) as executor:
        await use(executor, "a")
        await executor.sweep_workspaces()
        await executor.dispose_session("a")
        await executor.sweep_workspaces()
        assert set(place.daemon.disks) == {ROOT, f"{ROOT}/.last-use"}
        assert place.daemon.disks[f"{ROOT}/.last-use"].files == {}


async def test_without_a_root_there_is_nothing_to_tidy(place: FakePlace) -> None:
    """Not even a question."""
    async with place.executor() as executor:
        assert await executor.sweep_workspaces() == 0
    assert place.daemon.calls == []


SWEEPS: Final[dict[str, Callable[[LocalDockerExecutor], Awaitable[int]]]] = {
    "unclaimed": LocalDockerExecutor.sweep_unclaimed,
    "workspaces": LocalDockerExecutor.sweep_workspaces,
}
CALLS: Final = {
    "unclaimed": ("ps", "info", "inspect", "inspect+", "run --rm", "rm", "exec"),
    "workspaces": ("ps", "info", "ps+", *(f"run --rm{'+' * n}" for n in range(3))),
}
HOW: Final = ("fails", "hangs", "hangs-and-acts", "nonsense", "empty")


def cases() -> list[tuple[str, str, str]]:
    return [(sweep, call, how) for sweep in SWEEPS for call in CALLS[sweep] for how in HOW]


def spoil(place: FakePlace, call: str, how: str) -> None:
    """Let one call of a sweep, the first of its kind or a later one, go wrong in one way."""
    verb = call.rstrip("+")
    for _ in range(len(call) - len(verb)):
        place.daemon.spare_next(verb)
    match how:
        case "fails":
            place.daemon.fail_next(verb, stderr="Error response from daemon: oops\n")
        case "nonsense":
            place.daemon.fail_next(verb, stdout='{"\x00', exit_code=0)
        case "empty":
            place.daemon.fail_next(verb, exit_code=0)
        case _:
            place.daemon.hang_next(verb, acts=how == "hangs-and-acts")


@pytest.mark.thorough
@pytest.mark.parametrize(("sweep", "call", "how"), cases())
async def test_a_call_that_goes_wrong_loses_nothing(
    place: FakePlace, sweep: str, call: str, how: str
) -> None:
    """The sweep ends, what is young or in use is as it was, and the next one is right."""
    settings: dict[str, Any] = {"idle_after": 60, "ttl": DAY, "workspace_root": ROOT}
    # Only what hangs is waited for; a busy machine is slow to answer the rest.
    seconds = 0.4 if how.startswith("hangs") else 10.0
    patience = {"control_timeout": seconds, "start_timeout": seconds, "clock": place.daemon.clock}
    async with place.hasty(**settings, **patience) as executor:
        await use(executor, "old", "bare", "mid", "new")
        await executor.sweep_workspaces()
        place.remove("bare")
        place.daemon.clock.advance(61)
        assert await executor.evict_idle() == 3
        place.daemon.clock.advance(DAY - 100)
        await use(executor, "mid")
        place.daemon.clock.advance(61)
        await executor.evict_idle()
        place.daemon.clock.advance(40)
        await use(executor, "new")
        place.daemon.start(place.name("mid"))
        place.daemon.clock.advance(HOUR)
        await use(executor, "new")
        spoil(place, call, how)
        with suppress(SandboxError):
            await SWEEPS[sweep](executor)
        assert {place.name("new"), place.name("mid")} <= set(place.containers())
        assert workspaces(place) >= keys("new", "mid")
        for session, count in (("new", 3), ("mid", 2)):
            files = place.container(session).files
            assert files["/workspace/count"] == b"x\n" * count
        place.daemon.thaw()
        for again in (LocalDockerExecutor.sweep_unclaimed, LocalDockerExecutor.sweep_workspaces):
            await again(executor)
        assert set(place.containers()) == {place.name("new"), place.name("mid")}
        assert place.state("new") == "running"
        assert place.state("mid") == "exited"
        # One that was set aside on a list without its container is back, and as if used.
        spared = keys("old") if (call, how) == ("ps", "empty") else set()
        assert workspaces(place) - spared == keys("new", "mid")
        assert (await chat_in(executor, "mid")).stdout == "x\n" * 2


async def test_the_first_round_is_at_once(place: FakePlace) -> None:
    """What is long due does not wait for a minute more (R2)."""
    sleepers(place, 3)
    place.daemon.clock.advance(40 * DAY)
    async with place.executor(reaps=True):
        await wait_all_tasks_blocked()
        await until(lambda: not place.containers())


async def test_a_hung_engine_delays_one_reaper(place: FakePlace) -> None:
    """The others go on; and one that fails is tried again."""
    settings: dict[str, Any] = {
        "idle_after": 0.05,
        "sweep_every": 0.01,
        "workspace_sweep_every": 0.01,
    }
    async with place.executor() as executor:
        await use(executor, "chat")
    hold = place.daemon.hold("ps")
    async with place.executor(reaps=True, **settings) as executor:
        await use(executor, "chat")
        await hold.reached()
        place.daemon.clock.advance(1)
        await until(lambda: place.state("chat") == "exited")
        hold.release()


async def test_a_failing_reaper_goes_on(place: FakePlace) -> None:
    """Logged with its cause, and after a pause (R2)."""
    sleepers(place, 3)
    place.daemon.fail_next("ps", stderr="oops\n", times=2)
    place.daemon.clock.advance(40 * DAY)
    async with place.executor(reaps=True, sweep_every=0.01, workspace_root=ROOT):
        await until(lambda: not place.containers())
