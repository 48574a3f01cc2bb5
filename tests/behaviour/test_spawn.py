"""The spawn backend: one container, true processes, healing, disposal."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import create_task_group

from sandbox_exec import (
    ContainerStartError,
    DaemonUnavailableError,
    EngineNotFoundError,
    ExecutorClosedError,
    FileTransferError,
    SandboxBrokenError,
    SandboxDisposedError,
    SandboxError,
)
from sandbox_exec._files import Files
from sandbox_exec.testing import UnknownArgv

from .calls import until
from .spawning import SpawnPlace, ask, ending, everything, outcome

pytestmark = pytest.mark.anyio


@pytest.fixture
def here() -> SpawnPlace:
    return SpawnPlace()


async def test_a_process_has_its_own_streams_and_exit_code(here: SpawnPlace) -> None:
    """Not the wrapper's words, nor the engine's."""
    async with here.backend() as backend:
        assert await outcome(backend, ask("speak")) == (b"out\n", b"err\n", 7)
        async with backend.spawn(ask("cat")) as process:
            assert process.stdin is not None
            await process.stdin.send(b"\0\xff" * 100_000)
            assert await ending(process) == (b"\0\xff" * 100_000, b"", 0)
            assert process.returncode == 0
    assert (here.containers, here.daemon.conversations) == ([], 0)


async def test_what_is_no_request_is_refused(here: SpawnPlace) -> None:
    """In words, and before an engine is looked for."""
    async with here.backend() as backend:
        for what in (backend.wrap_spawn("true"), outcome(backend, "true")):  # type: ignore[arg-type]  # refused
            with pytest.raises(ValueError, match="SpawnRequest, not str"):
                await what
    assert here.daemon.calls == []


async def test_variables_and_directory_arrive(here: SpawnPlace) -> None:
    """Also those that would steer the engine's program, which has them not (B2, R7)."""
    env = {"PATH": "/opt", "DOCKER_HOST": "tcp://elsewhere", "A": "it's\n$x"}
    async with here.backend() as backend:
        output, _, code = await outcome(backend, ask("show", env=env, cwd="/srv"))
        assert (output.decode(), code) == (f"/srv 0:0 {sorted(env.items())}", 0)
        wrapped = await backend.wrap_spawn(ask("show", env=env, extra={"stderr": 2}))
        assert (await here.started(wrapped))[0].decode() == f"/ 0:0 {sorted(env.items())}"
    assert wrapped.options.extra == {"stderr": 2}
    assert wrapped.options.env is not None
    assert "elsewhere" not in str(wrapped.args)
    assert wrapped.options.env.get("PATH") != "/opt"
    assert "DOCKER_HOST" not in wrapped.options.env


async def test_a_directory_is_mapped_into_the_workspace(here: SpawnPlace) -> None:
    """Any inside of it, and none outside (B5)."""
    async with here.backend(mount_workspace=True, workspace_root="/srv/ws", user="7:8") as backend:
        for cwd, inside in (
            ("/srv/ws", "/workspace"),
            ("/srv/ws/a/../b", "/workspace/b"),
            ("c", "/workspace/c"),
            (None, "/workspace"),
        ):
            output, _, _ = await outcome(backend, ask("show", cwd=cwd))
            assert output.decode().split() == [inside, "7:8", "[]"]
        for outside in ("/srv", "/srv/ws/../x", "/srv/wsx", "..", "/"):
            with pytest.raises(ValueError, match="not inside"):
                await backend.wrap_spawn(ask("show", cwd=outside))
        assert (backend.mode, backend.label) == ("docker", "docker:sandbox-exec/busybox+workspace")
        assert backend.env_hint().workspace_mount == "/workspace"
    async with here.backend() as backend:
        with pytest.raises(ValueError, match="absolute"):
            await backend.wrap_spawn(ask("show", cwd="relative"))
        assert backend.env_hint().workspace_mount is None


async def test_files_are_placed_before_the_start(here: SpawnPlace) -> None:
    """So that no host directory has to be mounted (B1), and a failure starts nothing."""
    async with here.backend() as backend:
        await outcome(backend, ask("speak", files={"/tmp/x.py": b"print()", "/tmp/y": b""}))
        await backend.wrap_spawn(ask("speak", files={"/tmp/z": b"z"}))
        files = here.container.files
        assert {path: files[path] for path in ("/tmp/x.py", "/tmp/y", "/tmp/z")} == {
            "/tmp/x.py": b"print()",
            "/tmp/y": b"",
            "/tmp/z": b"z",
        }
        here.daemon.refuse_next("disk")
        with pytest.raises(FileTransferError):
            await outcome(backend, ask("speak", files={"/tmp/q": b"q"}))
    assert len(here.daemon.executed) == 1


BOTH = {"/tmp/a": b"A", "/tmp/b": b"B"}


def harmed_after_a_put(
    monkeypatch: pytest.MonkeyPatch, harm: Callable[[str], object], here: SpawnPlace, number: int
) -> list[str]:
    """Let something happen to the container once so many files were placed; returns them."""
    put, done = Files.put, list[str]()

    async def harming(self: Files, key: str, path: str, *rest: Any) -> None:  # noqa: ANN401  # put's own
        await put(self, key, path, *rest)
        done.append(path)
        if number in {0, len(done)}:
            harm(here.container.name)

    monkeypatch.setattr(Files, "put", harming)
    return done


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("harm", ["remove", "stop", "restart", "pause"])
async def test_files_are_placed_anew_in_what_replaces_a_container(
    here: SpawnPlace, monkeypatch: pytest.MonkeyPatch, harm: str, number: int
) -> None:
    """All of them, for both kinds of spawn: no command runs without what it was given."""
    async with here.backend() as backend:
        await outcome(backend, ask("speak"))
        done = harmed_after_a_put(monkeypatch, getattr(here.daemon, harm), here, number)
        assert await outcome(backend, ask("both", files=BOTH)) == (b"A B", b"", 0)
        if harm == "pause":
            assert done == ["/tmp/a", "/tmp/b"]
        if number == 1:
            done.clear()
            wrapped = await backend.wrap_spawn(ask("both", files=BOTH))
            assert await here.started(wrapped) == (b"A B", 0)


async def test_a_wrapped_spawn_whose_files_are_lost_does_not_run(here: SpawnPlace) -> None:
    """It was restarted before anybody started it, and only its caller can wrap it anew."""
    async with here.backend() as backend:
        wrapped = await backend.wrap_spawn(ask("both", files=BOTH))
        here.daemon.restart(here.container.name)
        assert await here.started(wrapped) == (b"", 126)
        wrapped = await backend.wrap_spawn(ask("both", files=BOTH))
        assert await here.started(wrapped) == (b"A B", 0)


@pytest.mark.parametrize("harm", ["remove", "restart"])
async def test_files_that_no_container_keeps_are_an_error(
    here: SpawnPlace, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """One that goes each time is not placed in for ever."""
    async with here.backend() as backend:
        harmed_after_a_put(monkeypatch, getattr(here.daemon, harm), here, 0)
        with pytest.raises(FileTransferError) as errors:
            await outcome(backend, ask("both", files=BOTH))
        assert (errors.value.code, errors.value.started) == ("interrupted", False)
    assert here.daemon.executed == []


async def test_a_directory_is_named_as_it_was_given(here: SpawnPlace) -> None:
    """And not as what it is inside, which whoever asked may never have heard of."""
    async with here.backend(mount_workspace=True, workspace_root="/srv/ws") as backend:
        for cwd in ("/srv/ws/gone", "gone"):
            here.daemon.refuse_next("cwd")
            with pytest.raises(ValueError, match=f"directory '{cwd}' cannot be entered"):
                await outcome(backend, ask("speak", cwd=cwd))


async def test_fifty_first_spawns_start_one_container(here: SpawnPlace) -> None:
    """Of both kinds, and they all come to be (B3)."""
    async with here.backend() as backend, create_task_group() as group:
        for _ in range(25):
            group.start_soon(outcome, backend, ask("speak"))
            group.start_soon(backend.wrap_spawn, ask("speak"))
    assert (len(here.ran("run")), len(here.daemon.executed)) == (1, 25)


async def test_a_kill_ends_the_tree(here: SpawnPlace) -> None:
    """Through a second guest; and leaving the block does the same."""
    async with here.backend() as backend:
        async with backend.spawn(ask("stay")) as process:
            process.kill()
            process.kill()
            assert await process.wait() == 137
        async with backend.spawn(ask("stay")):
            pass
        assert [one.why for one in here.daemon.killed] == ["reaped", "reaped"]
        async with backend.spawn(ask("serve")) as process:
            assert await process.wait() == 0
            assert here.container.background == ["serve"]
        assert here.container.background == []


async def test_a_kill_that_no_guest_can_make_stops_the_container(here: SpawnPlace) -> None:
    """A fork bomb leaves none to do it; but an engine that is slow is no reason (S3)."""
    async with here.backend() as backend:
        async with backend.spawn(ask("stay")) as process:
            here.daemon.fail_next("exec", stderr="runtime/cgo: nonsense", times=3)
            process.kill()
            assert await process.wait() == 137
        assert (len(here.ran("stop")), here.container.running) == (1, False)
        assert (await outcome(backend, ask("speak")))[2] == 7
        async with backend.spawn(ask("stay")) as process:
            here.daemon.hang_next("exec")
            process.kill()
            with anyio.fail_after(5), pytest.raises(SandboxError) as errors:
                await process.wait()
            assert (errors.value.code, process.returncode) == ("kill-unconfirmed", None)
            process.kill()
            assert await process.wait() == 137
    assert len(here.ran("stop")) == 1


@pytest.mark.parametrize("how", ["kill", "leave", "cancel"])
async def test_a_paused_container_is_let_go_on_to_kill_in_it(here: SpawnPlace, how: str) -> None:
    """Paused is not gone: what is in it would live on with the next spawn."""
    async with here.backend() as backend:
        with anyio.CancelScope() as scope:
            async with backend.spawn(ask("stay")) as process:
                here.daemon.pause(here.container.name)
                if how == "kill":
                    process.kill()
                    assert await process.wait() == 137
                elif how == "cancel":
                    scope.cancel()
                    await anyio.sleep_forever()
        assert process.returncode == 137
        assert [one.why for one in here.daemon.killed] == ["reaped"]
        assert (here.container.state, here.ran("stop")) == ("running", [])


async def test_a_kill_in_a_container_that_stays_paused_is_unconfirmed(here: SpawnPlace) -> None:
    """What could not be ended is ended with the next spawn."""
    async with here.backend() as backend:
        async with backend.spawn(ask("stay")) as process:
            here.daemon.pause(here.container.name)
            here.daemon.fail_next(
                "unpause",
                stderr="Cannot connect to the Docker daemon at unix:///x. "
                "Is the docker daemon running?",
            )
        with pytest.raises(SandboxError) as errors:
            await process.wait()
        assert errors.value.code == "kill-unconfirmed"
        assert backend._parts is not None
        assert len(backend._parts.session.unreaped) == 1


async def test_a_signal_reaches_the_process(here: SpawnPlace) -> None:
    """Its exit code tells; one that has ended gets none."""
    async with here.backend() as backend, backend.spawn(ask("stay")) as process:
        process.terminate()
        assert await process.wait() == 143
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGKILL)
        assert (process.returncode, process.pid > 0) == (143, True)
    assert [one.why for one in here.daemon.killed] == ["signal"]


@pytest.mark.parametrize("what", [0, -9, 65, 999, 3.5, True, "TERM", None])
async def test_what_is_no_signal_is_refused(here: SpawnPlace, what: Any) -> None:  # noqa: ANN401  # refused
    """At once and in words; the same of a process that has ended."""
    async with here.backend() as backend, backend.spawn(ask("stay")) as process:
        with pytest.raises(ValueError, match=r"signal must be one of 1 to 64, not"):
            process.send_signal(what)
        process.send_signal(signal.SIGRTMAX)
        assert await process.wait() == 192
        with pytest.raises(ValueError, match="signal must be"):
            process.send_signal(what)


async def test_a_cancelled_user_leaves_nothing(here: SpawnPlace) -> None:
    """Neither while the process starts, nor while it runs."""
    async with here.backend() as backend:
        await outcome(backend, ask("speak"))
        with anyio.move_on_after(0.05):
            async with backend.spawn(ask("stay")):
                await anyio.sleep_forever()
        hold = here.daemon.hold("exec")
        async with create_task_group() as group:
            group.start_soon(outcome, backend, ask("stay"))
            await hold.reached()
            group.cancel_scope.cancel()
        hold.release()
        assert here.daemon.conversations == 0
        assert [one.why for one in here.daemon.killed] == ["reaped"]


async def test_a_removed_container_costs_no_spawn(here: SpawnPlace) -> None:
    """It is replaced while nothing of the process can have run; once (B3)."""
    async with here.backend() as backend:
        await outcome(backend, ask("speak"))
        for harm in (here.daemon.remove, here.daemon.stop, here.daemon.pause):
            harm(here.container.name)
            assert await outcome(backend, ask("speak")) == (b"out\n", b"err\n", 7)
        here.daemon.refuse_next("retiring")
        assert (await outcome(backend, ask("speak")))[2] == 7
    assert len(here.daemon.executed) == 5


async def test_a_wrapped_spawn_is_looked_after(here: SpawnPlace) -> None:
    """The look at the container is good for 30 s; one that is gone is then replaced (B3)."""
    async with here.backend() as backend:
        await backend.wrap_spawn(ask("speak"))
        # The first start's sweep looks as well.
        await until(lambda: here.ran("ps"))
        looked = len(here.ran("inspect"))
        here.daemon.clock.advance(29)
        await backend.wrap_spawn(ask("speak"))
        assert len(here.ran("inspect")) == looked
        here.daemon.remove(here.container.name)
        here.daemon.clock.advance(1)
        wrapped = await backend.wrap_spawn(ask("speak"))
        assert await here.started(wrapped) == (b"out\n", 7)


async def test_a_slow_look_abandons_nothing(here: SpawnPlace) -> None:
    """Silence is no answer; that the engine is not there is one, with advice (B3, S3)."""
    async with here.backend() as backend:
        await backend.wrap_spawn(ask("speak"))
        before = here.container.id
        here.daemon.clock.advance(31)
        here.daemon.fail_next("inspect", stderr="who knows", exit_code=1)
        await backend.wrap_spawn(ask("speak"))
        here.daemon.down()
        here.daemon.clock.advance(31)
        with pytest.raises(DaemonUnavailableError) as errors:
            await backend.wrap_spawn(ask("speak"))
        assert "start Docker Desktop" in str(errors.value)
        here.daemon.up()
        here.daemon.clock.advance(31)
        await backend.wrap_spawn(ask("speak"))
        assert here.container.id == before


@pytest.mark.parametrize("harm", ["remove", "stop"])
async def test_a_lost_container_is_no_exit_code(here: SpawnPlace, harm: str) -> None:
    """Neither in wait nor at the end of a stream that nobody knows the rest of (B6, C9)."""
    async with here.backend() as backend, backend.spawn(ask("stay")) as process:
        assert process.stdout is not None
        assert await process.stdout.receive() == b"up\n"
        getattr(here.daemon, harm)(here.container.name)
        with pytest.raises(SandboxBrokenError) as errors:
            await process.wait()
        assert (errors.value.code, errors.value.started) == ("sandbox-lost", True)
        with pytest.raises(SandboxBrokenError):
            await everything(process.stdout)
        assert process.returncode is None


async def test_a_lost_wrapper_is_no_exit_code(here: SpawnPlace) -> None:
    """It was killed inside, the container lives; what it ran is ended with the block."""
    async with here.backend() as backend:
        await outcome(backend, ask("speak"))
        here.daemon.die_after_sent_next()
        async with backend.spawn(ask("speak")) as process:
            with pytest.raises(SandboxBrokenError) as errors:
                await process.wait()
        assert (errors.value.code, errors.value.started) == ("guest-lost", True)


async def test_an_engine_that_goes_is_said(here: SpawnPlace) -> None:
    """Typed, with what is known about the start."""
    async with here.backend() as backend:
        async with backend.spawn(ask("stay")) as process:
            here.daemon.down()
            with pytest.raises(DaemonUnavailableError) as errors:
                await process.wait()
            assert errors.value.started is True
            here.daemon.up()
        here.daemon.down()
        with pytest.raises(DaemonUnavailableError) as errors:
            await outcome(backend, ask("speak"))
        assert errors.value.started is False
        here.daemon.up()


async def test_what_may_have_started_is_never_started_again(here: SpawnPlace) -> None:
    """The wrapper took its word to begin, and nothing more was heard."""
    async with here.backend() as backend:
        await outcome(backend, ask("speak"))
        here.daemon.die_after_sent_next(runs=False)
        with pytest.raises(SandboxBrokenError) as errors:
            await outcome(backend, ask("speak"))
        assert errors.value.started is None
        assert len(here.daemon.executed) == 1


async def test_a_container_that_serves_nothing_is_left_alone(here: SpawnPlace) -> None:
    """A restart would end what others run in it."""
    async with here.backend() as backend:
        await outcome(backend, ask("speak"))
        for _ in range(2):
            here.daemon.die_before_ready_next(exit_code=3)
        with pytest.raises(SandboxBrokenError) as errors:
            await outcome(backend, ask("speak"))
        assert errors.value.started is False
    assert here.ran("restart") == []


@pytest.mark.parametrize("reason", ["cwd", "tag"])
async def test_what_only_the_sandbox_can_reject(here: SpawnPlace, reason: str) -> None:
    """A directory that cannot be entered is the caller's; the rest is the sandbox's."""
    async with here.backend() as backend:
        here.daemon.refuse_next(reason)
        if reason == "cwd":
            with pytest.raises(ValueError, match="directory '/srv' cannot be entered"):
                await outcome(backend, ask("speak", cwd="/srv"))
        else:
            with pytest.raises(SandboxBrokenError):
                await outcome(backend, ask("speak"))
    assert here.daemon.executed == []


async def test_disposing_ends_and_removes(here: SpawnPlace) -> None:
    """Also twice; a spawn afterwards gets a container again."""
    async with here.backend() as backend:
        await backend.dispose()
        async with backend.spawn(ask("stay")) as process:
            await backend.dispose()
            with pytest.raises(SandboxDisposedError) as errors:
                await process.wait()
            assert errors.value.started is True
            await backend.dispose()
            assert here.containers == []
        assert await outcome(backend, ask("speak")) == (b"out\n", b"err\n", 7)
        assert len(here.containers) == 1
    assert here.containers == []


async def test_disposing_ends_wrapped_spawns(here: SpawnPlace) -> None:
    """Their programs may long be gone, and what they ran lives on inside until then (B6)."""
    async with here.backend() as backend, here.backend() as other:
        wrapped = await backend.wrap_spawn(ask("stay"))
        env = dict(wrapped.options.env or {})
        async with here.daemon.open((wrapped.command, *wrapped.args), env=env) as program:
            await program.receive_stdout()
            program.kill()
        assert here.container.background == ["stay"]
        async with other.spawn(ask("stay")):
            await backend.dispose()
            assert here.container.background == []
            assert len(here.containers) == 1
    assert here.containers == []


async def test_a_wrapped_spawn_does_not_outlive_its_disposal(here: SpawnPlace) -> None:
    """Started late, it fails in a new container, and one that others use is still looked into."""
    async with here.backend() as backend, here.backend() as other:
        wrapped = await backend.wrap_spawn(ask("serve"))
        await backend.dispose()
        await outcome(backend, ask("speak"))
        assert (await here.started(wrapped))[1] != 0
        async with other.spawn(ask("stay")):
            wrapped = await backend.wrap_spawn(ask("serve"))
            await backend.dispose()
            await here.started(wrapped)
            assert here.container.background == ["serve"]
            await backend.dispose()
            assert (here.container.background, len(here.containers)) == ([], 1)
    assert [command for _, command in here.daemon.executed] == ["speak", "stay", "serve"]


async def test_disposing_during_a_start_leaks_nothing(here: SpawnPlace) -> None:
    """The start is let end, what it made is removed, and whoever waited is told (B3, S10)."""
    hold = here.daemon.hold("run")
    async with here.backend() as backend:
        async with create_task_group() as group:

            async def spawn() -> None:
                with pytest.raises(SandboxDisposedError) as errors:
                    await outcome(backend, ask("speak"))
                assert (errors.value.started, errors.value.hint) == (False, "")
                assert str(errors.value) == "the backend was disposed"

            group.start_soon(spawn)
            await hold.reached()
            group.start_soon(backend.dispose)
            await anyio.sleep(0.05)
            hold.release()
        assert here.containers == []
    assert here.daemon.executed == []


async def test_a_newer_container_is_not_touched(here: SpawnPlace) -> None:
    """Ours is gone, another program's has the name: it is not ours to remove."""
    async with here.backend() as one, here.backend() as two:
        await outcome(one, ask("speak"))
        here.daemon.remove(here.container.name)
        await outcome(two, ask("speak"))
        newer = here.container.id
        await one.dispose()
        assert here.container.id == newer


async def test_two_programs_share_a_container(here: SpawnPlace) -> None:
    """The one that leaves first leaves it to the other."""
    async with here.backend() as one:
        async with one.spawn(ask("stay")):
            async with here.backend() as two:
                assert (await outcome(two, ask("speak")))[2] == 7
            assert len(here.containers) == 1
        async with here.backend(cpus=2) as other:
            await outcome(other, ask("speak"))
            assert len(here.containers) == 2
    assert here.containers == []


async def test_a_crashed_program_is_succeeded(here: SpawnPlace) -> None:
    """Its container is adopted by the same settings, and swept by any others (B4)."""
    place = here.backend()
    await place.__aenter__()
    await outcome(place, ask("speak"))
    before = here.container.id
    async with here.backend() as successor:
        await outcome(successor, ask("speak"))
        assert here.container.id == before
        here.daemon.clock.advance(10_000)
        async with here.backend(cpus=2) as other:
            await outcome(other, ask("speak"))
            await until(lambda: here.daemon.containers and before not in running(here))
    place._parts = None
    await place.__aexit__(None, None, None)


def running(here: SpawnPlace) -> set[str]:
    return {one.id for one in here.containers if one.running}


async def test_a_disk_limit_that_cannot_be_is_left_out(
    here: SpawnPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one warning (B7)."""
    here.daemon.fail_next(
        "run",
        stderr="docker: Error response from daemon: --storage-opt is supported only for overlay "
        "over xfs with 'pquota' mount option.",
        exit_code=125,
    )
    async with here.backend(disk="1g") as backend:
        await outcome(backend, ask("speak"))
        here.daemon.remove(here.container.name)
        await outcome(backend, ask("speak"))
    with_limit = ["--storage-opt" in argv for argv in here.ran("run")]
    assert with_limit == [True, False, False]
    assert capsys.readouterr().err.count("no_disk_limit") == 1


async def test_a_start_that_fails_is_said_and_tried_again(here: SpawnPlace) -> None:
    """A failure is nobody's for ever (S5)."""
    here.daemon.fail_next("run", stderr="docker: nonsense", exit_code=125)
    async with here.backend() as backend:
        with pytest.raises(ContainerStartError):
            await outcome(backend, ask("speak"))
        assert (await outcome(backend, ask("speak")))[2] == 7


async def test_a_backend_is_used_where_it_is_open(here: SpawnPlace) -> None:
    """Once, and not before or after."""
    backend = here.backend()
    with pytest.raises(ExecutorClosedError):
        await backend.wrap_spawn(ask("speak"))
    async with backend:
        with pytest.raises(ValueError, match="stderr"):
            await outcome(backend, ask("speak", extra={"stderr": None}))
        with pytest.raises(ExecutorClosedError):
            await backend.__aenter__()
    with pytest.raises(ExecutorClosedError):
        await backend.wrap_spawn(ask("speak"))


async def test_what_could_not_be_reached_is_ended_later(here: SpawnPlace) -> None:
    """By the next spawn, once the engine answers again."""
    async with here.backend() as backend:
        async with backend.spawn(ask("stay")) as process:
            here.daemon.hang_next("exec")
        assert process.returncode is None
        with pytest.raises(SandboxError) as errors:
            await process.wait()
        assert (errors.value.code, here.container.background) == ("kill-unconfirmed", ["stay"])
        here.daemon.thaw()
        await outcome(backend, ask("speak"))
        await until(lambda: not here.container.background)


@pytest.mark.parametrize("verb", ["inspect", "stop"])
async def test_a_kill_is_not_taken_for_granted(here: SpawnPlace, verb: str) -> None:
    """Where the engine does not say what became of the container."""
    words = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"
    async with here.backend() as backend, backend.spawn(ask("stay")) as process:
        # The first start's sweep asks as well.
        await until(lambda: here.ran("ps"))
        await anyio.sleep(0.1)
        here.daemon.fail_next("exec", stderr="nonsense", times=3)
        here.daemon.fail_next(verb, stderr=words)
        process.kill()
        with anyio.fail_after(5), pytest.raises(SandboxError) as errors:
            await process.wait()
        assert (errors.value.code, process.returncode) == ("kill-unconfirmed", None)
        here.daemon._faults.failures.clear()
        process.kill()
        assert await process.wait() == 137


async def test_a_kill_in_doubt_gives_way_to_the_end(here: SpawnPlace) -> None:
    """The engine answers again, and the process was not killed but ends of itself."""
    async with here.backend() as backend, backend.spawn(ask("cat")) as process:
        here.daemon.hang_next("exec")
        process.kill()
        with anyio.fail_after(5), pytest.raises(SandboxError):
            await process.wait()
        assert await ending(process) == (b"", b"", 0)


async def test_input_that_nobody_reads_is_said(here: SpawnPlace) -> None:
    """As anyio's own streams say it."""
    async with here.backend() as backend, backend.spawn(ask("speak")) as process:
        await process.wait()
        await until(lambda: here.daemon.conversations == 0)
        assert process.stdin is not None
        with pytest.raises(anyio.BrokenResourceError):
            await process.stdin.send(b"x")
        await process.stdin.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await process.stdin.send(b"x")


async def test_a_program_that_vanishes_is_said(here: SpawnPlace) -> None:
    """As is a bug of a test's own, which is never swallowed."""
    async with here.backend() as backend:
        with pytest.raises(UnknownArgv):
            await outcome(backend, ask("unforeseen"))
        here.daemon._program = "gone"
        with pytest.raises(EngineNotFoundError):
            await outcome(backend, ask("speak"))
        here.daemon._program = "docker"
