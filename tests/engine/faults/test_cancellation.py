"""Callers that leave at any moment, and a process that dies: nothing of theirs lives on."""

from __future__ import annotations

import gc
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from sandbox_exec import ExecSpec, LocalDockerExecutor
from tests.engine.faults.outside import Outside, asyncio_only, told

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SESSIONS = ("one", "two", "three")
COMMANDS = (
    "sleep 60",
    "true",
    "echo hi; sleep 0.05; echo ho",
    "trap '' TERM HUP INT; sleep 60; sleep 60",
    "sleep 60 | cat",
    "setsid sleep 60",
    "env -i sh -c 'sleep 60 & wait'",
    "while :; do echo x; done",
)


def descriptors() -> int:
    gc.collect()
    return psutil.Process().num_fds()


@asynccontextmanager
async def nothing_left(shared: Outside, executor: LocalDockerExecutor) -> AsyncIterator[None]:
    """Fail if the block leaves a child, a descriptor, a task, a process inside or a container."""
    for session in SESSIONS:
        await told(executor, session, "true")
    tasks = {task.id for task in anyio.get_running_tasks()}
    before = descriptors()
    yield
    await shared.at_rest(*SESSIONS)

    async def look() -> tuple[list[psutil.Process], list[str], int]:
        new = [task.name or "?" for task in anyio.get_running_tasks() if task.id not in tasks]
        return psutil.Process().children(recursive=True), new, descriptors() - before

    children, new, opened = await shared.until(
        look, lambda seen: not seen[0] and not seen[1] and seen[2] <= 0, 5
    )
    assert (children, new) == ([], [])
    assert opened <= 0, f"{opened} more descriptors are open than before"
    assert await shared.containers() == sorted(shared.name(session) for session in SESSIONS)
    for session in SESSIONS:
        assert await told(executor, session, "echo well") == "well"


async def leave(executor: LocalDockerExecutor, spec: ExecSpec, after: float) -> None:
    with anyio.move_on_after(after):
        await executor.run(spec)


@pytest.mark.parametrize("rounds", [25, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.timeout(900)
async def test_cancelled_at_random_moments(shared: Outside, rounds: int) -> None:
    """Parallel calls, cancelled between 0 and 150 ms or later, leave no process inside, no child,
    descriptor or task here and no container, and their sessions work.
    """
    seed = os.environ.get("SANDBOX_EXEC_STORM_SEED") or secrets.token_hex(4)
    print(f"seed {seed}: replay with SANDBOX_EXEC_STORM_SEED={seed}")
    chance = random.Random(seed)
    async with shared.executor() as executor, nothing_left(shared, executor):
        for number in range(rounds):
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    for session in SESSIONS:
                        spec = ExecSpec(chance.choice(COMMANDS), session)
                        group.start_soon(leave, executor, spec, chance.uniform(0, 0.15))
                    if number % 5 == 0:
                        spec = ExecSpec(chance.choice(COMMANDS))
                        group.start_soon(leave, executor, spec, chance.uniform(0, 0.6))


@asyncio_only
async def test_a_cancelled_call_is_over_when_its_caller_goes_on(shared: Outside) -> None:
    """When the cancellation comes out, the tree of the command is dead already, however it hid,
    while parallel calls and earlier background processes live on.
    """
    async with shared.executor() as executor:
        await told(executor, "one", "(sleep 1000) & echo begun")
        survivor: list[str] = []

        async def bystander() -> None:
            survivor.append(await told(executor, "one", "sleep 3; echo alive"))

        async with anyio.create_task_group() as group:
            group.start_soon(bystander)
            for command in COMMANDS[3:7]:
                scope = anyio.CancelScope()

                async def call(command: str, scope: anyio.CancelScope) -> None:
                    with scope:
                        await executor.run(ExecSpec(command, "one"))

                async with anyio.create_task_group() as calls:
                    calls.start_soon(call, command, scope)
                    await shared.runs("sleep 60", shared.name("one"))
                    begin = time.monotonic()
                    scope.cancel()
                assert time.monotonic() - begin < 4, command
                assert await shared.running("sleep 60", shared.name("one")) == 0, command
        assert survivor == ["alive"]
        assert await shared.running("sleep 1000", shared.name("one")) == 2


@asyncio_only
async def test_a_cancelled_one_off_is_gone(shared: Outside) -> None:
    """The container of a cancelled one-off is removed before the cancellation comes out."""
    async with shared.executor() as executor:
        for command in COMMANDS[3:6]:
            async with anyio.create_task_group() as group:
                group.start_soon(executor.run, ExecSpec(command))
                await shared.runs("sleep 60")
                group.cancel_scope.cancel()
            left = await shared.until(shared.containers, lambda names: not names, 2)
            assert left == []


SCRIPT = """
import sys
import anyio
from sandbox_exec import ExecSpec, LocalDockerExecutor, SandboxConfig

async def main():
    config = SandboxConfig(image="sandbox-exec/busybox", engine=sys.argv[1], deployment=sys.argv[2])
    async with LocalDockerExecutor(config) as executor, anyio.create_task_group() as group:
        for session in ("one", "one", "two", None, None):
            command = "(setsid sleep 60 &); env -i sleep 60; sleep 61"
            group.start_soon(executor.run, ExecSpec(command, session, 50))

anyio.run(main, backend=sys.argv[3])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@asyncio_only
async def test_a_process_that_is_killed(shared: Outside, tmp_path: Path, backend: str) -> None:
    """``kill -9`` of a process with calls in flight: within seconds nothing of their commands is
    left inside, their one-off containers are gone, and so are the engine's programs.
    """
    script = tmp_path / "caller.py"
    script.write_text(SCRIPT)
    caller = subprocess.Popen(  # noqa: ASYNC220  # it is killed, and must not be ours to await
        [sys.executable, script, shared.program, shared.deployment, backend],
        env=dict(os.environ),
        stdout=subprocess.DEVNULL,
    )
    try:
        await shared.runs("sleep 60", count=10)
        children = psutil.Process(caller.pid).children(recursive=True)
        assert len(children) == 5
        os.kill(caller.pid, signal.SIGKILL)
    finally:
        caller.kill()
        caller.wait(10)

    async def alive() -> list[psutil.Process]:
        return [child for child in children if child.is_running()]

    assert await shared.until(alive, lambda found: not found, 5) == []
    await shared.at_rest("one", "two")
    sessions = sorted([shared.name("one"), shared.name("two")])
    assert await shared.until(shared.containers, lambda names: names == sessions, 5) == sessions
    assert await shared.running("sleep 60") == 0
