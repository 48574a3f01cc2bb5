"""The spawn backend on each engine: true processes, nothing left, one container."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import anyio
import pytest
from anyio import create_task_group, fail_after, sleep

from sandbox_exec import DockerBackend, SpawnRequest
from tests.engine.executors import Deployment
from tests.engine.spawning import Outcome, backend_of, run, sh, start

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]

MIB = 2**20
HIDES = (
    "trap '' TERM INT HUP; setsid sleep 7001 & (env -i setsid sh -c 'sleep 7002; :' &) ; "
    "(sleep 7003 & sleep 7004 &) ; echo up; while :; do sleep 1; done"
)
# Their arguments alone, which no shell has as a word.
LEFT = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^700[1-4]$'"


async def test_spawned_exit_codes(here: Deployment) -> None:
    """Those included that engines and shells use for themselves (B6)."""
    async with backend_of(here) as backend:
        for code in (0, 1, 124, 125, 126, 127, 128, 137, 143, 255):
            assert (await run(backend, sh(f"exit {code}"))).code == code
        for code in (0, 3, 126, 127, 137):
            assert (await start(await backend.wrap_spawn(sh(f"exit {code}")))).code == code
        absent = await run(backend, SpawnRequest("/no/such/program"))
        assert (absent.code, absent.stdout) == (127, b"")
    assert here.containers() == []


async def test_streams_are_separate_and_binary(here: Deployment) -> None:
    """Twenty mebibytes there and back, and words on the other stream."""
    sent = os.urandom(20 * MIB)
    received = hashlib.sha256()
    async with (
        backend_of(here) as backend,
        backend.spawn(sh("echo words >&2; exec cat")) as process,
    ):
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None

        async def feed() -> None:
            for offset in range(0, len(sent), MIB):
                await stdin.send(sent[offset : offset + MIB])
            await stdin.aclose()

        async with create_task_group() as group:
            group.start_soon(feed)
            async for data in stdout:
                received.update(data)
        assert await stderr.receive() == b"words\n"
        assert await process.wait() == 0
    assert received.digest() == hashlib.sha256(sent).digest()


async def _none_left(backend: DockerBackend) -> None:
    with fail_after(20):
        while (await run(backend, sh(LEFT))).stdout.strip() != b"0":  # noqa: ASYNC110  # polling is all there is
            await sleep(0.2)


async def test_a_killed_spawn_leaves_nothing_inside(here: Deployment) -> None:
    """Nor does one whose block is left, or cancelled (B6)."""
    async with backend_of(here) as backend:
        async with backend.spawn(sh(HIDES)) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"up\n"
            assert (await run(backend, sh(LEFT))).stdout.strip() == b"4"
            process.kill()
            assert await process.wait() == 137
            await _none_left(backend)
        with anyio.move_on_after(2):
            async with backend.spawn(sh(HIDES)):
                await anyio.sleep_forever()
        await _none_left(backend)


async def test_parallel_first_spawns_start_one_container(here: Deployment) -> None:
    """And each of them comes to be (B3)."""
    found: list[Outcome] = []
    async with backend_of(here) as backend:

        async def one(number: int) -> None:
            found.append(await run(backend, sh(f"echo {number}")))

        async with create_task_group() as group:
            for number in range(12):
                group.start_soon(one, number)
        assert len(here.containers()) == 1
    assert sorted(int(each.stdout) for each in found) == list(range(12))


async def test_a_container_removed_outside_is_replaced(here: Deployment) -> None:
    """Without a spawn that fails (B3)."""
    async with backend_of(here) as backend:
        assert (await run(backend, sh("echo one"))).stdout == b"one\n"
        here.cli("rm", "--force", "--volumes", *here.containers())
        assert (await run(backend, sh("echo two"))).stdout == b"two\n"
        assert len(here.containers()) == 1


async def test_variables_directory_and_files(here: Deployment) -> None:
    """None of them steers the engine's program; files need no mount (B1, B2)."""
    how = {
        "env": {"PATH": "/bin:/usr/bin", "DOCKER_HOST": "tcp://nowhere", "A": "it's\n$HOME"},
        "cwd": "/tmp",  # inside
        "files": {"/tmp/snippet.sh": b'printf "%s|%s|%s" "$DOCKER_HOST" "$A" "$PWD"\n'},
    }
    async with backend_of(here) as backend:
        request = SpawnRequest("sh", ("/tmp/snippet.sh",), sh("", **how).options)
        wanted = b"tcp://nowhere|it's\n$HOME|/tmp"
        assert (await run(backend, request)).stdout == wanted
        assert (await start(await backend.wrap_spawn(request))).stdout == wanted


async def test_spawned_processes_may_do_little(here: Deployment, tmp_path: Path) -> None:
    """Four capabilities and no network, and no directory of the host (B1)."""
    assert tmp_path.exists()
    async with backend_of(here, no_network=True) as backend:
        look = "grep CapEff /proc/self/status; ls -d /sys/class/net/* /proc/net/dev"
        found = (await run(backend, sh(look))).stdout.decode().split()
        # CHOWN, DAC_OVERRIDE, FOWNER, KILL: bits 0, 1, 3 and 5.
        assert int(found[1], 16) == 0b101011
        assert not [name for name in found if name.startswith("/sys/class/net/eth")]
        there = await run(backend, sh(f"[ -e '{tmp_path}' ] && echo there"))
        assert there.stdout == b""


async def test_a_next_program_adopts_the_container(here: Deployment) -> None:
    """Two with the same settings share it, and disposing leaves it to the one that uses it (B4)."""
    async with backend_of(here) as first, backend_of(here) as second:
        assert (await run(first, sh("echo kept > /tmp/f"))).code == 0
        assert (await run(second, sh("cat /tmp/f"))).stdout == b"kept\n"
        assert len(here.containers()) == 1
        async with second.spawn(SpawnRequest("sleep", ("60",))) as process:
            await first.dispose()
            assert process.returncode is None
            assert len(here.containers(running=True)) == 1
    assert here.containers() == []
