"""The inside of a spawned process, as ``_guest/spawn.sh`` runs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import partial
from math import inf

from attrs import define, field

from sandbox_exec.testing._call import FakeCall, Handler
from sandbox_exec.testing._containers import FakeContainer
from sandbox_exec.testing._execution import Execution
from sandbox_exec.testing._faults import GuestPlan
from sandbox_exec.testing._guest import Book, variables_of
from sandbox_exec.testing._pipes import LineReader, Pipe

__all__ = ["Spawned"]

_NO_CLIENT = "-"
_REFUSED = 126
_PIECE = re.compile(r"SANDBOX_EXEC_ENV(\d+)\Z")


@define(eq=False)
class Spawned:
    """One spawned process in one container.

    :param words: the wrapper's arguments: mark, nonce, directory, start, pieces, command.
    :param variables: what the engine's program handed on.
    :ivar execution: the command.
    """

    container: FakeContainer
    user: str
    plan: GuestPlan
    book: Book
    stdin: LineReader
    stdout: Pipe
    stderr: Pipe
    words: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)
    execution: Execution = field(init=False)
    lingers: bool = False
    sweeping: bool = False
    alone: bool = False

    def __attrs_post_init__(self) -> None:
        command = shlex.join(self.words[5:])
        self.execution = Execution(command, self.container, inf, self.book.clock, self.book.killed)

    @property
    def key(self) -> tuple[str, bytes]:
        """What a reaper finds it by."""
        return (self.container.id, self.words[0].rpartition("-")[2].encode())

    @property
    def _nonce(self) -> str:
        return self.words[1]

    async def serve(self) -> int:
        """Be the process; return the exit status of the program that carries it."""
        if self.plan.dies == "before-ready":
            return self.plan.exit_code
        if self.container.retiring:
            return await self._refuse("retiring")
        # Looked up first, so that a command the test did not foresee is its own failure.
        handler = self.book.handler(self.execution.command)
        self.book.present.append(self)
        self.book.running[self.key] = self.execution
        try:
            return await self._serve(handler)
        finally:
            self.book.present.remove(self)

    def detach(self) -> None:
        """Live on inside: the program that carried it is gone (hazard F3)."""
        if not self.execution.over:
            self.execution.over = self.execution.survives = True
            self.container.background.append(self.execution.command)

    async def _serve(self, handler: Handler) -> int:
        if self._nonce != _NO_CLIENT:
            ready = f"ready {self.plan.protocol} {self.container.starts}.00"
            await self._say(self.stderr, ready)
            await self._say(self.stdout, ready)
            if await self.stdin.line() != self._nonce.encode():
                self.execution.over = True
                return 0
        if self.words[3] not in {_NO_CLIENT, f"{self.container.starts}.00"}:
            return await self._refuse("moved")
        if self.plan.refuses is not None:
            return await self._refuse(self.plan.refuses)
        if self.plan.dies == "after-sent" and not self.plan.runs:
            return self.plan.exit_code
        await self._say(self.stdout, "started")
        code, flags = await self.execution.perform(partial(self._perform, handler))
        self.container.last_use = self.book.clock()
        if self.execution.why == "reaped" or self.plan.dies == "after-sent":
            return self.plan.exit_code
        for name, stream in (("stderr", self.stderr), ("stdout", self.stdout)):
            if self.plan.mute != name:
                await self._say(stream, f"end {code} {flags}")
        self.lingers = self.execution.survives and self._nonce != _NO_CLIENT
        return code

    async def _perform(self, handler: Handler) -> int:
        self.book.executed.append((self.container.name, self.execution.command))
        pieces = {int(found[1]): v for k, v in self.variables.items() if (found := _PIECE.match(k))}
        text = "".join(pieces[number] for number in range(int(self.words[4])))
        call = FakeCall(
            self.execution,
            variables_of(text.encode().removesuffix(b"\n")),
            self.words[2] or self.container.workdir,
            self.user,
            None,
            self.stdout,
            self.stderr,
            self.stdin,
        )
        return await handler(call)

    async def _refuse(self, reason: str) -> int:
        self.execution.over = True
        await self._say(self.stdout, f"refused {reason}")
        return _REFUSED

    async def _say(self, stream: Pipe, words: str) -> None:
        if self._nonce != _NO_CLIENT:
            await stream.write(f"\x1e{self._nonce} {words}\n".encode())
