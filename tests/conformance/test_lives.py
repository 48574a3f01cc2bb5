"""The life of a sandbox: put to sleep, woken, swept; and what an engine's refusals mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import create_task_group, fail_after, sleep

from sandbox_exec import ContainerStartError, ExecSpec, SandboxBrokenError
from tests.engine.executors import Box, Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]


def state(here: Deployment) -> str:
    return here.cli("inspect", "--format", "{{.State.Status}}", here.container(Box.session))


async def test_an_idle_sandbox_is_stopped_and_woken(here: Deployment) -> None:
    """With its files, however its processes cling to life; never before it is due (S11)."""
    async with here.executor(idle_after=1.0, reaps=False) as executor:
        box = Box(executor, here)
        await box.run("echo kept > f; trap '' TERM; sleep 4711 & trap - TERM")
        assert await executor.evict_idle() == 0
        await sleep(2.1)
        assert await executor.evict_idle() == 1
        with fail_after(5):
            while state(here) == "running":  # noqa: ASYNC110  # polling an engine is all there is
                await sleep(0.05)
        assert state(here) in {"exited", "stopped"}
        woken = await box.run("cat f")
        assert (woken.stdout, woken.exit_code) == ("kept\n", 0)
        assert "stopped" in str(woken.reset)


async def test_a_stranger_puts_an_idle_sandbox_to_sleep(here: Deployment) -> None:
    """One that the sweeping process never used, by way of its list of containers (R2)."""
    async with here.executor(reaps=False) as executor:
        await Box(executor, here).run("true")
    async with here.executor(idle_after=4.0, reaps=False) as sweeper:
        # It counts from the moment that it began to watch.
        assert await sweeper.sweep_unclaimed() == 0
        with fail_after(30):
            while state(here) == "running":
                await sweeper.sweep_unclaimed()
                await sleep(0.5)


async def test_old_ones_go_and_the_cap_holds(here: Deployment) -> None:
    """The longest cold first (R1)."""
    async with here.executor(idle_after=1.0, ttl=12.0, max_dormant=1, reaps=False) as executor:
        for session in "abc":
            await executor.run(ExecSpec("true", session))
            here.cli("stop", "--time", "0", here.container(session))
        await executor.run(ExecSpec("true", "c"))
        assert await executor.sweep_unclaimed() == 1
        assert sorted(here.containers()) == sorted(here.container(s) for s in "bc")
        with fail_after(40):
            while here.container("b") in here.containers():
                await sleep(1)
                await executor.sweep_unclaimed()
        assert here.containers() == [here.container("c")]


# Seven containers of our own, each of which podman without root waits for, for 20 s, here.
@pytest.mark.timeout(400)
async def test_workspaces_are_swept(here: Deployment, room: Path) -> None:
    """After their time, and one that a stopped container holds is not (R3)."""
    async with here.executor(
        workspace_root=str(room), idle_after=0.5, ttl=6.0, reaps=False
    ) as executor:
        for session in ("gone", "held"):
            await executor.run(ExecSpec("mkdir -p d; echo x > d/f; chmod 0 d", session))
            here.cli("stop", "--time", "0", here.container(session))
        assert await executor.sweep_workspaces() == 0
        here.cli("rm", here.container("gone"))
        await sleep(7.2)
        assert await executor.sweep_workspaces() == 1
        left = [path.name for path in room.iterdir() if not path.name.startswith(".")]
        assert [name.partition("-")[0] for name in left] == ["held"]


async def test_a_call_during_a_restart_of_the_container(box: Box) -> None:
    """The sandbox is found again, its files as they were."""
    await box.run("echo kept > f")
    box.place.cli("restart", "--time", "0", box.place.container(Box.session))
    found = await box.run("cat f")
    assert found.stdout == "kept\n"
    assert "restarted" in str(found.reset)


@pytest.mark.parametrize("how", ["stop", "rm", "kill"])
async def test_a_sandbox_that_ends_under_a_command(box: Box, how: str) -> None:
    """Is told as what it is: it had started, what was printed is there, it is not run again."""
    words = {"stop": ("stop", "--time", "0"), "rm": ("rm", "--force"), "kill": ("kill",)}[how]
    await box.run("true")
    name = box.place.container(Box.session)

    async def end() -> None:
        await sleep(1)
        box.place.cli(*words, name)

    async with create_task_group() as group:
        group.start_soon(end)
        with pytest.raises(SandboxBrokenError) as caught:
            await box.run("echo begun; sleep 30")
    assert (caught.value.code, caught.value.started) == ("sandbox-lost", True)
    assert caught.value.partial_stdout == "begun\n"
    assert (await box.run("echo on")).stdout == "on\n"


async def test_a_missing_image(here: Deployment) -> None:
    """Is one clear error, for sessions and one-offs alike, and leaves nothing."""
    async with here.executor(image="sandbox-exec/no-such-image", pull_timeout=20) as executor:
        for session in (Box.session, None):
            with pytest.raises(ContainerStartError) as caught:
                await executor.run(ExecSpec("true", session))
            assert (caught.value.code, caught.value.started) == ("image-missing", False)
    assert here.containers() == []


async def test_a_runtime_that_is_not_there(here: Deployment) -> None:
    """Likewise."""
    async with here.executor(runtime="no-such-runtime") as executor:
        for session in (Box.session, None):
            with pytest.raises(ContainerStartError) as caught:
                await executor.run(ExecSpec("true", session))
            assert (caught.value.code, caught.value.started) == ("bad-runtime", False)
    assert here.containers() == []


async def test_a_network_that_is_not_there(here: Deployment) -> None:
    """Likewise."""
    async with here.executor(network=True, docker_network="no-such-network") as executor:
        for session in (Box.session, None):
            with pytest.raises(ContainerStartError) as caught:
                await executor.run(ExecSpec("true", session))
            assert (caught.value.code, caught.value.started) == ("bad-network", False)
    assert here.containers() == []


async def test_a_shell_that_was_removed(box: Box) -> None:
    """Is told as that; a disposal gives a new one."""
    await box.run("rm -f /bin/sh /bin/busybox /bin/ash", timeout=10)
    with pytest.raises(SandboxBrokenError) as caught:
        await box.run("echo on")
    assert caught.value.code == "no-shell"
    await box.executor.dispose_session(Box.session)
    assert (await box.run("echo on")).stdout == "on\n"


async def test_calls_leave_no_zombies(box: Box) -> None:
    """PID 1 reaps what calls leave, for hundreds of them to find room (F6)."""
    for _ in range(12):
        await box.run("(exec true &)")
    listed = await box.run("cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z'")
    assert int(listed.stdout) < 2
