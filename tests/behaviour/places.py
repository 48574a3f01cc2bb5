"""Where shared behaviour is tried: an engine, one deployment on it, and what others do there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from attrs import Factory, define

from sandbox_exec import LocalDockerExecutor, SandboxConfig
from sandbox_exec._naming import container_name, session_key
from sandbox_exec.testing import FakeContainer, FakeDaemon

from .vocabulary import COMMANDS

IMAGE = "sandbox-exec/busybox"


class Place(Protocol):
    """An engine, and a deployment of the test's own."""

    @property
    def patience(self) -> float:
        """Seconds in which a new sandbox has certainly begun with its command."""

    def executor(self, **settings: Any) -> LocalDockerExecutor:  # noqa: ANN401  # SandboxConfig's
        """Return an executor, not yet entered."""

    def containers(self) -> list[str]:
        """Return the names of the deployment's containers."""

    def name(self, session: str) -> str:
        """Return the name of a session's container."""

    def identity(self, session: str) -> str:
        """Return the engine's id of a session's container."""

    def state(self, session: str) -> str:
        """Return the state of the container that has a session's name."""

    def remove(self, session: str) -> None:
        """Remove a session's container behind our back."""

    def stop(self, session: str) -> None:
        """Stop it behind our back."""

    def restart(self, session: str) -> None:
        """Restart it behind our back."""

    def pause(self, session: str) -> None:
        """Pause it behind our back."""

    def take_name(self, session: str) -> None:
        """Have a stranger's container run under the session's name."""


def _commands() -> dict[str, Callable[..., Any]]:
    return dict(COMMANDS)


@define
class FakePlace:
    """A deployment on an engine in memory."""

    daemon: FakeDaemon = Factory(lambda: FakeDaemon(_commands()))
    deployment: str = "test"
    patience: float = 0.1

    def executor(
        self,
        *,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] | None = None,
        reaps: bool = False,
        **settings: Any,  # noqa: ANN401  # SandboxConfig's
    ) -> LocalDockerExecutor:
        """Return an executor whose clocks are the engine's, unless told otherwise.

        It sweeps when asked to, so that no test meets calls that are not its own.
        """
        settings.setdefault("image", IMAGE)
        return LocalDockerExecutor(
            SandboxConfig(**{"deployment": self.deployment, **settings}),
            runner=self.daemon,
            clock=clock or self.daemon.clock,
            wall=wall or self.daemon.clock.wall,
            reaps=reaps,
        )

    def hasty(self, **settings: Any) -> LocalDockerExecutor:  # noqa: ANN401  # SandboxConfig's
        """Return an executor in real time, whose patience is short."""
        patience = {"control_timeout": 0.5, "start_timeout": 0.8, "pull_timeout": 0.8}
        settings.setdefault("clock", time.monotonic)
        return self.executor(**{**patience, "grace": 0.15, **settings})

    def container(self, session: str) -> FakeContainer:
        """Return a session's container."""
        return self.daemon.containers[self.name(session)]

    def containers(self) -> list[str]:
        return list(self.daemon.containers)

    def name(self, session: str) -> str:
        return container_name(self.deployment, session_key(session))

    def identity(self, session: str) -> str:
        return self.container(session).id

    def state(self, session: str) -> str:
        return self.container(session).state

    def remove(self, session: str) -> None:
        self.daemon.remove(self.name(session))

    def stop(self, session: str) -> None:
        self.daemon.stop(self.name(session))

    def restart(self, session: str) -> None:
        self.daemon.restart(self.name(session))

    def pause(self, session: str) -> None:
        self.daemon.pause(self.name(session))

    def take_name(self, session: str) -> None:
        self.daemon.take_name(self.name(session))

    def ran(self, verb: str) -> list[tuple[str, ...]]:
        """Return the command lines of one engine command, in order."""
        return [argv for argv in self.daemon.calls if argv[1] == verb]
