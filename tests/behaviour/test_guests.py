"""Guests that die, refuse, forget and lie: what cannot have started is healed, and nothing else."""

from __future__ import annotations

import pytest
from anyio import create_task_group

from sandbox_exec import (
    ContainerStartError,
    ExecSpec,
    SandboxBrokenError,
    SandboxDisposedError,
)
from sandbox_exec.testing import FakeCall
from sandbox_exec.testing._faults import GuestPlan

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import FakePlace

pytestmark = pytest.mark.anyio

NOT_RUNNING = "Error response from daemon: Container 123 is not running\n"


def commands(place: FakePlace) -> list[str]:
    """What really ran, in order."""
    return [command for _, command in place.daemon.executed]


async def stuck(call: FakeCall) -> int:
    call.unkillable()
    await call.stdout(b"begun\n")
    await call.sleep(99)
    return 0


async def test_one_death_before_ready_is_healed(place: FakePlace) -> None:
    """By looking again; nothing was lost, so nothing is said."""
    async with place.executor() as executor:
        await chat(executor, do.serves)
        place.daemon.die_before_ready_next()
        result = await chat(executor, do.counts)
        assert (result.exit_code, result.reset) == (0, None)
    assert commands(place) == [do.serves, do.counts]
    assert place.container("chat").background == [do.serves]


async def test_a_second_death_before_ready_restarts(place: FakePlace) -> None:
    """Files stay, processes do not, and the caller is told (S15)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        for _ in range(2):
            place.daemon.die_before_ready_next()
        result = await chat(executor, do.shows_count)
        assert result.stdout == "x\n"
        assert "restarted" in str(result.reset)
        assert (await chat(executor, do.speaks)).reset is None
    assert place.container("chat").starts == 2


async def test_what_a_restart_does_not_heal_is_broken(place: FakePlace) -> None:
    """It never started, the container is left as it is, and disposing helps (S14)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        before = place.identity("chat")
        for _ in range(3):
            place.daemon.die_before_ready_next()
        error = await failure(executor, SandboxBrokenError, do.counts)
        assert (error.code, error.started, place.identity("chat")) == (
            "sandbox-mute",
            False,
            before,
        )
        assert error.hint
        assert commands(place) == [do.counts]
        await executor.dispose_session("chat")
        assert (await chat(executor, do.shows_count)).stdout == "none\n"


@pytest.mark.parametrize("session", ["chat", None])
@pytest.mark.parametrize("runs", [False, True])
async def test_what_was_sent_is_never_sent_again(
    place: FakePlace, session: str | None, runs: bool
) -> None:
    """Whether or not it ran: nobody here can tell (F19)."""
    async with place.executor() as executor:
        place.daemon.die_after_sent_next(runs=runs)
        error = await failure(executor, SandboxBrokenError, do.overruns, session)
        assert error.started is True
        assert (error.partial_stdout == "begun\n") is runs
        assert commands(place) == [do.overruns] * runs
        assert (await executor.run(ExecSpec(do.speaks, session))).exit_code == 3


async def test_a_lost_guests_command_is_hunted(place: FakePlace) -> None:
    """What the guest left is killed by its tag, through another guest (C2)."""
    place.daemon.die_after_sent_next(runs=False)
    async with place.executor() as executor:
        await failure(executor, SandboxBrokenError, do.counts)
    assert len(place.ran("exec")) == 2


@pytest.mark.parametrize("how", ["mute", "refused", "frozen"])
async def test_a_hunt_that_fails_changes_nothing(place: FakePlace, how: str) -> None:
    """It is bounded, and the error is the same."""

    async def breaks(call: FakeCall) -> int:
        if how == "mute":
            place.daemon.die_before_ready_next()
        elif how == "refused":
            place.daemon.fail_next("exec", stderr=NOT_RUNNING)
        else:
            place.daemon.hang_next("exec")
        return 0

    place.daemon.commands["breaks"] = breaks
    place.daemon.die_after_sent_next()
    async with place.hasty() as executor:
        error = await failure(executor, SandboxBrokenError, "breaks")
        assert (error.code, error.started) == ("guest-lost", True)
    assert commands(place) == ["breaks"]


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_lost_end_of_stderr_delays_a_little(place: FakePlace, session: str | None) -> None:
    """The other frame is enough, as it is written last."""
    async with place.hasty() as executor:
        place.daemon.lose_end_frame_next("stderr")
        result = await executor.run(ExecSpec(do.speaks, session))
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_lost_end_of_stdout_reads_as_a_limit(place: FakePlace, session: str | None) -> None:
    """The host's timer ends it, certain that nothing is left; it is not run again."""
    async with place.hasty() as executor:
        place.daemon.lose_end_frame_next("stdout")
        result = await executor.run(ExecSpec(do.speaks, session, timeout=0.1))
    assert (result.exit_code, result.timed_out, result.stdout) == (-1, True, "out\n")
    assert commands(place) == [do.speaks]


RESTARTS = ["fork", "space", "state", "gibberish", "constructor"]


@pytest.mark.parametrize("reason", RESTARTS)
async def test_a_full_sandbox_is_restarted(place: FakePlace, reason: str) -> None:
    """Once for a call, with its files kept and the reason told (S15)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.daemon.refuse_next(reason)
        result = await chat(executor, do.shows_count)
        assert (result.stdout, "restarted" in str(result.reset)) == ("x\n", True)
        for _ in range(9):
            place.daemon.refuse_next(reason)
        error = await failure(executor, SandboxBrokenError, do.counts)
        assert (error.started, reason in str(error)) == (False, True)
    assert place.container("chat").starts == 3
    assert commands(place) == [do.counts, do.shows_count]


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_refusal_needs_no_hunt(place: FakePlace, session: str | None) -> None:
    """It is the guest's word that nothing ran, so no second guest looks for leftovers."""
    async with place.executor(min_free_bytes=0) as executor:
        place.daemon.refuse_next("cwd")
        with pytest.raises(ValueError, match="working directory"):
            await executor.run(ExecSpec(do.counts, session, cwd="/etc/passwd"))
    assert len(place.ran("exec")) == (1 if session else 0)


@pytest.mark.parametrize(
    ("reason", "code"), [("dd", "no-dd"), ("workspace", "no-workspace"), ("tag", "no-tag")]
)
async def test_refusals_that_nothing_heals(place: FakePlace, reason: str, code: str) -> None:
    """Told at once, and nothing is restarted for them (S14)."""
    async with place.executor() as executor:
        place.daemon.refuse_next(reason)
        error = await failure(executor, SandboxBrokenError, do.counts)
        assert (error.code, error.started) == (code, False)
        place.daemon.refuse_next(reason)
        start = await failure(executor, ContainerStartError, do.counts, None)
        assert start.started is False
    assert (place.container("chat").starts, commands(place)) == (1, [])


@pytest.mark.parametrize("session", ["chat", None])
async def test_refusals_of_the_callers_input(place: FakePlace, session: str | None) -> None:
    """Rejected input is a ValueError, whoever rejects it."""
    verb = "exec" if session else "run --rm"
    async with place.executor() as executor:
        place.daemon.refuse_next("cwd")
        with pytest.raises(ValueError, match="working directory"):
            await executor.run(ExecSpec(do.counts, session, cwd="/etc/passwd"))
        place.daemon.fail_next(
            verb,
            stderr="docker: Error response from daemon: unable to find user x: no matching entries "
            "in passwd file.\n",
            exit_code=126,
        )
        with pytest.raises(ValueError, match="no user '"):
            await executor.run(ExecSpec(do.counts, session, user="x"))
    assert commands(place) == []


EXEC_FAILED = "OCI runtime exec failed: exec failed: unable to start container process: "


@pytest.mark.parametrize(
    ("stdout", "code"),
    [(f'{EXEC_FAILED}exec: "sh": executable file not found in $PATH: unknown\n', "no-shell")],
)
async def test_what_the_engine_says_is_broken(place: FakePlace, stdout: str, code: str) -> None:
    """Its own words count where no guest spoke, and are never a command's output (C9)."""
    async with place.executor() as executor:
        place.daemon.fail_next("exec", stdout=stdout, exit_code=126, times=2)
        error = await failure(executor, SandboxBrokenError, do.counts)
        assert (error.code, error.started, error.partial_stdout) == (code, False, "")


@pytest.mark.parametrize(
    ("words", "failures", "restarts"),
    [
        ("sh: can't fork: Resource temporarily unavailable\n", 1, 1),
        ("container not created: not found\n", 1, 0),
        ("container not created: not found\n", 2, 0),
        (NOT_RUNNING, 1, 0),
        ("words that nobody knows\n", 1, 0),
        ("words that nobody knows\n", 2, 1),
    ],
)
async def test_engine_words_and_their_remedies(
    place: FakePlace, words: str, failures: int, restarts: int
) -> None:
    """An end is looked at again; a want of processes, or what nobody knows, ends with a restart."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.daemon.fail_next("exec", stderr=words, exit_code=126, times=failures)
        result = await chat(executor, do.shows_count)
        assert (result.stdout, result.reset is not None) == ("x\n", restarts > 0)
    assert place.container("chat").starts == 1 + restarts


async def test_a_retiring_sandbox_is_awaited_and_woken(place: FakePlace) -> None:
    """Somebody is putting it to sleep: the call waits for that, and wakes it (S6, S11)."""
    async with place.executor() as executor, create_task_group() as group:
        await chat(executor, do.counts)
        for _ in range(100):
            place.daemon.refuse_next("retiring")
        caller = Caller(executor, do.shows_count)
        group.start_soon(caller)
        await until(lambda: len(place.ran("exec")) >= 3)
        place.stop("chat")
        place.daemon._faults.guests.clear()
    assert caller.result is not None
    assert (caller.result.stdout, "stopped" in str(caller.result.reset)) == ("x\n", True)


@pytest.mark.parametrize("heals", [True, False])
async def test_a_retirement_that_never_ends_is_overruled(place: FakePlace, heals: bool) -> None:
    """In bounded time, by a restart; if even that does not help, the sandbox is broken."""
    async with place.executor() as executor, create_task_group() as group:
        await chat(executor, do.counts)
        for _ in range(100):
            place.daemon.refuse_next("retiring")
        caller = Caller(executor, do.shows_count)
        group.start_soon(caller)
        await until(lambda: len(place.ran("exec")) >= 3)
        hold = place.daemon.hold("restart")
        place.daemon.clock.advance(11)
        await hold.reached()
        if heals:
            place.daemon._faults.guests.clear()
        hold.release()
    assert place.container("chat").starts == 2
    if heals:
        assert caller.result is not None
        assert (caller.result.stdout, "restarted" in str(caller.result.reset)) == ("x\n", True)
    else:
        assert caller.failed(SandboxBrokenError).started is False
        assert commands(place) == [do.counts]


async def test_a_command_cannot_have_itself_run_for_ever(place: FakePlace) -> None:
    """Who refuses a whole request may be the command itself, so that is believed twice at most."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        for reason in ("retiring", "retiring", "fork", "retiring"):
            place.daemon._faults.guests.append(GuestPlan(refuses=reason, late=True))
        before = len(place.ran("exec"))
        error = await failure(executor, SandboxBrokenError, do.speaks)
        assert (error.code, error.started) == ("sandbox-mute", False)
        assert len(place.ran("exec")) - before == 3
        place.daemon._faults.guests.clear()
        assert (await chat(executor, do.shows_count)).stdout == "x\n"


async def test_a_guest_of_another_version_is_asked_nothing(place: FakePlace) -> None:
    """It is healed like one that died; in the end the sandbox is broken (S18)."""
    async with place.executor() as executor:
        place.daemon.speak_next(99)
        result = await chat(executor, do.counts)
        assert (result.exit_code, result.reset) == (0, None)
        for _ in range(3):
            place.daemon.speak_next(99)
        error = await failure(executor, SandboxBrokenError, do.counts)
        assert error.started is False
        place.daemon.speak_next(99)
        start = await failure(executor, ContainerStartError, do.counts, None)
        assert start.started is False
    assert commands(place) == [do.counts]


async def test_what_outlives_its_kill_ends_with_its_sandbox(place: FakePlace) -> None:
    """The last resort is a restart; its caller has the result, the next one the reason (F18)."""
    place.daemon.commands["stuck"] = stuck
    async with place.executor() as executor:
        await chat(executor, do.counts)
        result = await chat(executor, "stuck", timeout=5)
        assert (result.timed_out, result.stdout, result.reset) == (True, "begun\n", None)
        assert place.container("chat").starts == 2
        after = await chat(executor, do.shows_count)
        assert (after.stdout, "restarted" in str(after.reset)) == ("x\n", True)


@pytest.mark.parametrize("fault", ["silent", "refused", "down"])
async def test_a_known_result_survives_a_failed_restart(place: FakePlace, fault: str) -> None:
    """A command that ran is never reported as one that did not."""
    place.daemon.commands["stuck"] = stuck
    async with place.executor(start_timeout=0.2) as executor:
        await chat(executor, do.counts)
        if fault == "silent":
            place.daemon.hang_next("restart")
        elif fault == "refused":
            place.daemon.fail_next("restart", stderr="no\n")
        else:
            words = "error during connect: Post http://x: EOF\n"
            place.daemon.fail_next("restart", stderr=words, exit_code=255)
        result = await chat(executor, "stuck", timeout=5)
        assert (result.timed_out, result.stdout) == (True, "begun\n")
        place.daemon.clock.advance(20)
        assert (await chat(executor, do.shows_count)).stdout == "x\n"
    assert commands(place) == [do.counts, "stuck", do.shows_count]


async def test_running_out_of_memory_is_told(place: FakePlace) -> None:
    """Beside whatever the exit code says (F9)."""

    async def hungry(call: FakeCall) -> int:
        call.oom_killed()
        return 137

    place.daemon.commands["hungry"] = hungry
    async with place.executor() as executor:
        for session in ("chat", None):
            result = await executor.run(ExecSpec("hungry", session))
            assert (result.exit_code, result.oom_killed, result.timed_out) == (137, True, False)


@pytest.mark.parametrize("end", ["dispose", "close"])
async def test_a_call_ended_before_it_was_sent_has_not_started(place: FakePlace, end: str) -> None:
    """Its guest had not even said that it was ready."""
    async with create_task_group() as group:
        async with place.executor() as executor:
            await chat(executor, do.speaks)
            hold = place.daemon.hold("exec")
            caller = Caller(executor, do.counts)
            group.start_soon(caller)
            await hold.reached()
            if end == "dispose":
                await executor.dispose_session("chat")
        hold.release()
    assert getattr(caller.error, "started", None) is False
    if end == "dispose":
        caller.failed(SandboxDisposedError)
    assert do.counts not in commands(place)
