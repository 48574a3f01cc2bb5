"""Sandboxes that a command has exhausted or broken from inside: healed, or named as broken."""

from __future__ import annotations

import anyio
import pytest

from sandbox_exec import (
    ExecResult,
    ExecSpec,
    LocalDockerExecutor,
    SandboxBrokenError,
    SandboxError,
)
from tests.engine.faults.outside import Outside, asyncio_only, told, within

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

images = pytest.mark.parametrize("image", ["busybox", "debian"])
mostly_busybox = pytest.mark.parametrize(
    "image", ["busybox", pytest.param("debian", marks=pytest.mark.soak)]
)

KILLER = (
    "(while :; do for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || "
    "kill -9 ${p#/proc/}; done; done) >/dev/null 2>&1 & sleep 1"
)
"""Spares its own parent only, which it takes for itself."""

PATIENCE = 25.0
"""Seconds after which a call into a broken sandbox counts as hanging."""


async def attempt(
    executor: LocalDockerExecutor, command: str, timeout: float = 10
) -> ExecResult | SandboxError:
    """Make a call that may fail, but not hang; and what it answers is its own."""
    async with within(PATIENCE, f"the call {command[:40]!r}"):
        try:
            return await executor.run(ExecSpec(command, "chat", timeout))
        except SandboxError as error:
            failed = error
    assert failed.hint, failed
    return failed


async def next_good(executor: LocalDockerExecutor, command: str) -> ExecResult:
    """Return the answer of the next call, which must be served, healed or not."""
    async with within(PATIENCE, "the next call"):
        return await executor.run(ExecSpec(command, "chat"))


async def goes_on(executor: LocalDockerExecutor) -> str | None:
    """The caller's way on: the next call is served, or the sandbox is called broken and a new one
    works after its disposal. Return what the served one says was lost.
    """
    answer = await attempt(executor, "echo $((6 * 7))")
    reset = None
    if isinstance(answer, ExecResult):
        assert (answer.stdout, answer.exit_code) == ("42\n", 0), answer
        reset = answer.reset
    else:
        assert isinstance(answer, SandboxBrokenError), answer
        assert answer.started is False
        async with within(PATIENCE, "the disposal"):
            await executor.dispose_session("chat")
    assert (await next_good(executor, "echo $((6 * 7))")).stdout == "42\n"
    return reset


@images
@asyncio_only
async def test_processes_run_out(shared: Outside, image: str) -> None:
    """Background processes that fill the pids limit cost a restart: the next call is served, keeps
    the files and says that processes were lost, and why.
    """
    settings = {"image": f"sandbox-exec/{image}", "pids_limit": 40}
    async with shared.executor(**settings) as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.identity("chat")
        fill = "i=0; while [ $i -lt 60 ]; do sleep 600 & i=$((i+1)); done; echo hi"
        await attempt(executor, fill)
        # It may have been killed at the limit's edge; then nothing is left to heal.
        while await shared.running("sleep 600", shared.name("chat")) < 30:
            await attempt(executor, fill)
        result = await next_good(executor, "cat kept")
        assert result.stdout == "old\n"
        assert result.reset
        assert "processes" in result.reset
        assert await shared.identity("chat") == before
        assert (await next_good(executor, "cat kept")).reset is None
        await shared.at_rest("chat")


@mostly_busybox
@asyncio_only
async def test_a_fork_bomb(shared: Outside, image: str) -> None:
    """A bomb is ended by its limit or fails, and the next call is served, or says in its own words
    that it cannot fork; its files are kept.
    """
    settings = {"image": f"sandbox-exec/{image}", "pids_limit": 64}
    async with shared.executor(**settings) as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.identity("chat")
        for bomb in (
            "b() { b | b & }; b; sleep 600",
            "b() { b | b & }; b",
            "b() { setsid sh -c 'while :; do sleep 600 & done' & }; b; b; b; wait",
        ):
            await attempt(executor, bomb, 2)
            # What it leaves behind may still hold all processes but the few that a guest needs.
            result = await next_good(executor, "cat kept")
            assert result.stdout == "old\n" or "fork" in result.stderr, (bomb, result)
            assert await shared.identity("chat") == before
            await shared.engine("restart", "--time", "0", shared.name("chat"))
            assert (await next_good(executor, "cat kept")).stdout == "old\n", bomb


@mostly_busybox
@asyncio_only
async def test_memory_runs_out_under_a_command(shared: Outside, image: str) -> None:
    """A command that is killed for want of memory is a result that says so; the session goes on."""
    settings = {"image": f"sandbox-exec/{image}", "memory": "48m"}
    async with shared.executor(**settings) as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.born("chat")
        answer = await attempt(executor, "x=x; while :; do x=$x$x; done; echo wrong")
        assert isinstance(answer, ExecResult), answer
        assert answer.exit_code != 0
        assert answer.oom_killed
        assert (await next_good(executor, "cat kept")).stdout == "old\n"
        assert await shared.born("chat") == before


@images
@asyncio_only
async def test_memory_is_full(shared: Outside, image: str) -> None:
    """Memory that a background process holds does not leave a session mute: the next calls are
    served, with a restart where it takes one, and the files are kept.
    """
    settings = {"image": f"sandbox-exec/{image}", "memory": "32m"}
    async with shared.executor(**settings) as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.identity("chat")
        # A file system in memory, which no kill empties.
        await attempt(executor, "head -c 40000000 /dev/zero > /dev/shm/full; echo hi")
        for _ in range(3):
            await attempt(executor, "head -c 40000000 /dev/zero > /dev/shm/more$$; echo hi")
            answer = await attempt(executor, "cat kept")
            if isinstance(answer, ExecResult) and not answer.oom_killed:
                assert answer.stdout == "old\n"
        await goes_on(executor)
        if await shared.identity("chat") == before:
            assert (await next_good(executor, "cat kept")).stdout == "old\n"


@mostly_busybox
@asyncio_only
async def test_the_state_directory_is_full(shared: Outside, image: str) -> None:
    """The guests' own directory, filled by a command, costs no more than a restart."""
    async with shared.executor(image=f"sandbox-exec/{image}") as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.identity("chat")
        await attempt(executor, "head -c 300000000 /dev/zero > /run/sandbox-exec/full; echo hi")
        await goes_on(executor)
        # A big command needs room there.
        command = "cat kept\n" + "#" * 100_000
        assert (await next_good(executor, command)).stdout == "old\n"
        assert await shared.identity("chat") == before


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /workspace",
        "rm -rf /workspace; echo file > /workspace",
        "rm -rf /workspace; ln -s /nowhere /workspace",
        "rm -rf /workspace; ln -s /tmp /workspace",
        "rm -rf /workspace/inputs; echo file > /workspace/inputs",
        "rm -rf /run/sandbox-exec/*",
        "rm -rf /run/sandbox-exec/*; mkdir /run/sandbox-exec/retiring",
        "echo > /run/sandbox-exec/retired",
        "chmod 000 /workspace",
        "kill 1",
        "kill -TERM -1",
        "kill -9 -1",
        "kill -STOP 1",
        "killall sleep",
        "ulimit -m 1; sleep 600 & echo hi",
    ],
)
@mostly_busybox
@asyncio_only
async def test_what_can_be_healed(shared: Outside, image: str, command: str) -> None:
    """After this the very next call is served, in the same container, with the workspace there."""
    async with shared.executor(image=f"sandbox-exec/{image}") as executor:
        await told(executor, "chat", "echo old > /root/kept")
        before = await shared.identity("chat")
        await attempt(executor, command, 5)
        async with within(PATIENCE, "the next call"):
            result = await executor.run(ExecSpec("pwd; cat /root/kept; echo new > file", "chat"))
        assert (result.stdout, result.stderr, result.exit_code) == ("/workspace\nold\n", "", 0)
        listed = await next_good(executor, "ls -d /workspace/file /workspace/inputs/.")
        assert (listed.stdout, listed.exit_code) == ("/workspace/file\n/workspace/inputs/.\n", 0)
        assert await shared.identity("chat") == before


@pytest.mark.parametrize(
    "command",
    [
        "rm -f /bin/sh /usr/bin/sh",
        "rm -f /bin/sh; echo garbage > /bin/sh; chmod +x /bin/sh",
        "rm -f /bin/sh; printf '#!/bin/false' > /bin/sh; chmod +x /bin/sh",
        "rm -f /bin/sh; printf '\\177ELF' > /bin/sh; chmod +x /bin/sh",
        "rm -f /bin/sh; echo '#!/bin/sh' > /bin/sh; chmod +x /bin/sh",
        "rm -f /bin/sh; cp /bin/sleep /bin/sh",
        "rm -f /bin/sh; cp /bin/cat /bin/sh",
        "rm -f $(command -v sleep)",
        "rm -f $(command -v sleep); killall sleep; kill -9 -1",
        "rm -f $(command -v dd)",
        "for f in sleep dd rm mkdir mv chmod; do rm -f $(command -v $f); done",
        "chmod 000 /",
        "chmod 000 /bin /usr/bin",
        "chmod 000 /run/sandbox-exec",
        "mount -t tmpfs none /proc; umount /proc; chmod 000 /proc",
        "rm -rf /bin /usr /lib /lib64",
        "rm -rf --no-preserve-root / 2>/dev/null",
        "while :; do kill -9 -1; done",
        KILLER,
    ],
)
@mostly_busybox
@asyncio_only
async def test_what_may_be_broken_for_good(shared: Outside, image: str, command: str) -> None:
    """After this a session serves the next call or is called broken, which a disposal ends; it
    never hangs and never answers wrongly.
    """
    if command == "rm -rf --no-preserve-root / 2>/dev/null" and image == "busybox":
        command = "rm -rf /* 2>/dev/null"
    settings = {"image": f"sandbox-exec/{image}", "start_timeout": 20, "control_timeout": 5}
    async with shared.executor(**settings) as executor:
        await told(executor, "chat", "echo old > kept")
        await attempt(executor, command, 5)
        await goes_on(executor)
        await executor.dispose_session("chat")
    assert await shared.containers() == []


@asyncio_only
async def test_no_sleep_no_spin(shared: Outside) -> None:
    """With ``sleep`` removed, PID 1 waits without a busy loop, and a limit still holds."""
    async with shared.executor() as executor:
        await told(executor, "chat", "rm /bin/sleep; killall sleep; true")
        pid = (await shared.born("chat")).split()[1]

        async def used() -> int:
            fields = (await anyio.Path(f"/proc/{pid}/stat").read_text()).rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        before = await used()
        await anyio.sleep(1)
        assert await used() - before < 20
        async with within(1 + 2 + 3, "a limit without sleep"):
            result = await executor.run(ExecSpec("while :; do :; done", "chat", 1))
        assert (result.exit_code, result.timed_out) == (-1, True)


@asyncio_only
async def test_neighbours_of_a_broken_session_are_served(shared: Outside) -> None:
    """What one session breaks is its own: another one's calls go on meanwhile."""
    async with shared.executor(control_timeout=5) as executor:
        await told(executor, "other", "true")
        await attempt(executor, "rm -f /bin/sh; cp /bin/sleep /bin/sh", 5)
        async with anyio.create_task_group() as group:
            group.start_soon(attempt, executor, "echo hi")
            for number in range(5):
                async with within(3, "a neighbour's call"):
                    assert await told(executor, "other", f"echo {number}") == str(number)
