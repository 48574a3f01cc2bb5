"""Spawn backends on the real engine, and what is done with their processes in tests."""

from __future__ import annotations

import subprocess
from typing import Any

import anyio
from anyio.abc import Process
from attrs import frozen

from sandbox_exec import (
    DockerBackend,
    DockerBackendOptions,
    SandboxBackend,
    SpawnOptions,
    SpawnRequest,
    WrappedSpawn,
)

from .executors import Deployment


def backend_of(place: Deployment, image: str = "busybox", **options: Any) -> DockerBackend:  # noqa: ANN401  # DockerBackendOptions'
    """Return a backend, not yet entered, with the engine's own environment."""
    # Patient, as a machine that is busy with other tests is slow and not broken.
    engine = place.engine
    settings = {"control_timeout": 30.0, "engine": engine.program, **engine.settings, **options}
    settings.setdefault("image", f"sandbox-exec/{image}")
    chosen = DockerBackendOptions(deployment=place.name, **settings)
    return DockerBackend(chosen, runner=None if engine.plain else engine.runner)


def sh(script: str, *args: str, **options: Any) -> SpawnRequest:  # noqa: ANN401  # SpawnOptions'
    return SpawnRequest("sh", ("-c", script, "sh", *args), SpawnOptions(**options))


@frozen
class Outcome:
    """What a process printed, and how it ended."""

    stdout: bytes
    stderr: bytes
    code: int


async def everything(stream: Any) -> bytes:  # noqa: ANN401  # an optional stream, of a process
    return b"".join([data async for data in stream])


async def finish(process: Process, stdin: bytes = b"") -> Outcome:
    assert process.stdin is not None
    if stdin:
        await process.stdin.send(stdin)
    await process.stdin.aclose()
    stdout, stderr = await everything(process.stdout), await everything(process.stderr)
    return Outcome(stdout, stderr, await process.wait())


async def run(backend: SandboxBackend, request: SpawnRequest, stdin: bytes = b"") -> Outcome:
    async with backend.spawn(request) as process:
        return await finish(process, stdin)


async def start(wrapped: WrappedSpawn) -> Outcome:
    """Start a wrapped spawn as a program would that starts its processes itself."""
    done = await anyio.run_process(
        [wrapped.command, *wrapped.args],
        stdin=subprocess.DEVNULL,
        check=False,
        env=wrapped.options.env,
    )
    return Outcome(done.stdout, done.stderr, done.returncode)
