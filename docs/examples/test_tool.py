"""Tests of a program that uses sandboxes, without an engine: they take milliseconds.

Start them with ``pytest docs/examples/test_tool.py``.
"""

import pytest

from sandbox_exec import (
    DaemonUnavailableError,
    ExecSpec,
    LocalDockerExecutor,
    SandboxBrokenError,
    SandboxConfig,
    format_exec_result,
)
from sandbox_exec.testing import FakeCall, FakeDaemon

pytestmark = pytest.mark.anyio

IMAGE = "example/tools"


async def count(executor: LocalDockerExecutor, path: str) -> str:
    """The code under test: a tool that counts the lines of a file."""
    result = await executor.run(ExecSpec(f"wc -l {path}", "chat-1", timeout=20))
    return format_exec_result(result)


async def wc(call: FakeCall) -> int:
    """What stands for the command: a coroutine that prints, and returns an exit status."""
    if "/workspace/a.txt" not in call.files:
        await call.stderr(b"wc: a.txt: No such file or directory\n")
        return 1
    await call.stdout(b"%d a.txt\n" % call.files["/workspace/a.txt"].count(b"\n"))
    return 0


async def write(call: FakeCall) -> int:
    """Files are a dictionary of the container's; they persist in a session."""
    call.files["/workspace/a.txt"] = b"one\ntwo\n"
    return 0


async def think(call: FakeCall) -> int:
    """An hour goes by at once: the clock moves, nobody waits."""
    await call.sleep(3600)
    return 0


@pytest.fixture
def daemon() -> FakeDaemon:
    """The engine: what each command line does, by its text, and which images there are."""
    return FakeDaemon({"wc -l a.txt": wc, "write": write, "think": think}, images=[IMAGE])


def executor_on(daemon: FakeDaemon) -> LocalDockerExecutor:
    """An executor that starts no program, and whose time is the engine's."""
    return LocalDockerExecutor(SandboxConfig(image=IMAGE), runner=daemon, clock=daemon.clock)


async def test_files_persist_and_failures_are_text(daemon: FakeDaemon) -> None:
    """The second call finds what the first one lacked."""
    async with executor_on(daemon) as executor:
        assert "No such file" in await count(executor, "a.txt")
        await executor.run(ExecSpec("write", "chat-1"))
        assert "2 a.txt" in await count(executor, "a.txt")
    assert [command for _, command in daemon.executed] == ["wc -l a.txt", "write", "wc -l a.txt"]


async def test_a_limit_strikes_without_a_wait(daemon: FakeDaemon) -> None:
    """Durations and limits are told by the daemon's clock."""
    async with executor_on(daemon) as executor:
        result = await executor.run(ExecSpec("think", timeout=20))
    assert (result.timed_out, result.duration) == (True, 20)
    assert [kill.why for kill in daemon.killed] == ["limit"]


async def test_a_sandbox_that_was_removed_is_made_anew(daemon: FakeDaemon) -> None:
    """What others do to containers is a method each."""
    async with executor_on(daemon) as executor:
        await executor.run(ExecSpec("write", "chat-1"))
        daemon.remove(next(iter(daemon.containers)))
        result = await executor.run(ExecSpec("wc -l a.txt", "chat-1"))
    assert result.exit_code == 1
    assert "rebuilt" in (result.reset or "")


async def test_an_engine_that_is_down(daemon: FakeDaemon) -> None:
    """That it is down is remembered; a second later one call is let through, to look again."""
    async with executor_on(daemon) as executor:
        daemon.down()
        with pytest.raises(DaemonUnavailableError):
            await count(executor, "a.txt")
        daemon.up()
        with pytest.raises(DaemonUnavailableError):
            await count(executor, "a.txt")
        daemon.clock.advance(1)
        assert "No such file" in await count(executor, "a.txt")


async def test_a_command_whose_end_nobody_saw(daemon: FakeDaemon) -> None:
    """A scripted fault: the connection is lost after the command ran, and it runs only once."""
    async with executor_on(daemon) as executor:
        await executor.run(ExecSpec("write", "chat-1"))
        daemon.die_after_sent_next(runs=True)
        with pytest.raises(SandboxBrokenError) as caught:
            await count(executor, "a.txt")
    assert caught.value.started is True
    assert [command for _, command in daemon.executed] == ["write", "wc -l a.txt"]
