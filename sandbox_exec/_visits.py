"""Operations in flight, and how they are ended from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from anyio import CancelScope, Event
from attrs import Factory, define

from sandbox_exec._call import Call
from sandbox_exec._errors import SandboxError

__all__ = ["Ending", "Visit", "Visits"]

Ending: TypeAlias = Callable[..., SandboxError]
"""Makes the error of an operation that was ended, from the facts about it."""


@define(eq=False)
class Visit:
    """One operation in flight.

    :ivar call: its conversation with a guest, once there is one.
    :ivar started: whether what it is about has begun, where there is no such conversation.
    """

    _scope: CancelScope = Factory(CancelScope)
    _ending: Ending = SandboxError
    call: Call | None = None
    started: bool | None = False

    def end(self, ending: Ending) -> None:
        """End the operation; its caller gets what ``ending`` makes."""
        if self._ending is SandboxError:
            self._ending = ending
        self._scope.cancel()

    def _error(self) -> SandboxError:
        facts: dict[str, Any] = {"started": self.started}
        if self.call is not None:
            report = self.call.report
            facts = {
                "started": self.call.started,
                "partial_stdout": report.stdout.text()[0],
                "partial_stderr": report.stderr.text()[0],
            }
        return self._ending(**facts)


@define(eq=False)
class Visits:
    """The operations in flight of one session, or of all one-offs."""

    _open: set[Visit] = Factory(set)
    _quiet: Event = Factory(Event)

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[Visit]:
        """Count an operation as in flight for as long as the block lasts.

        :raises SandboxError: what the ending makes, when the operation was ended from outside.
        """
        visit = Visit()
        self._open.add(visit)
        try:
            with visit._scope:  # noqa: SLF001  # the two classes are one mechanism
                yield visit
        finally:
            self._open.discard(visit)
            if not self._open:
                self._quiet.set()
                self._quiet = Event()
        if visit._scope.cancelled_caught:  # noqa: SLF001
            raise visit._error()  # noqa: SLF001

    def end_all(self, ending: Ending) -> None:
        """End every operation that is in flight now."""
        for visit in self._open:
            visit.end(ending)

    async def quiet(self) -> None:
        """Wait until no operation is in flight."""
        while self._open:
            await self._quiet.wait()
