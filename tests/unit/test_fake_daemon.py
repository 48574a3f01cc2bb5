"""The fake engine's faults, clock and strictness; its words are in test_seam.py."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import pytest

from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.interface import Argv, CommandRunner, Completed, NoAnswer, ProgramMissing
from sandbox_exec._frames import DONE, run_request
from sandbox_exec._guest import BOOTSTRAP, GUEST_VARIABLE, guest_script
from sandbox_exec.testing import FakeCall, FakeClock, FakeDaemon, FakeKill, UnknownArgv
from tests.engine.talk import Heard, Talk

pytestmark = pytest.mark.anyio

IMAGE = "sandbox-exec/busybox"
VARIABLES = {GUEST_VARIABLE: guest_script()}
GUEST = ("sh", *BOOTSTRAP)


async def hi(call: FakeCall) -> int:
    await call.stdout(b"hi\n")
    return 0


async def forever(call: FakeCall) -> int:
    await call.stdout(b"begun\n")
    await call.forever()
    return 0


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon({"hi": hi, "forever": forever})


def create(name: str = "box", flags: tuple[str, ...] = (), image: str = IMAGE) -> Argv:
    argv = command_line.run_detached(
        name, labels={"a": "b"}, flags=flags, image=image, command=("sh", "-c", "x")
    )
    return ("docker", *argv)


def guest(name: str = "box", user: str | None = None) -> Argv:
    argv = command_line.exec_stdin(name, variables=(GUEST_VARIABLE,), user=user, command=GUEST)
    return ("docker", *argv)


def attached(name: str) -> Argv:
    argv = command_line.run_attached(
        name, labels={}, flags=(), variable=GUEST_VARIABLE, image=IMAGE, command=GUEST
    )
    return ("docker", *argv)


async def run(daemon: FakeDaemon, argv: Argv, timeout: float = 5) -> Completed:
    program = () if argv[0] == "docker" else ("docker",)
    answer = await daemon.run((*program, *argv), timeout=timeout)
    assert isinstance(answer, Completed)
    return answer


@asynccontextmanager
async def talking(
    daemon: CommandRunner, argv: Argv, env: Mapping[str, str] = VARIABLES
) -> AsyncIterator[Talk]:
    async with daemon.open(argv, env=env) as process:
        yield Talk(process)


async def asked(daemon: FakeDaemon, command: str, name: str = "box", limit: float = 20) -> Heard:
    """One whole conversation, whatever comes of it."""
    async with talking(daemon, guest(name)) as talk:
        try:
            await talk.greet()
            await talk.ask(command, limit=limit)
            await talk.until(0, "end")
            await talk.process.send(DONE)
        except BrokenPipeError:
            pass
        await talk.process.close_stdin()
        return await talk.rest()


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("kill", "box"),
        ("inspect",),
        ("inspect", "--size", "box"),
        ("inspect", ""),
        ("image", "inspect", "a", "b"),
        ("image", "rm", "a"),
        ("info",),
        ("info", "--format", "{{json .}}", "x"),
        ("pull", "a"),
        ("start", "a", "b"),
        ("stop", "a"),
        ("rm", "a"),
        ("top", "a"),
        ("ps", "--all"),
        ("ps", "--all", "--no-trunc", "--filter", "ancestor=x", "--format", "{{json .}}"),
        ("run", "image"),
        ("run", "--rm", "--name", "a", "--pull", "never", "image"),
        ("run", "--rm", "--name", "a", "--pull", "always", "--entrypoint", "sh", "image"),
        ("run", "--rm", "--name", "a", "--pull", "never", "--entrypoint", "sh"),
        ("run", "--rm", "--privileged", "--name", "a"),
        ("run", "--rm", "--name"),
        ("exec", "box", "sh"),
    ],
    ids=" ".join,
)
async def test_unknown_command_lines_fail_the_test(daemon: FakeDaemon, argv: Argv) -> None:
    """What the library does not build is never answered with a guess."""
    with pytest.raises(UnknownArgv):
        await daemon.run(("docker", *argv), timeout=1)
    assert daemon.calls == [("docker", *argv)]


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        (("docker", *command_line.inspect("box")), VARIABLES),
        (create(), VARIABLES),
        (guest(), {}),
        (guest(), {GUEST_VARIABLE: "echo something else"}),
        ((*guest()[:-1], "/elsewhere"), VARIABLES),
        (
            ("docker", *command_line.exec_stdin("a", variables=("X",), user=None, command=GUEST)),
            VARIABLES,
        ),
    ],
)
async def test_only_our_guest_is_talked_to(
    daemon: FakeDaemon, argv: Argv, env: Mapping[str, str]
) -> None:
    """A conversation with anything but the real guest's text is a failure of the test."""
    context = daemon.open(argv, env=env)
    with pytest.raises(UnknownArgv):
        await context.__aenter__()


@pytest.mark.parametrize("argv", [guest(), attached("once")])
async def test_a_conversation_is_not_run(daemon: FakeDaemon, argv: Argv) -> None:
    """A control call to a guest would never end on a real engine."""
    with pytest.raises(UnknownArgv):
        await daemon.run(argv, timeout=1)


async def test_another_program_is_missing(daemon: FakeDaemon) -> None:
    """There is one program, and no other."""
    with pytest.raises(ProgramMissing, match="podman"):
        await daemon.run(("podman", "info"), timeout=1)


@pytest.mark.parametrize(
    "request_line",
    [
        b"push 1\n",
        b"put x\n",
        b"harvest 1 2\n",
        b"run 1 2\n",
        b"run 1.00 1 1 1 12 -\n/\nX=1; \nhi\nNONCE\n",
    ],
    ids=["verb", "number", "count", "words", "variables"],
)
async def test_unknown_requests_fail_the_test(daemon: FakeDaemon, request_line: bytes) -> None:
    """So does a request that the fake guest cannot read."""
    await run(daemon, create())

    async def say() -> None:
        async with talking(daemon, guest()) as talk:
            await talk.greet()
            nonce = talk.conversation.nonce.encode()
            await talk.process.send(request_line.replace(b"NONCE", nonce))
            await talk.rest()

    with pytest.raises(UnknownArgv):
        await say()
    assert daemon.conversations == 0


async def test_an_unforeseen_command_fails_the_test(daemon: FakeDaemon) -> None:
    """Without a default, a command that nobody described is an error of the test's."""
    await run(daemon, create())
    with pytest.raises(UnknownArgv, match="surprise"):
        await asked(daemon, "surprise")


@pytest.mark.parametrize("code", [-1, 256])
async def test_an_impossible_status_fails_the_test(daemon: FakeDaemon, code: int) -> None:
    """No process has it."""

    async def impossible(call: FakeCall) -> int:
        return code

    daemon.commands["impossible"] = impossible
    await run(daemon, create())
    with pytest.raises(ValueError, match="no exit status"):
        await asked(daemon, "impossible")


async def test_a_default_does_the_rest() -> None:
    """It sees all that a real command would."""
    seen: list[FakeCall] = []

    async def default(call: FakeCall) -> int:
        seen.append(call)
        return 9

    daemon = FakeDaemon(default=default)
    await run(daemon, create(flags=("--user", "7:8")))
    async with talking(daemon, guest(user="nobody")) as talk:
        await talk.greet()
        await talk.ask("any\nthing", env={"A": b"1"}, stdin=b"in", cwd=b"/x", limit=2.5)
        await talk.until(0, "end")
    await asked(daemon, "b" * 5000)
    first, second = seen
    assert (first.command, first.env, first.cwd, first.user) == (
        "any\nthing",
        {"A": "1"},
        "/x",
        "nobody",
    )
    assert (first.stdin, first.limit, first.container.name) == (b"in", 2.5, "box")
    assert (second.command, second.env, second.user, second.stdin) == ("b" * 5000, {}, "7:8", None)
    assert daemon.executed == [("box", "any\nthing"), ("box", "b" * 5000)]


async def test_time_passes_in_no_time() -> None:
    """A command's sleep moves the clock, up to its limit, and takes none of ours."""

    async def nap(call: FakeCall) -> int:
        await call.sleep(100)
        await call.stdout(b"awake\n")
        await call.sleep(1000)
        return 0

    daemon = FakeDaemon({"nap": nap})
    await run(daemon, create())
    begin = time.monotonic()
    heard = await asked(daemon, "nap", limit=300)
    assert heard == Heard(b"awake\n", b"", ("ready 1", "end 137 -t"), 0)
    assert daemon.clock() == 1300
    assert daemon.killed == [FakeKill("box", "nap", "limit")]
    assert time.monotonic() - begin < 2


def test_a_clock_runs_forwards() -> None:
    """It shows what it was told, in each of the engine's ways."""
    clock = FakeClock(5)
    clock.advance(2.5)
    assert (clock(), clock.wall() % 100, clock.stamp()) == (
        7.5,
        7.5,
        "2030-03-17T17:46:47.500000000Z",
    )
    with pytest.raises(ValueError, match="-1"):
        clock.advance(-1)


async def test_out_of_memory_is_flagged() -> None:
    """The flag comes beside the others."""

    async def hungry(call: FakeCall) -> int:
        call.oom_killed()
        call.background()
        return 137

    daemon = FakeDaemon({"hungry": hungry})
    await run(daemon, create())
    async with talking(daemon, guest()) as talk:
        await talk.greet()
        await talk.ask("hungry")
        await talk.until(0, "end")
        assert talk.frames[0][-1].arguments == ("137", "-os")


@pytest.mark.parametrize("done", [True, False])
async def test_what_survives_a_client(done: bool) -> None:
    """A background process lives on if the client has seen the end, and dies if it was lost."""

    async def serve(call: FakeCall) -> int:
        call.background()
        return 0

    daemon = FakeDaemon({"serve": serve})
    await run(daemon, create())
    async with talking(daemon, guest()) as talk:
        await talk.greet()
        await talk.ask("serve")
        await talk.until(0, "end")
        assert daemon.containers["box"].background == ["serve"]
        if done:
            await talk.process.send(DONE)
        talk.process.kill()
    assert daemon.containers["box"].background == (["serve"] if done else [])
    assert daemon.killed == ([] if done else [FakeKill("box", "serve", "client-gone")])
    daemon.restart("box")
    assert daemon.containers["box"].background == []


@pytest.mark.parametrize("how", ["leave", "kill", "error", "cancel"])
async def test_a_client_that_goes_takes_its_command_along(daemon: FakeDaemon, how: str) -> None:
    """However it goes; nothing of the conversation is left."""
    await run(daemon, create())

    async def go() -> None:
        async with talking(daemon, guest()) as talk:
            await talk.greet()
            await talk.ask("forever")
            await talk.until_said(b"begun\n")
            if how == "kill":
                talk.process.kill()
                assert await talk.process.wait() == -9
                assert await talk.process.receive_stdout() == b""
                with pytest.raises(BrokenPipeError):
                    await talk.process.send(b"x")
            if how == "error":
                raise ZeroDivisionError
            if how == "cancel":
                scope.cancel()
                await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        if how == "error":
            with pytest.raises(ZeroDivisionError):
                await go()
        else:
            await go()
    assert daemon.killed == [FakeKill("box", "forever", "client-gone")]
    assert (daemon.conversations, daemon.containers["box"].inhabitants) == (0, [])


async def test_output_waits_for_its_reader() -> None:
    """A command that prints more than a pipe holds is not ahead of its reader."""
    printed = 0

    async def flood(call: FakeCall) -> int:
        nonlocal printed
        for _ in range(100):
            await call.stdout(b"x" * 10_000)
            printed += 1
        return 0

    daemon = FakeDaemon({"flood": flood})
    await run(daemon, create())
    async with talking(daemon, guest()) as talk:
        await talk.greet()
        await talk.ask("flood")
        await anyio.wait_all_tasks_blocked()
        assert printed < 10
        await talk.until(0, "end")
        assert len(talk.data[0]) == 1_000_000


async def test_a_large_request_waits_for_its_reader(daemon: FakeDaemon) -> None:
    """And a sender that is ahead of the guest hears of its end."""
    await run(daemon, create())
    hold = daemon.hold("exec")
    async with talking(daemon, guest()) as talk, anyio.create_task_group() as group:

        async def send() -> None:
            with pytest.raises(BrokenPipeError):
                await talk.process.send(b"x" * 200_000)

        group.start_soon(send)
        await hold.reached()
        await anyio.wait_all_tasks_blocked()
        daemon.remove("box")
        hold.release()


async def test_a_daemon_that_is_down(daemon: FakeDaemon) -> None:
    """It says so in its words, ends conversations, and does nothing; up again, all is there."""
    await run(daemon, create())
    async with talking(daemon, guest()) as talk:
        await talk.greet()
        await talk.ask("forever")
        await talk.until_said(b"begun\n")
        daemon.down()
        assert await talk.rest() == Heard(b"begun\n", b"", ("ready 1",), 255)
    words = b"Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
    words += b"Is the docker daemon running?"
    assert await run(daemon, command_line.stop("box")) == Completed(1, b"", words + b"\n")
    assert await run(daemon, command_line.inspect("box")) == Completed(1, b"[]\n", words + b"\n")
    assert (await run(daemon, command_line.info())).exit_code == 1
    assert (await run(daemon, command_line.start("box"))).error_text.endswith("containers: box")
    assert (await run(daemon, create("more"))).stderr.startswith(b"docker: " + words)
    assert await asked(daemon, "hi") == Heard(b"", words + b"\n", (), 1)
    daemon.up()
    assert list(daemon.containers) == ["box"]
    assert (await asked(daemon, "hi")).stdout == b"hi\n"
    daemon.down("error during connect: ...", 255)
    assert await run(daemon, command_line.stop("box")) == Completed(
        255, b"", b"error during connect: ...\n"
    )
    daemon.take_name("idle", state="exited")
    daemon.up(restarted=True)
    assert daemon.containers["box"].state == "exited"


async def test_a_daemon_that_hangs(daemon: FakeDaemon) -> None:
    """Calls get no answer and conversations freeze, until it goes on with all of them."""
    await run(daemon, create())
    async with talking(daemon, guest()) as talk:
        await talk.greet()
        daemon.hang()
        await talk.ask("hi")
        assert await daemon.run(("docker", *command_line.stop("box")), timeout=0.1) == NoAnswer(0.1)
        with anyio.move_on_after(0.1) as waited:
            await talk.process.receive_stdout()
        assert waited.cancelled_caught
        assert daemon.executed == []
        daemon.thaw()
        await talk.until(0, "end")
        assert talk.data[0] == b"hi\n"
    daemon.hang()
    with anyio.fail_after(2):
        async with talking(daemon, guest()) as talk:
            await talk.process.send(b"into the void\n")
    async with talking(daemon, guest()) as talk, anyio.create_task_group() as group:
        group.start_soon(talk.greet)
        await anyio.wait_all_tasks_blocked()
        daemon.thaw()


async def test_frozen_output_arrives_after_the_thaw(daemon: FakeDaemon) -> None:
    """What a command prints while the engine hangs is late, not lost."""
    await run(daemon, create())
    async with talking(daemon, guest()) as talk, anyio.create_task_group() as group:
        await talk.greet()
        group.start_soon(talk.until_said, b"begun\n")
        await talk.ask("forever")
        daemon.hang()
        await anyio.wait_all_tasks_blocked()
        assert talk.data[0] == b""
        daemon.thaw()


async def test_calls_that_fail(daemon: FakeDaemon) -> None:
    """So many calls of a verb fail as told, and the next does not."""
    daemon.fail_next("run", stderr="no\n", exit_code=125, times=2)
    daemon.fail_next("run", stderr="created\n", exit_code=127, creates=True)
    for _ in range(2):
        assert await run(daemon, create()) == Completed(125, b"", b"no\n")
    assert daemon.containers == {}
    assert (await run(daemon, create())).exit_code == 127
    assert daemon.containers["box"].state == "created"
    assert (await run(daemon, command_line.start("box"))).exit_code == 0
    daemon.fail_next("exec", stdout="unable to find user x\n", exit_code=126)
    assert await asked(daemon, "hi") == Heard(b"unable to find user x\n", b"", (), 126)
    assert (await asked(daemon, "hi")).stdout == b"hi\n"
    with pytest.raises(ValueError, match="no such verb"):
        daemon.fail_next("kill")


@pytest.mark.parametrize("acts", [False, True])
async def test_calls_without_an_answer(daemon: FakeDaemon, acts: bool) -> None:
    """One call gets none, and what it asked for happens or does not, as told."""
    daemon.hang_next("run", acts=acts)
    assert await daemon.run(create(), timeout=0.05) == NoAnswer(0.05)
    assert list(daemon.containers) == (["box"] if acts else [])
    assert (await run(daemon, create("other"))).exit_code == 0
    daemon.slow_start(0.5, acts=acts)
    assert await daemon.run(create("slow"), timeout=0.05) == NoAnswer(0.05)
    assert ("slow" in daemon.containers) is acts
    assert (await run(daemon, create("slow2"))).exit_code == 0


async def test_a_thaw_ends_single_hangs(daemon: FakeDaemon) -> None:
    """They go on like all others."""
    daemon.hang_next("info")
    async with anyio.create_task_group() as group:
        group.start_soon(run, daemon, command_line.info())
        await anyio.wait_all_tasks_blocked()
        daemon.thaw()


async def test_a_race_is_a_script(daemon: FakeDaemon) -> None:
    """Two creations of one name, held until both are there: one wins, the other hears of it."""
    hold = daemon.hold("run")
    answers: list[int] = []

    async def make() -> None:
        answers.append((await run(daemon, create())).exit_code)

    async with anyio.create_task_group() as group:
        group.start_soon(make)
        group.start_soon(make)
        await hold.reached(2)
        assert (hold.waiting, answers) == (2, [])
        hold.release()
    assert sorted(answers) == [0, 125]
    assert (await run(daemon, create("later"))).exit_code == 0


async def test_guests_that_misbehave(daemon: FakeDaemon) -> None:
    """Each next guest does what was told, in order, and the one after them behaves."""
    await run(daemon, create())
    daemon.die_before_ready_next()
    daemon.behave_next()
    daemon.die_after_sent_next()
    daemon.die_after_sent_next(runs=False, exit_code=1)
    daemon.refuse_next("space")
    daemon.speak_next(7)
    assert await asked(daemon, "hi") == Heard(b"", b"", (), 137)
    good = Heard(b"hi\n", b"", ("ready 1", "end 0 -"), 0)
    assert await asked(daemon, "hi") == good
    assert await asked(daemon, "hi") == Heard(b"hi\n", b"", ("ready 1",), 137)
    assert await asked(daemon, "hi") == Heard(b"", b"", ("ready 1",), 1)
    assert await asked(daemon, "hi") == Heard(b"", b"", ("ready 1", "refused space"), 0)
    assert (await asked(daemon, "hi")).frames == ("ready 7", "end 0 -")
    assert await asked(daemon, "hi") == good
    assert daemon.executed == [("box", "hi")] * 4


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_lost_end_frame(daemon: FakeDaemon, stream: str) -> None:
    """One stream gets none, the other does."""
    await run(daemon, create())
    daemon.lose_end_frame_next("stdout" if stream == "stdout" else "stderr")
    async with talking(daemon, guest()) as talk:
        await talk.greet()
        await talk.ask("hi")
        await talk.until(1 if stream == "stdout" else 0, "end")
        await talk.process.close_stdin()
        while await talk.more(0) or await talk.more(1):
            pass
    ends = [sum(frame.word == "end" for frame in frames) for frames in talk.frames]
    assert ends == ([0, 1] if stream == "stdout" else [1, 0])


async def test_behind_our_back(daemon: FakeDaemon) -> None:
    """Containers stop, start, freeze, change hands and go away without a call of ours."""
    taken = daemon.take_name("box", labels={"x": "y"})
    assert (taken.state, taken.labels, taken.starts) == ("running", {"x": "y"}, 1)
    assert (await run(daemon, create())).exit_code == 125
    for act, state in (
        (daemon.stop, "exited"),
        (daemon.start, "running"),
        (daemon.pause, "paused"),
        (daemon.restart, "running"),
    ):
        act("box")
        assert taken.state == state
    assert taken.starts == 3
    daemon.set_state("box", "restarting")
    assert b"is restarting" in (await asked(daemon, "hi")).stderr
    for state, words in (("dead", b"marked for removal"), ("removing", b"already in progress")):
        daemon.set_state("box", state)
        verb = (
            command_line.start("box") if state == "dead" else command_line.remove("box", force=True)
        )
        answer = await run(daemon, verb)
        assert (answer.exit_code, words in answer.stderr) == (1, True)
    daemon.remove("box")
    assert daemon.containers == {}
    assert daemon.take_name("old", state="exited").state == "exited"
    assert daemon.take_name("new", state="created").starts == 0


@pytest.mark.parametrize(
    "flags",
    [
        ("--volume", "/host/box:/workspace"),
        ("--mount", "type=bind,source=/host/box,target=/workspace"),
        ("--mount", "type=tmpfs,target=/workspace"),
    ],
    ids=["volume", "bind", "tmpfs"],
)
async def test_files_of_a_mounted_workspace(flags: tuple[str, ...]) -> None:
    """They outlive their container if they are the host's."""

    async def write(call: FakeCall) -> int:
        call.files["/workspace/a"] = b"a"
        call.files["/etc/b"] = b"b"
        return 0

    daemon = FakeDaemon({"write": write})
    await run(daemon, create(flags=flags))
    await asked(daemon, "write")
    await run(daemon, command_line.remove("box", force=True))
    await run(daemon, create(flags=flags))
    kept = {"/workspace/a": b"a"} if "tmpfs" not in flags[1] else {}
    assert daemon.containers["box"].files == kept


async def test_images(daemon: FakeDaemon) -> None:
    """They are had by name or identity, pulled if there are any, and lose names to newer ones."""
    first = daemon.add_image("work", user="7", entrypoint=("/entry",), labels={"l": "v"})
    second = daemon.add_image("work:latest")
    for name in ("work", second.id, second.id.removeprefix("sha256:")):
        found = await run(daemon, command_line.image_inspect(name))
        assert (second.id.encode() in found.stdout, b"work:latest" in found.stdout) == (True, True)
    old = await run(daemon, command_line.inspect(first.id))
    assert (b'"/entry"' in old.stdout, b"work:latest" in old.stdout) == (True, False)
    daemon.take_name("work")
    assert b'"State"' in (await run(daemon, command_line.inspect("work"))).stdout
    assert b"pull access denied" in (await run(daemon, command_line.pull("there"))).stderr
    rich = FakeDaemon(registry=["there"])
    for _ in range(2):
        assert (await run(rich, command_line.pull("there"))).exit_code == 0
    assert (await run(rich, create(image="there"))).exit_code == 0


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (["label=a"], ["two", "box"]),
        (["label=a=b", "name=tw"], ["two"]),
        (["label=a=c"], []),
        (["status=exited"], ["two"]),
        (["id=000"], []),
    ],
)
async def test_listing(daemon: FakeDaemon, filters: list[str], names: list[str]) -> None:
    """Newest first, and only those that pass every filter."""
    await run(daemon, create())
    await run(daemon, create("two"))
    daemon.stop("two")
    daemon.take_name("foreign")
    listed = await run(daemon, command_line.list_containers(*filters))
    shown = [
        name
        for line in listed.stdout.decode().splitlines()
        for name in ("two", "box")
        if f'"Names": "{name}"' in line
    ]
    assert shown == names
    assert b"foreign" not in listed.stdout


async def test_a_one_off_that_cannot_be(daemon: FakeDaemon) -> None:
    """Its conversation is the engine's refusal."""
    daemon.take_name("once")
    async with talking(daemon, attached("once")) as talk:
        heard = await talk.rest()
    assert (heard.exit_code, b"already in use" in heard.stderr) == (125, True)


async def test_a_removed_one_off(daemon: FakeDaemon) -> None:
    """Removed under its command, it ends with 137 and is not missed."""
    async with talking(daemon, attached("once")) as talk:
        await talk.greet()
        await talk.ask("forever")
        await talk.until_said(b"begun\n")
        daemon.remove("once")
        assert await talk.rest() == Heard(b"begun\n", b"", ("ready 1",), 137)
    assert daemon.killed == [FakeKill("once", "forever", "container")]


async def test_an_engine_that_dies_before_a_guest_is_there(daemon: FakeDaemon) -> None:
    """The program ends, whatever it waited for."""
    await run(daemon, create())
    daemon.hold("exec")
    async with talking(daemon, guest()) as talk:
        await anyio.wait_all_tasks_blocked()
        daemon.down()
        assert await talk.rest() == Heard(b"", b"", (), 255)


async def test_half_requests(daemon: FakeDaemon) -> None:
    """Cut off anywhere, short or long, with standard input or without, they run nothing."""
    await run(daemon, create())
    for command, stdin in ((b"hi", None), (b"hi" * 3000, None), (b"hi", b"some input")):
        for keep in range(8):
            async with talking(daemon, guest()) as talk:
                await talk.greet()
                pieces = run_request(
                    talk.conversation, command, limit=9, cwd=b"/\n/", env={"A": b"b"}, stdin=stdin
                )
                whole = b"".join(pieces)
                await talk.process.send(whole[: len(whole) * keep // 8])
                await talk.process.close_stdin()
                assert await talk.rest() == Heard(b"", b"", ("ready 1",), 0)
    assert daemon.executed == []


def test_an_engine_that_ignores_what_there_is_not() -> None:
    """A slip in a test's own words would let it pass."""
    with pytest.raises(ValueError, match="no 'memroy' to ignore"):
        FakeDaemon(ignores=["memroy"])


@pytest.mark.parametrize(
    "words",
    [
        ("version",),
        ("version", "--format", "{{json .}}", "x"),
        ("context", "ls"),
        ("context", "inspect", "--format", "{{.Name}}"),
    ],
)
async def test_only_the_librarys_own_questions_about_the_engine(
    daemon: FakeDaemon, words: tuple[str, ...]
) -> None:
    """Any other form is a failure of the test that makes it."""
    with pytest.raises(UnknownArgv):
        await run(daemon, ("docker", *words))
