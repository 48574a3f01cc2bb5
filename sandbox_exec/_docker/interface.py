"""The seam: what an engine's command-line program looks like to everything above it.

Two ways in, because they have nothing in common but the program: a *control* call is small, has a
deadline and is read whole; a *command* call carries a user's bytes both ways while it runs.
Whatever implements :class:`CommandRunner` can stand in for a real engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, Protocol

from attrs import field, frozen

__all__ = [
    "NO_VARIABLES",
    "Argv",
    "CliProcess",
    "CommandRunner",
    "Completed",
    "NoAnswer",
    "ProgramMissing",
]

Argv = tuple[str, ...]
"""A command line, program first."""

NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})


@frozen
class Completed:
    """A control call that the program ended by itself."""

    exit_code: int
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)

    @property
    def error_text(self) -> str:
        """What the program said on standard error, for people and for diagnosis."""
        return self.stderr.decode("utf-8", "replace").strip()


@frozen
class NoAnswer:
    """A control call that had to be given up: an answer of its own, never "missing" (hazard S3)."""

    after: float
    """Seconds that were waited."""
    excess: bool = False
    """It printed more than an answer can have, which is why it was given up, and no sooner."""


class ProgramMissing(Exception):  # noqa: N818  # a state of the host, named as one
    """There is no such program to run on this host."""


class CliProcess(Protocol):
    """One running engine program whose streams the caller drives.

    Methods are coroutines on the caller's event loop. ``receive_*`` return ``b""`` at the end of
    the stream. ``send`` raises :class:`BrokenPipeError` when nobody reads any more.
    """

    async def send(self, data: bytes) -> None:
        """Write all of ``data`` to standard input."""

    async def close_stdin(self) -> None:
        """End standard input; safe to call twice."""

    async def receive_stdout(self) -> bytes:
        """Return the next chunk of standard output, at most 64 KiB."""

    async def receive_stderr(self) -> bytes:
        """Return the next chunk of standard error, at most 64 KiB."""

    async def wait(self) -> int:
        """Wait for the end and return the exit status (negative: the signal that killed it)."""

    @property
    def pid(self) -> int:
        """Its number on this host."""

    def kill(self) -> None:
        """Send SIGKILL to the program and to what it has started in its process group.

        Never SIGTERM, which makes it exit 0 (hazard F3).
        """


class CommandRunner(Protocol):
    """Starts the engine's program. The only thing in the library that a fake replaces."""

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] = NO_VARIABLES
    ) -> Completed | NoAnswer:
        """Run a control call to its end, or give it up after ``timeout`` seconds.

        :param argv: the whole command line, program first.
        :param env: variables for the program on top of the runner's own; where ``argv`` says
            ``-e NAME``, the program hands the value on without showing it.
        :raises ProgramMissing: when the program cannot be found.
        """

    def open(
        self, argv: Argv, *, env: Mapping[str, str] = NO_VARIABLES
    ) -> AbstractAsyncContextManager[CliProcess]:
        """Start a command call; leaving the block kills the program if it still runs.

        :raises ProgramMissing: on entry, when the program cannot be found.
        """
