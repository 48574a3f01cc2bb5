"""How a backend finds its engine, and what to advise when that one is down."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Protocol

from sandbox_exec._docker.facts import EngineFamily, EngineInfo
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._errors import DaemonUnavailableError, SandboxError

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
    """Return an error with what an operator can do about it, if it is about an engine that is down.

    Source: S1's hint per runtime.
    """
    if not isinstance(error, DaemonUnavailableError):
        return error
    return error.fresh(message=f"{error}; {_ADVICE[family]}")
