"""The engine as somebody other than the library sees and mistreats it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import anyio
import pytest
from attrs import frozen

from sandbox_exec import (
    ExecResult,
    ExecSpec,
    LocalDockerExecutor,
    SandboxConfig,
    SandboxError,
)
from sandbox_exec._naming import container_name, session_key

asyncio_only = pytest.mark.parametrize(
    "anyio_backend", [pytest.param(("asyncio", {"debug": True}), id="asyncio")]
)
"""For what takes long and does not depend on the event loop."""

T = TypeVar("T")

KEEPERS = 2
"""The processes of a sandbox at rest: PID 1 and its sleep."""


@frozen
class Outside:
    """An engine and a deployment on it that is this test's own."""

    program: str
    environment: Mapping[str, str]
    deployment: str

    def config(self, **settings: object) -> SandboxConfig:
        wanted: dict[str, Any] = {
            "image": "sandbox-exec/busybox",
            "engine": self.program,
            "deployment": self.deployment,
            "docker_host": self.environment.get("DOCKER_HOST"),
            **settings,
        }
        return SandboxConfig(**wanted)

    def executor(self, **settings: object) -> LocalDockerExecutor:
        return LocalDockerExecutor(self.config(**settings))

    def name(self, session: str) -> str:
        """The name of a session's container."""
        return container_name(self.deployment, session_key(session))

    async def engine(self, *words: str, check: bool = True, limit: float = 30) -> str:
        """Run the engine's program and return what it prints."""
        with anyio.fail_after(limit):
            ended = await anyio.run_process(
                [self.program, *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        if check and ended.returncode:
            pytest.fail(f"{words}: {ended.stderr.decode(errors='replace')}")
        return ended.stdout.decode(errors="replace").strip()

    async def containers(self) -> list[str]:
        """Return the names of the deployment's containers, in whatever state."""
        label = f"label=sandbox-exec.deployment={self.deployment}"
        listed = await self.engine("ps", "--all", "--filter", label, "--format", "{{.Names}}")
        return sorted(listed.split())

    async def identity(self, session: str) -> str:
        return await self.engine("inspect", "--format", "{{.Id}}", self.name(session))

    async def born(self, session: str) -> str:
        """Return which container it is, and which start of it: its PID 1 and when that began."""
        shown = "{{.Id}} {{.State.Pid}} {{.State.StartedAt}}"
        return await self.engine("inspect", "--format", shown, self.name(session))

    async def processes(self, name: str) -> list[str]:
        """Return the command lines of the processes inside a container, zombies included."""
        listed = await self.engine("top", name, "-eo", "pid,args", check=False)
        return [line.split(None, 1)[1] for line in listed.splitlines()[1:]]

    async def running(self, program: str, *names: str) -> int:
        """Count the processes with exactly this command line in these containers, or in all.

        A shell that is about to start the program is none.
        """
        within = names or await self.containers()
        return sum([(await self.processes(name)).count(program) for name in within])

    async def runs(self, program: str, *names: str, count: int = 1) -> None:
        """Wait until that many such processes run; what comes before them has happened."""
        look = partial(self.running, program, *names)
        found = await self.until(look, lambda found: found >= count, 20)
        assert found == count, f"{found} processes {program!r}, not {count}"

    async def at_rest(self, *sessions: str, limit: float = 5) -> None:
        """Wait until nothing but the keep-alive is left inside."""
        for session in sessions:
            found = await self.until(
                partial(self.processes, self.name(session)),
                lambda found: len(found) <= KEEPERS,
                limit,
            )
            assert len(found) == KEEPERS, found

    async def until(
        self,
        look: Callable[[], Awaitable[T]],
        accept: Callable[[T], bool],
        limit: float = 10,
    ) -> T:
        """Look until what is seen is accepted, and return it; after the limit, the last of it."""
        deadline = time.monotonic() + limit
        # There is nobody outside who could set an event.
        while not accept(seen := await look()) and time.monotonic() < deadline:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        return seen

    def clear(self) -> None:
        """Remove what the deployment has, from a fixture's end."""

        def engine(*words: str) -> str:
            return subprocess.run(
                [self.program, *words],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=60,
                text=True,
            ).stdout

        label = f"label=sandbox-exec.deployment={self.deployment}"
        if names := engine("ps", "--all", "--quiet", "--filter", label).split():
            engine("rm", "--force", "--volumes", *names)


async def told(executor: LocalDockerExecutor, session: str | None, command: str) -> str:
    """Run a command that must end well, and return what it printed."""
    result = await executor.run(ExecSpec(command, session))
    assert (result.exit_code, result.stderr) == (0, ""), result
    return result.stdout.strip()


async def first_good(
    executor: LocalDockerExecutor, session: str, command: str = "echo well", *, limit: float = 10
) -> ExecResult:
    """Call until a call is answered, as a caller does who knows of an outage, and return it."""
    with anyio.fail_after(limit):
        while True:
            try:
                return await executor.run(ExecSpec(command, session))
            except SandboxError as error:
                if not error.retryable:
                    raise
                await anyio.sleep(0.2)


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Fail, rather than hang, when the block takes longer, and say how long it took otherwise."""
    begin = time.monotonic()
    try:
        with anyio.fail_after(seconds * 3 + 10):
            yield
    finally:
        took = time.monotonic() - begin
    assert took <= seconds, f"{what} took {took:.2f} s, more than {seconds:g} s"
