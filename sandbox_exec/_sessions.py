"""The live sessions: acquire, run in, heal once, forget, claim.

One piece of live state a session. Every operation goes the same way: it is counted as in flight,
waits for the container that others may be starting, and is healed only while nothing of it can
have run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from anyio import sleep
from anyio.abc import TaskGroup
from attrs import define, evolve

from sandbox_exec._address import Bounds
from sandbox_exec._call import Call
from sandbox_exec._channel import Script
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.interface import ProgramMissing
from sandbox_exec._errors import (
    DaemonUnavailableError,
    ExecutorClosedError,
    SandboxBrokenError,
    SandboxDisposedError,
    SandboxError,
)
from sandbox_exec._frames import Conversation, new_conversation
from sandbox_exec._log import Log
from sandbox_exec._models import ExecResult
from sandbox_exec._outcome import Ended, Lost, NotStarted, Verdict, judge
from sandbox_exec._reach import Reach
from sandbox_exec._remedy import GiveUp, Remedy, beyond_repair, treatment
from sandbox_exec._roster import Roster, Session
from sandbox_exec._singleflight import Flight
from sandbox_exec._slots import Slots, serve
from sandbox_exec._startup import Started, Starter
from sandbox_exec._tool_text import BROKEN_HINT, DISPOSED_HINT
from sandbox_exec._visits import Visit

__all__ = ["Scripts", "SessionMap", "closed"]

Scripts: TypeAlias = Callable[[Conversation], Script]
"""Makes the script of an attempt; one that did not start is made anew."""

_RETIRING_FOR: Final = 5.0
"""Seconds after which a retirement that has not ended is taken for dead."""

_RETIRING_STEP: Final = 0.1
_REDIAL_STEP: Final = 0.5
_RESTARTED: Final = "it had been restarted: its files are as they were, its processes are gone"

log = Log(__name__)


@define
class _Healing:
    """What was already done for one call."""

    looked: bool = False
    restarted: bool = False
    give_up_at: float | None = None


@define
class SessionMap:
    """The sessions of one executor; once ``closing``, no operation may begin."""

    group: TaskGroup
    _client: EngineClient
    _starter: Starter
    _reach: Reach
    _slots: Slots
    _clock: Callable[[], float]
    roster: Roster
    closing: bool = False

    async def run(
        self, key: str, script: Scripts, bounds: Bounds, *, user: str | None = None
    ) -> ExecResult:
        """Run a request in a session's sandbox.

        :raises SandboxError: one of its leaves, as ``design.md``'s table of endings says.
        :raises ValueError: for input that only the sandbox could reject, such as its user.
        """
        async with self._visit(key) as (session, visit):
            return await self._run(session, visit, script, bounds, user)

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
            session.disposal = Flight(self.group, partial(self._dispose, session))
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
    async def _visit(self, key: str) -> AsyncIterator[tuple[Session, Visit]]:
        """Count an operation as in flight, in a session that is not being disposed."""
        while True:
            self._refuse_if_closing()
            session = self.roster.get(key)
            if session.disposal is None:
                break
            # What was asked for after a disposal gets a sandbox after it.
            await session.disposal.wait()
            if session.disposal.failed:
                session.disposal = None
        async with session.visits.enter() as visit:
            try:
                yield session, visit
            finally:
                session.last_used = self._clock()

    async def _run(
        self, session: Session, visit: Visit, script: Scripts, bounds: Bounds, user: str | None
    ) -> ExecResult:
        healing = _Healing()
        while True:
            started = await self._acquire(session)
            self._reap_lost(session, started)
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
                losses += self._restarted_by_others(session, visit.call)
                session.untold = [loss for loss in session.untold if loss not in losses]
                if verdict.unkillable:
                    await self._end_the_unkillable(session, started)
                return evolve(verdict.result, reset="; then ".join(losses) or None)
            if isinstance(verdict, Lost):
                if not visit.call.report.reaped:
                    session.unreaped.append(visit.call.tag)
                raise await self._lost(session, started, verdict)
            if verdict.silent:
                # Either the engine is silent too, and this says so, or it is the sandbox.
                await self._client.inspect(started.id, timeout=bounds.ready)
            # Nothing of this attempt can have run, whatever ends the visit from here on.
            visit.call = None
            await self._heal(session, started, verdict, healing)

    def _restarted_by_others(self, session: Session, call: Call) -> tuple[str, ...]:
        """Return the words about a restart between two calls that nobody here saw (hazard S16)."""
        boot = call.report.hello.boot if call.report.hello is not None else "-"
        known, session.boot = session.boot, boot
        return () if known in {None, boot} else (_RESTARTED,)

    async def _heal(
        self, session: Session, started: Started, verdict: NotStarted, healing: _Healing
    ) -> None:
        """Do what may make the next attempt succeed; nothing of this one can have run.

        :raises SandboxBrokenError: when there is nothing left to do.
        :raises ValueError: when it was the caller's input.
        """
        step = treatment(verdict, looked=healing.looked)
        log.info("sandbox.not_started", key=session.key, why=verdict.why, remedy=step.name)
        if isinstance(step, GiveUp):
            raise step.error()
        if step.remedy is Remedy.LOOK_AGAIN:
            healing.looked = True
        elif step.remedy is Remedy.REDIAL:
            if not self._waits(healing):
                raise self._client.unreachable(verdict.diagnosis)
            await sleep(_REDIAL_STEP)
            return
        elif step.remedy is Remedy.WAIT and self._waits(healing):
            await sleep(_RETIRING_STEP)
        elif healing.restarted:
            raise beyond_repair(verdict)
        else:
            healing.restarted = True
            self._restart(session, started, step.why)
            return
        self._forget(session, started)

    def _waits(self, healing: _Healing) -> bool:
        """Return whether it is still worth waiting for others, or for a better connection."""
        now = self._clock()
        if healing.give_up_at is None:
            healing.give_up_at = now + _RETIRING_FOR
        return now < healing.give_up_at

    async def _acquire(self, session: Session) -> Started:
        """Return the session's running container, starting it if nobody has (hazards S4, S5)."""
        flight = session.flight
        if flight is None or flight.failed:
            self._client.breaker.check()
            lost = self._starter.lost_container() if session.known else None
            flight = self._launch(session, partial(self._starter.start, session.key, lost=lost))
        started = await flight.join()
        session.known = True
        return started

    def _forget(self, session: Session, started: Started) -> None:
        """Have the container looked at again, unless somebody newer already has it (hazard S4)."""
        if session.flight is not None and session.flight.holds(started):
            session.flight = None

    def _restart(self, session: Session, started: Started, why: str) -> None:
        if session.flight is not None and session.flight.holds(started):
            self._launch(session, partial(self._starter.restart, session.key, started, why))

    def _launch(self, session: Session, work: Callable[[], Awaitable[Started]]) -> Flight[Started]:
        async def note_losses() -> Started:
            started = await work()
            if started.reset is not None:
                session.untold.append(started.reset)
                session.boot = None
            return started

        session.flight = Flight(self.group, note_losses)
        return session.flight

    async def _converse(self, key: str, call: Call) -> Verdict:
        await self._slots.take(key)
        self.group.start_soon(serve, call, self._slots)
        try:
            verdict = judge(await call.outcome())
        except ProgramMissing as error:
            raise self._client.missing_program(error) from error
        if not isinstance(verdict, NotStarted):
            self._client.breaker.clear()
        return verdict

    def _reap_lost(self, session: Session, started: Started) -> None:
        """Have what an earlier outage left running ended, now that the engine answers again."""
        tags, session.unreaped = session.unreaped, []
        for tag in tags:
            self.group.start_soon(self._reach.reap, started.id, tag)

    async def _end_the_unkillable(self, session: Session, started: Started) -> None:
        """Restart the container: the last resort against what a kill did not reach (hazard F18).

        The result is known, whatever becomes of this; the next call meets it.
        """
        self._restart(session, started, "processes outlived their limit, so it was restarted")
        try:
            await self._acquire(session)
        except SandboxError as error:
            log.warning("sandbox.restart_failed", key=session.key, error=str(error))

    async def _lost(self, session: Session, started: Started, verdict: Lost) -> SandboxError:
        """Return the error for a command whose fate is unknown; it is never run again."""
        self._forget(session, started)
        partial_output: dict[str, Any] = {
            "started": True,
            "partial_stdout": verdict.partial.stdout,
            "partial_stderr": verdict.partial.stderr,
        }
        try:
            running = await self._starter.is_running(started)
        except DaemonUnavailableError as error:
            return error.fresh(**partial_output)
        if verdict.cut is not None:
            return self._client.unreachable(verdict.cut).fresh(**partial_output)
        what = (
            "the process that runs the command was killed inside the sandbox"
            if running
            else "the sandbox was stopped, paused or removed while the command ran"
        )
        return SandboxBrokenError(
            what,
            code="guest-lost" if running else "sandbox-lost",
            retryable=False,
            hint=BROKEN_HINT,
            **partial_output,
        )

    async def _dispose(self, session: Session) -> None:
        session.visits.end_all(_disposed)
        await session.visits.quiet()
        if session.flight is not None:
            # A start under way is let end: given up half-way, the engine may still finish it, and
            # nobody would know of the container (hazard S10).
            await session.flight.wait()
        await self._starter.remove(session.key)
        session.flight = None
        self.roster.drop(session.key)


def closed(**facts: Any) -> ExecutorClosedError:  # noqa: ANN401  # the error's arguments
    """Return what an operation gets whose executor closes."""
    return ExecutorClosedError("the executor is closing", **facts)


def _disposed(**facts: Any) -> SandboxDisposedError:  # noqa: ANN401  # as above
    return SandboxDisposedError("the session was disposed", hint=DISPOSED_HINT, **facts)
