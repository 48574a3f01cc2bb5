"""A daemon that accepts every connection and never answers again."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from attrs import frozen

from sandbox_exec import (
    DaemonUnavailableError,
    ExecSpec,
    ExecutorClosedError,
    LocalDockerExecutor,
    SandboxError,
)
from tests.engine.faults.outside import Outside, asyncio_only, first_good, told, within
from tests.rig.daemon import PrivateDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

CONTROL = 3.0
"""The control timeout of these tests, in seconds."""

BOUND = CONTROL + 1


@frozen
class Failed:
    """How a call failed, and after how many seconds."""

    error: SandboxError
    after: float


async def failing(calls: dict[str, Callable[[], Awaitable[object]]]) -> dict[str, Failed]:
    """Make all these calls side by side; each must fail as a daemon's outage does."""
    seen: dict[str, Failed] = {}

    async def one(name: str, call: Callable[[], Awaitable[object]]) -> None:
        begin = time.monotonic()
        try:
            await call()
        except DaemonUnavailableError as error:
            seen[name] = Failed(error, time.monotonic() - begin)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for name, call in calls.items():
                group.start_soon(one, name, call)
    assert set(seen) == set(calls), f"only these failed: {set(seen)}"
    return seen


def public_calls(
    executor: LocalDockerExecutor, held: str, disposed: str
) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every public call that needs the daemon, and some twice."""
    return {
        "run in a session": lambda: executor.run(ExecSpec("echo ran >> ran", held)),
        "run in it again": lambda: executor.run(ExecSpec("echo ran >> ran", held)),
        "run in a new session": lambda: executor.run(ExecSpec("echo ran >> ran", "new")),
        "run one-off": lambda: executor.run(ExecSpec("echo hi")),
        "dispose": lambda: executor.dispose_session(disposed),
    }


def check(seen: dict[str, Failed], bound: float) -> None:
    for name, failed in seen.items():
        assert failed.after <= bound, f"{name} took {failed.after:.2f} s"
        assert failed.error.started is False, name
        assert failed.error.retryable, name
        assert failed.error.hint, name


async def test_a_silent_daemon(silent: Outside) -> None:
    """Every public call says within the control timeout that there is no daemon, and entering and
    leaving the block are not held up.
    """
    async with (
        within(CONTROL * 2 + 2, "the whole block"),
        silent.executor(control_timeout=CONTROL) as executor,
    ):
        seen = await failing(public_calls(executor, "chat", "other"))
    check(seen, BOUND)


@asyncio_only
async def test_a_daemon_that_freezes(
    daemon: PrivateDaemon, private: Outside, tmp_path: Path
) -> None:
    """The same holds for sessions that were held before; nothing of a failed call runs later, and
    once the daemon goes on everything is as it was.
    """
    root = tmp_path / "root"
    async with private.executor(control_timeout=CONTROL, workspace_root=str(root)) as executor:
        await told(executor, "chat", "echo old > kept")
        await told(executor, "other", "true")
        before = await private.born("chat")
        daemon.freeze()
        check(await failing(public_calls(executor, "chat", "other")), BOUND)
        daemon.thaw()
        result = await first_good(executor, "chat", "cat kept; ls")
        assert result.stdout == "old\ninputs\nkept\noutputs\n"
        assert await private.born("chat") == before
        await executor.dispose_session("other")
        # A one-off that the daemon was asked for while it was frozen may be made late, not stay.
        left = await private.until(
            private.containers, lambda found: not any(".once." in name for name in found), 20
        )
        assert set(left) <= {private.name("chat"), private.name("new")}
        assert not list(root.glob("*/ran"))


@asyncio_only
async def test_a_daemon_that_freezes_under_a_command(
    daemon: PrivateDaemon, private: Outside
) -> None:
    """A command that runs when the daemon freezes is given up after its limit, as one that had
    started, in bounded time.
    """
    settings = {"control_timeout": CONTROL, "grace": 0.5}
    async with private.executor(**settings) as executor:
        await told(executor, "chat", "true")
        begun = anyio.Event()
        caught: list[DaemonUnavailableError] = []

        async def call(session: str | None) -> None:
            with pytest.raises(DaemonUnavailableError) as error:
                await executor.run(ExecSpec("echo begun; sleep 60", session, 1))
            caught.append(error.value)

        async def freeze() -> None:
            await private.runs("sleep 60", private.name("chat"))
            daemon.freeze()
            begun.set()

        # The limit, the kill, the goodbye, the fallback, and the question what became of it.
        bound = 1 + 4 * 0.5 + 2 * CONTROL + 2
        async with within(bound, "a call whose daemon froze"), anyio.create_task_group() as group:
            group.start_soon(call, "chat")
            group.start_soon(freeze)
        assert begun.is_set()
        assert [error.started for error in caught] == [True]
        assert caught[0].hint
        daemon.thaw()
        assert (await first_good(executor, "chat")).stdout == "well\n"
        await private.at_rest("chat")


@pytest.mark.parametrize("after", [0.0, 0.5])
@asyncio_only
async def test_cancelled_while_the_daemon_is_silent(silent: Outside, after: float) -> None:
    """A caller that gives up is let go in bounded time, whatever the daemon does not do."""
    async with silent.executor(control_timeout=CONTROL) as executor:
        for name, call in public_calls(executor, "chat", "other").items():
            # For a one-off, its removal is tried once more.
            async with within(after + executor._config.grace + BOUND, name):
                with anyio.move_on_after(after) as scope:
                    await call()
                assert scope.cancelled_caught


@asyncio_only
async def test_cancelled_while_the_daemon_is_frozen(
    daemon: PrivateDaemon, private: Outside
) -> None:
    """The same for a session that is held, before its command was sent and after."""
    async with private.executor(control_timeout=CONTROL, grace=0.5) as executor:
        await told(executor, "chat", "true")
        async with anyio.create_task_group() as group:
            group.start_soon(executor.run, ExecSpec("sleep 60", "chat"))
            await private.runs("sleep 60", private.name("chat"))
            daemon.freeze()
            for patience in (0.0, 0.3):
                async with within(patience + 0.5 + BOUND, "a call that was not sent"):
                    with anyio.move_on_after(patience):
                        await executor.run(ExecSpec("echo hi", "chat"))
            async with within(2 * 0.5 + BOUND, "a call that was sent"):
                group.cancel_scope.cancel()
        daemon.thaw()
        assert (await first_good(executor, "chat")).stdout == "well\n"
        await private.at_rest("chat", limit=10)


@asyncio_only
async def test_leaving_the_block_while_the_daemon_is_silent(silent: Outside) -> None:
    """Leaving ends every call that waits for the daemon, in bounded time."""
    endings: list[SandboxError] = []

    async def call(call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except SandboxError as error:
            endings.append(error)

    executor = silent.executor(control_timeout=CONTROL)
    async with anyio.create_task_group() as group:
        async with executor:
            calls = public_calls(executor, "chat", "other")
            for one in calls.values():
                group.start_soon(call, one)
            await anyio.sleep(0.5)
            begin = time.monotonic()
        assert time.monotonic() - begin <= executor._config.grace + BOUND
    assert len(endings) == len(calls)
    assert all(isinstance(e, ExecutorClosedError | DaemonUnavailableError) for e in endings)
    assert any(isinstance(e, ExecutorClosedError) for e in endings)


@asyncio_only
async def test_leaving_the_block_while_the_daemon_is_frozen(
    daemon: PrivateDaemon, private: Outside
) -> None:
    """The same with a command under way, which does not live on."""
    executor = private.executor(control_timeout=CONTROL, grace=0.5)

    async def call() -> None:
        with pytest.raises(ExecutorClosedError) as error:
            await executor.run(ExecSpec("sleep 60", "chat"))
        assert error.value.started is True

    async with anyio.create_task_group() as group:
        async with executor:
            await told(executor, "chat", "true")
            group.start_soon(call)
            await private.runs("sleep 60", private.name("chat"))
            daemon.freeze()
            begin = time.monotonic()
        assert time.monotonic() - begin <= 2 * 0.5 + BOUND
    daemon.thaw()
    await private.at_rest("chat", limit=10)
