"""What was lost is told once to every caller who could miss it, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group

from sandbox_exec import ContainerStartError, LocalDockerExecutor, SandboxBrokenError

from . import vocabulary as do
from .calls import Caller, chat, failure, until
from .places import FakePlace

pytestmark = pytest.mark.anyio


async def two_refused(place: FakePlace, executor: LocalDockerExecutor, reason: str) -> list[Caller]:
    """Make two calls at once that a guest refuses, and wait for what comes of them."""
    hold = place.daemon.hold("exec")
    callers = [Caller(executor, do.counts) for _ in range(2)]
    for _ in callers:
        place.daemon.refuse_next(reason)
    async with create_task_group() as group:
        for caller in callers:
            group.start_soon(caller)
        await hold.reached(2)
        hold.release()
    return callers


async def test_a_sandbox_restarted_by_two_callers_at_once(place: FakePlace) -> None:
    """One restart serves both, and both are told."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        callers = await two_refused(place, executor, "fork")
        assert [caller.result is not None and caller.result.exit_code for caller in callers] == [
            0,
            0,
        ]
        assert all(caller.result and caller.result.reset for caller in callers)
    assert place.container("chat").starts == 2


@pytest.mark.parametrize(("kind", "failures"), [("policy", 1), ("policy", 2), ("removed", 1)])
async def test_what_was_lost_is_told_whatever_comes_next(
    place: FakePlace, kind: str, failures: int
) -> None:
    """A first attempt that fails after a rebuild does not make it forgotten (S16)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    async with place.executor(memory="100m" if kind == "policy" else "512m") as executor:
        if kind == "removed":
            await chat(executor, do.speaks)
            place.remove("chat")
        for _ in range(failures):
            place.daemon.die_before_ready_next()
        result = await chat(executor, do.shows_count)
        word = "limits" if kind == "policy" else "removed"
        assert (word in str(result.reset), result.stdout) == (True, "none\n")


async def test_what_was_lost_is_told_after_a_lost_call(place: FakePlace) -> None:
    """The call that would have been told had no result to be told with."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.stop("chat")
        place.daemon.die_after_sent_next()
        await failure(executor, SandboxBrokenError, do.counts)
        assert "stopped" in str((await chat(executor, do.shows_count)).reset)
        assert (await chat(executor, do.shows_count)).reset is None


async def test_what_was_lost_is_told_after_a_cancelled_call(place: FakePlace) -> None:
    """Likewise."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.stop("chat")
        async with create_task_group() as group:
            group.start_soon(chat, executor, do.lasts)
            await until(lambda: do.lasts in [command for _, command in place.daemon.executed])
            group.cancel_scope.cancel()
        assert "stopped" in str((await chat(executor, do.shows_count)).reset)


async def test_a_start_that_cannot_be_told_is_no_restart(place: FakePlace) -> None:
    """A command may remove the note of it; a true restart shows in the next that can be told."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        place.daemon.forget_start_next()
        assert (await chat(executor, do.counts)).reset is None
        assert (await chat(executor, do.counts)).reset is None
        place.daemon.forget_start_next()
        assert (await chat(executor, do.counts)).reset is None
        place.restart("chat")
        assert "restarted" in str((await chat(executor, do.shows_count)).reset)


async def test_a_workspace_that_was_removed_under_its_sandbox(place: FakePlace) -> None:
    """Mounted still, it serves nobody: the container is made anew, once, and all are told."""
    async with place.executor(workspace_root="/srv/w") as executor:
        await chat(executor, do.counts)
        before = place.identity("chat")
        callers = await two_refused(place, executor, "workspace-gone")
        for caller in callers:
            assert caller.result is not None
            assert "workspace had been removed" in str(caller.result.reset)
        assert place.identity("chat") != before
        assert len([argv for argv in place.ran("run") if "--detach" in argv]) == 2
        assert (await chat(executor, do.counts)).reset is None


@pytest.mark.parametrize("kind", ["removed", "stopped", "policy", "restarted"])
async def test_a_file_operation_keeps_the_word_for_the_next_command(
    place: FakePlace, kind: str
) -> None:
    """Its own result has no place for it; who asks can know before (S16)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        assert executor.pending_reset("chat") is None
        if kind == "removed":
            place.remove("chat")
        elif kind == "stopped":
            place.daemon.stop(place.name("chat"))
        elif kind == "restarted":
            place.daemon.stop(place.name("chat"))
            place.daemon.start(place.name("chat"))
        async with place.executor(memory="100m") as other:
            one = other if kind == "policy" else executor
            await one.read_file("chat", "x")
            await one.put_file("chat", "y", b"")
            known = one.pending_reset("chat")
            result = await chat(one, do.shows_count)
            assert result.reset is not None
            assert result.reset == known
            assert one.pending_reset("chat") is None
            assert (await chat(one, do.shows_count)).reset is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"image": "absent"}, "absent"),
        ({"runtime": "nosuch"}, "unknown or invalid runtime"),
    ],
)
async def test_what_cannot_be_replaced_stays(
    place: FakePlace, settings: dict[str, Any], words: str
) -> None:
    """A mistyped setting costs nobody their files."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    if "runtime" in settings:
        place.daemon.fail_next(
            "run --rm",
            stderr="docker: Error response from daemon: unknown or invalid runtime name: nosuch.\n",
            exit_code=125,
        )
    async with place.executor(**settings) as executor:
        error = await failure(executor, ContainerStartError, do.counts)
        assert (words in str(error), error.started) == (True, False)
    async with place.executor() as executor:
        result = await chat(executor, do.shows_count)
    assert (result.stdout, result.reset, place.ran("rm")) == ("x\n", None, [])
