"""`make bench`: what calls and transfers cost beside a bare `docker exec`."""

from __future__ import annotations

import argparse
import secrets
import subprocess

import anyio

from sandbox_exec import ExecSpec, LocalDockerExecutor, SandboxConfig
from sandbox_exec._naming import container_name, session_key
from tests.bench.rounds import interleave, table
from tests.bench.transfers import harvests, puts

SESSION = "bench"


async def warm_call(image: str, rounds: int) -> str:
    """Measure a command with a limit, with output, and with a new text each time."""
    config = SandboxConfig(image=image, deployment=f"bench-{secrets.token_hex(4)}")
    name = container_name(config.deployment, session_key(SESSION))
    async with LocalDockerExecutor(config) as executor:

        async def bare(_number: int) -> None:
            argv = ["docker", "exec", name, "sh", "-c", "true"]
            await anyio.run_process(argv, stdin=subprocess.DEVNULL)

        async def public_run(number: int) -> None:
            spec = ExecSpec(f"echo this is call {number}", SESSION, timeout=20)
            result = await executor.run(spec)
            assert result.stdout == f"this is call {number}\n"

        await public_run(0)
        try:
            rows = await interleave({"bare docker exec": bare, "run": public_run}, rounds)
        finally:
            await executor.dispose_session(SESSION)
    return table(f"warm session call, {image}", rows)


def main() -> None:
    """Print each table as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    for image in ("sandbox-exec/busybox", "sandbox-exec/debian"):
        print(anyio.run(warm_call, image, arguments.rounds), flush=True)
        print(anyio.run(harvests, image, max(arguments.rounds // 4, 5)), flush=True)
        print(anyio.run(puts, image, max(arguments.rounds // 4, 5)), flush=True)


if __name__ == "__main__":
    main()
