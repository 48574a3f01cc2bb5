"""A process that sweeps a deployment in a tight loop under hostile settings, until it is killed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import MutableMapping
from typing import Any

import anyio
import structlog

from sandbox_exec import LocalDockerExecutor, SandboxConfig, SandboxError

IDLE_AFTER = 1.0
TTL = 2.0


async def main(*words: str) -> None:
    engine, image, deployment, root = words
    config = SandboxConfig(
        engine=engine,
        image=image,
        deployment=deployment,
        workspace_root=root,
        idle_after=IDLE_AFTER,
        ttl=TTL,
        max_dormant=3,
    )
    async with LocalDockerExecutor(config, reaps=False) as executor:
        while True:
            for sweep in (executor.evict_idle, executor.sweep_unclaimed, executor.sweep_workspaces):
                # What is removed under a sweep's eyes by the other sweeper may make it fail.
                with contextlib.suppress(SandboxError):
                    await sweep()


def one_word(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """Print one word for each thing that was done, for the test to count."""
    return str(event["event"])


if __name__ == "__main__":
    structlog.configure(
        processors=[one_word], logger_factory=structlog.PrintLoggerFactory(sys.stdout)
    )
    anyio.run(main, *sys.argv[1:])
