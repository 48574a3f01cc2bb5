"""A daemon that dies under live sessions and comes back, and a host that reboots."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from sandbox_exec import (
    DaemonUnavailableError,
    ExecSpec,
    LocalDockerExecutor,
    SandboxBrokenError,
    SandboxError,
)
from tests.engine.faults.outside import Outside, asyncio_only, first_good, told, within
from tests.rig.daemon import PrivateDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

both_ways = pytest.mark.parametrize("live_restore", [False, True], ids=["plain", "live-restore"])


async def down(executor: LocalDockerExecutor, session: str | None) -> None:
    """Make a call that must say that there is no daemon and that nothing was started."""
    async with within(5, "a call without a daemon"):
        with pytest.raises(DaemonUnavailableError) as caught:
            await executor.run(ExecSpec("echo ran >> ran", session))
    assert (caught.value.started, caught.value.retryable) == (False, True)
    assert caught.value.hint
    assert "echo ran" not in " ".join(caught.value.argv)


@both_ways
@asyncio_only
async def test_a_daemon_that_is_killed_and_comes_back(
    daemon: PrivateDaemon, private: Outside, live_restore: bool
) -> None:
    """While it is down every call says so and starts nothing; afterwards each session goes on with
    its files, in the same container, and its processes where the daemon kept them.
    """
    async with private.executor() as executor:
        await told(executor, "chat", "echo old > kept; (sleep 1000) & echo begun")
        await told(executor, "other", "echo other > kept")
        before = await private.identity("chat")
        daemon.kill()
        async with anyio.create_task_group() as group:
            for session in ("chat", "chat", "chat", "other", "new", None, None):
                group.start_soon(down, executor, session)
        await down(executor, "chat")
        with pytest.raises(DaemonUnavailableError):
            await executor.dispose_session("other")
        daemon.start()
        result = await first_good(executor, "chat", "cat kept; ls; ps | grep -c ' sleep 1000$'")
        processes = 2 if live_restore else 1
        assert result.stdout == f"old\ninputs\nkept\noutputs\n{processes}\n"
        assert (result.reset is None) == live_restore
        assert (await first_good(executor, "other", "cat kept")).stdout == "other\n"
        assert (await first_good(executor, "new", "ls")).stdout == "inputs\noutputs\n"
        assert (await executor.run(ExecSpec("echo once"))).stdout == "once\n"
        assert await private.identity("chat") == before


@both_ways
@asyncio_only
async def test_a_daemon_that_is_killed_under_commands(
    daemon: PrivateDaemon, private: Outside, live_restore: bool, tmp_path: Path
) -> None:
    """Commands that had started are reported as started, none is run twice, and the sessions of
    all callers work again. Where the containers live on, so may a command, up to its limit.
    """
    root = tmp_path / "root"
    command = "echo $ID >> ran; echo begun; sleep 60"
    async with private.executor(workspace_root=str(root), grace=0.5) as executor:
        for session in ("one", "two"):
            await told(executor, session, "true")
        caught: list[SandboxError] = []

        async def call(number: int, session: str | None) -> None:
            with pytest.raises(SandboxError) as error:
                await executor.run(ExecSpec(command, session, 4, env={"ID": str(number)}))
            caught.append(error.value)

        async with within(30, "the calls of a dead daemon"), anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(call, number, ("one", "two", None)[number % 3])

            await private.runs("sleep 60", count=6)
            # What they said is on its way; each said it before its sleep began.
            await anyio.sleep(0.3)
            daemon.kill()
        for error in caught:
            assert isinstance(error, DaemonUnavailableError | SandboxBrokenError), error
            assert (error.started, error.partial_stdout) == (True, "begun\n"), error
            assert error.hint
        daemon.start()
        for session in ("one", "two"):
            result = await first_good(executor, session, "sort ran")
            assert result.stdout in ("0\n3\n", "1\n4\n")
            if live_restore:
                # Its own shell may wait for a client that nobody told it is dead.
                gone = partial(private.running, "sleep 60", private.name(session))
                assert await private.until(gone, lambda count: count == 0, 15) == 0
            else:
                await private.at_rest(session)
        # The daemon removes what was made with --rm when it finds it ended.
        assert await private.until(
            private.containers, lambda found: not any(".once." in name for name in found), 10
        ) == sorted([private.name("one"), private.name("two")])


@asyncio_only
async def test_a_host_that_reboots(daemon: PrivateDaemon, private: Outside) -> None:
    """With everything exited and in-container state gone, sessions wake with their files, once
    for all callers, and say that their processes are gone; also for the next process here.
    """
    async with private.executor() as executor:
        for session in ("one", "two"):
            await told(executor, session, f"echo {session} > kept; (sleep 1000) & echo begun")
        before = await private.identity("one")
        # In order, as a shutdown does: every container is stopped.
        daemon.restart()
        assert await private.engine("ps", "--quiet") == ""
        resets: list[str] = []

        async def call() -> None:
            result = await executor.run(ExecSpec("cat kept", "one"))
            assert result.stdout == "one\n"
            if result.reset:
                resets.append(result.reset)

        async with within(20, "calls after a reboot"), anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(call)
        assert resets
        assert all("processes are gone" in reset for reset in resets)
        assert (await executor.run(ExecSpec("true", "one"))).reset is None
        assert await private.identity("one") == before
        await private.at_rest("one")
    async with private.executor() as executor:
        result = await executor.run(ExecSpec("cat kept", "two"))
        assert result.stdout == "two\n"
        assert result.reset
        assert (await executor.run(ExecSpec("true", "two"))).reset is None
