"""Lets only so many programs connect at once, since an ssh server drops what is beyond."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from anyio import Semaphore, move_on_after
from attrs import define

from sandbox_exec._docker.interface import (
    NO_VARIABLES,
    Argv,
    CliProcess,
    CommandRunner,
    Completed,
    NoAnswer,
)

__all__ = ["AT_ONCE", "TurnTaking", "considerate"]

AT_ONCE: Final = 4
"""Programs that may be connecting; each makes two connections, and from the tenth that is not yet
authenticated, sshd drops them at random (its ``MaxStartups``, 10:30:100)."""

PATIENCE: Final = 3.0
"""Seconds after which a call goes ahead without its turn: this is a courtesy, and no lock that one
connection which hangs could hold."""


def considerate(runner: CommandRunner, environment: Mapping[str, str]) -> CommandRunner:
    """Return the runner, taking turns where its program reaches the engine by ssh."""
    by_ssh = environment.get("DOCKER_HOST", "").startswith("ssh://")
    return TurnTaking(runner, Semaphore(AT_ONCE)) if by_ssh else runner


@define
class _Turn:
    """Permission to connect, given back once; or the lack of it, in which nothing is."""

    _turns: Semaphore
    _held: bool = False

    async def take(self) -> None:
        """Wait for it, within bounds."""
        with move_on_after(PATIENCE):
            await self._turns.acquire()
            self._held = True

    def end(self) -> None:
        """Let the next one connect."""
        if self._held:
            self._held = False
            self._turns.release()


@define
class TurnTaking:
    """A :class:`CommandRunner` whose programs take turns at connecting, and at nothing else.

    A command that runs is connected already, so the number of those is not bounded here.
    """

    _runner: CommandRunner
    _turns: Semaphore

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] = NO_VARIABLES
    ) -> Completed | NoAnswer:
        """Run a control call, which is connected for as long as it takes."""
        turn = _Turn(self._turns)
        await turn.take()
        try:
            return await self._runner.run(argv, timeout=timeout, env=env)
        finally:
            turn.end()

    @asynccontextmanager
    async def open(
        self, argv: Argv, *, env: Mapping[str, str] = NO_VARIABLES
    ) -> AsyncIterator[CliProcess]:
        """Start a command call, whose turn ends with the first thing that it says."""
        turn = _Turn(self._turns)
        await turn.take()
        try:
            async with self._runner.open(argv, env=env) as process:
                yield _Dialling(process, turn)
        finally:
            turn.end()


@define
class _Dialling:
    """A program that gives its turn back once it is through."""

    _process: CliProcess
    _turn: _Turn

    async def send(self, data: bytes) -> None:
        await self._process.send(data)

    async def close_stdin(self) -> None:
        await self._process.close_stdin()

    async def receive_stdout(self) -> bytes:
        data = await self._process.receive_stdout()
        self._turn.end()
        return data

    async def receive_stderr(self) -> bytes:
        return await self._process.receive_stderr()

    async def wait(self) -> int:
        return await self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
