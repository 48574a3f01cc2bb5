"""What any executor can do, whatever is behind it."""

from __future__ import annotations

from typing import Protocol

from sandbox_exec._models import ExecResult, ExecSpec, SandboxInfo

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

    async def dispose_session(self, session: str) -> None:
        """Remove a conversation's sandbox and everything in it."""
