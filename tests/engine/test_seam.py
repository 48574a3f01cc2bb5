"""The same raw script through the seam, on the fake engine and on a real one."""

import json
import secrets
from collections.abc import AsyncIterator

import anyio
import pytest
from attrs import frozen

from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.describe import parse_context, parse_info, parse_version
from sandbox_exec._docker.diagnose import Fault, diagnose
from sandbox_exec._docker.interface import Argv, CommandRunner, Completed
from sandbox_exec._docker.inventory import EngineState, parse_inspect, parse_ps
from sandbox_exec._frames import DONE, KILL, reap_request, run_request
from sandbox_exec._guest import (
    BOOTSTRAP,
    GUEST_VARIABLE,
    STATE_DIR,
    guest_script,
    keepalive_command,
)
from sandbox_exec.testing import FakeCall, FakeDaemon
from tests.engine.real_engine import IMAGE
from tests.engine.talk import Heard, Talk

pytestmark = pytest.mark.anyio

GUEST = ("sh", *BOOTSTRAP)
VARIABLES = {GUEST_VARIABLE: guest_script()}
FLAGS = ("--network", "none", "--tmpfs", f"{STATE_DIR}:rw,mode=1777", "--stop-signal", "KILL")


@frozen
class Target:
    """One of the two engines, and names on it that are nobody else's."""

    runner: CommandRunner
    program: str
    name: str

    async def run(self, argv: Argv) -> Completed:
        answer = await self.runner.run((self.program, *argv), timeout=60)
        assert isinstance(answer, Completed)
        return answer

    async def create(self, *, image: str = IMAGE) -> Completed:
        return await self.run(
            command_line.run_detached(
                self.name,
                labels={"seam.test": self.name, "seam.empty": ""},
                flags=FLAGS,
                image=image,
                command=("sh", *keepalive_command()),
            )
        )

    async def state(self) -> EngineState | None:
        inventory = parse_inspect((await self.run(command_line.inspect(self.name))).stdout)
        return inventory.containers[0].state if inventory.containers else None

    def exec(self, name: str | None = None, user: str | None = None) -> Argv:
        argv = command_line.exec_stdin(
            name or self.name, variables=(GUEST_VARIABLE,), user=user, command=GUEST
        )
        return (self.program, *argv)

    def attached(self, name: str) -> Argv:
        argv = command_line.run_attached(
            name,
            labels={"seam.test": self.name},
            flags=FLAGS,
            variable=GUEST_VARIABLE,
            image=IMAGE,
            command=GUEST,
        )
        return (self.program, *argv)


async def mixed(call: FakeCall) -> int:
    await call.stdout(b"out\n")
    await call.stderr(b"err\n")
    return 3


async def shout(call: FakeCall) -> int:
    await call.stdout(call.stdin or b"")
    await call.stdout(f"{call.env['WORD']} {call.cwd}\n".encode())
    return 0


async def nap(call: FakeCall) -> int:
    await call.stdout(b"begun\n")
    await call.sleep(30)
    return 0


async def wait(call: FakeCall) -> int:
    await call.stdout(b"begun\n")
    await call.forever()
    return 0


async def leave(call: FakeCall) -> int:
    call.background()
    return 0


async def write(call: FakeCall) -> int:
    call.files["/root/kept"] = b"kept\n"
    call.files[f"{STATE_DIR}/lost"] = b"lost\n"
    return 0


async def show(call: FakeCall) -> int:
    for path in ("/root/kept", f"{STATE_DIR}/lost"):
        await call.stdout(call.files.get(path, b"nothing\n"))
    return 0


LONG = "echo begun; " + "sleep 0; " * 600 + "sleep 29"
COMMANDS = {
    "echo out; echo err >&2; exit 3": mixed,
    'cat; echo "$WORD $PWD"': shout,
    "echo begun; sleep 30": nap,
    "echo begun; sleep 31": wait,
    LONG: wait,
    "sleep 32 &": leave,
    f"echo kept >/root/kept; echo lost >{STATE_DIR}/lost": write,
    f"cat /root/kept; cat {STATE_DIR}/lost 2>/dev/null || echo nothing": show,
}


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.engine)])
async def target(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[Target]:
    """The fake engine, or the real one; whatever a test leaves there is removed."""
    name = f"seam-{secrets.token_hex(6)}"
    if request.param == "fake":
        yield Target(FakeDaemon(COMMANDS), "docker", name)
        return
    engine = request.getfixturevalue("real_engine")
    if engine.program != "docker":
        pytest.skip("the fake speaks docker")
    real = Target(engine.runner, engine.program, name)
    yield real
    with anyio.CancelScope(shield=True):
        listed = await real.run(command_line.list_containers(f"label=seam.test={name}"))
        if ids := [one.id for one in parse_ps(listed.stdout)]:
            await real.run(command_line.remove(*ids, force=True))


async def converse(target: Target, command: str, **how: object) -> Heard:
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        await talk.ask(command, **how)  # type: ignore[arg-type]
        await talk.until(0, "end")
        await process.send(DONE)
        await process.close_stdin()
        return await talk.rest()


def says(answer: Completed | Heard, exit_code: int, *words: str) -> bool:
    text = (answer.stdout + answer.stderr).decode().lower()
    assert answer.exit_code == exit_code, answer
    assert all(word.lower() in text for word in words), answer
    return True


async def test_a_life(target: Target) -> None:
    """A container is made, found, stopped, started, paused and removed, with the same answers."""
    made = await target.create()
    identity = made.stdout.decode().strip()
    assert (made.exit_code, len(identity), made.stderr) == (0, 64, b"")

    again = await target.create()
    assert says(again, 125, "docker: ", f'"/{target.name}" is already in use', identity, "--help")

    both = parse_inspect((await target.run(command_line.inspect(target.name, IMAGE))).stdout)
    (container,), (image,) = both.containers, both.images
    assert (container.id, container.name) == (identity, target.name)
    assert (container.state, container.image_id) == (EngineState.RUNNING, image.id)
    assert container.labels["seam.test"] == target.name
    assert container.labels["seam.empty"] == ""
    assert container.started is not None
    assert container.finished is None
    assert (container.pid > 0, container.user) == (True, "")

    listed = await target.run(command_line.list_containers(f"label=seam.test={target.name}"))
    assert [(one.id, one.name, one.state) for one in parse_ps(listed.stdout)] == [
        (identity, target.name, EngineState.RUNNING)
    ]
    none = await target.run(command_line.list_containers("label=seam.test=nobody", "label=x"))
    assert none == Completed(0)
    assert (await target.run(command_line.top(target.name))).stdout.startswith(b"PID\n")

    assert says(await target.run(command_line.remove(identity, force=False)), 1, "running")
    assert says(await target.run(command_line.unpause(target.name)), 1, identity, "is not paused")
    assert says(await target.run(command_line.start(target.name)), 0, target.name)

    assert says(await target.run(command_line.stop(target.name)), 0, target.name)
    assert await target.state() is EngineState.EXITED
    assert says(await target.run(command_line.stop(target.name)), 0, target.name)
    assert says(await target.run(command_line.top(target.name)), 1, identity, "is not running")
    assert says(await target.run(command_line.start(identity)), 0, identity)
    assert await target.state() is EngineState.RUNNING
    after = parse_inspect((await target.run(command_line.inspect(target.name))).stdout)
    assert (after.containers[0].finished or 0) >= container.started
    assert says(await target.run(command_line.restart(target.name)), 0, target.name)
    assert await target.state() is EngineState.RUNNING

    assert says(await target.run(command_line.remove(identity, force=True)), 0, identity)
    assert await target.state() is None


async def test_what_is_not_there(target: Target) -> None:
    """Every command says in the same words that there is no such thing."""
    name = target.name
    missing = await target.run(command_line.inspect(name, f"{name}-2"))
    assert says(missing, 1, f"no such object: {name}", f"no such object: {name}-2")
    assert json.loads(missing.stdout) == []
    for argv in (
        command_line.start(name),
        command_line.stop(name),
        command_line.restart(name),
        command_line.unpause(name),
        command_line.remove(name, force=False),
        command_line.top(name),
    ):
        assert says(await target.run(argv), 1, f"no such container: {name}")
    assert says(
        await target.run(command_line.start(name)), 1, f"failed to start containers: {name}"
    )
    assert says(await target.run(command_line.remove(name, force=True)), 0)
    assert says(await target.run(command_line.image_inspect(name)), 1, f"no such image: {name}")
    assert says(await target.create(image=f"{name}:1"), 125, "no such image", f"{name}:1")
    half = await target.run(command_line.inspect(name, IMAGE))
    assert says(half, 1, f"no such object: {name}")
    assert len(parse_inspect(half.stdout).images) == 1
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        assert says(await Talk(process).rest(), 1, f"no such container: {name}")


async def test_what_cannot_be_talked_to(target: Target) -> None:
    """A stopped or paused container answers a conversation in the same words."""
    identity = (await target.create()).stdout.decode().strip()
    await target.run(command_line.stop(target.name))
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        assert says(await Talk(process).rest(), 1, f"container {identity} is not running")
    await target.run(command_line.start(target.name))
    if isinstance(target.runner, FakeDaemon):
        target.runner.pause(target.name)
    else:
        await target.run(("pause", target.name))
    assert await target.state() is EngineState.PAUSED
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        assert says(await Talk(process).rest(), 1, f"container {target.name} is paused, unpause")
    assert says(await target.run(command_line.start(target.name)), 1, "cannot start a paused")
    assert says(await target.run(command_line.remove(target.name, force=False)), 1, "paused")
    assert says(await target.run(command_line.unpause(target.name)), 0, target.name)
    assert (await converse(target, "echo out; echo err >&2; exit 3")).frames[-1] == "end 3 -"


async def test_commands(target: Target) -> None:
    """A command's bytes, status and flags come back in the same frames."""
    await target.create()
    assert await converse(target, "echo out; echo err >&2; exit 3") == Heard(
        b"out\n", b"err\n", ("ready 1", "end 3 -"), 0
    )
    told = await converse(
        target,
        'cat; echo "$WORD $PWD"',
        env={"WORD": b"it's\na 'word'"},
        stdin=b"x" * 70_000 + b"\n",
        cwd=b"/workspace/sub",
    )
    assert told.stdout == b"x" * 70_000 + b"\nit's\na 'word' /workspace/sub\n"
    assert told.frames == ("ready 1", "end 0 -")
    assert await converse(target, "echo begun; sleep 30", limit=0.5) == Heard(
        b"begun\n", b"", ("ready 1", "end 137 -t"), 0
    )


async def test_two_requests_to_one_guest(target: Target) -> None:
    """A guest serves one request after another."""
    await target.create()
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        for number in (1, 2):
            await talk.ask("echo out; echo err >&2; exit 3")
            while len(talk.frames[0]) <= number:
                await talk.more(0)
            await process.send(DONE)
        await process.close_stdin()
        heard = await talk.rest()
    assert heard == Heard(b"out\nout\n", b"err\nerr\n", ("ready 1", "end 3 -", "end 3 -"), 0)


@pytest.mark.parametrize("command", ["echo begun; sleep 31", LONG], ids=["short", "long"])
@pytest.mark.parametrize("how", ["kill", "end-of-input"])
async def test_an_ended_command(target: Target, how: str, command: str) -> None:
    """On request, or once its client seems gone, a command is killed and says so."""
    await target.create()
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        await talk.ask(command)
        await talk.until_said(b"begun\n")
        if how == "kill":
            await process.send(KILL)
            await talk.until(0, "end")
            await process.send(DONE)
        await process.close_stdin()
        assert await talk.rest() == Heard(b"begun\n", b"", ("ready 1", "end 137 -k"), 0)


async def test_what_a_command_leaves(target: Target) -> None:
    """A background process is flagged, its guest lingers, and it outlives the conversation."""
    await target.create()
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        await talk.ask("sleep 32 &")
        await talk.until(0, "end")
        await process.send(DONE)
        await talk.until(0, "lingering")
        assert [frame.arguments for frame in talk.frames[0][1:]] == [("0", "-s"), ()]
    top = await target.run(command_line.top(target.name))
    assert len(top.stdout.split()) >= 3


async def test_a_reaped_conversation(target: Target) -> None:
    """Another guest ends the tree of a lost conversation by its tag, and then its guest, which may
    or may not get its last frame out.
    """
    await target.create()
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        lost = Talk(process)
        await lost.greet()
        await lost.ask("echo begun; sleep 31")
        await lost.until_said(b"begun\n")
        async with target.runner.open(target.exec(), env=VARIABLES) as second:
            reaper = Talk(second)
            await reaper.greet()
            await second.send(reap_request(lost.conversation.tag))
            await reaper.until(0, "reaped")
            await second.close_stdin()
            assert (await reaper.rest()).frames == ("ready 1", "reaped 0")
        await process.close_stdin()
        while await lost.more(0):
            pass
        words = [(frame.word, *frame.arguments) for frame in lost.frames[0]]
        assert words in ([("ready", "1")], [("ready", "1"), ("end", "137", "-k")])


@pytest.mark.parametrize("how", ["stop", "rm"])
async def test_a_container_that_ends_under_a_command(target: Target, how: str) -> None:
    """The streams end without a frame, with status 137 and without a word."""
    await target.create()
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        await talk.ask("echo begun; sleep 31")
        await talk.until_said(b"begun\n")
        stop, remove = command_line.stop(target.name), command_line.remove(target.name, force=True)
        await target.run(stop if how == "stop" else remove)
        assert await talk.rest() == Heard(b"begun\n", b"", ("ready 1",), 137)


async def test_half_a_request_runs_nothing(target: Target) -> None:
    """A request without its last line ends the guest in silence."""
    await target.create()
    async with target.runner.open(target.exec(), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        (request,) = run_request(
            talk.conversation, b"echo out; exit 3", limit=9, cwd=b"/", env={}, stdin=None
        )
        await process.send(request[:-10])
        await process.close_stdin()
        assert await talk.rest() == Heard(b"", b"", ("ready 1",), 0)


async def test_files(target: Target) -> None:
    """Files outlive a stop, but for those in memory."""
    await target.create()
    await converse(target, f"echo kept >/root/kept; echo lost >{STATE_DIR}/lost")
    show = f"cat /root/kept; cat {STATE_DIR}/lost 2>/dev/null || echo nothing"
    assert (await converse(target, show)).stdout == b"kept\nlost\n"
    await target.run(command_line.stop(target.name))
    await target.run(command_line.start(target.name))
    assert (await converse(target, show)).stdout == b"kept\nnothing\n"


async def test_a_one_off(target: Target) -> None:
    """Its process is the guest; at the end of the conversation the container is gone."""
    name = f"{target.name}-once"
    async with target.runner.open(target.attached(name), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        await talk.ask("echo out; echo err >&2; exit 3", cwd=b"/")
        await talk.until(0, "end")
        found = parse_inspect((await target.run(command_line.inspect(name))).stdout)
        assert [one.state for one in found.containers] == [EngineState.RUNNING]
        await process.send(DONE)
        await process.close_stdin()
        assert await talk.rest() == Heard(b"out\n", b"err\n", ("ready 1", "end 3 -"), 0)
    await gone(target, name)


async def test_a_one_off_whose_client_leaves(target: Target) -> None:
    """The program is killed; the container ends by itself and is gone."""
    name = f"{target.name}-once"
    async with target.runner.open(target.attached(name), env=VARIABLES) as process:
        talk = Talk(process)
        await talk.greet()
        await talk.ask("echo begun; sleep 31", cwd=b"/")
        await talk.until_said(b"begun\n")
        process.kill()
        assert await process.wait() == -9
    await gone(target, name)


async def test_a_tool(target: Target) -> None:
    """A short program of ours runs to its end in a container that is then gone."""
    name = f"{target.name}-tool"
    argv = command_line.run_tool(
        name,
        labels={"seam.test": target.name},
        flags=("--network", "none"),
        image=IMAGE,
        command=("sh", "-c", "true"),
    )
    assert await target.run(argv) == Completed(0)
    await gone(target, name)


async def gone(target: Target, name: str) -> None:
    """Wait until a container is not there any more."""
    with anyio.fail_after(20):
        while (await target.run(command_line.inspect(name))).exit_code == 0:  # noqa: ASYNC110  # polling an engine is all there is
            await anyio.sleep(0.05)


async def test_the_engine_describes_itself(target: Target) -> None:
    """What the library reads of it is there."""
    facts = json.loads((await target.run(command_line.info())).stdout)
    assert {"DockerRootDir", "ServerVersion", "SecurityOptions", "Containers"} <= facts.keys()


async def test_the_engine_is_what_it_says(target: Target) -> None:
    """Its program, its version, its limits and its address can be read, on the fake as on a real
    one.
    """
    versions = parse_version((await target.run(command_line.version())).stdout)
    facts = parse_info((await target.run(command_line.info())).stdout)
    assert versions.server_version == facts.version
    assert versions.client_version[0].isdigit()
    assert facts.runtimes
    if versions.family == "docker":
        context, host = parse_context((await target.run(command_line.context())).stdout)
        assert (bool(context), "://" in host) == (True, True)
        assert None not in (facts.limits.memory, facts.limits.pids, facts.limits.cpus)


async def test_a_quota_is_taken_or_refused(target: Target) -> None:
    """Where the disk has none, no container is made, and nothing is left."""
    name = f"{target.name}-quota"
    argv = command_line.run_tool(
        name,
        labels={"seam.test": target.name},
        flags=("--network", "none", "--storage-opt", "size=67108864"),
        image=IMAGE,
        command=("sh", "-c", ":"),
    )
    answer = await target.run(argv)
    if answer.exit_code:
        assert diagnose(answer.exit_code, answer.stdout, answer.stderr).fault is Fault.NO_QUOTA
    await gone(target, name)
