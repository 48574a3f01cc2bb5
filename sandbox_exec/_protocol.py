"""The ``Executor`` protocol: what a tool needs of whatever runs its commands."""

from __future__ import annotations

from typing import Protocol

from sandbox_exec._files import Content
from sandbox_exec._models import ExecResult, ExecSpec, SandboxInfo
from sandbox_exec._read_result import HarvestedFile, ReadResult
from sandbox_exec._transfer import Progress

__all__ = ["Executor"]


class Executor(Protocol):
    """Where a side-effecting tool's command runs. Source: S0's ``Executor``."""

    @property
    def kind(self) -> str:
        """A short tag for logs and user interfaces."""

    @property
    def info(self) -> SandboxInfo:
        """The shape of the sandbox, so that tool text can describe it truthfully."""

    async def run(self, spec: ExecSpec) -> ExecResult:
        """Run one command to its end."""

    async def put_file(
        self, session: str, path: str, data: Content, *, progress: Progress | None = None
    ) -> None:
        """Write a file, whole or not at all."""

    async def read_file(self, session: str, path: str) -> ReadResult:
        """Read a file, or say what else is there."""

    async def harvest(
        self,
        session: str,
        directory: str,
        *,
        max_files: int,
        max_bytes: int,
        max_total_bytes: int | None = None,
    ) -> list[HarvestedFile]:
        """Drain an outbox."""

    async def dispose_session(self, session: str) -> None:
        """Remove a conversation's sandbox and everything in it."""
