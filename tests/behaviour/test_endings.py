"""Every row of the table of endings: what the caller gets, and what is left inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from anyio import create_task_group, move_on_after

from sandbox_exec import (
    DaemonUnavailableError,
    ExecResult,
    ExecSpec,
    ExecutorClosedError,
    SandboxBrokenError,
    SandboxDisposedError,
)
from sandbox_exec.testing import FakeCall, FakeKill

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import FakePlace

pytestmark = pytest.mark.anyio

KINDS = pytest.mark.parametrize("session", ["chat", None])


@KINDS
async def test_an_ended_command_leaves_its_background_processes(
    place: FakePlace, session: str | None
) -> None:
    """In a session they live on; a one-off ends with its command."""
    async with place.executor() as executor:
        await executor.run(ExecSpec(do.serves, session))
        assert (await chat(executor, do.speaks)).ok is False
        left = place.container("chat").background
    assert left == ([do.serves] if session else [])
    assert place.daemon.killed == []


@KINDS
async def test_a_limit_kills_inside(place: FakePlace, session: str | None) -> None:
    """By the guest's own clock; the host's timer is only its understudy."""
    async with place.executor() as executor:
        result = await executor.run(ExecSpec(do.overruns, session, timeout=7))
    (kill,) = place.daemon.killed
    assert (kill.command, kill.why) == (do.overruns, "limit")
    assert (result.exit_code, result.timed_out, result.stdout) == (-1, True, "begun\n")


@KINDS
async def test_the_hosts_timer_trails(place: FakePlace, session: str | None) -> None:
    """A guest whose clock stands still is told to kill, and the result is the same."""
    async with place.hasty() as executor:
        result = await executor.run(ExecSpec(do.lasts, session, timeout=0.1))
    (kill,) = place.daemon.killed
    assert (kill.command, kill.why) == (do.lasts, "asked")
    assert (result.exit_code, result.timed_out, result.stdout) == (-1, True, "begun\n")
    assert result.stderr == "grumbled\n"


@KINDS
async def test_a_cancelled_caller_takes_its_command_along(
    place: FakePlace, session: str | None
) -> None:
    """It is dead by the time the cancellation comes out."""
    async with place.executor() as executor:
        with move_on_after(1) as patience:
            await executor.run(ExecSpec(do.lasts, session))
        assert patience.cancelled_caught
        assert [kill.why for kill in place.daemon.killed] == ["client-gone"]
        assert place.daemon.conversations == 0
    assert len(place.containers()) == (1 if session else 0)


@KINDS
async def test_an_engine_gone_before_the_command_began(
    place: FakePlace, session: str | None
) -> None:
    """One healing attempt, then an error that allows a retry, with words for a model."""
    async with place.executor() as executor:
        for known in (None, session):
            await executor.run(ExecSpec(do.speaks, known))
        place.daemon.down()
        error = await failure(executor, DaemonUnavailableError, do.counts, session)
        assert (error.started, error.retryable, error.code) == (False, True, "daemon-unavailable")
        assert "sandbox is not available" in error.hint
        assert error.argv[0] == "docker"
        assert "Cannot connect" in error.stderr
        place.daemon.up()
        place.daemon.clock.advance(60)
        result = await executor.run(ExecSpec(do.counts, session))
        assert (result.exit_code, result.reset) == (0, None)
    assert [command for _, command in place.daemon.executed].count(do.counts) == 1


@KINDS
async def test_an_engine_gone_while_the_command_ran(place: FakePlace, session: str | None) -> None:
    """Its fate is unknown: never run again, and what was printed is on the error."""
    async with place.executor() as executor, create_task_group() as group:
        caller = Caller(executor, do.lasts, session)
        group.start_soon(caller)
        await until(lambda: place.daemon.executed)
        place.daemon.down()
    error = caller.failed(DaemonUnavailableError)
    assert (error.started, error.partial_stdout) == (True, "begun\n")
    assert error.partial_stderr == "grumbled\n"
    assert len(place.daemon.executed) == 1


async def test_an_engine_that_freezes_while_the_command_ran(place: FakePlace) -> None:
    """Given up within the limit and a few graces, and nothing is removed on it (S3)."""
    async with place.hasty() as executor, create_task_group() as group:
        caller = Caller(executor, do.lasts, timeout=0.05)
        group.start_soon(caller)
        await until(lambda: place.daemon.executed)
        place.daemon.hang()
        await until(lambda: caller.error)
        place.daemon.thaw()
    error = caller.failed(DaemonUnavailableError)
    assert (error.started, error.partial_stdout) == (True, "begun\n")
    assert place.state("chat") == "running"
    assert place.ran("rm") == []


def _remove(place: FakePlace, name: str) -> None:
    place.daemon.remove(name)


def _stop(place: FakePlace, name: str) -> None:
    place.daemon.stop(name)


@KINDS
@pytest.mark.parametrize("act", [_remove, _stop])
async def test_a_sandbox_gone_while_the_command_ran(
    place: FakePlace, session: str | None, act: Callable[[FakePlace, str], None]
) -> None:
    """Its fate is unknown too; the next call has a sandbox again."""
    async with place.executor() as executor:
        async with create_task_group() as group:
            caller = Caller(executor, do.lasts, session)
            group.start_soon(caller)
            await until(lambda: place.daemon.executed)
            act(place, place.containers()[0])
        error = caller.failed(SandboxBrokenError)
        assert (error.code, error.started, error.retryable) == ("sandbox-lost", True, False)
        assert (error.partial_stdout, error.partial_stderr) == ("begun\n", "grumbled\n")
        assert error.hint
        after = await executor.run(ExecSpec(do.speaks, session))
        assert (after.exit_code, after.reset is None) == (3, session is None)
    assert [command for _, command in place.daemon.executed] == [do.lasts, do.speaks]


@pytest.mark.parametrize("late", [False, True])
async def test_a_sandbox_restarted_while_the_command_ran(place: FakePlace, late: bool) -> None:
    """It runs again, or still for all that the engine knows, and the guest was not the one lost."""
    async with place.executor() as executor, create_task_group() as group:
        await executor.run(ExecSpec(do.speaks, "chat"))
        if late:
            place.daemon.die_after_sent_next()

            async def notice() -> None:
                await until(lambda: len(place.ran("inspect")) > 1)
                place.stop("chat")

            group.start_soon(notice)
            error = await failure(executor, SandboxBrokenError, do.speaks)
        else:
            caller = Caller(executor, do.lasts)
            group.start_soon(caller)
            await until(lambda: len(place.daemon.executed) > 1)
            place.daemon.clock.advance(1)
            place.restart("chat")
            await until(lambda: caller.error)
            error = caller.failed(SandboxBrokenError)
        assert (error.code, error.started) == ("sandbox-lost", True)
        assert "restarted" in str(error)


@KINDS
async def test_a_program_killed_while_the_command_ran(
    place: FakePlace, session: str | None
) -> None:
    """On this host: neither the sandbox nor what runs in it is called lost."""
    place.daemon.die_after_sent_next(exit_code=-9)
    async with place.executor() as executor:
        error = await failure(executor, DaemonUnavailableError, do.counts, session)
        assert error.started is True
        assert "its program was killed on this host by signal 9" in str(error)
        assert (await executor.run(ExecSpec(do.speaks, session))).exit_code == 3


@KINDS
async def test_a_guest_killed_while_the_command_ran(place: FakePlace, session: str | None) -> None:
    """The sandbox itself is well, and the command is not run again although nothing ended it."""
    place.daemon.die_after_sent_next()
    async with place.executor() as executor:
        error = await failure(executor, SandboxBrokenError, do.counts, session)
        assert error.started is True
        assert error.code == ("guest-lost" if session else "sandbox-lost")
        assert (await executor.run(ExecSpec(do.speaks, session))).exit_code == 3
    assert [command for _, command in place.daemon.executed] == [do.counts, do.speaks]


@KINDS
async def test_a_closing_executor_ends_its_calls(place: FakePlace, session: str | None) -> None:
    """Killed inside; the session's container stays for the next server."""
    async with create_task_group() as group:
        async with place.executor() as executor:
            caller = Caller(executor, do.lasts, session)
            group.start_soon(caller)
            await until(lambda: place.daemon.executed)
        assert [kill.why for kill in place.daemon.killed] == ["client-gone"]
    error = caller.failed(ExecutorClosedError)
    assert (error.started, error.partial_stdout) == (True, "begun\n")
    assert len(place.containers()) == (1 if session else 0)


async def test_a_disposed_session_ends_its_calls(place: FakePlace) -> None:
    """All of them, before its container is removed; another session's go on."""
    async with place.executor() as executor, create_task_group() as group:
        callers = [Caller(executor, do.lasts, session) for session in ("chat", "chat", "other")]
        for caller in callers:
            group.start_soon(caller)
        await until(lambda: len(place.daemon.executed) == 3)
        name = place.name("chat")
        await executor.dispose_session("chat")
        assert place.daemon.killed == [FakeKill(name, do.lasts, "client-gone")] * 2
        assert place.containers() == [place.name("other")]
        await until(lambda: callers[1].error)
        for caller in callers[:2]:
            assert caller.failed(SandboxDisposedError).partial_stdout == "begun\n"
        group.cancel_scope.cancel()


async def test_partial_output_is_capped(place: FakePlace) -> None:
    """Head and tail, like a whole result's."""

    async def floods(call: FakeCall) -> int:
        for _ in range(100):
            await call.stdout(b"x" * 1000)
        await call.forever()
        return 0

    place.daemon.commands["flood"] = floods
    async with place.executor(max_output_bytes=500) as executor, create_task_group() as group:
        caller = Caller(executor, "flood")
        group.start_soon(caller)
        await until(lambda: place.daemon.executed)
        place.remove("chat")
    assert len(caller.failed(SandboxBrokenError).partial_stdout) == 500


async def test_output_is_capped_on_each_stream(place: FakePlace) -> None:
    """The flag says which; the exit code comes through whatever was printed (C4)."""

    async def floods(call: FakeCall) -> int:
        for _ in range(50):
            await call.stdout("é".encode() * 5000)
        await call.stderr(b"\xff quiet")
        return 9

    place.daemon.commands["flood"] = floods
    async with place.executor(max_output_bytes=501) as executor:
        result: ExecResult = await chat(executor, "flood")
    assert (result.exit_code, result.truncated) == (9, frozenset({"stdout"}))
    assert set(result.stdout) == {"é"}
    assert result.stderr == "\N{REPLACEMENT CHARACTER} quiet"
