"""Entering, leaving and everything that may be under way meanwhile."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from anyio import create_task_group, move_on_after, sleep, sleep_forever, to_thread
from anyio.abc import TaskGroup

from sandbox_exec import (
    ExecSpec,
    ExecutorClosedError,
    LocalDockerExecutor,
    SandboxConfig,
    SandboxDisposedError,
    create_executor,
    get_executor,
)

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import IMAGE, FakePlace

pytestmark = pytest.mark.anyio


async def test_it_is_open_in_its_block_only(place: FakePlace) -> None:
    """Before and after, every operation says so, and nothing was started."""
    executor = place.executor()
    for when in ("before", "after"):
        for session in ("chat", None):
            error = await failure(executor, ExecutorClosedError, do.speaks, session)
            assert (error.code, error.started, error.retryable) == ("executor-closed", False, False)
        with pytest.raises(ExecutorClosedError):
            await executor.dispose_session("chat")
        if when == "before":
            async with executor:
                pass
    assert place.daemon.calls == []
    assert (executor.info.image, executor.kind) == (IMAGE, "docker")


async def test_it_is_entered_once(place: FakePlace) -> None:
    """Neither twice at a time nor again, and the open one is not disturbed."""
    executor = place.executor()
    async with executor:
        with pytest.raises(ExecutorClosedError, match="once"):
            await executor.__aenter__()
        assert (await chat(executor, do.speaks)).exit_code == 3
    with pytest.raises(ExecutorClosedError, match="once"):
        await executor.__aenter__()


async def test_what_is_no_call_is_refused(place: FakePlace) -> None:
    """A wrong type is one clear ValueError, whoever is asked, and nothing starts."""
    async with place.executor() as executor:
        with pytest.raises(ValueError, match="must be an ExecSpec, not str"):
            await executor.run("echo")  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(ValueError, match="session must be a non-empty str, not 5"):
            await executor.dispose_session(5)  # type: ignore[arg-type]  # wrong on purpose
    assert place.daemon.calls == []


async def test_it_belongs_to_one_event_loop(place: FakePlace) -> None:
    """From another it says so, instead of hanging."""
    async with place.executor() as executor:

        async def elsewhere() -> ExecutorClosedError:
            with pytest.raises(ExecutorClosedError, match="another event loop"):
                await executor.dispose_session("chat")
            return await failure(executor, ExecutorClosedError, do.speaks)

        for backend in ("asyncio", "trio"):
            error = await to_thread.run_sync(partial(anyio.run, elsewhere, backend=backend))
            assert error.code == "wrong-event-loop"
        assert (await chat(executor, do.speaks)).exit_code == 3


async def test_the_open_executor_can_be_found(place: FakePlace) -> None:
    """Of several, the one entered last and still open."""
    assert get_executor() is None
    one, two = place.executor(), place.executor()
    async with one:
        assert get_executor() is one
        async with two:
            assert get_executor() is two
        assert get_executor() is one
    assert get_executor() is None


async def test_the_open_executor_when_they_close_crosswise(place: FakePlace) -> None:
    """Closing an older one does not hide the newer."""
    one, two = place.executor(), place.executor()
    async with create_task_group() as group:
        leave, left = anyio.Event(), anyio.Event()

        async def older() -> None:
            async with one:
                await leave.wait()
            left.set()

        group.start_soon(older)
        await until(lambda: get_executor() is one)
        async with two:
            leave.set()
            await left.wait()
            assert get_executor() is two
    assert get_executor() is None


def test_there_may_be_no_executor() -> None:
    """Switched off, or for a backend that is not known here."""
    assert create_executor(SandboxConfig(image=IMAGE, enabled=False)) is None
    assert create_executor(SandboxConfig(image=IMAGE, backend="firecracker")) is None
    made = create_executor(SandboxConfig(image=IMAGE, runtime="runsc"))
    assert isinstance(made, LocalDockerExecutor)
    assert made.kind == "runsc"
    assert get_executor() is None


async def test_closing_while_a_sandbox_starts(place: FakePlace) -> None:
    """All who wait are told; what the engine makes of it is adopted by the next server."""
    hold = place.daemon.hold("run", acts=True)
    async with create_task_group() as group, place.executor() as executor:
        callers = [Caller(executor, do.counts) for _ in range(2)]
        for caller in callers:
            group.start_soon(caller)
        await hold.reached()
    for caller in callers:
        assert caller.failed(ExecutorClosedError).started is False
    hold.release()
    async with place.executor() as executor:
        result = await chat(executor, do.shows_count)
        assert (result.stdout, result.reset) == ("none\n", None)
    assert len(place.ran("run")) == 1


async def test_closing_while_a_one_off_starts(place: FakePlace) -> None:
    """Nothing of it is left."""
    hold = place.daemon.hold("run --rm")
    async with create_task_group() as group:
        async with place.hasty(control_timeout=5) as executor:
            caller = Caller(executor, do.counts, None)
            group.start_soon(caller)
            await hold.reached()
        assert place.containers() == []
    assert caller.failed(ExecutorClosedError).started is False
    assert place.daemon.executed == []


@pytest.mark.parametrize("session", ["other", None])
async def test_closing_while_a_call_queues(place: FakePlace, session: str | None) -> None:
    """It never had a slot, so it has not started."""
    async with create_task_group() as group, place.executor(max_parallel=1) as executor:
        group.start_soon(Caller(executor, do.lasts))
        await until(lambda: place.daemon.executed)
        caller = Caller(executor, do.counts, session)
        group.start_soon(caller)
        await sleep(0.05)
    assert caller.failed(ExecutorClosedError).started is False
    assert len(place.daemon.executed) == 1


async def test_closing_while_a_session_is_disposed(place: FakePlace) -> None:
    """Both who asked for it and who waited for its end are told."""
    async with create_task_group() as group, place.executor() as executor:
        await chat(executor, do.speaks)
        hold = place.daemon.hold("rm", acts=True)

        async def dispose() -> None:
            with pytest.raises(ExecutorClosedError):
                await executor.dispose_session("chat")

        group.start_soon(dispose)
        await hold.reached()
        caller = Caller(executor, do.counts)
        group.start_soon(caller)
        await sleep(0.02)
    assert caller.failed(ExecutorClosedError).started is False
    assert place.containers() == []


async def test_the_first_ending_counts(place: FakePlace) -> None:
    """A call that was being ended by a disposal when the executor closed was disposed."""
    async with create_task_group() as group, place.hasty() as executor:
        caller = Caller(executor, do.lasts)
        group.start_soon(caller)
        await until(lambda: place.daemon.executed)
        place.daemon.hang()

        async def dispose() -> None:
            with pytest.raises(ExecutorClosedError):
                await executor.dispose_session("chat")

        group.start_soon(dispose)
        await sleep(0.02)
    assert caller.failed(SandboxDisposedError).started is True
    place.daemon.thaw()


async def test_closing_is_bounded(place: FakePlace) -> None:
    """Even when the engine has stopped answering under a running command."""
    async with create_task_group() as group:
        async with place.hasty() as executor:
            callers = [Caller(executor, do.lasts, session) for session in ("chat", None)]
            for caller in callers:
                group.start_soon(caller)
            await until(lambda: len(place.daemon.executed) == 2)
            place.daemon.hang()
            begun = anyio.current_time()
        assert anyio.current_time() - begun < 1.5
        for caller in callers:
            assert caller.failed(ExecutorClosedError).started is True
        place.daemon.thaw()


async def test_no_call_begins_while_it_closes(place: FakePlace) -> None:
    """Not even one made by another that was just ended."""
    second: list[Caller] = []

    async def call_again(executor: LocalDockerExecutor) -> None:
        await Caller(executor, do.lasts)()
        for session in ("chat", "new", None):
            again = Caller(executor, do.counts, session)
            await again()
            second.append(again)
        with pytest.raises(ExecutorClosedError):
            await executor.dispose_session("chat")

    async with create_task_group() as group, place.executor() as executor:
        group.start_soon(call_again, executor)
        await until(lambda: place.daemon.executed)
    assert [again.failed(ExecutorClosedError).started for again in second] == [False] * 3


class Wrong(Exception):  # noqa: N818  # a test's own
    """Raised by the body of a block."""


async def wrong(executor: LocalDockerExecutor) -> None:
    """Go wrong as the body of an executor's block."""
    async with executor:
        raise Wrong


async def test_the_bodys_exception_comes_out_as_itself(place: FakePlace) -> None:
    """Not in a group."""
    with pytest.raises(Wrong):
        await wrong(place.executor())
    assert get_executor() is None


async def test_the_bodys_exception_ends_calls_in_flight(place: FakePlace) -> None:
    """They are told, and the exception is still itself."""
    executor = place.executor()

    async def body(group: TaskGroup) -> None:
        async with executor:
            group.start_soon(caller)
            await until(lambda: place.daemon.executed)
            raise Wrong

    caller = Caller(executor, do.lasts)
    async with create_task_group() as group:
        with pytest.raises(Wrong):
            await body(group)
    caller.failed(ExecutorClosedError)


async def fail() -> None:
    raise KeyError("a bug in the background")


def work_of(executor: LocalDockerExecutor) -> TaskGroup:
    """Return where an open executor's background work runs."""
    assert executor._parts is not None
    return executor._parts.sessions.keeper.group


async def test_the_bodys_exception_wins_over_one_in_the_background(place: FakePlace) -> None:
    """That one is logged, and does not take its place."""

    async def body() -> None:
        async with place.executor() as executor:
            work_of(executor).start_soon(fail)
            raise Wrong

    with pytest.raises(Wrong):
        await body()
    assert get_executor() is None


async def test_a_bug_in_the_background_is_not_lost(place: FakePlace) -> None:
    """When the body has nothing else to say."""

    async def body() -> None:
        async with place.executor() as executor:
            work_of(executor).start_soon(fail)
            await sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await body()
    assert caught.group_contains(KeyError)
    assert get_executor() is None


async def test_a_cancelled_body_closes_like_any_other(place: FakePlace) -> None:
    """Its call is ended, its executor is closed, and the cancellation goes on."""
    with move_on_after(1) as patience:
        async with place.executor() as executor:
            await chat(executor, do.lasts)
    assert patience.cancelled_caught
    assert [kill.why for kill in place.daemon.killed] == ["client-gone"]
    assert get_executor() is None


async def test_bugs_of_a_runner_reach_the_caller(place: FakePlace) -> None:
    """Not the task group, where they would end everybody else's calls."""
    place.daemon.commands.pop(do.counts)
    async with place.executor() as executor:
        for session in ("chat", None):
            with pytest.raises(AssertionError, match="was not told what this command does"):
                await executor.run(ExecSpec(do.counts, session))
            assert (await executor.run(ExecSpec(do.speaks, session))).exit_code == 3


async def test_its_settings_are_read_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later change of this process's environment moves no sandbox to another daemon (R7)."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://first:1")
    executor = LocalDockerExecutor(SandboxConfig(image=IMAGE))
    monkeypatch.setenv("DOCKER_HOST", "tcp://second:2")
    assert "first" in str(executor._runner._environment["DOCKER_HOST"])  # type: ignore[attr-defined]  # the real runner's
