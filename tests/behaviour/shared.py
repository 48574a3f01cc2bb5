"""Behaviour that holds on any engine: each function is a test, given a place to try it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from anyio import Event, create_task_group, move_on_after, sleep

from sandbox_exec import (
    ContainerStartError,
    ExecResult,
    ExecSpec,
    ExecutorClosedError,
    LocalDockerExecutor,
    SandboxDisposedError,
    SandboxError,
)

from . import vocabulary as do
from .places import Place

Behaviour = Callable[[Place], Awaitable[None]]

BEHAVIOURS: Final[list[Behaviour]] = []


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS.append(function)
    return function


async def chat(executor: LocalDockerExecutor, command: str, **how: object) -> ExecResult:
    return await executor.run(ExecSpec(command, "chat", **how))  # type: ignore[arg-type]  # passed through


@behaviour
async def results_are_the_commands_own(place: Place) -> None:
    """Exit codes, both streams, input, environment, directory and user, whichever kind of call."""
    async with place.executor() as executor:
        for session in ("chat", None):

            async def run(command: str, session: str | None = session, **how: object) -> ExecResult:
                return await executor.run(ExecSpec(command, session, **how))  # type: ignore[arg-type]  # passed through

            spoken = await run(do.speaks)
            assert (spoken.stdout, spoken.stderr, spoken.exit_code) == ("out\n", "err\n", 3)
            assert (spoken.reset, spoken.timed_out, spoken.oom_killed) == (None, False, False)
            assert (await run(do.copies, stdin=b"a\nb")).stdout == "a\nb"
            assert (await run(do.copies)).stdout == ""
            assert (await run(do.shows_token, env={"TOKEN": "it's\n$x"})).stdout == "it's\n$x"
            assert (await run(do.shows_token)).stdout == "unset"
            assert (await run(do.shows_directory)).stdout == "/workspace\n"
            assert (await run(do.shows_directory, cwd="a/b")).stdout == "/workspace/a/b\n"
            assert (await run(do.shows_directory, cwd="/tmp")).stdout == "/tmp\n"
            assert (await run(do.shows_user)).stdout == "root\n"
            assert (await run(do.shows_user, user="nobody")).stdout == "nobody\n"
        codes = [(await chat(executor, do.exits(code))).exit_code for code in do.CODES]
        assert codes == list(do.CODES)


@behaviour
async def engine_words_of_a_command_mean_nothing(place: Place) -> None:
    """It runs once, and its words are its output (S2)."""
    async with place.executor() as executor:
        spoken = await chat(executor, do.speaks_like_an_engine)
        assert (spoken.exit_code, spoken.stderr) == (1, "Error: No such container: sbx\n")
        assert (await chat(executor, do.shows_count)).stdout == "x\n"


@behaviour
async def a_limit_ends_a_command(place: Place) -> None:
    """With what it had printed, and the sandbox goes on (C1, C7)."""
    async with place.executor() as executor:
        for session in ("chat", None):
            limited = await executor.run(ExecSpec(do.overruns, session, timeout=0.3))
            assert (limited.exit_code, limited.timed_out) == (-1, True)
            assert (limited.stdout, limited.stderr) == ("begun\n", "grumbled\n")
        assert (await chat(executor, do.speaks)).reset is None


@behaviour
async def a_session_persists_and_shares_nothing(place: Place) -> None:
    """Files and background processes stay between calls; another session sees neither."""
    async with place.executor() as executor:
        assert (await chat(executor, do.serves)).stdout == "up\n"
        await chat(executor, do.counts)
        await chat(executor, do.counts)
        assert (await chat(executor, do.shows_count)).stdout == "x\nx\n"
        assert (await chat(executor, do.shows_server)).stdout == "up\n"
        other = await executor.run(ExecSpec(do.shows_count, "chat "))
        assert other.stdout == "none\n"
        assert len(place.containers()) == 2


@behaviour
async def a_restarted_server_adopts(place: Place) -> None:
    """Closing leaves the sandbox running; the next executor goes on in it, and says nothing."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        await chat(executor, do.serves)
    before = place.identity("chat")
    async with place.executor() as executor:
        found = await chat(executor, do.shows_count)
        assert (found.stdout, found.reset) == ("x\n", None)
        assert (await chat(executor, do.shows_server)).stdout == "up\n"
    assert place.identity("chat") == before


@behaviour
async def a_stopped_sandbox_wakes(place: Place) -> None:
    """With its files, without its processes, and the first call afterwards says so (S16, S17)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        await chat(executor, do.serves)
        before = place.identity("chat")
        place.stop("chat")
        woken = await chat(executor, do.shows_count)
        assert woken.stdout == "x\n"
        assert woken.reset is not None
        assert "stopped" in woken.reset
        after = await chat(executor, do.shows_server)
        assert (after.stdout, after.reset) == ("down\n", None)
    place.stop("chat")
    async with place.executor() as executor:
        assert (await chat(executor, do.shows_count)).reset is not None
        assert place.identity("chat") == before


@behaviour
async def a_paused_sandbox_is_unpaused(place: Place) -> None:
    """Nothing is lost, so nothing is said (S7)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        await chat(executor, do.serves)
        place.pause("chat")
        found = await chat(executor, do.shows_count)
        assert (found.stdout, found.reset) == ("x\n", None)
        assert (await chat(executor, do.shows_server)).stdout == "up\n"


@behaviour
async def a_restarted_sandbox_keeps_its_files(place: Place) -> None:
    """Somebody's restart between two calls costs none of them."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.restart("chat")
        assert (await chat(executor, do.shows_count)).stdout == "x\n"


@behaviour
async def a_changed_policy_rebuilds(place: Place) -> None:
    """Never adopted, however convenient; the first call says which part changed (S8, S16)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    before = place.identity("chat")
    async with place.executor(memory="100m") as executor:
        rebuilt = await chat(executor, do.shows_count)
        assert rebuilt.stdout == "none\n"
        assert rebuilt.reset is not None
        assert "(limits)" in rebuilt.reset
        assert (await chat(executor, do.speaks)).reset is None
    assert place.identity("chat") != before
    assert len(place.containers()) == 1


@behaviour
async def a_removed_sandbox_is_made_once(place: Place) -> None:
    """Six parallel callers share one new container, and are told (S4, S16)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        before = place.identity("chat")
        place.remove("chat")
        results: list[ExecResult] = []

        async def call() -> None:
            results.append(await chat(executor, do.counts))

        async with create_task_group() as group:
            for _ in range(6):
                group.start_soon(call)
        assert [result.exit_code for result in results] == [0] * 6
        told = {result.reset for result in results} - {None}
        assert len(told) == 1
        assert "removed" in str(told)
        assert (await chat(executor, do.shows_count)).stdout == "x\n" * 6
        assert len(place.containers()) == 1
        assert place.identity("chat") != before


@behaviour
async def a_foreign_container_is_left_alone(place: Place) -> None:
    """Its name is taken: the call fails, typed, and so does no harm (S9)."""
    place.take_name("chat")
    before = place.identity("chat")
    async with place.executor() as executor:
        with pytest.raises(ContainerStartError) as caught:
            await chat(executor, do.speaks)
        assert (caught.value.code, caught.value.started) == ("name-taken", False)
        await executor.dispose_session("chat")
    assert (place.identity("chat"), place.state("chat")) == (before, "running")


@behaviour
async def two_servers_share_a_sandbox(place: Place) -> None:
    """Whoever loses the race for the name adopts the winner's container (S9)."""
    async with place.executor() as one, place.executor() as two, create_task_group() as group:
        for executor in (one, two):
            group.start_soon(chat, executor, do.counts)
    async with place.executor() as executor:
        assert (await chat(executor, do.shows_count)).stdout == "x\nx\n"
    assert len(place.containers()) == 1


@behaviour
async def disposing_leaves_nothing(place: Place) -> None:
    """Before any call, twice, and at once; the next call gets a new, empty sandbox (S10)."""
    async with place.executor() as executor:
        await executor.dispose_session("chat")
        assert place.containers() == []
        await chat(executor, do.counts)
        async with create_task_group() as group:
            group.start_soon(executor.dispose_session, "chat")
            group.start_soon(executor.dispose_session, "chat")
        await executor.dispose_session("chat")
        assert place.containers() == []
        fresh = await chat(executor, do.shows_count)
        assert (fresh.stdout, fresh.reset) == ("none\n", None)


async def ended_by(
    place: Place, end: Callable[[LocalDockerExecutor], Awaitable[None]]
) -> SandboxError:
    """Return what a running call gets when its sandbox, or its executor, is ended."""
    errors: list[SandboxError] = []
    settled = Event()

    async def call(executor: LocalDockerExecutor) -> None:
        try:
            await chat(executor, do.lasts)
        except SandboxError as error:
            errors.append(error)
        settled.set()

    async with create_task_group() as group:
        async with place.executor() as executor:
            group.start_soon(call, executor)
            await chat(executor, do.awaits_begun)
            # It has begun, and what it printed is on the way.
            await sleep(place.patience)
            await end(executor)
        await settled.wait()
    (error,) = errors
    return error


@behaviour
async def disposing_ends_a_running_call(place: Place) -> None:
    """Which is told so, with what was printed until then (S10, C7)."""

    async def dispose(executor: LocalDockerExecutor) -> None:
        await executor.dispose_session("chat")
        assert place.containers() == []

    error = await ended_by(place, dispose)
    assert isinstance(error, SandboxDisposedError)
    assert (error.started, error.retryable) == (True, False)
    assert (error.partial_stdout, error.partial_stderr) == ("begun\n", "grumbled\n")
    assert error.hint


@behaviour
async def closing_ends_a_running_call(place: Place) -> None:
    """But leaves the sandbox and its files for the next server."""

    async def leave(executor: LocalDockerExecutor) -> None:
        pass

    error = await ended_by(place, leave)
    assert isinstance(error, ExecutorClosedError)
    assert error.started is True
    assert (error.partial_stdout, error.partial_stderr) == ("begun\n", "grumbled\n")
    async with place.executor() as executor:
        assert (await chat(executor, do.shows_end)).stdout == "ended early\n"


@behaviour
async def a_cancelled_call_ends_its_command(place: Place) -> None:
    """Nothing of it lives on, and the sandbox serves the next call (C2)."""
    async with place.executor() as executor:
        async with create_task_group() as group:
            group.start_soon(chat, executor, do.lasts)
            await chat(executor, do.awaits_begun)
            group.cancel_scope.cancel()
        assert (await chat(executor, do.shows_end)).stdout == "ended early\n"


@behaviour
async def one_offs_are_gone_afterwards(place: Place) -> None:
    """Ended, limited or cancelled (C2); and each had its own files."""
    async with place.executor() as executor:
        await executor.run(ExecSpec(do.counts))
        assert (await executor.run(ExecSpec(do.shows_count))).stdout == "none\n"
        assert (await executor.run(ExecSpec(do.overruns, timeout=0.3))).timed_out
        assert place.containers() == []
        with move_on_after(place.patience) as patience:
            await executor.run(ExecSpec(do.lasts))
        assert patience.cancelled_caught
        assert place.containers() == []
