"""The life of one command in a fake container, from its start to the end of what it leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

from anyio import CancelScope
from attrs import define, field, frozen

from sandbox_exec.testing._clock import FakeClock
from sandbox_exec.testing._containers import FakeContainer

__all__ = ["Execution", "FakeKill", "Why"]

Why = Literal["limit", "asked", "client-gone", "reaped", "container", "signal"]

_KILLED: Final = 137


@frozen
class FakeKill:
    """A command that did not end by itself, or whose background processes did not.

    :param container: the container's name.
    :param command: the command's text.
    :param why: its ``limit``; ``asked`` by the client; the ``client-gone``; ``reaped`` for a lost
        conversation; its ``container`` ended; or by a ``signal``.
    """

    container: str
    command: str
    why: Why


@define(eq=False)
class Execution:
    """One command, from its request to the end of what it left."""

    command: str
    container: FakeContainer
    limit: float
    clock: FakeClock
    killed: list[FakeKill]
    started: float = 0.0
    why: Why | None = None
    over: bool = False
    survives: bool = False
    oom: bool = False
    unkillable: bool = False
    killed_code: int = _KILLED
    scope: CancelScope = field(factory=CancelScope)

    def kill(self, why: Why) -> None:
        """End it, or what it left; nothing happens if there is neither."""
        if self.over:
            if not self.survives or self.command not in self.container.background:
                return
            self.container.background.remove(self.command)
            self.survives = False
        elif self.why is None:
            self.why = why
            self.scope.cancel()
        else:
            return
        self.killed.append(FakeKill(self.container.name, self.command, why))

    def signal(self, number: int) -> None:
        """End it as that signal does."""
        self.killed_code = 128 + number
        self.kill("signal")

    def left(self) -> float:
        """Return the seconds that remain of its limit."""
        return self.started + self.limit - self.clock()

    async def perform(self, body: Callable[[], Awaitable[int]]) -> tuple[int, str]:
        """Run it to its end; return its exit status and the flags of its end frame."""
        code = _KILLED
        self.started = self.clock()
        with self.scope:
            if self.why is None:
                code = await body()
        self.over = True
        if not 0 <= code <= 255:  # noqa: PLR2004
            raise ValueError(f"{code} is no exit status: {self.command}")
        if self.why is not None:
            code, self.survives = self.killed_code, False
        if self.survives:
            self.container.background.append(self.command)
        return code, self._flags()

    def _flags(self) -> str:
        flags = "-" if self.why in {None, "signal"} else "-t" if self.why == "limit" else "-k"
        return flags + "u" * self.unkillable + "o" * self.oom + "s" * self.survives
