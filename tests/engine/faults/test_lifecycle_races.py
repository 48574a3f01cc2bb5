"""Several callers, executors and strangers who want different things of one container."""

import time

import anyio
import pytest

from sandbox_exec import (
    ContainerStartError,
    ExecResult,
    ExecSpec,
    ExecutorClosedError,
    LocalDockerExecutor,
    SandboxDisposedError,
)
from tests.engine.faults.outside import Outside, asyncio_only, told, within

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SIX = range(6)


async def six_at_once(executor: LocalDockerExecutor, session: str) -> list[ExecResult]:
    """Make six calls side by side; each must be answered with its own output."""
    results: list[ExecResult] = []

    async def call(number: int) -> None:
        result = await executor.run(ExecSpec(f"echo {number} $(hostname)", session))
        assert result.ok, result
        assert result.stdout.split()[0] == str(number)
        results.append(result)

    async with within(20, "six calls at once"), anyio.create_task_group() as group:
        for number in SIX:
            group.start_soon(call, number)
    return results


async def test_six_first_calls_start_one_container(shared: Outside) -> None:
    """Parallel first calls share one start, and nobody is told of a loss that was none."""
    async with shared.executor() as executor:
        results = await six_at_once(executor, "chat")
        assert len({result.stdout.split()[1] for result in results}) == 1
        assert [result.reset for result in results] == [None] * 6
    assert await shared.containers() == [shared.name("chat")]


async def test_six_calls_after_a_removal_share_a_new_container(shared: Outside) -> None:
    """After an outside removal six parallel calls all succeed, with one new container, and one of
    them is told.
    """
    async with shared.executor() as executor:
        await told(executor, "chat", "echo one")
        before = await shared.identity("chat")
        for _ in range(3):
            await shared.engine("rm", "--force", shared.name("chat"))
            results = await six_at_once(executor, "chat")
            assert len({result.stdout.split()[1] for result in results}) == 1
            resets = [result.reset for result in results if result.reset]
            assert resets
            assert all("removed" in reset for reset in resets)
            assert (await executor.run(ExecSpec("true", "chat"))).reset is None
            assert await shared.identity("chat") != before
        assert await shared.containers() == [shared.name("chat")]


@asyncio_only
async def test_the_first_caller_leaves_and_the_second_is_served(shared: Outside) -> None:
    """A start belongs to nobody's call: its first caller's cancellation ends that call only."""
    async with shared.executor() as executor:
        for session in ("one", "two", "three"):
            results: list[ExecResult] = []
            first = anyio.CancelScope()

            async def leave(session: str, scope: anyio.CancelScope) -> None:
                with scope:
                    await executor.run(ExecSpec("echo first", session))

            async def stay(session: str, results: list[ExecResult]) -> None:
                results.append(await executor.run(ExecSpec("echo second", session)))

            async with within(20, "the second call"), anyio.create_task_group() as group:
                group.start_soon(leave, session, first)
                await anyio.wait_all_tasks_blocked()
                group.start_soon(stay, session, results)
                await anyio.wait_all_tasks_blocked()
                first.cancel()
            assert [(result.stdout, result.reset) for result in results] == [("second\n", None)]
        await shared.at_rest("one", "two", "three")


async def test_a_disposal_during_a_start_leaves_nothing(shared: Outside) -> None:
    """A start that lost to a disposal is cleaned up, whenever the disposal came."""
    async with shared.executor() as executor:
        starts: list[bool | None] = []

        async def call(session: str) -> None:
            try:
                await executor.run(ExecSpec("echo hi", session))
            except SandboxDisposedError as error:
                starts.append(error.started)

        for number in range(5):
            session = f"chat {number}"
            async with within(30, "a disposal during a start"), anyio.create_task_group() as group:
                group.start_soon(call, session)
                await anyio.wait_all_tasks_blocked()
                await anyio.sleep(0.05 * number)
                await executor.dispose_session(session)
                assert await shared.containers() == []
        assert set(starts) <= {False, None}
        assert await shared.containers() == []


@asyncio_only
async def test_a_disposal_during_a_call_ends_it_with_what_it_said(shared: Outside) -> None:
    """The caller gets the partial output, and a later call a sandbox that knows nothing of it."""
    async with shared.executor() as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.identity("chat")
        caught: list[SandboxDisposedError] = []

        async def call() -> None:
            with pytest.raises(SandboxDisposedError) as error:
                await executor.run(ExecSpec("echo begun; echo wrong >&2; sleep 60", "chat"))
            caught.append(error.value)

        async with within(20, "a disposal during calls"), anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(call)
            await shared.runs("sleep 60", shared.name("chat"), count=3)
            # What it said is on its way; it was said before the sleep began.
            await anyio.sleep(0.2)
            async with anyio.create_task_group() as disposals:
                disposals.start_soon(executor.dispose_session, "chat")
                disposals.start_soon(executor.dispose_session, "chat")
        assert await shared.containers() == []
        for error in caught:
            assert (error.started, error.partial_stdout, error.partial_stderr) == (
                True,
                "begun\n",
                "wrong\n",
            )
            assert error.hint
        fresh = await executor.run(ExecSpec("cat kept", "chat"))
        assert fresh.exit_code == 1
        assert await shared.identity("chat") != before
        await executor.dispose_session("chat")
        await executor.dispose_session("chat")
        await executor.dispose_session("never seen")
        assert await shared.containers() == []


async def test_calls_and_disposals_in_a_loop(shared: Outside) -> None:
    """Whoever calls while others dispose gets a result or is told that it was disposed, and after
    each disposal calls are answered again.
    """
    async with shared.executor() as executor:
        answered = 0
        over = anyio.Event()

        async def call(number: int) -> None:
            nonlocal answered
            while not over.is_set():
                try:
                    result = await executor.run(ExecSpec(f"echo {number}", "chat"))
                except SandboxDisposedError:
                    continue
                assert result.stdout == f"{number}\n"
                answered += 1

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(call, number)
                for _ in range(3):
                    before = answered
                    while answered <= before + 1:  # noqa: ASYNC110  # a count, not an event
                        await anyio.sleep(0.02)
                    await executor.dispose_session("chat")
                over.set()
        await executor.dispose_session("chat")
        assert await shared.containers() == []


@asyncio_only
async def test_two_executors_share_a_session(shared: Outside) -> None:
    """Another executor of the deployment, in this process or after a restart, adopts what is
    there, and both work in it side by side.
    """
    async with shared.executor() as one, shared.executor() as two:
        await told(one, "chat", "echo mine > note")
        before = await shared.born("chat")
        assert await told(two, "chat", "cat note") == "mine"
        async with within(20, "two executors"), anyio.create_task_group() as group:
            for executor in (one, two, one, two):
                group.start_soon(six_at_once, executor, "chat")
        assert await shared.born("chat") == before
        await shared.engine("rm", "--force", shared.name("chat"))
        async with anyio.create_task_group() as group:
            group.start_soon(six_at_once, one, "chat")
            group.start_soon(six_at_once, two, "chat")
        assert len(await shared.containers()) == 1
    async with shared.executor() as three:
        before = await shared.born("chat")
        result = await three.run(ExecSpec("hostname", "chat"))
        assert before.startswith(result.stdout.strip())
        assert result.reset is None
        assert await shared.born("chat") == before


@asyncio_only
async def test_two_executors_make_one_container(shared: Outside) -> None:
    """First calls of two executors at the same moment end up in one container."""
    async with shared.executor() as one, shared.executor() as two:
        for number in range(2):
            session = f"chat {number}"
            async with anyio.create_task_group() as group:
                group.start_soon(six_at_once, one, session)
                group.start_soon(six_at_once, two, session)
        assert len(await shared.containers()) == 2


@asyncio_only
async def test_a_foreign_container_keeps_its_name(shared: Outside) -> None:
    """A name that somebody else's container has is an error, and that container is untouched."""
    name = shared.name("chat")
    made = ("run", "--detach", "--name", name, "--network", "none", "sandbox-exec/busybox")
    await shared.engine(*made, "sleep", "1000")
    try:
        before = await shared.born("chat")
        async with shared.executor(start_timeout=5) as executor:
            async with within(8, "a name that is taken"):
                with pytest.raises(ContainerStartError) as caught:
                    await executor.run(ExecSpec("echo hi", "chat"))
            assert (caught.value.code, caught.value.started) == ("name-taken", False)
            await executor.dispose_session("chat")
        assert await shared.born("chat") == before
    finally:
        await shared.engine("rm", "--force", name)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"memory": "300m"}, "limits"),
        ({"image": "sandbox-exec/debian"}, "image"),
        ({"pids_limit": 99}, "limits"),
        ({"network": True}, "network"),
    ],
    ids=["memory", "image", "pids", "network"],
)
@asyncio_only
async def test_a_changed_policy_replaces_the_container(
    shared: Outside, settings: dict[str, object], part: str
) -> None:
    """What was made under another policy is never adopted, and the result says what changed."""
    async with shared.executor() as executor:
        await told(executor, "chat", "echo old > kept")
    before = await shared.identity("chat")
    async with shared.executor(**settings) as executor:
        result = await executor.run(ExecSpec("cat kept", "chat"))
        assert result.exit_code == 1
        assert result.reset
        assert part in result.reset
        assert (await executor.run(ExecSpec("true", "chat"))).reset is None
    assert await shared.identity("chat") != before
    assert await shared.containers() == [shared.name("chat")]


@pytest.mark.parametrize("settings", [{"image": "sandbox-exec/bsybox"}, {"runtime": "nosuch"}])
@asyncio_only
async def test_what_cannot_be_replaced_stays(shared: Outside, settings: dict[str, str]) -> None:
    """A mistyped setting costs nobody their files."""
    async with shared.executor() as executor:
        await told(executor, "chat", "echo old > kept")
    before = await shared.born("chat")
    async with shared.executor(**settings) as executor:
        with pytest.raises(ContainerStartError) as caught:
            await executor.run(ExecSpec("true", "chat"))
        assert caught.value.started is False
    assert await shared.born("chat") == before
    async with shared.executor() as executor:
        result = await executor.run(ExecSpec("cat kept", "chat"))
        assert (result.stdout, result.reset) == ("old\n", None)
    assert await shared.containers() == [shared.name("chat")]


async def test_leaving_the_block_ends_calls_and_keeps_the_container(shared: Outside) -> None:
    """Calls in flight get their error with what was said so far; nothing of them stays inside."""
    caught: list[ExecutorClosedError] = []
    executor = shared.executor()

    async def call(session: str | None) -> None:
        with pytest.raises(ExecutorClosedError) as error:
            await executor.run(ExecSpec("echo begun; sleep 60", session))
        caught.append(error.value)

    async with anyio.create_task_group() as group:
        async with executor:
            await told(executor, "chat", "true")
            for session in ("chat", "chat", None):
                group.start_soon(call, session)
            await shared.runs("sleep 60", count=3)
            await anyio.sleep(0.2)
            begin = time.monotonic()
        assert time.monotonic() - begin < 6
    assert [(error.started, error.partial_stdout) for error in caught] == [(True, "begun\n")] * 3
    await shared.at_rest("chat")
    assert await shared.containers() == [shared.name("chat")]
    with pytest.raises(ExecutorClosedError):
        await executor.run(ExecSpec("true", "chat"))


@asyncio_only
async def test_leaving_the_block_during_a_start(shared: Outside) -> None:
    """A start under way holds nobody up; whoever waited for it is told, and the next executor
    comes to a working sandbox.
    """
    for delay in (0, 0.05, 0.15):
        executor = shared.executor()

        async def call(executor: LocalDockerExecutor) -> None:
            with pytest.raises(ExecutorClosedError) as error:
                await executor.run(ExecSpec("sleep 30", "chat"))
            assert error.value.started in (False, None, True)

        async with within(8, "leaving"), anyio.create_task_group() as group, executor:
            group.start_soon(call, executor)
            await anyio.sleep(delay)
        async with shared.executor() as executor:
            assert await told(executor, "chat", "echo well") == "well"
            await executor.dispose_session("chat")
    assert await shared.containers() == []


@asyncio_only
async def test_a_paused_container_goes_on(shared: Outside) -> None:
    """A container that somebody paused is let go on, with its processes, and not rebuilt."""
    async with shared.executor() as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.born("chat")
        for _ in range(2):
            await shared.engine("pause", shared.name("chat"))
            async with within(5, "a call into a paused sandbox"):
                assert await told(executor, "chat", "cat kept") == "old"
        await shared.engine("pause", shared.name("chat"))
        assert len(await six_at_once(executor, "chat")) == 6
        assert await shared.born("chat") == before
        await shared.engine("pause", shared.name("chat"))
    async with shared.executor() as executor:
        assert await told(executor, "chat", "cat kept") == "old"
        assert await shared.born("chat") == before


async def test_a_stopped_container_is_woken(shared: Outside) -> None:
    """A container that somebody stopped is woken once for all callers, its files as they were."""
    async with shared.executor() as executor:
        await told(executor, "chat", "echo old > kept")
        before = await shared.identity("chat")
        await shared.engine("stop", "--time", "0", shared.name("chat"))
        results = await six_at_once(executor, "chat")
        assert any(result.reset for result in results)
        assert await told(executor, "chat", "cat kept") == "old"
        assert await shared.identity("chat") == before


@pytest.mark.parametrize("calls", [200, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.timeout(600)
@asyncio_only
async def test_many_calls_leave_a_session_as_it_was(shared: Outside, calls: int) -> None:
    """However many calls it has served, a sandbox has its two processes, the same container and
    the same PID 1.
    """
    async with shared.executor() as executor:
        await told(executor, "chat", "true")
        before = await shared.born("chat")
        most = 0
        for number in range(calls):
            # A pipe and a background child that ends: what leaves zombies where nobody reaps.
            command = f"true & echo {number} | cat; wait"
            assert await told(executor, "chat", command) == str(number)
            if number % 50 == 0:
                most = max(most, len(await shared.processes(shared.name("chat"))))
        assert most < 20
        assert await shared.born("chat") == before
        await shared.at_rest("chat")


@asyncio_only
async def test_a_process_that_ends_leaves_its_sandboxes(shared: Outside) -> None:
    """A restart of the process adopts what the last one left, without a word of a loss."""
    async with shared.executor() as executor:
        await told(executor, "chat", "(echo alive > note; sleep 1000) & echo begun")
        before = await shared.born("chat")
    async with shared.executor() as executor:
        result = await executor.run(ExecSpec("cat note; ps | grep -c ' sleep 1000$'", "chat"))
        assert (result.stdout, result.reset) == ("alive\n2\n", None)
    assert await shared.born("chat") == before
