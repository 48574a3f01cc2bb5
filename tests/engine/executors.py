"""Executors on the real engine, each test's in a deployment of its own that is removed with it."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from attrs import frozen

from sandbox_exec import (
    ExecResult,
    ExecSpec,
    HarvestedFile,
    LocalDockerExecutor,
    SandboxConfig,
)
from sandbox_exec._naming import LABEL_DEPLOYMENT, container_name, session_key

from .real_engine import RealEngine


@frozen
class Deployment:
    """A namespace on the engine, and what is in it as the engine sees it."""

    engine: RealEngine
    name: str

    def executor(self, image: str = "busybox", **settings: Any) -> LocalDockerExecutor:  # noqa: ANN401  # SandboxConfig's
        """Return an executor, not yet entered, with the engine's own environment."""
        settings = {"image": f"sandbox-exec/{image}", **self.engine.settings, **settings}
        how = {name: settings.pop(name) for name in ("wall", "reaps") if name in settings}
        config = SandboxConfig(deployment=self.name, engine=self.engine.program, **settings)
        runner = None if self.engine.plain else self.engine.runner
        return LocalDockerExecutor(config, runner=runner, **how)

    def container(self, session: str) -> str:
        """Return the name of a session's container."""
        return container_name(self.name, session_key(session))

    def cli(self, *words: str, check: bool = True) -> str:
        """Run the engine's program behind the executor's back."""
        done = subprocess.run(
            [self.engine.program, *words],
            env=self.engine.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{words}: {done.stderr}")
        return done.stdout.strip()

    def containers(self, *, running: bool = False) -> list[str]:
        """Return the names of the deployment's containers."""
        every = () if running else ("--all",)
        listed = self.cli(
            *("ps", *every, "--filter", f"label={LABEL_DEPLOYMENT}={self.name}"),
            *("--format", "{{.Names}}"),
        )
        return listed.split()

    def processes(self, session: str) -> list[str]:
        """Return the command lines inside a session's container, the guests' left out."""
        lines = self.cli("top", self.container(session), "-eo", "pid,args").splitlines()[1:]
        return [line for line in lines if "sandbox-exec-guest" not in line]


@contextmanager
def deployment(engine: RealEngine) -> Iterator[Deployment]:
    """A new deployment; everything in it is removed at the end."""
    made = Deployment(engine, f"test-{secrets.token_hex(4)}")
    try:
        yield made
    finally:
        if left := made.containers():
            made.cli("rm", "--force", "--volumes", *left, check=False)


@frozen
class Box:
    """An open executor and its deployment."""

    session: ClassVar[str] = "chat"
    executor: LocalDockerExecutor
    place: Deployment

    async def run(self, command: str, session: str | None = session, **how: object) -> ExecResult:
        """Run a command in the session that most tests need only one of."""
        return await self.executor.run(ExecSpec(command, session, **how))  # type: ignore[arg-type]  # passed through

    async def harvest(self, **limits: int) -> list[HarvestedFile]:
        """Drain the session's outbox."""
        limits = {"max_files": 100, "max_bytes": 10_000, **limits}
        return await self.executor.harvest(self.session, "/workspace/outputs", **limits)
