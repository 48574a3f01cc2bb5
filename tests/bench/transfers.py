"""What a put and a harvest cost beside bare `docker exec`, in the same rounds."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Awaitable, Callable

import anyio

from sandbox_exec import ExecSpec, LocalDockerExecutor, SandboxConfig
from sandbox_exec._naming import container_name, session_key
from tests.bench.rounds import Row, interleave, table

__all__ = ["harvests", "puts"]

SESSION = "bench"
UPLOAD = bytes(range(256)) * (10 * 2**20 // 256)


async def _measured(
    image: str,
    rounds: int,
    works: Callable[[LocalDockerExecutor, str], dict[str, Callable[[int], Awaitable[object]]]],
) -> list[Row]:
    config = SandboxConfig(image=image, deployment=f"bench-{secrets.token_hex(4)}")
    name = container_name(config.deployment, session_key(SESSION))
    async with LocalDockerExecutor(config, reaps=False) as executor:
        await executor.run(ExecSpec("true", SESSION))
        try:
            return await interleave(works(executor, name), rounds, warm_up=2)
        finally:
            await executor.dispose_session(SESSION)


def _busy(executor: LocalDockerExecutor) -> bool:
    parts = executor._parts
    assert parts is not None
    free: int = parts.sessions._slots._free
    return free < SandboxConfig(image="any").max_parallel


async def _exec(*words: str, data: bytes | None = None) -> None:
    argv = ["docker", "exec", *words]
    if data is None:
        await anyio.run_process(argv, stdin=subprocess.DEVNULL)
    else:
        await anyio.run_process(argv, input=data)


async def harvests(image: str, rounds: int) -> str:
    """Measure the drain of 20 small files and of 1,000 of 1 KiB, but not how they are made.

    Up to the last deletion, which goes on for a moment after the files are returned.
    """

    def works(
        executor: LocalDockerExecutor, name: str
    ) -> dict[str, Callable[[int], Awaitable[object]]]:
        async def bare(_number: int) -> None:
            await _exec(name, "true")

        async def fill(number: int, size: int) -> None:
            text = (
                f'i=0; while [ $i -lt {number} ]; do printf "%{size}s" $i > $i; i=$((i + 1)); done'
            )
            await _exec("-w", "/workspace/outputs", name, "sh", "-c", text)

        async def drain(number: int) -> None:
            files = await executor.harvest(SESSION, "outputs", max_files=number, max_bytes=10_000)
            assert len(files) == number
            while _busy(executor):  # noqa: ASYNC110  # nothing tells
                await anyio.sleep(0.0005)

        return {
            "bare docker exec true": bare,
            "-fill 20": lambda _: fill(20, 10),
            "harvest of 20 small files (<= 2.5)": lambda _: drain(20),
            "-fill 1000": lambda _: fill(1000, 1024),
            "harvest of 1,000 files of 1 KiB (<= 10)": lambda _: drain(1000),
        }

    rows = [row for row in await _measured(image, rounds, works) if not row.name.startswith("-")]
    return table(f"harvest, {image}", rows)


async def puts(image: str, rounds: int) -> str:
    """Measure a put of 10 MiB beside the same bytes through a bare exec."""

    def works(
        executor: LocalDockerExecutor, name: str
    ) -> dict[str, Callable[[int], Awaitable[object]]]:
        async def bare(_number: int) -> None:
            await _exec("-i", name, "sh", "-c", "cat > /workspace/g", data=UPLOAD)

        async def put(_number: int) -> None:
            await executor.put_file(SESSION, "f", UPLOAD)

        return {"bare docker exec -i sh -c 'cat > f'": bare, "put of 10 MiB (<= 1.3)": put}

    return table(f"put, {image}", await _measured(image, rounds, works))
