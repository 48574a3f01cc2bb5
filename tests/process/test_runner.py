"""The one module that starts processes: bounded, and nothing left behind."""

import asyncio
import gc
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest
from anyio.abc import ByteSendStream

from sandbox_exec._docker.interface import (
    CommandRunner,
    Completed,
    NoAnswer,
    ProgramMissing,
)
from sandbox_exec._docker.runner import SubprocessRunner

pytestmark = pytest.mark.anyio

RUNNER: CommandRunner = SubprocessRunner({"PATH": os.environ["PATH"], "BASE": "base"})


def sh(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


async def everything(receive: Callable[[], Awaitable[bytes]]) -> bytes:
    found = b""
    while chunk := await receive():
        found += chunk
    return found


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def leftovers() -> tuple[set[str], list[psutil.Process], list[str]]:
    """Open descriptors, children, and the threads that asyncio waits for children with."""
    waiting = [t.name for t in threading.enumerate() if t.name.startswith(("waitpid", "asyncio-"))]
    return descriptors(), psutil.Process().children(), waiting


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Fail if the block leaves a descriptor, a child (dead or alive) or a waiting thread."""
    # The first child of a loop makes the loop's own machinery.
    await RUNNER.run(("true",), timeout=10)
    gc.collect()
    before = leftovers()
    yield
    with anyio.CancelScope(shield=True):
        for _ in range(100):
            gc.collect()
            fds, children, threads = leftovers()
            if len(fds) <= len(before[0]) and not children and not threads:
                return
            await anyio.sleep(0.02)
    pytest.fail(f"left behind, from {before} to {leftovers()}")


async def test_a_control_call_is_read_whole() -> None:
    """Both streams and the exit status come back, and a non-zero one is a value."""
    async with nothing_left():
        answer = await RUNNER.run(sh("echo out; echo err >&2; exit 3"), timeout=10)
    assert answer == Completed(3, b"out\n", b"err\n")


async def test_a_megabyte_on_both_streams_is_read() -> None:
    """A program that fills one pipe while the other is read does not get stuck."""
    text = "head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero"
    answer = await RUNNER.run(sh(text), timeout=10)
    assert isinstance(answer, Completed)
    assert (len(answer.stdout), len(answer.stderr)) == (1_000_000, 1_000_000)


async def test_standard_input_of_a_control_call_is_empty() -> None:
    """Inherited standard input would hang a call, or eat what a terminal types (hazard F15)."""
    answer = await RUNNER.run(("cat",), timeout=10)
    assert answer == Completed(0)


async def test_the_environment_is_given_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program finds the runner's environment and the call's, and nothing of ours."""
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    answer = await RUNNER.run(("env",), timeout=10, env={"MORE": "more"})
    assert isinstance(answer, Completed)
    lines = set(answer.stdout.decode().splitlines())
    assert {"BASE=base", "MORE=more"} <= lines
    assert not any(line.startswith(("SECRET", "HOME=")) for line in lines)


async def test_a_call_variable_wins() -> None:
    """A variable of the call replaces the runner's of the same name."""
    answer = await RUNNER.run(sh('echo "$BASE"'), timeout=10, env={"BASE": "mine"})
    assert answer == Completed(0, b"mine\n")


def test_the_environment_is_not_shown() -> None:
    """Values of variables may be secrets, so a logged runner does not print them."""
    assert "base" not in repr(RUNNER)


@pytest.mark.parametrize("how", ["run", "open"])
async def test_programs_are_in_a_session_of_their_own(how: str) -> None:
    """Ctrl-C at our terminal reaches our session only (hazard F3)."""
    argv = (sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())")
    if how == "run":
        answer = await RUNNER.run(argv, timeout=10)
        assert isinstance(answer, Completed)
        said = answer.stdout
    else:
        async with RUNNER.open(argv) as process:
            said = await everything(process.receive_stdout)
    assert said == b"True\n"


async def test_a_call_that_does_not_answer_is_given_up() -> None:
    """No answer within the deadline is an answer of its own, and the program is gone."""
    async with nothing_left():
        begin = time.monotonic()
        answer = await RUNNER.run(("sleep", "60"), timeout=0.2)
    assert answer == NoAnswer(0.2)
    assert time.monotonic() - begin < 2


async def test_a_term_ignoring_program_is_given_up() -> None:
    """The program is killed, not asked."""
    async with nothing_left():
        begin = time.monotonic()
        answer = await RUNNER.run(sh("trap '' TERM INT; while :; do :; done"), timeout=0.3)
    assert isinstance(answer, NoAnswer)
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("how", ["run", "open", "kill"])
async def test_a_script_is_ended_with_what_it_runs(how: str, tmp_path: Path) -> None:
    """A docker that is one, and does not `exec` the real one."""
    note = tmp_path / "pid"
    script = sh(f"sleep 60 & echo $! >{note}.new; mv {note}.new {note}; wait")
    async with nothing_left():
        if how == "run":
            assert isinstance(await RUNNER.run(script, timeout=1), NoAnswer)
        else:
            async with RUNNER.open(script) as process:
                while not note.exists():  # noqa: ASYNC110  # it has no event
                    await anyio.sleep(0.01)
                if how == "kill":
                    process.kill()
                    assert await process.wait() == -signal.SIGKILL
    with anyio.fail_after(5), suppress(psutil.NoSuchProcess):
        below = psutil.Process(int(note.read_text()))
        # Whoever adopts it here may take its time to note its end.
        while below.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110  # it has no event
            await anyio.sleep(0.01)


@pytest.mark.parametrize("before", ["", "sleep 60"], ids=["program-ended", "program-killed"])
async def test_a_grandchild_that_holds_the_pipes_does_not_delay(before: str) -> None:
    """The deadline holds although the end of the streams never comes (ssh under ssh://)."""
    begin = time.monotonic()
    answer = await RUNNER.run(sh(f"setsid sleep 5 & echo $!; {before}"), timeout=0.4)
    assert answer == NoAnswer(0.4)
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("stream", ["&1", "&2"])
async def test_a_program_that_prints_without_end_is_ended(stream: str) -> None:
    """Long before its time, and long before this host's memory is full."""
    async with nothing_left():
        begin = time.monotonic()
        answer = await RUNNER.run(sh(f"exec cat /dev/zero >{stream}"), timeout=60)
    assert answer == NoAnswer(60, excess=True)
    assert time.monotonic() - begin < 30


async def test_a_large_answer_is_no_excess() -> None:
    """Such as that of an inspect of all containers there are."""
    answer = await RUNNER.run(sh("head -c 20000000 /dev/zero"), timeout=60)
    assert isinstance(answer, Completed)
    assert len(answer.stdout) == 20_000_000


@pytest.mark.parametrize("how", ["run", "open"])
@pytest.mark.parametrize("kind", ["absent", "absent-path", "not-executable", "below-a-file"])
async def test_a_missing_program_is_named(how: str, kind: str, tmp_path: Path) -> None:
    """Whatever cannot be run at all is one clear error, on either way in."""
    (tmp_path / "plain").write_text("")
    program = {
        "absent": "no-such-program-here",
        "absent-path": str(tmp_path / "absent"),
        "not-executable": str(tmp_path / "plain"),
        "below-a-file": str(tmp_path / "plain" / "x"),
    }[kind]

    async def start() -> None:
        if how == "run":
            await RUNNER.run((program,), timeout=10)
        else:
            async with RUNNER.open((program,)):
                pytest.fail("it cannot have started")

    async with nothing_left():
        with pytest.raises(ProgramMissing, match=program):
            await start()


async def test_a_program_that_cannot_be_executed(tmp_path: Path) -> None:
    """It is there, and is of no kind that the kernel can start: the same as none."""
    for name, text in (("text", "not a program\n"), ("loop", None), ("x" * 300, None)):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
            path.chmod(0o755)
        elif name == "loop":
            path.symlink_to(path)
        with pytest.raises(ProgramMissing, match="cannot run"):
            await RUNNER.run((str(path),), timeout=10)


async def test_what_is_not_about_the_program_is_no_missing_program() -> None:
    """A command line that is too long for the kernel is its caller's fault."""
    with pytest.raises(OSError, match="Argument list too long"):
        await RUNNER.run(("true", "x" * 200_000), timeout=10)


async def test_the_program_is_found_on_the_given_path(tmp_path: Path) -> None:
    """The PATH that counts is the runner's, not that of this process."""
    tool = tmp_path / "tool-of-this-test"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    runner = SubprocessRunner({"PATH": str(tmp_path)})
    assert await runner.run(("tool-of-this-test",), timeout=10) == Completed(0, b"found\n")


async def test_an_unusable_argument_is_not_called_a_missing_program() -> None:
    """An argument list that is too long says so itself (hazard F8)."""
    async with nothing_left():
        with pytest.raises(OSError, match="too long"):
            async with RUNNER.open(("true", "x" * 200_000)):
                pytest.fail("it cannot have started")


async def test_a_conversation() -> None:
    """Bytes go both ways while the program runs, and its end is seen on every stream."""
    async with nothing_left(), RUNNER.open(sh("cat; echo bye >&2; exit 7")) as process:
        for word in (b"one\n", b"\x00\xff\n"):
            await process.send(word)
            assert await process.receive_stdout() == word
        await process.close_stdin()
        assert await everything(process.receive_stdout) == b""
        assert await everything(process.receive_stderr) == b"bye\n"
        assert await process.wait() == 7
        assert await process.wait() == 7
        assert await process.receive_stdout() == b""


async def test_chunks_are_bounded() -> None:
    """A reader gets at most 64 KiB at a time."""
    async with RUNNER.open(sh("head -c 1000000 /dev/zero")) as process:
        sizes = []
        while chunk := await process.receive_stdout():
            sizes.append(len(chunk))
    assert (sum(sizes), max(sizes) <= 65536) == (1_000_000, True)


async def test_a_large_send_arrives() -> None:
    """More than a pipe holds is sent while the other side reads."""
    data = os.urandom(3_000_000)
    async with nothing_left(), RUNNER.open(("cat",)) as process, anyio.create_task_group() as group:

        async def feed() -> None:
            await process.send(data)
            await process.close_stdin()

        group.start_soon(feed)
        assert await everything(process.receive_stdout) == data


async def test_closing_standard_input_twice_is_fine() -> None:
    """Closing is idempotent and never fails, whatever the program did before."""
    async with nothing_left(), RUNNER.open(sh("exec <&-; echo closed; sleep 0.2")) as process:
        await process.receive_stdout()
        await process.close_stdin()
        await process.close_stdin()
        await process.wait()
        await process.close_stdin()


@pytest.mark.parametrize("how", ["closed-by-program", "program-ended", "closed-by-us"])
async def test_sending_to_nobody_is_a_broken_pipe(how: str) -> None:
    """A program that reads no more is one kind of error, however it came about."""
    text = "exec <&-; echo ready; sleep 60" if how == "closed-by-program" else "echo ready"
    async with nothing_left(), RUNNER.open(sh(text)) as process:
        await process.receive_stdout()
        if how == "program-ended":
            await process.wait()
        if how == "closed-by-us":
            await process.close_stdin()

        async def send_much() -> None:
            for _ in range(200):
                await process.send(b"x" * 10_000)

        with pytest.raises(BrokenPipeError):
            await send_much()


async def test_a_blocked_send_ends_with_the_program() -> None:
    """Somebody who waits for room in the pipe hears of the program's end."""
    async with nothing_left(), RUNNER.open(("sleep", "60")) as process:
        async with anyio.create_task_group() as group:

            async def feed() -> None:
                with pytest.raises(BrokenPipeError):
                    await process.send(b"x" * 3_000_000)

            group.start_soon(feed)
            await anyio.sleep(0.1)
            process.kill()
        assert await process.wait() == -signal.SIGKILL


async def test_kill_is_a_kill() -> None:
    """The status names the signal; killing again, or after the end, is no error."""
    async with nothing_left(), RUNNER.open(sh("trap '' TERM; sleep 60")) as process:
        process.kill()
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        process.kill()


@pytest.mark.parametrize("text", ["sleep 60", "trap '' TERM; while :; do echo x; done", "exit 0"])
async def test_leaving_the_block_ends_the_program(text: str) -> None:
    """Running, ended, or blocked on a full pipe: nothing of it is left."""
    async with nothing_left():
        begin = time.monotonic()
        async with RUNNER.open(sh(text)):
            await anyio.sleep(0.05)
    assert time.monotonic() - begin < 3


async def test_an_error_in_the_block_comes_out_as_itself() -> None:
    """The caller's own error is neither wrapped nor replaced, and the program is ended."""
    async with nothing_left():
        with pytest.raises(ZeroDivisionError):
            async with RUNNER.open(("sleep", "60")):
                raise ZeroDivisionError


async def test_a_grandchild_does_not_delay_the_end() -> None:
    """Leaving the block closes our ends of the pipes, whoever holds the others."""
    fds = len(descriptors())
    begin = time.monotonic()
    async with RUNNER.open(sh("setsid sleep 5 & sleep 60")) as process:
        await process.send(b"nobody reads this")
        await anyio.sleep(0.1)
    assert time.monotonic() - begin < 2
    await anyio.sleep(0.1)
    assert len(descriptors()) <= fds + 2, "the loop's own machinery at most"


class Immortal:
    """A process that the kernel does not let go of."""

    returncode = None

    def __init__(self, stdin: ByteSendStream) -> None:
        self.stdin = stdin
        # Nobody's: beyond what the kernel hands out. A process in state D takes no signal either.
        self.pid = 2**22 + 1

    async def wait(self) -> int:
        await anyio.sleep_forever()
        raise AssertionError


async def test_an_immortal_program_does_not_hang_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that outlives SIGKILL is left to the kernel after a bound."""
    monkeypatch.setattr("sandbox_exec._docker.runner._REAP_SECONDS", 0.2)
    begin = time.monotonic()
    async with RUNNER.open(("cat",)) as process:
        real = process._process  # type: ignore[attr-defined]
        process._process = Immortal(real.stdin)  # type: ignore[attr-defined]
    assert time.monotonic() - begin < 2
    # Its standard input was closed, which is what ends the real one here.
    assert await real.wait() == 0
    await real.aclose()


Use = Callable[[CommandRunner], Coroutine[object, object, None]]


async def converse(runner: CommandRunner) -> None:
    async with runner.open(sh("cat; sleep 0.2")) as process:
        await process.send(b"x\n")
        await process.receive_stdout()
        await process.close_stdin()
        await process.wait()


async def control(runner: CommandRunner) -> None:
    await runner.run(("sleep", "9"), timeout=10)


@pytest.mark.parametrize("use", [converse, control])
async def test_cancelled_at_any_point(use: Use) -> None:
    """A call that is cancelled at its start, its end or anywhere between leaves nothing."""
    async with nothing_left():
        for ticks in range(40):
            async with anyio.create_task_group() as group:
                group.start_soon(use, RUNNER)
                for _ in range(ticks):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        for number in range(40):
            with anyio.move_on_after(number / 2000):
                await use(RUNNER)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": True})], ids=["asyncio"])
@pytest.mark.parametrize("use", [converse, control])
async def test_cancelled_by_asyncio_itself(use: Use, anyio_backend: object) -> None:
    """`Task.cancel` knows no shields, comes once or repeatedly, and leaves nothing either."""
    begin = time.monotonic()
    async with nothing_left():
        for ticks in range(60):
            task = asyncio.ensure_future(use(RUNNER))
            for _ in range(ticks // 2):
                await asyncio.sleep(0)
            task.cancel()
            if ticks % 2:
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert time.monotonic() - begin < 9, "cancelled means ended, not waited for"


async def test_many_at_once() -> None:
    """Sixty programs side by side, a third of them given up, leave nothing."""

    async def given_up() -> None:
        assert await RUNNER.run(("sleep", "9"), timeout=0.3) == NoAnswer(0.3)

    async with nothing_left(), anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(given_up)
            group.start_soon(converse, RUNNER)
            group.start_soon(converse, RUNNER)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_outside_the_main_thread(backend: str) -> None:
    """A server may run its loop in any thread."""
    seen: list[object] = []

    async def both() -> None:
        async with nothing_left():
            seen.append(await RUNNER.run(("echo", "hi"), timeout=10))
            async with RUNNER.open(("cat",)) as process:
                await process.send(b"x")
                seen.append(await process.receive_stdout())

    thread = threading.Thread(target=lambda: anyio.run(both, backend=backend))
    thread.start()
    thread.join(20)
    assert seen == [Completed(0, b"hi\n"), b"x"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_ends_at_once_leaves_no_warning(backend: str) -> None:
    """What is cancelled as the last act of a loop is closed before the loop is."""

    async def last_act() -> None:
        with anyio.move_on_after(0.3):
            async with RUNNER.open(("cat",)) as process:
                await process.receive_stdout()
        await RUNNER.run(("sleep", "9"), timeout=0.3)

    for _ in range(5):
        anyio.run(last_act, backend=backend)
    gc.collect()
    assert psutil.Process().children() == []


def test_the_tests_tools_are_here() -> None:
    """The programs that these tests run exist, so that none passes for want of one."""
    assert all(shutil.which(name) for name in ("sh", "cat", "sleep", "head", "setsid", "env"))
