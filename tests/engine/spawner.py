"""A program with a spawn backend that says when it is up, and is then killed by its test."""

from __future__ import annotations

import sys

import anyio

from sandbox_exec import DockerBackend, DockerBackendOptions, SpawnRequest


async def main(*words: str) -> None:
    engine, image, deployment = words
    options = DockerBackendOptions(engine=engine, image=image, deployment=deployment)
    async with DockerBackend(options) as backend:
        async with backend.spawn(SpawnRequest("sh", ("-c", "echo kept >/root-file"))) as process:
            await process.wait()
        sys.stdout.write("up")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
