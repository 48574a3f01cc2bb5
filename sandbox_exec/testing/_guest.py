"""The guest's side of its protocol, request for request as ``_guest/loop.sh`` serves it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final, Protocol

from anyio import create_task_group
from attrs import define, field

from sandbox_exec.testing._call import FakeCall, Handler
from sandbox_exec.testing._clock import FakeClock
from sandbox_exec.testing._commands import UnknownArgv
from sandbox_exec.testing._containers import FakeContainer
from sandbox_exec.testing._execution import Execution, FakeKill
from sandbox_exec.testing._faults import GuestPlan
from sandbox_exec.testing._pipes import LineReader, Pipe
from sandbox_exec.testing._transfers import Transfers

__all__ = ["Book", "Guest", "text_of", "variables_of"]

_INLINE_BYTES: Final = 4096
_EXPORT = re.compile(
    rb"(?:command )?export ([A-Za-z_][A-Za-z0-9_]*)=((?:'[^']*'|\\')*)(?: 2>/dev/null)?\n",
    re.DOTALL,
)


class Present(Protocol):
    """Whoever is in a container, as one that would retire it sees it."""

    container: FakeContainer
    sweeping: bool

    @property
    def execution(self) -> Execution | None:
        """What is run."""


@define(eq=False)
class Book:
    """What commands do, and what became of those that ran."""

    clock: FakeClock
    commands: dict[str, Handler]
    default: Handler | None
    probes: Mapping[str, Handler]
    executed: list[tuple[str, str]] = field(factory=list)
    killed: list[FakeKill] = field(factory=list)
    running: dict[tuple[str, bytes], Execution] = field(factory=dict)
    present: list[Present] = field(factory=list)

    def handler(self, command: str) -> Handler:
        """Return what a command does."""
        handler = self.commands.get(command) or self.probes.get(command, self.default)
        if handler is None:
            raise UnknownArgv(f"the fake daemon was not told what this command does: {command!r}")
        return handler


@define(eq=False)
class _Request:
    limit: float
    cwd: bytes
    env: Mapping[str, str]
    command: bytes
    stdin: bytes | None


@define(eq=False)
class Guest:
    """One guest in one container.

    :param alone: it is the container's PID 1.
    :ivar execution: the command it runs, or ran last.
    """

    container: FakeContainer
    user: str
    plan: GuestPlan
    book: Book
    stdin: LineReader
    stdout: Pipe
    stderr: Pipe
    alone: bool = False
    execution: Execution | None = None
    lingers: bool = False
    sweeping: bool = False
    _nonce: bytes = b""
    _tag: bytes = b""

    @property
    def key(self) -> tuple[str, bytes]:
        """What a reaper finds its command by."""
        return (self.container.id, self._tag)

    async def serve(self) -> int:
        """Serve requests to the end of standard input; return the exit status."""
        greeting = await self.stdin.line()
        if greeting is None:
            return 0
        self._nonce, _, self._tag = greeting.partition(b" ")
        if self.plan.dies == "before-ready":
            return self.plan.exit_code
        if self.container.retiring or (self.plan.refuses == "retiring" and not self.plan.late):
            await self._say(self.stdout, "refused retiring")
            return 0
        self.book.present.append(self)
        try:
            return await self._serve()
        finally:
            self.book.present.remove(self)

    async def _serve(self) -> int:
        start = f"{self.container.starts}.00" if self.plan.knows_start else "-"
        ready = f"ready {self.plan.protocol} {start}"
        await self._say(self.stderr, ready)
        await self._say(self.stdout, ready)
        while (line := await self.stdin.line()) is not None:
            verb, *words = line.split()
            match verb:
                case b"run" | b"put" | b"read" | b"harvest":
                    serve = self._serve_run if verb == b"run" else partial(self._transfer, verb)
                    if (status := await serve(words)) is not None:
                        return status
                case b"reap":
                    await self._reap(*words)
                case b"signal":
                    await self._signal(*words)
                case b"retire":
                    await self._retire(int(words[0]))
                case b"kill" | b"done":
                    pass
                case _:
                    raise UnknownArgv(f"the fake guest does not know this request: {line!r}")
        return 0

    async def _say(self, stream: Pipe, words: str) -> None:
        await stream.write(b"\x1e" + self._nonce + b" " + words.encode() + b"\n")

    async def _reap(self, tag: bytes) -> None:
        execution = self.book.running.get((self.container.id, tag))
        if execution is not None:
            execution.kill("reaped")
        await self._say(self.stdout, "reaped 0")

    async def _signal(self, tag: bytes, number: bytes) -> None:
        execution = self.book.running.get((self.container.id, tag))
        there = execution is not None and not execution.over
        if execution is not None and there:
            execution.signal(int(number))
        await self._say(self.stdout, f"signalled {1 - there}")

    async def _retire(self, idle: int) -> None:
        """Stop the container if nobody uses it and nobody did lately: one step, here as there."""
        if self.container.retiring:
            await self._say(self.stdout, "kept 10")
            return
        self.sweeping = True
        others = [one for one in self.book.present if one.container is self.container]
        others = [one for one in others if not one.sweeping]
        if any(one.execution is not None for one in others):
            left = idle + 1
        else:
            left = idle - int(self.book.clock()) + int(self.container.last_use)
            left = max(left, 1 if others else 0)
        self.container.retiring = left <= 0
        if self.container.retiring:
            await self._say(self.stdout, "retired")
            self.container.stop(0)
        else:
            await self._say(self.stdout, f"kept {left}")

    async def _transfer(self, verb: bytes, words: list[bytes]) -> int | None:
        transfers = Transfers(
            self.container,
            self.plan,
            self.stdin,
            self.stdout,
            self._nonce,
            self._tag,
            self.book.running,
            partial(self._say, self.stdout),
            self._end,
        )
        execution = Execution("", self.container, inf, self.book.clock, self.book.killed)
        return await transfers.serve(verb, words, execution)

    async def _serve_run(self, words: list[bytes]) -> int | None:
        """Serve one request; return an exit status if it is the guest's last."""
        request = await self._read(words)
        if request is None:
            return 0
        reason = "retiring" if self.container.retiring else self.plan.refuses
        if reason is not None:
            await self._say(self.stdout, f"refused {reason}")
            return 0
        dies = self.plan.dies == "after-sent"
        if dies and not self.plan.runs:
            return self.plan.exit_code
        error: Exception | None = None
        ended = (0, "-")
        self.execution = execution = self._execution(request)
        self.book.running[self.key] = execution
        async with create_task_group() as group:
            group.start_soon(self._watch_client, execution)
            try:
                ended = await execution.perform(lambda: self._perform(request, execution))
            except Exception as raised:  # noqa: BLE001  # the test's own, raised outside of the group
                error = raised
            if error is not None or dies:
                group.cancel_scope.cancel()
            else:
                await self._end(*ended)
        if error is not None:
            raise error
        if dies:
            return self.plan.exit_code
        if not execution.survives:
            return None
        await self._say(self.stdout, "lingering")
        self.lingers = not self.alone
        return 0

    async def _end(self, code: int, flags: str) -> None:
        self.container.last_use = self.book.clock()
        for name, stream in (("stderr", self.stderr), ("stdout", self.stdout)):
            if self.plan.mute != name:
                await self._say(stream, f"end {code} {flags}")

    async def _watch_client(self, execution: Execution) -> None:
        while (verb := await self.stdin.line()) is not None:
            if verb == b"done":
                return
            if verb == b"kill":
                execution.kill("asked")
        execution.kill("client-gone")

    async def _read(self, words: list[bytes]) -> _Request | None:
        """Read the rest of a request to run; ``None`` if it did not come whole."""
        if len(words) != 6:  # noqa: PLR2004
            raise UnknownArgv(f"the fake guest does not know this request to run: {words}")
        limit, cwd_lines, env_lines, command_lines, size, stdin_size = words
        cwd = await self.stdin.lines(int(cwd_lines))
        body = await self._read_body(int(env_lines), int(command_lines), int(size))
        stdin = None if stdin_size == b"-" else await self.stdin.exactly(int(stdin_size))
        if await self.stdin.line() != self._nonce or cwd is None or body is None:
            return None
        return _Request(float(limit), cwd, variables_of(body[0]), body[1], stdin)

    async def _read_body(
        self, env_lines: int, command_lines: int, size: int
    ) -> tuple[bytes, bytes] | None:
        if size > _INLINE_BYTES:
            body = await self.stdin.exactly(size)
            if body is None:
                return None
            lines = body.split(b"\n")
            return b"\n".join(lines[:env_lines]), b"\n".join(lines[env_lines:-1])
        env = await self.stdin.lines(env_lines)
        command = await self.stdin.lines(command_lines)
        return None if env is None or command is None else (env, command)

    def _execution(self, request: _Request) -> Execution:
        return Execution(
            text_of(request.command),
            self.container,
            request.limit,
            self.book.clock,
            self.book.killed,
        )

    async def _perform(self, request: _Request, execution: Execution) -> int:
        handler = self.book.handler(execution.command)
        self.book.executed.append((self.container.name, execution.command))
        call = FakeCall(
            execution,
            request.env,
            text_of(request.cwd),
            self.user,
            request.stdin,
            self.stdout,
            self.stderr,
        )
        return await handler(call)


def text_of(data: bytes) -> str:
    """Return bytes as text that stands for them."""
    return data.decode("utf-8", "surrogateescape")


def variables_of(text: bytes) -> Mapping[str, str]:
    """Read shell text that does nothing but export variables."""
    found: dict[str, str] = {}
    rest = text + b"\n" if text else b""
    while rest:
        match = _EXPORT.match(rest)
        if match is None:
            raise UnknownArgv(
                f"the fake guest does not know this way to set variables: {rest[:80]!r}"
            )
        pieces = re.findall(rb"'([^']*)'|\\(')", match[2])
        found[match[1].decode()] = text_of(b"".join(plain + quote for plain, quote in pieces))
        rest = rest[match.end() :]
    return found
