"""The ``SandboxBackend`` protocol: what a program needs of whatever runs its child processes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

from anyio.abc import Process

from sandbox_exec._spawn.values import Mode, SandboxEnvHint, SpawnRequest, WrappedSpawn

__all__ = ["SandboxBackend"]


class SandboxBackend(Protocol):
    """Where a program's child processes run. Use it as an async context manager. Source: S1."""

    @property
    def mode(self) -> Mode:
        """How strongly it isolates."""

    @property
    def label(self) -> str:
        """A short text for logs and user interfaces."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def wrap_spawn(self, request: SpawnRequest) -> WrappedSpawn:
        """Return what to start in place of a request, for callers that start it themselves."""

    def spawn(self, request: SpawnRequest) -> AbstractAsyncContextManager[Process]:
        """Start a process; leaving the block ends it and everything that it has started."""

    async def dispose(self) -> None:
        """End what was started, and remove what it ran in; safe to repeat."""

    def env_hint(self) -> SandboxEnvHint:
        """Return where processes run, in words."""
