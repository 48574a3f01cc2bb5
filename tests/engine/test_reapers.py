"""The reapers on a real engine, also against each other."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio import create_task_group, move_on_after, sleep, to_thread
from attrs import Factory, define

from sandbox_exec import ExecResult, ExecSpec, LocalDockerExecutor
from sandbox_exec._naming import session_key

from .executors import Deployment, deployment
from .real_engine import RealEngine
from .sweeper import IDLE_AFTER, TTL

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

IMAGES: Final = ("busybox", "debian")


@pytest.fixture
def here(real_engine: RealEngine) -> Iterator[Deployment]:
    """A deployment of the test's own."""
    with deployment(real_engine) as made:
        yield made


async def run(executor: LocalDockerExecutor, command: str, session: str = "chat") -> ExecResult:
    return await executor.run(ExecSpec(command, session))


def state(here: Deployment, session: str = "chat") -> str:
    return here.cli("inspect", "--format", "{{.State.Status}}", here.container(session))


@pytest.mark.parametrize("image", IMAGES)
async def test_an_idle_sandbox_is_stopped_and_woken(here: Deployment, image: str) -> None:
    """With its files, however its processes cling to life; it is not asked before it is due."""
    async with here.executor(image, idle_after=1.0, reaps=False) as executor:
        await run(executor, "echo kept > f; trap '' TERM; sleep 4711 & trap - TERM")
        assert await executor.evict_idle() == 0
        await sleep(2.1)
        assert await executor.evict_idle() == 1
        with move_on_after(5):
            while state(here) == "running":  # noqa: ASYNC110  # polling an engine is all there is
                await sleep(0.05)
        assert state(here) == "exited"
        woken = await run(executor, "cat f")
        assert (woken.stdout, woken.exit_code) == ("kept\n", 0)
        assert "stopped" in str(woken.reset)


async def test_a_call_during_a_retirement_succeeds(here: Deployment) -> None:
    """At whatever moment of it the call arrives; it wakes the sandbox if it must (S6, S11)."""
    chance = random.Random(3)
    slept = 0
    async with (
        here.executor(idle_after=1.0, reaps=False) as sweeper,
        here.executor(idle_after=1.0, reaps=False) as server,
    ):
        for session in "abcdef":
            await run(server, "echo 0 > n", session)
            await run(sweeper, "true", session)

        async def call(session: str, n: int) -> None:
            nonlocal slept
            await sleep(chance.uniform(0.0, 0.4))
            found = await run(server, f"cat n; echo {n} > n", session)
            assert (found.stdout, found.exit_code) == (f"{n - 1}\n", 0)
            slept += found.reset is not None

        for n in range(1, 6):
            await sleep(2.1)
            async with create_task_group() as group:
                group.start_soon(sweeper.evict_idle)
                for session in "abcdef":
                    group.start_soon(call, session, n)
            for session in "abcdef":
                await run(sweeper, "true", session)
    assert slept > 0


async def test_a_running_command_is_never_idle(here: Deployment) -> None:
    """Neither to its own process nor to another one."""
    async with (
        here.executor(idle_after=0.5, reaps=False) as one,
        here.executor(idle_after=0.5, reaps=False) as two,
        create_task_group() as group,
    ):
        results: list[ExecResult] = []

        async def long() -> None:
            results.append(await run(one, "sleep 4; echo done"))

        group.start_soon(long)
        await sleep(1)
        while not results:
            await one.evict_idle()
            await one.sweep_unclaimed()
            await two.sweep_unclaimed()
        assert (results[0].stdout, results[0].reset) == ("done\n", None)


async def test_old_ones_go_and_the_cap_holds(here: Deployment) -> None:
    """By the daemon's clock, and the longest cold first."""
    async with here.executor(
        idle_after=1.0, ttl=6.0, max_dormant=2, wall=lambda: 9e9, reaps=False
    ) as executor:
        for session in "abcd":
            await run(executor, "true", session)
            here.cli("stop", "--time", "0", here.container(session))
        await run(executor, "true", "d")
        assert await executor.sweep_unclaimed() == 1
        assert sorted(here.containers()) == sorted(here.container(s) for s in "bcd")
        await sleep(6.5)
        assert await executor.sweep_unclaimed() >= 2
        assert here.containers() == [here.container("d")]


@pytest.mark.parametrize("image", IMAGES)
async def test_workspaces_on_a_real_disk(here: Deployment, image: str, tmp_path: Path) -> None:
    """One outlives its container for its TTL; what is no workspace is never touched."""
    root = tmp_path / "w"
    async with here.executor(
        image, workspace_root=str(root), idle_after=0.5, ttl=8.0, reaps=False
    ) as executor:
        await run(executor, "mkdir -p d; echo x > d/f; chmod 0 d; touch -d 2001-01-01 /workspace")
        await run(executor, "true", "held")
        here.cli("stop", "--time", "0", here.container("chat"))
        await executor.sweep_workspaces()
        odd = [root / "note", root / "-rf", root / ("A" * 30), root / "lost+found"]
        for path in odd:
            path.mkdir()
        link = root / session_key("link")
        link.symlink_to(tmp_path)
        here.cli("rm", here.container("chat"))
        mine = root / session_key("chat")
        assert await executor.sweep_workspaces() == 0
        assert mine.exists()
        await sleep(9.2)
        assert await executor.sweep_workspaces() == 1
        left = {path.name for path in root.iterdir()}
        assert left == {path.name for path in (*odd, link)} | {".last-use", session_key("held")}
        assert tmp_path.exists()


async def test_a_workspace_that_is_claimed_comes_back(here: Deployment, tmp_path: Path) -> None:
    """One that a sweep set aside and did not live to delete: deleted, or given back."""
    root = tmp_path / "w"
    async with here.executor(workspace_root=str(root), reaps=False) as executor:
        for session in ("a", "b"):
            await run(executor, "echo x > f", session)
        a, b = (root / session_key(session) for session in "ab")
        for path in (a, b):
            path.rename(root / f".aside-{path.name}.{'ab' * 8}")
        here.cli("rm", "--force", here.container("b"))
        await executor.sweep_workspaces()
        assert (a / "f").read_text() == "x\n"
        assert {path.name for path in root.iterdir()} == {a.name, ".last-use"}
        await executor.dispose_session("a")
        assert {path.name for path in root.rglob("*")} == {".last-use"}


async def test_a_sweep_of_many_is_quick(here: Deployment) -> None:
    """One list and one look for all of them."""
    argv = ["create", "--network", "none", "--entrypoint", "true"]
    for n in range(40):
        key = session_key(str(n))
        labels = {"deployment": here.name, "kind": "session", "key": key}
        flags = [f"--label=sandbox-exec.{name}={value}" for name, value in labels.items()]
        here.cli(*argv, *flags, "--name", here.container(str(n)), "sandbox-exec/busybox")
    async with here.executor(reaps=False) as executor:
        began = time.monotonic()
        assert await executor.sweep_unclaimed() == 0
        assert time.monotonic() - began < 10


@define
class Storm:
    """A server at work beside two processes that sweep as if nothing were worth keeping."""

    here: Deployment
    root: Path
    seconds: float
    kills: bool
    chance: random.Random = Factory(lambda: random.Random(5))
    done: Counter[str] = Factory(Counter)
    calls: int = 0
    woken: int = 0
    checked: int = 0
    sweepers: list[subprocess.Popen[str]] = Factory(list)

    def start_sweeper(self) -> subprocess.Popen[str]:
        words = (self.here.engine.program, "sandbox-exec/busybox", self.here.name, str(self.root))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.engine.sweeper", *words],
            cwd=Path(__file__).parents[2],
            env=dict(self.here.engine.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end_sweeper(self, sweeper: subprocess.Popen[str]) -> None:
        died = sweeper.poll()
        sweeper.kill()
        out, err = sweeper.communicate(timeout=30)
        assert died is None, err[-2000:]
        self.done.update(out.split())

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        self.sweepers = [self.start_sweeper() for _ in range(2)]
        try:
            yield
        finally:
            for sweeper in self.sweepers:
                self.end_sweeper(sweeper)

    async def kill_now_and_then(self) -> None:
        while True:
            await sleep(self.chance.uniform(1.5, 5))
            victim = self.sweepers.pop(0)
            await to_thread.run_sync(self.end_sweeper, victim)
            self.sweepers.append(self.start_sweeper())

    async def work(self, executor: LocalDockerExecutor, session: str) -> None:
        """Use one session with pauses about as long as the sweepers' idle window.

        Each call shows what the last one wrote. It must be there while less time has passed than
        the sandbox, and then its workspace, live on after their last use.
        """
        until = time.monotonic() + self.seconds
        n, pause = 0, 0.0
        while time.monotonic() < until:
            before = time.monotonic()
            length = self.chance.choice([0, 0, 5])
            write = f"sleep {length}; echo {n} > n"
            found = await run(executor, f"cat n 2>/dev/null; {write}", session)
            took = time.monotonic() - before - length
            assert found.exit_code == 0, found
            if n and pause + took < IDLE_AFTER + TTL:
                assert found.stdout == f"{n - 1}\n", (found, pause, took)
                self.checked += 1
            self.calls += 1
            self.woken += found.reset is not None
            n += 1
            pause = self.chance.choice([0.0, 0.5, 1.0, 1.5, 2.0, 4.5])
            await sleep(pause)

    async def rage(self) -> None:
        """Let it all happen."""
        root = str(self.root)
        async with self.here.executor(workspace_root=root, reaps=False) as executor:
            with self.sweeping():
                async with create_task_group() as group:
                    if self.kills:
                        group.start_soon(self.kill_now_and_then)
                    async with create_task_group() as workers:
                        for n in range(6):
                            workers.start_soon(self.work, executor, f"s{n}")
                    group.cancel_scope.cancel()
        print(f"calls {self.calls}, woken {self.woken}, checked {self.checked}, {self.done}")


@contextlib.contextmanager
def storm(real_engine: RealEngine, root: Path, seconds: float, *, kills: bool) -> Iterator[Storm]:
    with deployment(real_engine) as made:
        yield Storm(made, root, seconds, kills)


@pytest.mark.parametrize("kills", [False, True], ids=["sweeping", "killed"])
def test_hostile_sweepers_harm_nobody(real_engine: RealEngine, tmp_path: Path, kills: bool) -> None:
    """No call fails and no file is lost, though sandboxes retire all the time (S11, R1, R3); nor
    when a sweeper dies at any moment.
    """
    with storm(real_engine, tmp_path / "w", 25, kills=kills) as raging:
        anyio.run(raging.rage)
    assert raging.done["sandbox.retired"] >= 5
    assert raging.checked >= 10


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [False, True], ids=["sweeping", "killed"])
def test_hostile_sweepers_for_long(real_engine: RealEngine, tmp_path: Path, kills: bool) -> None:
    """As above, for three minutes."""
    with storm(real_engine, tmp_path / "w", 180, kills=kills) as raging:
        anyio.run(raging.rage)
    assert raging.done["sandbox.retired"] >= 20
    assert raging.checked >= 50
