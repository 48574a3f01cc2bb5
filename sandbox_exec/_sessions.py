"""The live sessions: acquire, run in, heal once, forget, claim.

One piece of live state a session. Every operation goes the same way: it is counted as in flight,
waits for the container that others may be starting, and is healed only while nothing of it can
have run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from attrs import define, evolve

from sandbox_exec._address import Bounds
from sandbox_exec._call import Call
from sandbox_exec._channel import Script
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.interface import ProgramMissing
from sandbox_exec._errors import (
    ExecutorClosedError,
    SandboxDisposedError,
    SandboxError,
)
from sandbox_exec._frames import Conversation, new_conversation
from sandbox_exec._keeper import Healing, Keeper
from sandbox_exec._log import Log
from sandbox_exec._models import ExecResult
from sandbox_exec._outcome import Ended, Lost, NotStarted, Verdict, judge
from sandbox_exec._reach import Reach
from sandbox_exec._roster import Roster, Session
from sandbox_exec._singleflight import Flight
from sandbox_exec._slots import Slots, serve
from sandbox_exec._startup import Started, Starter
from sandbox_exec._tool_text import DISPOSED_HINT
from sandbox_exec._visits import Visit

__all__ = ["Scripts", "SessionMap", "closed"]

Scripts: TypeAlias = Callable[[Conversation], Script]
"""Makes the script of an attempt; one that did not start is made anew."""

_RESTARTED: Final = "it had been restarted: its files are as they were, its processes are gone"

log = Log(__name__)


@define
class SessionMap:
    """The sessions of one executor; once ``closing``, no operation may begin.

    :param remove_with: removes what a session has; the starter does, unless told otherwise.
    """

    keeper: Keeper
    _client: EngineClient
    _starter: Starter
    _reach: Reach
    _slots: Slots
    _clock: Callable[[], float]
    roster: Roster
    _remove_with: Callable[[Session], Awaitable[None]] | None = None
    closing: bool = False

    async def run(
        self,
        key: str,
        script: Scripts,
        bounds: Bounds,
        *,
        user: str | None = None,
        tells: bool = True,
    ) -> ExecResult:
        """Run a request in a session's sandbox.

        :param tells: whether somebody reads in the result what was lost; else the next one says it.

        :raises SandboxError: one of its leaves, as ``design.md``'s table of endings says.
        :raises ValueError: for input that only the sandbox could reject, such as its user.
        """
        async with self.visit(key) as (session, visit):
            result, losses = await self._run(session, visit, script, bounds, user)
            if not tells:
                return result
            session.untold = [loss for loss in session.untold if loss not in losses]
            return evolve(result, reset=_told(losses))

    def pending(self, key: str) -> str | None:
        """Return what was lost in a session that no result has said yet."""
        session = self.roster.find(key)
        return None if session is None else _told(session.untold)

    async def exists(self, key: str) -> bool:
        """Return whether a session has a sandbox, or files that outlive one.

        :raises DaemonUnavailableError: when the engine does not say.
        """
        return self.roster.holds(key) or await self._starter.exists(key)

    async def dispose(self, key: str) -> None:
        """End what runs in a session and remove what it has; safe to call twice (hazard S10)."""
        session = self.roster.get(key)
        if session.disposal is None or session.disposal.failed:
            self._refuse_if_closing()
            session.disposal = Flight(self.keeper.group, partial(self._dispose, session))
        await session.disposal.join()

    async def close(self) -> None:
        """Let nothing begin, end what is in flight, and wait for it, in bounded time."""
        self.closing = True
        sessions = self.roster.all()
        for session in sessions:
            session.visits.end_all(closed)
        for session in sessions:
            await session.visits.quiet()

    def _refuse_if_closing(self) -> None:
        if self.closing:
            raise closed()

    @asynccontextmanager
    async def visit(self, key: str) -> AsyncIterator[tuple[Session, Visit]]:
        """Count an operation as in flight, in a session that is not being disposed."""
        while True:
            self._refuse_if_closing()
            session = self.roster.get(key)
            disposal = session.disposal
            if disposal is None:
                break
            # What was asked for after a disposal gets a sandbox after it.
            await disposal.wait()
            if disposal.failed and session.disposal is disposal:
                session.disposal = None
        async with session.visits.enter() as visit:
            try:
                yield session, visit
            finally:
                session.last_used = self._clock()

    async def _run(
        self, session: Session, visit: Visit, script: Scripts, bounds: Bounds, user: str | None
    ) -> tuple[ExecResult, tuple[str, ...]]:
        """Return what came of a request, and what had been lost when it was made."""
        healing = Healing()
        while True:
            started = await self.keeper.acquire(session)
            self.keeper.reap_lost(session, started)
            losses = tuple(session.untold)
            conversation = new_conversation()
            visit.call = Call(
                self._client.runner,
                self._reach.in_container(started.id, user),
                conversation,
                script(conversation),
                bounds,
            )
            verdict = await self._converse(session.key, visit.call)
            if isinstance(verdict, Ended):
                restarted = self._restarted_by_others(session, visit.call)
                session.untold += restarted
                losses += restarted
                if verdict.unkillable:
                    await self._end_the_unkillable(session, started)
                return verdict.result, losses
            if isinstance(verdict, Lost):
                if not visit.call.report.reaped:
                    session.unreaped.append(visit.call.tag)
                raise await self.keeper.loss(
                    session,
                    started,
                    verdict.cut,
                    started=True,
                    partial_stdout=verdict.partial.stdout,
                    partial_stderr=verdict.partial.stderr,
                )
            if verdict.silent:
                # Either the engine is silent too, and this says so, or it is the sandbox.
                await self._client.inspect(started.id, timeout=self._client.timeout - bounds.ready)
            # Nothing of this attempt can have run, whatever ends the visit from here on.
            visit.call = None
            await self.keeper.heal(session, started, verdict, healing)

    def _restarted_by_others(self, session: Session, call: Call) -> tuple[str, ...]:
        """Return the words about a restart between two calls that nobody here saw (hazard S16)."""
        boot = call.report.hello.boot if call.report.hello is not None else "-"
        if boot == "-":
            # A command may remove what tells one start from the next; that is not one.
            return ()
        known, session.boot = session.boot, boot
        return () if known in {None, boot} else (_RESTARTED,)

    async def _converse(self, key: str, call: Call) -> Verdict:
        await self._slots.take(key)
        self.keeper.group.start_soon(serve, call, self._slots)
        try:
            verdict = judge(await call.outcome())
        except ProgramMissing as error:
            raise self._client.missing_program(error) from error
        if not isinstance(verdict, NotStarted):
            self._client.breaker.clear()
        return verdict

    async def _end_the_unkillable(self, session: Session, started: Started) -> None:
        """Restart the container: the last resort against what a kill did not reach (hazard F18).

        The result is known, whatever becomes of this; the next call meets it.
        """
        self.keeper.restart(session, started, "processes outlived their limit, so it was restarted")
        try:
            await self.keeper.acquire(session)
        except SandboxError as error:
            log.warning("sandbox.restart_failed", key=session.key, error=str(error))

    async def _dispose(self, session: Session) -> None:
        session.visits.end_all(_disposed)
        await session.visits.quiet()
        if session.flight is not None:
            # A start under way is let end: given up half-way, the engine may still finish it, and
            # nobody would know of the container (hazard S10).
            await session.flight.wait()
        if self._remove_with is None:
            await self._starter.remove(session.key)
        else:
            await self._remove_with(session)
        session.flight = None
        self.roster.drop(session.key)


def _told(losses: Iterable[str]) -> str | None:
    return "; then ".join(losses) or None


def closed(**facts: Any) -> ExecutorClosedError:  # noqa: ANN401  # the error's arguments
    """Return what an operation gets whose executor closes."""
    return ExecutorClosedError("the executor is closing", **facts)


def _disposed(**facts: Any) -> SandboxDisposedError:  # noqa: ANN401  # as above
    return SandboxDisposedError("the session was disposed", hint=DISPOSED_HINT, **facts)
