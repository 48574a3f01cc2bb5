"""A fleet over weeks of moved time: after each step, what there is is what the rules say."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from typing import Any, Final

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import checkpoint
from attrs import Factory, define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sandbox_exec import ExecSpec, LocalDockerExecutor, over_dormant_cap
from sandbox_exec._naming import container_name, session_key

from . import vocabulary as do
from .places import FakePlace

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
ROOT: Final = "/srv/w"
IDLE_AFTER: Final = 30 * MINUTE
TTL: Final = 10 * DAY
MAX_DORMANT: Final = 4


@define
class Server:
    """One process of the model: since when it watches, and what it holds, with its last use."""

    since: float
    held: dict[str, float] = Factory(dict)


@define
class Sandbox:
    """One container of the model."""

    made: float
    started: float
    used: float
    stopped: float | None = None


@define
class Model:
    """The rules, written down a second time and without an engine.

    :ivar kept: the earliest time at which a session's files may be gone.
    :ivar seen: the last time at which a session had a container.
    """

    now: float
    ttl: float = TTL
    max_dormant: int = MAX_DORMANT
    sandboxes: dict[str, Sandbox] = Factory(dict)
    kept: dict[str, float] = Factory(dict)
    seen: dict[str, float] = Factory(dict)

    def use(self, server: Server, key: str) -> None:
        sandbox = self.sandboxes.get(key)
        if sandbox is None:
            sandbox = self.sandboxes[key] = Sandbox(self.now, self.now, self.now)
        if sandbox.stopped is not None:
            sandbox.started, sandbox.stopped = self.now, None
        sandbox.used = server.held[key] = self.now
        self.kept[key] = self.now + self.ttl

    def _retire(self, key: str) -> bool:
        sandbox = self.sandboxes[key]
        if sandbox.stopped is None and self.now - sandbox.used >= IDLE_AFTER:
            sandbox.stopped = self.now
            return True
        return False

    def evict_idle(self, server: Server) -> None:
        for key, used in list(server.held.items()):
            if self.now - used < IDLE_AFTER:
                continue
            there = key in self.sandboxes and self.sandboxes[key].stopped is None
            if not there or self._retire(key):
                del server.held[key]

    def sweep_unclaimed(self, server: Server) -> None:
        by_making = sorted(self.sandboxes.items(), key=lambda one: one[1].made)
        cold = {k: s.stopped for k, s in by_making if s.stopped is not None}
        for key, sandbox in self.sandboxes.items():
            up = min(self.now - sandbox.started, self.now - server.since)
            if key not in server.held and up >= IDLE_AFTER:
                self._retire(key)
        old = [key for key, stopped in cold.items() if self.now - stopped > self.ttl]
        left = [(key, stopped) for key, stopped in cold.items() if key not in old]
        for key in old + over_dormant_cap(left, self.max_dormant):
            del self.sandboxes[key]

    def look(self) -> None:
        for key in self.sandboxes:
            self.seen[key] = self.now

    def forget(self, key: str) -> None:
        for of in (self.sandboxes, self.kept, self.seen):
            of.pop(key, None)


def workspaces(place: FakePlace) -> set[str]:
    names = (path.partition(f"{ROOT}/")[2] for path in place.daemon.disks)
    return {name for name in names if name and not name.startswith(".")}


def check(place: FakePlace, model: Model, longest_step: float) -> None:
    """The containers are exactly those of the rules, each in its state; files are there for as
    long as they must be, and not much longer.
    """
    expected = {
        container_name("test", key): "running" if one.stopped is None else "exited"
        for key, one in model.sandboxes.items()
    }
    assert {name: one.state for name, one in place.daemon.containers.items()} == expected
    there = workspaces(place)
    assert set(model.sandboxes) <= there
    assert {key for key, until in model.kept.items() if model.now <= until} <= there
    # An hour for the next look, and one step in which nobody looked.
    late = model.ttl + HOUR + longest_step
    assert {key for key in there if model.now - model.seen[key] > late} == set()


def open_server(place: FakePlace, **how: Any) -> LocalDockerExecutor:  # noqa: ANN401  # SandboxConfig's
    defaults = {"idle_after": IDLE_AFTER, "ttl": TTL, "max_dormant": MAX_DORMANT}
    return place.executor(workspace_root=ROOT, **{**defaults, **how})


async def use(place: FakePlace, executor: LocalDockerExecutor, session: str) -> None:
    await executor.run(ExecSpec(do.counts, session))
    # The end of a call's conversation is not waited for, but is part of its use.
    while place.daemon.conversations:
        await checkpoint()


async def sweep(executor: LocalDockerExecutor) -> None:
    await executor.evict_idle()
    await executor.sweep_unclaimed()
    await executor.sweep_workspaces()


SESSIONS: Final = [f"s{n}" for n in range(9)]
LONGEST: Final = 3 * DAY
sessions = st.sampled_from(SESSIONS)
servers = st.sampled_from([0, 1])


class Fleet(RuleBasedStateMachine):
    """Two servers of one deployment, and whoever else has a hand in it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = FakePlace()
        self.model = Model(self.place.daemon.clock())
        self._portal_block = start_blocking_portal()
        self.portal: BlockingPortal = self._portal_block.__enter__()
        self.executors: list[LocalDockerExecutor] = []
        self.blocks: list[AbstractContextManager[LocalDockerExecutor]] = []
        self.servers: list[Server] = []

    @initialize()
    def begin(self) -> None:
        for _ in range(2):
            self._open(len(self.blocks))

    def _open(self, at: int) -> None:
        block = self.portal.wrap_async_context_manager(open_server(self.place))
        self.blocks.insert(at, block)
        self.executors.insert(at, block.__enter__())
        self.servers.insert(at, Server(self.model.now))

    def _close(self, at: int) -> None:
        self.blocks.pop(at).__exit__(None, None, None)
        del self.executors[at], self.servers[at]

    def _tick(self, seconds: float) -> None:
        self.model.look()
        self.place.daemon.clock.advance(seconds)
        self.model.now += seconds
        self.model.look()

    @rule(server=servers, session=sessions)
    def use(self, server: int, session: str) -> None:
        self.portal.call(use, self.place, self.executors[server], session)
        self.model.use(self.servers[server], session_key(session))
        # So that no two are made in the same moment.
        self._tick(1)

    @rule(
        minutes=st.one_of(
            st.integers(1, 45), st.sampled_from([6 * 60, 24 * 60, int(LONGEST / MINUTE)])
        ),
        server=servers,
    )
    def pass_time(self, minutes: int, server: int) -> None:
        self._tick(minutes * MINUTE)
        self.portal.call(sweep, self.executors[server])
        self.model.evict_idle(self.servers[server])
        self.model.sweep_unclaimed(self.servers[server])

    @rule(server=servers)
    def restart_server(self, server: int) -> None:
        self._close(server)
        self._open(server)

    @rule(server=servers, session=sessions)
    def dispose(self, server: int, session: str) -> None:
        key = session_key(session)
        self.portal.call(self.executors[server].dispose_session, session)
        self.servers[server].held.pop(key, None)
        self.model.forget(key)
        assert key not in workspaces(self.place)

    @rule(session=sessions)
    def prune(self, session: str) -> None:
        key = session_key(session)
        if key in self.model.sandboxes:
            self.portal.call(self.place.remove, session)
            del self.model.sandboxes[key]

    @rule(session=sessions)
    def stop(self, session: str) -> None:
        sandbox = self.model.sandboxes.get(session_key(session))
        if sandbox is not None and sandbox.stopped is None:
            self.portal.call(self.place.stop, session)
            sandbox.stopped = self.model.now

    @invariant()
    def what_there_is_is_what_the_rules_say(self) -> None:
        check(self.place, self.model, LONGEST)

    def teardown(self) -> None:
        while self.blocks:
            self._close(0)
        self._portal_block.__exit__(None, None, None)


TestFleet = Fleet.TestCase
TestFleet.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestFleet.pytestmark = [pytest.mark.thorough]  # type: ignore[attr-defined]


@define
class Simulation:
    """Sessions that come, are used for a while and come back, by the hour."""

    count: int
    days: int
    seed: int = 7
    place: FakePlace = Factory(FakePlace)
    chance: random.Random = field(init=False)
    checked: int = 0

    def __attrs_post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    async def run(self) -> None:
        """Live through it, checking after each hour."""
        model = Model(self.place.daemon.clock(), max_dormant=50)
        hours = self.days * 24
        came = 0
        async with open_server(self.place, max_dormant=50) as executor:
            server = Server(model.now)
            for hour in range(hours):
                due = self.count * (hour + 1) // hours
                new = [f"s{n}" for n in range(came, due)]
                back = [f"s{self.chance.randrange(due)}" for _ in range(2)] if due else []
                came = due
                for session in dict.fromkeys(new + back):
                    await use(self.place, executor, session)
                    model.use(server, session_key(session))
                    self.place.daemon.clock.advance(1)
                    model.now += 1
                model.look()
                minutes = self.chance.choice([20, 60, 100]) * MINUTE
                self.place.daemon.clock.advance(minutes)
                model.now += minutes
                model.look()
                await sweep(executor)
                model.evict_idle(server)
                model.sweep_unclaimed(server)
                check(self.place, model, 2 * HOUR)
                self.checked += 1


@pytest.mark.thorough
def test_some_sessions_over_three_weeks() -> None:
    """The rules hold at each hour."""
    simulation = Simulation(300, 20)
    anyio.run(simulation.run)
    assert simulation.checked == 20 * 24


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_ten_thousand_sessions_over_two_months() -> None:
    """As above, all of them."""
    simulation = Simulation(10_000, 60)
    anyio.run(simulation.run)
    assert simulation.checked == 60 * 24
