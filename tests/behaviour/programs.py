"""Programs that answer what a test tells them to, behind the runner seam."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from anyio.lowlevel import checkpoint
from attrs import Factory, define

from sandbox_exec._docker.interface import (
    NO_VARIABLES,
    Argv,
    CliProcess,
    Completed,
    NoAnswer,
    ProgramMissing,
)


@define
class Programs:
    """What each program prints, by its name and the first word of its command line.

    :param answers: a program that is not among them is missing; a call that is not gets ``silent``.
    """

    answers: Mapping[str, Mapping[str, Completed | NoAnswer]]
    calls: list[Argv] = Factory(list)

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] = NO_VARIABLES
    ) -> Completed | NoAnswer:
        """Answer a control call; see :meth:`sandbox_exec.CommandRunner.run`."""
        await checkpoint()
        self.calls.append(argv)
        if argv[0] not in self.answers:
            raise ProgramMissing(f"cannot run {argv[0]!r}: No such file or directory")
        return self.answers[argv[0]].get(argv[1], NoAnswer(timeout))

    def open(
        self, argv: Argv, *, env: Mapping[str, str] = NO_VARIABLES
    ) -> AbstractAsyncContextManager[CliProcess]:
        """Hold no conversations."""
        raise NotImplementedError(argv)
