"""The spawn backend on a real engine: true processes, nothing left, one container."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import pytest
from anyio import create_task_group

from sandbox_exec import (
    ContainerStartError,
    DockerBackend,
    FileTransferError,
    LocalBackend,
    LocalDockerExecutor,
    SandboxBackend,
    SandboxBrokenError,
    SandboxConfig,
    SandboxDisposedError,
    SandboxError,
    SpawnOptions,
    SpawnRequest,
)

from .executors import Deployment
from .spawning import Outcome, backend_of, run, sh, start

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

IMAGES = ("busybox", "debian")
MIB = 2**20


@pytest.fixture(name="backend")
async def backend_fixture(place: Deployment) -> AsyncIterator[DockerBackend]:
    async with backend_of(place) as opened:
        yield opened


def inside(place: Deployment) -> list[str]:
    """Return the command lines in the deployment's one container, PID 1 and its sleep left out."""
    (name,) = place.containers(running=True)
    lines = place.cli("top", name, "-eo", "pid,args").splitlines()[1:]
    return [line for line in lines if "sandbox-exec-init" not in line and "sleep 1000" not in line]


async def gone(place: Deployment) -> bool:
    """Wait until nothing but PID 1 is left inside."""
    for _ in range(50):
        if not inside(place):
            return True
        await anyio.sleep(0.1)
    return False


async def ways_to_end(backend: SandboxBackend) -> dict[str, object]:
    """What a caller sees of processes that do not end by themselves, or do not even start."""
    seen: dict[str, object] = {}
    for command in ("absent", "/absent", "/etc/passwd", "/"):
        outcome = await run(backend, SpawnRequest(command))
        seen[command] = (outcome.stdout, command.encode() in outcome.stderr, outcome.code)
    for number in (signal.SIGTERM, signal.SIGKILL):
        async with backend.spawn(SpawnRequest("sleep", ("60",))) as process:
            process.send_signal(number)
            seen[number.name] = (await process.wait(), process.returncode)
    async with backend.spawn(SpawnRequest("sleep", ("60",))) as process:
        pass
    seen["left"] = process.returncode
    with pytest.raises(ValueError, match="the working directory '/absent' can"):
        await run(backend, sh("pwd", cwd="/absent"))
    with pytest.raises(FileTransferError) as failed:
        await run(backend, sh("pwd", files={"/etc/passwd/x": b""}))
    seen["file"] = failed.value.code
    return seen


async def test_a_fall_back_ends_as_a_container_does(backend: DockerBackend) -> None:
    """A caller that may have either need not look which."""
    async with LocalBackend() as local:
        here, inside = await ways_to_end(local), await ways_to_end(backend)
    assert here == inside
    assert (inside["absent"], inside["SIGKILL"]) == ((b"", True, 127), (137, 137))


@pytest.mark.parametrize(
    ("image", "codes"),
    [("busybox", range(256)), ("debian", (0, 1, 2, *range(120, 132), 137, 143, 254, 255))],
    ids=IMAGES,
)
async def test_exit_codes_are_the_processes_own(
    place: Deployment, image: str, codes: Sequence[int]
) -> None:
    """All 256 of them, those included that engines and shells use for themselves."""
    found: dict[int, int] = {}
    async with backend_of(place, image) as backend:
        limiter = anyio.CapacityLimiter(8)

        async def one(code: int) -> None:
            async with limiter:
                found[code] = (await run(backend, sh(f"exit {code}"))).code

        async with create_task_group() as group:
            for code in codes:
                group.start_soon(one, code)
        wrapped = [await backend.wrap_spawn(sh(f"exit {code}")) for code in (0, 3, 126, 137, 255)]
        assert [(await start(each)).code for each in wrapped] == [0, 3, 126, 137, 255]
    assert found == {code: code for code in codes}
    assert place.containers() == []


@pytest.mark.parametrize("image", IMAGES)
async def test_a_kill_leaves_nothing_inside(place: Deployment, image: str) -> None:
    """Whatever the process did to escape; so do leaving the block and being cancelled (B6)."""
    hides = (
        "trap '' TERM INT HUP; setsid sleep 7001 & (env -i setsid sh -c 'sleep 7002; :' &) ; "
        "(sleep 7003 & sleep 7004 &) ; echo up; while :; do sleep 1; done"
    )
    async with backend_of(place, image) as backend:
        async with backend.spawn(sh(hides)) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"up\n"
            process.terminate()
            await anyio.sleep(0.5)
            assert process.returncode is None
            process.kill()
            assert await process.wait() == 137
            assert await gone(place)
        async with backend.spawn(sh(hides)) as process:
            assert process.stdout is not None
            await process.stdout.receive()
        assert await gone(place)
        with anyio.move_on_after(1.5):
            async with backend.spawn(sh(hides)):
                await anyio.sleep_forever()
        assert await gone(place)
        async with backend.spawn(sh("sleep 7005 & exit 4")) as process:
            assert await process.wait() == 4
            assert len(inside(place)) >= 1
        assert await gone(place)


async def test_signals_reach_the_process_and_only_it(backend: DockerBackend) -> None:
    """It may answer them as it likes; unanswered they end it as anywhere."""
    async with backend.spawn(sh("trap 'echo got' USR1; echo up; while :; do sleep 0.1; done")) as p:
        assert p.stdout is not None
        assert await p.stdout.receive() == b"up\n"
        p.send_signal(signal.SIGUSR1)
        assert await p.stdout.receive() == b"got\n"
        p.terminate()
        assert await p.wait() == 143
    async with backend.spawn(SpawnRequest("sleep", ("60",))) as p:
        p.send_signal(signal.SIGINT)
        assert await p.wait() == 130


@pytest.mark.parametrize("image", IMAGES)
async def test_a_hundred_mebibytes_come_back_unchanged(place: Deployment, image: str) -> None:
    """Both ways at once, in little memory (C4)."""
    blocks = [os.urandom(MIB) for _ in range(10)]
    sent, received = hashlib.sha256(), hashlib.sha256()
    async with backend_of(place, image) as backend:
        await run(backend, sh(":"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.monotonic()
        async with backend.spawn(SpawnRequest("cat")) as process, create_task_group() as group:
            stdin = process.stdin
            assert stdin is not None

            async def feed() -> None:
                for _ in range(10):
                    for block in blocks:
                        sent.update(block)
                        await stdin.send(block)
                await stdin.aclose()

            group.start_soon(feed)
            async for data in process.stdout or ():  # type: ignore[union-attr]  # always a pipe
                received.update(data)
            assert await process.wait() == 0
        took = time.monotonic() - begun
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert received.digest() == sent.digest()
    assert took < 60
    assert grown < 32 * 1024, f"{grown} KiB more"


async def test_a_fork_bomb_is_ended(place: Deployment) -> None:
    """It leaves no process for the one that would kill it, and the next spawn goes well (S15)."""
    async with backend_of(place, "debian") as backend:
        async with backend.spawn(sh("echo up; f() { f | f & }; (f &); exec sleep 60")) as process:
            assert process.stdout is not None
            await process.stdout.receive()
            await anyio.sleep(2)
            process.kill()
            assert await process.wait() == 137
        assert (await run(backend, sh("echo fine"))).stdout == b"fine\n"
        assert await gone(place)


async def test_output_that_nobody_reads_waits(backend: DockerBackend, place: Deployment) -> None:
    """In the container and not in memory here; a kill ends it all the same."""
    async with backend.spawn(sh("yes | head -c 200000000")) as process:
        await anyio.sleep(1.5)
        assert process.returncode is None
        process.kill()
        assert await process.wait() == 137
    assert await gone(place)


async def test_fifty_first_spawns_start_one_container(place: Deployment) -> None:
    """And all fifty come to be (B3)."""
    async with backend_of(place) as backend:
        found: list[Outcome] = []

        async def one(number: int) -> None:
            found.append(await run(backend, sh(f"echo {number}")))

        async with create_task_group() as group:
            for number in range(50):
                group.start_soon(one, number)
        assert sorted(int(each.stdout) for each in found) == list(range(50))
        assert len(place.containers()) == 1


async def test_an_outside_removal_costs_one_wrapped_spawn_at_most(place: Deployment) -> None:
    """And none of spawn's (B3)."""
    async with backend_of(place) as backend:
        await run(backend, sh(":"))
        for words in (("rm", "--force"), ("kill",), ("pause",)):
            (name,) = place.containers()
            place.cli(*words, name)
            assert (await run(backend, sh("echo fine"))).stdout == b"fine\n"
        await backend.wrap_spawn(sh(":"))
        for words in (("rm", "--force"), ("kill",)):
            (name,) = place.containers()
            place.cli(*words, name)
            tries = [await start(await backend.wrap_spawn(sh("echo fine"))) for _ in range(3)]
            assert tries[1:] == [Outcome(b"fine\n", b"", 0)] * 2


async def test_a_kill_in_a_paused_container_leaves_nothing(place: Deployment) -> None:
    """Nor does the end of a block: paused is not gone."""
    async with backend_of(place) as backend:
        for kills in (True, False):
            async with backend.spawn(sh("sleep 7020; true")) as process:
                place.cli("pause", *place.containers())
                if kills:
                    process.kill()
                    assert await process.wait() == 137
            assert process.returncode == 137
            assert [line for line in inside(place) if "7020" in line] == []


async def test_files_do_not_get_lost_with_a_restart(place: Deployment) -> None:
    """What was placed in memory is placed anew, or what needs it says that it is gone."""
    request = sh("cat /tmp/snippet", files={"/tmp/snippet": b"kept"})
    async with backend_of(place) as backend:
        wrapped = await backend.wrap_spawn(request)
        place.cli("restart", "--time", "0", *place.containers())
        late = await start(wrapped)
        assert (late.code, late.stdout, b"wrap it anew" in late.stderr) == (126, b"", True)
        assert await start(await backend.wrap_spawn(request)) == Outcome(b"kept", b"", 0)
        assert await run(backend, request) == Outcome(b"kept", b"", 0)


async def test_a_container_that_goes_is_no_exit_code(place: Deployment) -> None:
    """The process is lost, and the error says that it had started."""
    async with backend_of(place) as backend, backend.spawn(sh("echo up; sleep 60")) as process:
        assert process.stdout is not None
        assert await process.stdout.receive() == b"up\n"
        place.cli("rm", "--force", *place.containers())
        with pytest.raises(SandboxBrokenError) as errors:
            await process.wait()
        assert errors.value.started is True
        with pytest.raises(SandboxError):
            await process.stdout.receive()


@pytest.mark.parametrize("image", IMAGES)
async def test_variables_of_any_kind_arrive_and_show_nowhere(place: Deployment, image: str) -> None:
    """Not in an argument here, nor in the container's settings; none steers the engine (B2, R7)."""
    env = {
        "TOKEN": "s3cret-value-of-mine",
        "PATH": "/nowhere:/bin:/usr/bin",
        "HOME": "/nowhere",
        "DOCKER_HOST": "tcp://192.0.2.1:1",
        "DOCKER_CONFIG": "/nowhere",
        "HTTPS_PROXY": "http://192.0.2.1",
        "LD_PRELOAD": "/nowhere.so",
        "ODD": 'it\'s\n"$HOME" `id` \\ é\n',
        "EMPTY": "",
        "BIG": "x" * 100_000,
    }
    script = "".join(f'printf "%s\\0" "${name}";' for name in env) + "echo up; read -r x; sleep 0.1"
    async with backend_of(place, image) as backend:
        async with backend.spawn(sh(script, env=env)) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            output = b""
            while not output.endswith(b"up\n"):
                output += await process.stdout.receive()
            assert output.decode().split("\0")[:-1] == list(env.values())
            shown = subprocess.run(
                ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
            ).stdout
            assert "sandbox-exec-spawn" in shown
            (name,) = place.containers()
            assert "s3cret" not in shown + place.cli("inspect", name)
            await process.stdin.send(b"\n")
            assert await process.wait() == 0
        wrapped = await backend.wrap_spawn(sh('printf %s "$TOKEN $DOCKER_HOST"', env=env))
        assert "s3cret" not in str(wrapped.args)
        assert (await start(wrapped)).stdout.decode() == f"{env['TOKEN']} {env['DOCKER_HOST']}"


async def test_files_are_there_before_the_process(place: Deployment, tmp_path: Path) -> None:
    """Whole, for either way to start it, without any host directory inside (B1)."""
    data = os.urandom(3 * MIB)
    async with backend_of(place, "debian") as backend:
        request = SpawnRequest(
            "sha256sum", ("/tmp/a b/x",), SpawnOptions(files={"/tmp/a b/x": data})
        )
        wanted = hashlib.sha256(data).hexdigest().encode()
        assert (await run(backend, request)).stdout.startswith(wanted)
        assert (await start(await backend.wrap_spawn(request))).stdout.startswith(wanted)
        script = SpawnOptions(files={"/tmp/x.sh": b"#!/bin/sh\necho $0\n"})
        done = await run(backend, SpawnRequest("sh", ("/tmp/x.sh",), script))
        assert done.stdout == b"/tmp/x.sh\n"
        (name,) = place.containers()
        mounts = json.loads(place.cli("inspect", name))[0]["HostConfig"]["Binds"]
        assert not mounts
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("user", ["0:0", "4321:4321"])
async def test_a_mounted_workspace_is_the_hosts(
    place: Deployment, tmp_path: Path, user: str
) -> None:
    """Directories are mapped, new files belong to whom they should, nothing of ours is added."""
    root = Path(f"/var/tmp/{place.name}")
    (root / "sub").mkdir(parents=True)
    for path in (root, root / "sub"):
        path.chmod(0o777)
    try:
        async with backend_of(
            place, "debian", mount_workspace=True, workspace_root=root, user=user
        ) as backend:
            done = await run(backend, sh("pwd; id -u; echo x >new; cat >in", cwd=str(root / "sub")))
            assert done.stdout == f"/workspace/sub\n{user.partition(':')[0]}\n".encode()
            placed = sh("cat /workspace/placed", files={"/workspace/placed": b"hi"})
            assert (await run(backend, placed)).stdout == b"hi"
            async with backend.spawn(sh("setsid sleep 60 & echo up; sleep 60")) as process:
                assert process.stdout is not None
                await process.stdout.receive()
                process.kill()
                assert await process.wait() == 137
            assert await gone(place)
            place.cli("restart", "-t", "0", *place.containers())
            assert (await run(backend, sh("echo x >/tmp/y && cat /tmp/y"))).stdout == b"x\n"
            with pytest.raises(ValueError, match="not inside"):
                await run(backend, sh("pwd", cwd="/var"))
        assert (root / "sub/new").stat().st_uid == int(user.partition(":")[0])
        assert sorted(path.name for path in root.iterdir()) == ["placed", "sub"]
        assert root.stat().st_mode & 0o777 == 0o777
    finally:
        subprocess.run(["rm", "-rf", root], check=True)


async def test_a_workspace_that_is_not_there_is_not_made(place: Deployment) -> None:
    """A mistyped path is an error, not an empty project."""
    root = Path(f"/var/tmp/{place.name}-mistyped")
    async with backend_of(place, mount_workspace=True, workspace_root=root) as backend:
        with pytest.raises(ContainerStartError) as caught:
            await run(backend, sh("true"))
        assert (caught.value.code, str(root) in str(caught.value)) == ("bad-mount", True)
    assert not root.exists()


async def test_a_workspace_of_any_name(place: Deployment) -> None:
    """Quotes and blanks in it included."""
    root = Path(f"/var/tmp/{place.name} \"of\" 'mine'")
    root.mkdir()
    try:
        async with backend_of(place, mount_workspace=True, workspace_root=root) as backend:
            await run(backend, sh("echo x >made"))
        assert (root / "made").read_text() == "x\n"
    finally:
        subprocess.run(["rm", "-rf", root], check=True)


async def test_what_a_process_may_do_is_little(place: Deployment) -> None:
    """S1's hardening, as the kernel sees it."""
    async with backend_of(place, "debian", memory="64m", cpus=0.5, no_network=True) as backend:
        done = await run(
            backend,
            sh("grep -E 'CapEff|NoNewPrivs' /proc/self/status; grep -c : /proc/net/dev; cat"),
        )
        lines = done.stdout.decode().split()
        # CHOWN, DAC_OVERRIDE, FOWNER, KILL.
        assert (int(lines[1], 16), lines[3]) == (0b101011, "1")
        mounts = (await run(backend, sh("cat /proc/mounts"))).stdout.decode()
        (name,) = place.containers()
        host = json.loads(place.cli("inspect", name))[0]["HostConfig"]
        assert (host["Memory"], host["PidsLimit"], host["NetworkMode"]) == (64 * MIB, 256, "none")
        found = {line.split()[1]: line.split()[3] for line in mounts.splitlines()}
        assert "noexec" in found["/var/tmp"]
        assert "noexec" in found["/run"]
        assert "noexec" not in found["/tmp"]
        assert "/run/sandbox-exec" in found


async def test_a_crashed_program_is_succeeded(place: Deployment) -> None:
    """The next one adopts its container, files and all, and removes it in the end (B4)."""
    program = await anyio.open_process(
        [
            *(sys.executable, "-m", "tests.engine.spawner"),
            *(place.engine.program, "sandbox-exec/busybox", place.name),
        ],
        env={**os.environ, **place.engine.environment},
        stderr=None,
    )
    async with program:
        assert program.stdout is not None
        assert (await program.stdout.receive()).startswith(b"up")
        program.kill()
    before = place.cli("ps", "--quiet", "--no-trunc", "--filter", f"name={place.name}")
    assert before
    async with backend_of(place) as backend:
        assert (await run(backend, sh("cat /root-file"))).stdout == b"kept\n"
        assert place.cli("ps", "--quiet", "--no-trunc", "--filter", f"name={place.name}") == before
    assert place.containers() == []


async def test_an_abandoned_container_is_swept_like_a_session(place: Deployment) -> None:
    """By executors of the same deployment, but not while somebody uses it (B4)."""
    config = SandboxConfig(
        image="sandbox-exec/busybox",
        deployment=place.name,
        engine=place.engine.program,
        idle_after=1.0,
        ttl=2.0,
    )
    async with backend_of(place) as backend:
        wrapped = await backend.wrap_spawn(sh("sleep 60"))
        executor = LocalDockerExecutor(config, runner=place.engine.runner, reaps=False)
        async with executor, create_task_group() as group:
            group.start_soon(start, wrapped)
            await anyio.sleep(3)
            assert (await executor.sweep_unclaimed(), len(place.containers(running=True))) == (0, 1)
            group.cancel_scope.cancel()
    assert place.containers() == []
    left = backend_of(place)
    await left.__aenter__()
    await run(left, sh(":"))
    async with LocalDockerExecutor(config, runner=place.engine.runner, reaps=False) as executor:
        await anyio.sleep(2.5)
        assert await executor.sweep_unclaimed() == 1
        for _ in range(50):
            if not place.containers(running=True):
                break
            await anyio.sleep(0.1)
        assert place.containers(running=True) == []
        assert (await run(left, sh("echo woken"))).stdout == b"woken\n"
    await left.__aexit__(None, None, None)
    assert place.containers() == []


async def test_two_programs_share_one_container(place: Deployment) -> None:
    """Whoever leaves first takes only what is its own."""
    async with backend_of(place) as one:
        wrapped = await one.wrap_spawn(sh("sleep 7010"))
        async with (
            create_task_group() as group,
            backend_of(place) as two,
            two.spawn(sh("echo up; sleep 7011")) as process,
        ):
            assert process.stdout is not None
            await process.stdout.receive()
            group.start_soon(start, wrapped)
            await anyio.sleep(1)
            assert len(place.containers()) == 1
            await one.dispose()
            left = " ".join(inside(place))
            assert ("7010" in left, "7011" in left) == (False, True)
            assert process.returncode is None
    assert place.containers() == []


async def test_disposing_during_a_start_leaks_nothing(place: Deployment) -> None:
    """Whoever waited is told, and there is no container afterwards (B3, S10)."""
    async with backend_of(place) as backend:
        for pause in (0.0, 0.05, 0.2, 0.4):
            async with create_task_group() as group:

                async def spawn() -> None:
                    with pytest.raises(SandboxDisposedError):
                        await run(backend, sh("sleep 60"))

                group.start_soon(spawn)
                await anyio.sleep(pause)
                await backend.dispose()
                if not pause:
                    group.cancel_scope.cancel()
            assert pause == 0.0 or place.containers() == []
    assert place.containers() == []


async def test_what_is_not_there_is_said(backend: DockerBackend) -> None:
    """A program, a directory."""
    done = await run(backend, SpawnRequest("absent-program"))
    assert (done.code, b"absent-program" in done.stderr, done.stdout) == (127, True, b"")
    with pytest.raises(ValueError, match="/absent"):
        await run(backend, SpawnRequest("pwd", (), SpawnOptions(cwd="/absent")))
    wrapped = await start(
        await backend.wrap_spawn(SpawnRequest("pwd", (), SpawnOptions(cwd="/absent")))
    )
    assert (wrapped.code, wrapped.stdout, b"/absent" in wrapped.stderr) == (126, b"", True)


async def test_a_disk_limit_works_or_is_left_out(
    place: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start never fails because of it (B7)."""
    async with backend_of(place, disk="64m") as backend:
        assert (await run(backend, sh("echo fine"))).stdout == b"fine\n"
        assert capsys.readouterr().err.count("no_disk_limit") <= 1
