"""How a backend finds its engine, and what it says in place of what a session's errors say."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Protocol

from sandbox_exec._docker.facts import EngineFamily, EngineInfo
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._errors import (
    DaemonUnavailableError,
    ExecutorClosedError,
    SandboxDisposedError,
    SandboxError,
)

__all__ = ["Detect", "advised"]


class Detect(Protocol):
    """Finds an engine; see :func:`detect_engine`."""

    def __call__(
        self, override: str | None = None, *, docker_host: str | None, runner: CommandRunner
    ) -> Awaitable[EngineInfo]:
        """Return the engine that is to be used."""


_ADVICE: Final[dict[EngineFamily, str]] = {
    "docker": "start Docker Desktop, or the docker service",
    "podman": "run 'podman machine start' if there is a machine, or start podman's service",
}


def advised(error: SandboxError, family: EngineFamily) -> SandboxError:
    """Return an error in a backend's words, as the machinery below speaks of sessions.

    One about an engine that is down says what an operator can do about it. Source: S1's hint per
    runtime.
    """
    if isinstance(error, DaemonUnavailableError):
        return error.fresh(message=f"{error}; {_ADVICE[family]}")
    if isinstance(error, SandboxDisposedError):
        return error.fresh(message="the backend was disposed", hint="")
    if isinstance(error, ExecutorClosedError):
        return error.fresh(message=str(error).replace("the executor", "the backend"))
    return error
