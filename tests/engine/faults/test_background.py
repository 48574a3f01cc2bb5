"""Background processes: they outlive their call and hold nobody up."""

import time

import anyio
import pytest

from sandbox_exec import ExecSpec, LocalDockerExecutor
from tests.engine.faults.outside import KEEPERS, Outside, asyncio_only, told

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

images = pytest.mark.parametrize("image", ["busybox", "debian"])


async def timed(executor: LocalDockerExecutor, command: str, session: str = "chat") -> float:
    """Run a command that says "hi" and return how many seconds that took."""
    begin = time.monotonic()
    result = await executor.run(ExecSpec(command, session))
    took = time.monotonic() - begin
    assert (result.stdout, result.stderr, result.exit_code) == ("hi\n", "", 0)
    return took


@images
async def test_a_background_child_does_not_delay_its_call(shared: Outside, image: str) -> None:
    """A call returns when its command does, the child that holds its output lives on, and neither
    the next call nor one beside it waits.
    """
    async with shared.executor(image=f"sandbox-exec/{image}") as executor:
        usual = min([await timed(executor, "echo hi") for _ in range(5)])
        begun, after = [], []
        for number in range(1, 4):
            begun.append(await timed(executor, "sleep 600 & echo hi"))
            after.append(await timed(executor, "echo hi"))
            assert await shared.running("sleep 600", shared.name("chat")) == number
        # A busy machine delays some; an engine that waits for the child delays all, by 2 s or more.
        assert min(begun) < usual + 0.4
        assert min(after) < usual + 0.4
        assert max(begun + after) < usual + 1.5
        took: list[float] = []

        async def call(command: str) -> None:
            took.append(await timed(executor, command))

        async with anyio.create_task_group() as group:
            for command in ("sleep 600 & echo hi", "echo hi", "sleep 600 & echo hi", "echo hi"):
                group.start_soon(call, command)
        assert max(took) < 4 * usual + 1.5
        assert await shared.running("sleep 600", shared.name("chat")) == 5


@images
@asyncio_only
async def test_a_background_writer_writes_on(shared: Outside, image: str) -> None:
    """A child that prints to its inherited output after its call neither dies of it nor blocks,
    however much it prints, and nobody gets to see it.
    """
    writer = (
        "(sleep 1; for i in 1 2 3; do echo late; echo late >&2; sleep 0.3; done"
        "; head -c 3000000 /dev/zero; echo survived > note) & echo hi"
    )
    async with shared.executor(image=f"sandbox-exec/{image}") as executor:
        await timed(executor, writer)
        with anyio.fail_after(20):
            while True:
                result = await executor.run(ExecSpec("cat note 2>/dev/null; true", "chat"))
                assert result.stderr == ""
                assert result.stdout in {"", "survived\n"}
                if result.stdout:
                    break
                await anyio.sleep(0.1)
        # With its last child gone, its guest goes as well.
        await shared.at_rest("chat", limit=20)


@asyncio_only
async def test_forty_background_children(shared: Outside) -> None:
    """Forty calls that each leave one: all live, none is late, and the guests that stay for them
    are bounded in number.
    """
    async with shared.executor() as executor:
        usual = min([await timed(executor, "echo hi") for _ in range(5)])
        took = [await timed(executor, "sleep 600 & echo hi") for _ in range(40)]
        assert sorted(took)[20] < usual + 0.4
        assert max(took) < usual + 2
        found = await shared.processes(shared.name("chat"))
        assert found.count("sleep 600") == 40
        # At most 16 guests linger, each with a sleep of its own.
        assert len(found) <= 40 + KEEPERS + 2 * 16
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(timed, executor, "echo hi")
        assert max([await timed(executor, "echo hi") for _ in range(5)]) < usual + 1
        await told(executor, "chat", "killall sleep")
        await shared.at_rest("chat", limit=30)


@asyncio_only
async def test_a_one_off_does_not_wait_for_its_children(shared: Outside) -> None:
    """A one-off ends with its command; the children go with the container."""
    async with shared.executor() as executor:
        begin = time.monotonic()
        result = await executor.run(ExecSpec("sleep 600 & echo hi"))
        assert (result.stdout, result.exit_code) == ("hi\n", 0)
        assert time.monotonic() - begin < 3
        assert await shared.until(shared.containers, lambda names: not names, 3) == []


@images
@asyncio_only
async def test_a_limit_spares_earlier_children(shared: Outside, image: str) -> None:
    """A time-out kills its own command's children, however they hid, and nobody else's."""
    async with shared.executor(image=f"sandbox-exec/{image}") as executor:
        await timed(executor, "sleep 600 & echo hi")
        command = "(setsid env -i sleep 60 &); (trap '' TERM; sleep 60) & sleep 60"
        results = []

        async def call(command: str, timeout: float) -> None:
            results.append(await executor.run(ExecSpec(command, "chat", timeout)))

        begin = time.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(call, command, 1)
            group.start_soon(call, "sleep 2.5; echo beside", 20)
        assert time.monotonic() - begin < 2.5 + 2
        assert [(result.exit_code, result.timed_out, result.stdout) for result in results] == [
            (-1, True, ""),
            (0, False, "beside\n"),
        ]
        assert await shared.running("sleep 60", shared.name("chat")) == 0
        assert await shared.running("sleep 600", shared.name("chat")) == 1
