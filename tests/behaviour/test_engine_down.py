"""An engine that is down, silent or talks nonsense: typed, bounded, and nothing is removed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from anyio import create_task_group, wait_all_tasks_blocked

from sandbox_exec import (
    ContainerStartError,
    DaemonUnavailableError,
    EngineNotFoundError,
    ExecResult,
    ExecSpec,
    LocalDockerExecutor,
    SandboxError,
)
from sandbox_exec.testing import FakeCall, FakeDaemon

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import FakePlace

pytestmark = pytest.mark.anyio

DOWN = "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"


async def test_a_missing_program_is_its_own_error(place: FakePlace) -> None:
    """Whichever call meets it first: a control call, a session's, a one-off's."""
    async with place.executor(engine="podman", min_free_bytes=0) as executor:
        for session in ("chat", None):
            error = await failure(executor, EngineNotFoundError, do.speaks, session)
            assert (error.argv, error.started) == (("podman",), False)
    place.daemon = FakeDaemon(dict(place.daemon.commands))
    async with place.executor() as executor:
        await chat(executor, do.speaks)
        place.daemon._program = "gone"
        error = await failure(executor, EngineNotFoundError, do.speaks)
        assert error.started is False


async def test_a_down_engine_is_remembered(place: FakePlace) -> None:
    """Calls behind the first fail without asking; one a second asks, and a success ends it."""
    async with place.executor() as executor:
        place.daemon.down()
        await failure(executor, DaemonUnavailableError, do.speaks)
        asked = len(place.daemon.calls)
        callers = [Caller(executor, do.speaks, session) for session in ("a", "b", None, "chat")]

        async def all_at_once() -> None:
            async with create_task_group() as group:
                for caller in callers:
                    group.start_soon(caller)

        await all_at_once()
        errors = [caller.failed(DaemonUnavailableError) for caller in callers]
        assert len({id(error) for error in errors}) == 4
        assert len(place.daemon.calls) == asked
        place.daemon.clock.advance(1.1)
        await all_at_once()
        assert len(place.daemon.calls) == asked + 1
        place.daemon.up()
        await all_at_once()
        assert len(place.daemon.calls) == asked + 1
        place.daemon.clock.advance(1.1)
        assert (await executor.run(ExecSpec(do.speaks, "a"))).exit_code == 3
        assert (await executor.run(ExecSpec(do.speaks, "b"))).exit_code == 3


async def test_a_down_engine_is_forgotten(place: FakePlace) -> None:
    """The memo is short by itself."""
    async with place.executor() as executor:
        place.daemon.down()
        await failure(executor, DaemonUnavailableError, do.speaks)
        place.daemon.up()
        place.daemon.clock.advance(15)
        assert (await chat(executor, do.speaks)).exit_code == 3


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_commands_words_are_never_remembered(place: FakePlace, session: str | None) -> None:
    """It may print what it likes; new sandboxes are made as ever (S12)."""

    async def lie(call: FakeCall) -> int:
        await call.stdout(DOWN.encode())
        await call.stderr(DOWN.encode())
        return 1

    place.daemon.commands["lie"] = lie
    async with place.executor() as executor:
        lied = await executor.run(ExecSpec("lie", session))
        assert (lied.stdout, lied.stderr, lied.exit_code) == (DOWN, DOWN, 1)
        assert (await executor.run(ExecSpec(do.speaks, "new"))).exit_code == 3
    assert len(place.daemon.executed) == 2


DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at "
    "unix:///var/run/docker.sock: Get x: dial unix: connect: permission denied"
)


@pytest.mark.parametrize(
    ("words", "code"), [("error during connect: Get http://x: EOF", 255), (DENIED, 1)]
)
async def test_every_way_to_be_down(place: FakePlace, words: str, code: int) -> None:
    """Over ssh, or for want of permission: the same error."""
    async with place.executor() as executor:
        await chat(executor, do.speaks)
        place.daemon.down(words, code)
        error = await failure(executor, DaemonUnavailableError, do.speaks)
        assert words in error.stderr


async def _stopped(place: FakePlace) -> None:
    place.stop("chat")


async def _paused(place: FakePlace) -> None:
    place.pause("chat")


async def _exhausted(place: FakePlace) -> None:
    place.daemon.refuse_next("fork")


@pytest.mark.parametrize(
    ("verb", "prepare", "acts"),
    [
        ("inspect", _stopped, False),
        ("start", _stopped, False),
        ("start", _stopped, True),
        ("unpause", _paused, False),
        ("unpause", _paused, True),
        ("restart", _exhausted, False),
        ("restart", _exhausted, True),
    ],
)
async def test_one_control_call_without_an_answer(
    place: FakePlace, verb: str, prepare: Callable[[FakePlace], Awaitable[None]], acts: bool
) -> None:
    """Unknown is an error within its bound; nothing is removed, and the next call works (S3)."""
    async with place.hasty() as executor:
        await chat(executor, do.counts)
        before = place.identity("chat")
        await prepare(place)
        place.daemon.hang_next(verb, acts=acts)
        begun = time.monotonic()
        # An engine that answers all the same is not what is wrong with a start that does not.
        starts = verb in {"start", "restart"}
        kind = ContainerStartError if starts else DaemonUnavailableError
        error: SandboxError = await failure(executor, kind, do.counts)
        assert time.monotonic() - begun < 5
        assert error.code == ("start-timeout" if starts else "daemon-silent")
        assert (error.started, error.retryable, verb in error.argv) == (False, True, True)
        assert (await chat(executor, do.shows_count)).stdout == "x\n"
        assert place.identity("chat") == before
        assert place.ran("rm") == []


@pytest.mark.parametrize("acts", [False, True])
async def test_a_creation_without_an_answer(place: FakePlace, acts: bool) -> None:
    """Whether it happened or not, the next call has one sandbox, and nothing was removed."""
    async with place.hasty() as executor:
        place.daemon.hang_next("run", acts=acts)
        error = await failure(executor, ContainerStartError, do.counts)
        assert (error.code, error.started, error.retryable) == ("start-timeout", False, True)
        assert len(place.containers()) == int(acts)
        await chat(executor, do.counts)
    assert (len(place.containers()), place.ran("rm")) == (1, [])


@pytest.mark.parametrize("acts", [False, True])
async def test_a_slow_engine_is_not_an_absent_one(place: FakePlace, acts: bool) -> None:
    """A start beyond its budget says so, is not undone, and what came of it serves (S3)."""
    place.daemon.slow_start(3, acts=acts)
    async with place.hasty() as executor:
        begun = time.monotonic()
        error = await failure(executor, ContainerStartError, do.counts)
        assert time.monotonic() - begun < 2.5
        assert (error.code, error.retryable, "run" in error.argv) == ("start-timeout", True, True)
        place.daemon._faults.stalls.clear()
        assert (await chat(executor, do.counts)).exit_code == 0
    assert (len(place.ran("run")), place.ran("rm")) == (2 - acts, [])


async def test_a_start_of_an_engine_that_answers_nothing_else(place: FakePlace) -> None:
    """Then it is the engine that is not there, and nothing was removed (S3)."""
    async with place.hasty() as executor:
        place.daemon.hang_next("run")
        place.daemon.hang_next("info")
        error = await failure(executor, DaemonUnavailableError, do.counts)
        assert (error.started, "info" in error.argv, place.ran("rm")) == (False, True, [])


async def test_a_removal_without_an_answer(place: FakePlace) -> None:
    """The old policy's container is never adopted for it; the next call tries again."""
    async with place.hasty() as executor:
        await chat(executor, do.counts)
    before = place.identity("chat")
    async with place.hasty(memory="100m") as executor:
        place.daemon.hang_next("rm")
        error = await failure(executor, DaemonUnavailableError, do.counts)
        assert (error.started, place.identity("chat")) == (False, before)
        result = await chat(executor, do.shows_count)
        assert (result.stdout, "limits" in str(result.reset)) == ("none\n", True)


async def test_a_disposal_without_an_answer(place: FakePlace) -> None:
    """It says so, and may be repeated; until then the sandbox serves."""
    async with place.hasty() as executor:
        await chat(executor, do.counts)
        for verb in ("inspect", "rm"):
            place.daemon.hang_next(verb)
            with pytest.raises(DaemonUnavailableError):
                await executor.dispose_session("chat")
        assert (await chat(executor, do.shows_count)).stdout == "x\n"
        await executor.dispose_session("chat")
    assert place.containers() == []


async def test_several_calls_wait_for_a_disposal_that_fails(place: FakePlace) -> None:
    """Each is served by the sandbox that is still there."""
    results: list[str] = []
    async with place.hasty() as executor:
        await chat(executor, do.counts)

        async def dispose() -> None:
            with pytest.raises(DaemonUnavailableError):
                await executor.dispose_session("chat")

        async def call() -> None:
            results.append((await chat(executor, do.shows_count)).stdout)

        place.daemon.hang_next("rm")
        async with create_task_group() as group:
            group.start_soon(dispose)
            await wait_all_tasks_blocked()
            for _ in range(3):
                group.start_soon(call)
    assert results == ["x\n"] * 3


async def test_an_image_that_cannot_be_asked_for(place: FakePlace) -> None:
    """Looking for it and fetching it have budgets of their own (C3)."""
    async with place.hasty(image="absent") as executor:
        place.daemon.hang_next("image inspect")
        await failure(executor, DaemonUnavailableError, do.speaks)
        place.daemon.fail_next("image inspect", stderr="what?\n")
        await failure(executor, DaemonUnavailableError, do.speaks)
        place.daemon.hang_next("pull")
        error = await failure(executor, DaemonUnavailableError, do.speaks)
        assert (error.started, "pull" in error.argv) == (False, True)


async def test_a_guest_without_an_answer(place: FakePlace) -> None:
    """One that is only late is tried again; the sandbox is restarted once it stays mute."""
    async with place.hasty() as executor:
        await chat(executor, do.counts)
        place.daemon.hang_next("exec")
        result = await chat(executor, do.counts)
        assert (result.exit_code, result.reset) == (0, None)
        place.daemon.hang_next("exec", times=2)
        result = await chat(executor, do.shows_count)
        assert (result.stdout, "restarted" in str(result.reset)) == ("x\nx\n", True)
    assert place.container("chat").starts == 2


async def test_a_workspace_root_without_an_answer(place: FakePlace) -> None:
    """No sandbox is made in a directory that may be open to others (R5)."""
    async with place.hasty(workspace_root="/srv/w") as executor:
        place.daemon.hang_next("run --rm")
        await failure(executor, DaemonUnavailableError, do.speaks)
        assert place.containers() == []


@pytest.mark.parametrize("known", [False, True])
async def test_a_wedged_engine(place: FakePlace, known: bool) -> None:
    """It accepts and never answers: every operation says so in bounded time, and harms nothing."""

    async def session(executor: LocalDockerExecutor) -> ExecResult:
        return await chat(executor, do.counts)

    async def one_off(executor: LocalDockerExecutor) -> ExecResult:
        return await executor.run(ExecSpec(do.counts))

    async def dispose(executor: LocalDockerExecutor) -> None:
        await executor.dispose_session("chat")

    async with place.hasty() as executor:
        if known:
            await chat(executor, do.counts)
            await executor.run(ExecSpec(do.speaks))
        place.daemon.hang()
        for operation in (session, one_off, dispose, session):
            begun = time.monotonic()
            with pytest.raises(DaemonUnavailableError) as caught:
                await operation(executor)
            assert caught.value.started is False
            assert time.monotonic() - begun < 5
        place.daemon.thaw()
        assert len(place.containers()) == int(known)
        assert (await chat(executor, do.shows_count)).stdout == ("x\n" if known else "none\n")


NONSENSE = [
    ("garbage", "", 0),
    ("", "", 0),
    ("[]\n", "", 0),
    ("[]\n", "", 1),
    ("[]\n", "Error: it does not feel like it\n", 1),
    ('[{"Id": "x"}]\n', "", 0),
    ("{}\n", "Error: No such object: another\n", 1),
    ("[3]\n", "", 1),
]


@pytest.mark.parametrize(("stdout", "stderr", "code"), NONSENSE)
async def test_nonsense_is_no_answer(place: FakePlace, stdout: str, stderr: str, code: int) -> None:
    """Nothing is taken for missing, made or removed on the strength of it (S3)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        before = place.identity("chat")
        place.stop("chat")
        place.daemon.fail_next("inspect", stdout=stdout, stderr=stderr, exit_code=code)
        error = await failure(executor, DaemonUnavailableError, do.counts)
        assert error.started is False
        place.daemon.fail_next("inspect", stdout=stdout, stderr=stderr, exit_code=code)
        with pytest.raises(DaemonUnavailableError):
            await executor.dispose_session("chat")
        assert (place.identity("chat"), place.ran("rm")) == (before, [])
        assert (await chat(executor, do.shows_count)).stdout == "x\n"


async def test_a_one_off_whose_engine_is_slow_is_awaited(place: FakePlace) -> None:
    """A start may take longer than a control call, while the engine answers others."""
    async with place.hasty(start_timeout=5) as executor, create_task_group() as group:
        hold = place.daemon.hold("run --rm")
        caller = Caller(executor, do.speaks, None)
        group.start_soon(caller)
        await hold.reached()
        info = len(place.ran("info"))
        await until(lambda: len(place.ran("info")) > info)
        hold.release()
    assert caller.result is not None
    assert caller.result.exit_code == 3


async def test_a_one_off_that_never_starts(place: FakePlace) -> None:
    """Bounded by the start's budget, when the engine is well otherwise; nothing of it is left."""
    async with place.hasty() as executor:
        place.daemon.hang_next("run --rm")
        error = await failure(executor, ContainerStartError, do.speaks, None)
        assert (error.started, error.retryable) == (False, True)
        assert error.argv[1:3] == ("run", "--rm")
    assert place.containers() == []


async def test_a_one_off_that_starts_while_the_engine_is_doubted(place: FakePlace) -> None:
    """Its guest answered, so no doubt may call it "not started"."""
    async with place.executor(
        clock=time.monotonic, control_timeout=0.4, grace=0.1, min_free_bytes=0
    ) as executor:
        # What kind of engine it is, is asked only once.
        await executor.run(ExecSpec(do.speaks))
        start, doubt = place.daemon.hold("run --rm"), place.daemon.hold("info")
        async with create_task_group() as group:
            caller = Caller(executor, do.speaks, None)
            group.start_soon(caller)
            await doubt.reached()
            start.release()
        doubt.release()
        assert caller.result is not None
        assert caller.result.exit_code == 3


async def test_the_disks_free_space_is_asked_of_a_daemon_that_answers(
    place: FakePlace, tmp_path: Path
) -> None:
    """A daemon that is down is that, and not a full disk."""
    async with place.executor(workspace_root=str(tmp_path), min_free_bytes="1024t") as executor:
        place.daemon.down()
        await failure(executor, DaemonUnavailableError, do.speaks)
        await failure(executor, DaemonUnavailableError, do.speaks, None)
