"""A real engine as the shared behaviour sees it: a deployment, and what others do there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from sandbox_exec import LocalDockerExecutor

from .executors import Deployment, deployment
from .real_engine import RealEngine


@define
class RealPlace:
    """A deployment on a real engine, as the shared behaviour sees it."""

    _on: Deployment
    _strangers: list[str] = field(factory=list)
    patience: float = 1.0

    def executor(self, **settings: Any) -> LocalDockerExecutor:  # noqa: ANN401  # SandboxConfig's
        return self._on.executor(**settings)

    def containers(self) -> list[str]:
        return self._on.containers()

    def name(self, session: str) -> str:
        return self._on.container(session)

    def identity(self, session: str) -> str:
        return self._on.cli("inspect", "--format", "{{.Id}}", self.name(session))

    def state(self, session: str) -> str:
        return self._on.cli("inspect", "--format", "{{.State.Status}}", self.name(session))

    def remove(self, session: str) -> None:
        self._on.cli("rm", "--force", "--volumes", self.name(session))

    def stop(self, session: str) -> None:
        self._on.cli("stop", "--time", "0", self.name(session))

    def restart(self, session: str) -> None:
        self._on.cli("restart", "--time", "0", self.name(session))

    def pause(self, session: str) -> None:
        self._on.cli("pause", self.name(session))

    def take_name(self, session: str) -> None:
        name = self.name(session)
        self._on.cli(
            *("run", "--detach", "--name", name, "--network", "none", "--entrypoint", "sleep"),
            *("sandbox-exec/busybox", "600"),
        )
        self._strangers.append(name)

    def clean(self) -> None:
        """Remove what strangers made."""
        for name in self._strangers:
            self._on.cli("rm", "--force", "--volumes", name, check=False)


@contextmanager
def real_place(engine: RealEngine) -> Iterator[RealPlace]:
    """A new deployment on the engine; everything in it is removed at the end."""
    with deployment(engine) as made:
        place = RealPlace(made)
        try:
            yield place
        finally:
            place.clean()
