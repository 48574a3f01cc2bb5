"""What the reapers decide, as functions of values."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec import SandboxError, over_dormant_cap
from sandbox_exec._docker.inventory import ContainerFacts, EngineState, parse_ps
from sandbox_exec._docker.moments import moment, rough_moment
from sandbox_exec._frames import Frame
from sandbox_exec._naming import (
    LABEL_DEPLOYMENT,
    LABEL_KEY,
    LABEL_KIND,
    container_name,
    session_key,
)
from sandbox_exec._reapers.asking import _seconds
from sandbox_exec._reapers.census import Census, _is_ours, engine_time, old_age
from sandbox_exec._reapers.dormant_cap import surplus
from sandbox_exec._reapers.idle import idle
from sandbox_exec._reapers.loop import pause_after
from sandbox_exec._reapers.unclaimed import Fate, Rules, fate, unchanged
from sandbox_exec._reapers.workspaces import Root, holders, last_uses, read_root, stale
from sandbox_exec._roster import Held

NOW: Final = 1_900_000_000.0
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
RULES: Final = Rules(idle_after=1800.0, ttl=30 * DAY, watched=DAY)
KEY: Final = session_key("chat")

times = st.none() | st.floats(NOW - 400 * DAY, NOW + 400 * DAY)
states = st.sampled_from(EngineState)
kinds = st.sampled_from(["session", "one-off", "reaper"])


def container(
    state: EngineState = EngineState.EXITED,
    *,
    kind: str = "session",
    created: float = NOW - 60 * DAY,
    started: float | None = NOW - 60 * DAY,
    finished: float | None = None,
    id_: str = "c" * 64,
    name: str | None = None,
    deployment: str = "test",
    key: str = KEY,
) -> ContainerFacts:
    labels = {LABEL_DEPLOYMENT: deployment, LABEL_KIND: kind, LABEL_KEY: key}
    name = name or container_name("test", KEY)
    return ContainerFacts(id_, name, state, labels, "image", created, started, finished)


@given(states, kinds, st.floats(0, 1e9).map(lambda age: NOW - age), times, times)
def test_only_three_states_are_ever_removed(
    state: EngineState,
    kind: str,
    created: float,
    started: float | None,
    finished: float | None,
) -> None:
    """Whatever the times say; and what runs is at most asked (R1)."""
    one = container(state, kind=kind, created=created, started=started, finished=finished)
    decided = fate(one, NOW, RULES)
    if decided is Fate.REMOVE:
        assert state in {EngineState.EXITED, EngineState.CREATED, EngineState.DEAD}
    if decided is Fate.ASK:
        assert (state, kind) == (EngineState.RUNNING, "session")


@given(states, kinds, times, times, st.floats(-400 * DAY, 0))
def test_an_earlier_clock_never_makes_anything_older(
    state: EngineState,
    kind: str,
    started: float | None,
    finished: float | None,
    skew: float,
) -> None:
    """What is kept at one time was kept at every earlier one (R1)."""
    one = container(state, kind=kind, started=started, finished=finished)
    if fate(one, NOW, RULES) is Fate.KEEP:
        assert fate(one, NOW + skew, RULES) is Fate.KEEP


@given(states, kinds, times, times)
def test_without_the_daemons_clock_nothing_is_old(
    state: EngineState, kind: str, started: float | None, finished: float | None
) -> None:
    """This host's is no stand-in for it."""
    one = container(state, kind=kind, started=started, finished=finished)
    assert fate(one, None, RULES) is not Fate.REMOVE


@pytest.mark.parametrize(
    ("age", "expected"), [(30 * DAY - 1, Fate.KEEP), (30 * DAY + 1, Fate.REMOVE)]
)
def test_the_ttl_counts_from_the_end(age: float, expected: Fate) -> None:
    """Not from when it was made or started."""
    assert fate(container(finished=NOW - age), NOW, RULES) is expected


def test_one_that_never_finished_is_not_old() -> None:
    """It may be starting at this very moment (F7)."""
    assert fate(container(finished=None), NOW, RULES) is Fate.KEEP


@pytest.mark.parametrize("state", [EngineState.CREATED, EngineState.DEAD])
@pytest.mark.parametrize("idle_after", [1.0, 1800.0])
def test_one_that_never_ran_goes_by_its_making(state: EngineState, idle_after: float) -> None:
    """After the idle window and ten minutes at least."""
    rules = Rules(idle_after, 30 * DAY, DAY)
    limit = max(idle_after, 600.0)
    young = container(state, created=NOW - limit + 1, started=None)
    old = container(state, created=NOW - limit - 1, started=None)
    assert (fate(young, NOW, rules), fate(old, NOW, rules)) == (Fate.KEEP, Fate.REMOVE)


@pytest.mark.parametrize("kind", ["one-off", "reaper"])
def test_leftovers_of_tools_go_soon(kind: str) -> None:
    """They hold nothing; but none is touched while it runs."""
    assert fate(container(kind=kind, finished=NOW - HOUR), NOW, RULES) is Fate.REMOVE
    assert fate(container(kind=kind, finished=NOW - 60), NOW, RULES) is Fate.KEEP
    assert fate(container(EngineState.RUNNING, kind=kind), NOW, RULES) is Fate.KEEP


@given(st.floats(0, DAY), st.floats(0, DAY))
def test_a_restart_never_stops_the_fleet(up: float, watched: float) -> None:
    """Idleness counts from the later of the start and the moment this process began to watch."""
    rules = Rules(1800.0, 30 * DAY, watched)
    decided = fate(container(EngineState.RUNNING, started=NOW - up), NOW, rules)
    assert (decided is Fate.ASK) == (min(NOW - (NOW - up), watched) >= 1800.0)


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=4), st.floats(0, 1e6))),
    st.integers(-3, 12),
)
def test_the_cap_takes_the_longest_cold(dormant: list[tuple[str, float]], maximum: int) -> None:
    """As many as are too many, and none that is warmer than one it leaves."""
    taken = over_dormant_cap(dormant, maximum)
    assert len(taken) == (max(len(dormant) - maximum, 0) if maximum > 0 else 0)
    coldest = sorted(time for _, time in dormant)[: len(taken)]
    names = [name for name, _ in sorted(dormant, key=lambda one: one[1])][: len(taken)]
    assert taken == names
    assert coldest == sorted(coldest)


def test_the_cap_is_s0s() -> None:
    """Its own examples."""
    dormant = [("b", 2.0), ("c", 3.0), ("a", 1.0)]
    assert over_dormant_cap(dormant, 1) == ["a", "b"]
    assert over_dormant_cap(dormant, 0) == []
    assert over_dormant_cap(dormant, 3) == []
    assert over_dormant_cap([], 5) == []


def test_the_cap_leaves_what_has_no_end() -> None:
    """There is nothing to order it by."""
    ones = [container(finished=f, id_=i * 64) for i, f in (("a", NOW), ("b", None), ("c", 1.0))]
    assert [one.id[0] for one in surplus(ones, 1)] == ["c"]


@given(st.lists(st.tuples(st.text(max_size=3), st.floats(0, 100))), st.floats(0, 100))
def test_idle_is_what_was_not_used(uses: list[tuple[str, float]], idle_after: float) -> None:
    """For so long, by this process."""
    resting = [Held(key, key, used) for key, used in uses]
    assert all(100 - held.last_used >= idle_after for held in idle(resting, 100, idle_after))
    assert set(resting) - set(idle(resting, 100, idle_after)) == {
        held for held in resting if 100 - held.last_used < idle_after
    }


def test_a_decision_is_about_what_it_was_about() -> None:
    """Woken, renamed or made anew meanwhile, it is another one (R1)."""
    old = container(finished=NOW - 40 * DAY)
    assert unchanged([old], [old]) == (old,)
    for other in (
        container(EngineState.RUNNING, finished=NOW - 40 * DAY),
        container(finished=NOW - 1),
        container(finished=NOW - 40 * DAY, started=NOW - 1),
        container(finished=NOW - 40 * DAY, id_="d" * 64),
        container(finished=NOW - 40 * DAY, deployment="other"),
    ):
        assert unchanged([old], [other]) == ()
    assert unchanged([old], []) == ()


def test_only_our_names_with_our_labels_are_ours() -> None:
    """Labels travel with a committed image into anybody's container."""
    assert _is_ours(container(), "test")
    assert not _is_ours(container(name="mine"), "test")
    assert not _is_ours(container(deployment="other"), "test")
    assert not _is_ours(container(key="../etc"), "test")
    assert not _is_ours(container(kind="spawn"), "test")
    assert _is_ours(container(kind="one-off", name="sbx.test.once.ab"), "test")
    assert not _is_ours(container(kind="one-off", name="sbx.tes.once.ab"), "test")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"SystemTime": "2026-11-29T17:57:44.5Z"}, 1795975064.5),
        ({"SystemTime": "2026-11-29T18:57:44.5+01:00"}, 1795975064.5),
        ({"host": {"serviceIsRemote": False}}, 5.0),
        ({"host": {"serviceIsRemote": True}}, None),
        ({"host": {}}, None),
        ({"SystemTime": "soon"}, None),
        ({"SystemTime": 5}, None),
        ([], None),
    ],
)
def test_the_time_is_the_daemons(info: object, expected: float | None) -> None:
    """An engine tells it; podman without a daemon of its own has this host's."""
    assert engine_time(json.dumps(info).encode(), lambda: 5.0) == expected


def test_nonsense_is_no_time() -> None:
    """An answer that cannot be read makes nothing old."""
    assert engine_time(b"{", lambda: 5.0) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-29 17:57:44 +0000 UTC", 1795975064.0),
        ("2026-11-29 18:57:44 +0100 CET", 1795975064.0),
        ("2026-11-29 17:57:44.25 +0000 UTC", 1795975064.25),
        (1795975064, 1795975064.0),
        ("2026-11-29T17:57:44Z", 1795975064.0),
        ("3 hours ago", None),
        ("9999-99-99 17:57:44 +0000 UTC", None),
        (None, None),
        (True, None),
    ],
)
def test_when_a_listed_container_was_made(text: object, expected: float | None) -> None:
    """It is only a hint, so what cannot be read is none."""
    assert rough_moment(text) == expected
    line = json.dumps({"ID": "a", "Names": "n", "State": "exited", "CreatedAt": text})
    assert parse_ps(line.encode())[0].created == expected


@pytest.mark.parametrize("text", ["", "now", "2026-11-29", "2026-13-29T17:57:44Z"])
def test_what_is_no_time(text: str) -> None:
    """It is an error, and not the year 1."""
    with pytest.raises(ValueError, match=r"time|month|day"):
        moment(text)


@given(st.text(max_size=15))
def test_a_guest_may_say_anything(text: str) -> None:
    """It cannot keep us from asking for longer than the idle window."""
    assert 1.0 <= _seconds(Frame("kept", (text,)), 30.0) <= 31.0
    assert _seconds(Frame("kept"), 30.0) == 1.0
    assert _seconds(Frame("kept", ("12",)), 30.0) == 12.0


@given(st.integers(0, 50), st.floats(0, 1), st.floats(0.01, 1e5))
def test_pauses_are_jittered_and_bounded(failures: int, chance: float, every: float) -> None:
    """A failure doubles the pause, up to a bound."""
    pause = pause_after(every, failures, chance)
    factor = min(2**failures, 16)
    assert 0.79 * every * factor <= pause <= 1.21 * every * factor


def test_old_age_is_ten_minutes_at_least() -> None:
    """However short the idle window is set."""
    assert (old_age(1.0), old_age(3600.0)) == (600.0, 3600.0)


KEYS: Final = [session_key(str(n)) for n in range(4)]


@given(
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 200)),
    st.sets(st.sampled_from(KEYS)),
    st.integers(0, 100),
)
def test_a_workspace_goes_when_nobody_holds_it_and_it_is_old(
    uses: dict[str, int], held: set[str], ttl: int
) -> None:
    """Both, and exactly then (R3)."""
    expected = {k: used for k, used in uses.items() if k not in held and 100 - used > ttl}
    assert stale(Root(100, uses), held, ttl) == expected


def test_the_last_use_of_a_workspace() -> None:
    """Its container's end; one that runs may be used until the next look."""
    running = container(EngineState.RUNNING)
    ended = container(finished=NOW - 5, key=KEYS[0])
    census = Census(NOW, (running, ended, container(kind="one-off", key="x")))
    assert last_uses(census, 60) == {KEY: NOW + 60, KEYS[0]: NOW - 5}
    assert last_uses(Census(None, (running,)), 60) == {}


def test_who_holds_a_workspace() -> None:
    """A container of this deployment by its name, one of another by what it has mounted."""
    lines = [
        {"ID": "a", "Names": f"sbx.test.{KEYS[0]}", "State": "created"},
        {"ID": "b", "Names": f"sbx.other.{KEYS[1]}", "State": "exited", "Mounts": "/other/x"},
        {"ID": "c", "Names": "x", "State": "exited", "Mounts": f"/srv/w/{KEYS[2]},vol"},
    ]
    listed = parse_ps("\n".join(map(json.dumps, lines)).encode())
    assert holders(listed, "/srv/w", "test") == {KEYS[0], KEYS[2]}


def test_only_keys_are_read_from_a_root() -> None:
    """Whatever else is in it is nobody's business."""
    printed = (
        f"now 100\n{KEY} 40\n../x 3\nlost+found 5\nnow 7\n{KEYS[0]} x\n"
        f"aside {KEYS[1]} {'ab' * 8}\naside {KEYS[1]} ../../etc\naside nokey {'ab' * 8}\n"
    )
    assert read_root(printed.encode()) == Root(100, {KEY: 40}, ((KEYS[1], "ab" * 8),))


@pytest.mark.parametrize("printed", [b"", b"later 100\n", b"now\n", b"\xff\xfe\n"])
def test_a_root_that_cannot_be_read(printed: bytes) -> None:
    """It is an error, and nothing is stale by it."""
    with pytest.raises(SandboxError):
        read_root(printed)
