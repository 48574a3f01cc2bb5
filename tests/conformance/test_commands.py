"""A command, from its request to its end."""

from __future__ import annotations

import os
import time

import pytest
from anyio import create_task_group, move_on_after, sleep

from sandbox_exec import ExecResult, ExecSpec
from tests.engine.executors import Box, Deployment

from .inside import running

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]

CODES = [0, 1, 124, 125, 126, 127, 130, 137, 143, 255]
TREE = """
trap '' TERM INT HUP
setsid sh -c 'trap "" TERM; exec sleep 4711' &
env -i /bin/sh -c 'sleep 4711' &
(sh -c 'sleep 4711 & exec sleep 4711' &)
echo started
sleep 4711
"""


async def one_off(box: Box, command: str, **how: object) -> ExecResult:
    return await box.executor.run(ExecSpec(command, **how))  # type: ignore[arg-type]  # passed through


async def test_exit_codes(box: Box) -> None:
    """Are the command's own, those included that engines give a meaning of theirs."""
    assert [(await box.run(f"exit {code}")).exit_code for code in CODES] == CODES


async def test_exit_codes_of_one_offs(box: Box) -> None:
    """Are, too."""
    codes = [0, 125, 127, 137, 255]
    assert [(await one_off(box, f"exit {code}")).exit_code for code in codes] == codes


async def test_death_by_a_signal(box: Box) -> None:
    """Is told as shells tell it."""
    for session in (Box.session, None):
        result = await box.executor.run(ExecSpec("kill -9 $$", session))
        assert (result.exit_code, result.timed_out, result.oom_killed) == (137, False, False)


async def test_another_user(box: Box) -> None:
    """By name and by number, with the group asked for; the workspace is writable to them."""
    told = "id -u; id -g; touch $(id -u) && ls $(id -u)"
    assert (await box.run(told, user="app")).stdout == "1000\n1000\n1000\n"
    assert (await box.run(told, user="1234:1000")).stdout == "1234\n1000\n1234\n"
    assert (await one_off(box, told, user="app")).stdout == "1000\n1000\n1000\n"


async def test_a_user_that_is_not_there(box: Box) -> None:
    """Is the caller's mistake, in a session and without; nothing ran."""
    for session in (Box.session, None):
        with pytest.raises(ValueError, match="no user 'nosuchuser'"):
            await box.executor.run(ExecSpec("touch /workspace/ran", session, user="nosuchuser"))
    assert (await box.run("ls")).stdout.split() == ["inputs", "outputs"]


async def test_a_directory_that_cannot_be(box: Box) -> None:
    """Likewise."""
    for session in (Box.session, None):
        with pytest.raises(ValueError, match="working directory '/etc/passwd'"):
            await box.executor.run(ExecSpec("true", session, cwd="/etc/passwd"))


async def test_values_of_variables_stay_secret(box: Box) -> None:
    """They are in the command's environment, and in nothing that the engine shows."""
    value = "v4lue-\n'$x"
    assert (await box.run('printf %s "$TOKEN"', env={"TOKEN": value})).stdout == value
    assert (await box.run('printf %s "${TOKEN-none}"')).stdout == "none"
    assert "v4lue" not in box.place.cli("inspect", box.place.container(Box.session))


async def test_a_large_command(box: Box) -> None:
    """Of 3 MB, far beyond what one argument can hold (C6)."""
    text = "é" * 1_500_000
    for session in (Box.session, None):
        found = await box.executor.run(ExecSpec(f"x={text}; echo ${{#x}}", session))
        assert found.stdout.strip() in {"1500000", "3000000"}


async def test_large_input_and_output(box: Box) -> None:
    """Every byte of the input arrives; of the output head and tail stay (C4)."""
    data = os.urandom(4 << 20)
    counted = await box.run("wc -c; head -c 0", stdin=data)
    assert counted.stdout.strip() == str(len(data))
    flood = await box.run("echo first; yes | head -c 20000000; echo last; echo err >&2")
    assert (flood.exit_code, flood.stderr) == (0, "err\n")
    assert flood.stdout.startswith("first\ny\n")
    assert flood.stdout.endswith("y\nlast\n")
    assert flood.truncated == {"stdout"}
    assert flood.stdout_gap is not None
    kept = len(flood.stdout)
    assert kept + flood.stdout_gap.omitted_bytes == 20_000_000 + len("first\nlast\n")


@pytest.mark.parametrize("image", ["busybox", "debian"])
async def test_at_its_limit_the_whole_tree_is_gone(here: Deployment, image: str) -> None:
    """However it clings to life, while a server and a parallel command live on (C1)."""
    async with here.executor(image) as executor:
        box = Box(executor, here)
        await box.run("sleep 815 >/dev/null 2>&1 & echo up")
        results: list[ExecResult] = []

        async def neighbour() -> None:
            results.append(await box.run("sleep 3; echo done"))

        async with create_task_group() as group:
            group.start_soon(neighbour)
            await sleep(0.3)
            began = time.monotonic()
            result = await box.run(TREE, timeout=1)
            assert time.monotonic() - began < 1 + 3
            assert (result.stdout, result.exit_code, result.timed_out) == ("started\n", -1, True)
            assert await running(box, 4711) == 0
            assert await running(box, 815) == 1
        assert results[0].stdout == "done\n"
        assert (await box.run("true")).reset is None


async def test_another_users_tree_is_gone_at_the_limit(box: Box) -> None:
    """Root inside may signal everybody."""
    result = await box.run("sleep 4712 & sleep 4712", user="app", timeout=0.5)
    assert result.timed_out
    assert await running(box, 4712) == 0


async def test_a_background_process_lives_on(box: Box) -> None:
    """The call returns at once, the process may write later, and nobody waits for it (C5, F20)."""
    await box.run("true")
    began = time.monotonic()
    result = await box.run("(sleep 2; echo late; echo late > later; exec sleep 813) & echo hi")
    assert result.stdout == "hi\n"
    assert (await box.run("echo on")).stdout == "on\n"
    assert time.monotonic() - began < 2
    await sleep(2.2)
    assert (await box.run("cat later")).stdout == "late\n"
    assert await running(box, 813) == 1


async def test_a_cancelled_call_leaves_nothing(box: Box) -> None:
    """In a session no process, and of a one-off no container (C2)."""
    await box.run("true")
    with move_on_after(1) as scope:
        await box.run(TREE)
    assert scope.cancelled_caught
    assert await running(box, 4711) == 0
    with move_on_after(2) as scope:
        await one_off(box, TREE)
    assert scope.cancelled_caught
    assert box.place.containers() == [box.place.container(Box.session)]


async def test_parallel_calls(box: Box) -> None:
    """In one session and in several, more at once than an engine likes to start."""
    done: list[str] = []

    async def call(number: int) -> None:
        session = f"s{number % 3}"
        spec = ExecSpec(f"sleep 0.2; echo {number}; echo x >> log", session)
        done.append((await box.executor.run(spec)).stdout.strip())

    async with create_task_group() as group:
        for number in range(18):
            group.start_soon(call, number)
    assert sorted(done, key=int) == [str(number) for number in range(18)]
    for session in ("s0", "s1", "s2"):
        result = await box.executor.run(ExecSpec("wc -l < log", session))
        assert result.stdout.strip() == "6"


@pytest.mark.parametrize("image", ["busybox-entrypoint", "busybox-user"])
async def test_entry_points_and_users_of_images(here: Deployment, image: str) -> None:
    """Are no hindrance (F17)."""
    async with here.executor(image) as executor:
        for session in (Box.session, None):
            result = await executor.run(ExecSpec("id -u; pwd; exit 5", session))
            assert (result.stdout, result.exit_code) == ("0\n/workspace\n", 5)


async def test_an_image_with_nothing_but_sh(here: Deployment) -> None:
    """Is enough for commands and their limits (F17)."""
    async with here.executor("minimal") as executor:
        for session in (Box.session, None):
            result = await executor.run(ExecSpec("pwd; exit 5", session))
            assert (result.stdout, result.exit_code) == ("/workspace\n", 5)
            limited = await executor.run(ExecSpec("while :; do :; done", session, timeout=0.5))
            assert limited.timed_out
