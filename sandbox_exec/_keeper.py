"""Keeps a session supplied with a running container: acquire, heal, forget, explain a loss.

Shared by everything that runs something in a container that stays. The start belongs to the
background, and whoever finds the container gone only has it looked at again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from anyio import sleep
from anyio.abc import TaskGroup
from attrs import define, evolve

from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.diagnose import ENDINGS, Diagnosis
from sandbox_exec._errors import DaemonUnavailableError, SandboxBrokenError, SandboxError
from sandbox_exec._log import Log
from sandbox_exec._outcome import NotStarted
from sandbox_exec._reach import Reach
from sandbox_exec._remedy import GiveUp, Remedy, beyond_repair, treatment, unsettled
from sandbox_exec._roster import Session
from sandbox_exec._singleflight import Flight
from sandbox_exec._startup import Started, Starter
from sandbox_exec._tool_text import BROKEN_HINT

__all__ = ["Healing", "Keeper"]

_RETIRING_FOR: Final = 5.0
"""Seconds after which a retirement that has not ended is taken for dead."""

_DOUBTFUL: Final = 2
"""So many refusals of a whole request are believed, each of which may be a command's own. Those of
a retirement come before a request, but for one that begins just then."""

_RETIRING_STEP: Final = 0.1
_REDIAL_STEP: Final = 0.5
_NOTICED: Final = 0.5
"""Seconds after which an engine has certainly noticed that a container ended."""

_SETTLE_STEP: Final = 0.2

log = Log(__name__)


@define
class Healing:
    """What was already done for one call, and what its attempts found.

    :ivar stood: how many looks in a row found the container as the attempt before had left it.
    :ivar moved: it was another one, or another start of it, at some look.
    """

    looked: bool = False
    restarted: bool = False
    doubtful: int = 0
    give_up_at: float | None = None
    settle_until: float | None = None
    stood: int = 0
    moved: bool = False
    _last: Started | None = None

    def note(self, started: Started, verdict: NotStarted) -> None:
        """Hold the container that this attempt met against the one before."""
        last, self._last = self._last, started
        same = last is not None and last.is_same_start(started)
        self.moved |= last is not None and not same
        ended = verdict.diagnosis.fault in ENDINGS
        self.stood = self.stood + 1 if same and not ended else 0


@define
class Keeper:
    """Supplies the sessions of one executor, or of one spawn backend.

    :param restarts: whether a container that serves no calls may be restarted, which ends whatever
        else runs in it.
    """

    group: TaskGroup
    _client: EngineClient
    _starter: Starter
    _reach: Reach
    _clock: Callable[[], float]
    _restarts: bool = True

    async def heal(
        self, session: Session, started: Started, verdict: NotStarted, healing: Healing
    ) -> None:
        """Do what may make the next attempt succeed; nothing of this one can have run.

        :raises SandboxBrokenError: when there is nothing left to do.
        :raises ValueError: when it was the caller's input.
        """
        healing.note(started, verdict)
        step = treatment(verdict, looked=healing.looked, stood=healing.stood)
        log.info("sandbox.not_started", key=session.key, why=verdict.why, remedy=step.name)
        if isinstance(step, GiveUp):
            raise step.error()
        healing.doubtful += verdict.sent
        if healing.doubtful > _DOUBTFUL:
            raise beyond_repair(verdict, restarted=healing.restarted)
        if step.remedy is Remedy.LOOK_AGAIN:
            healing.looked = True
        elif step.remedy is Remedy.REDIAL:
            if not self._waits(healing):
                raise self._client.unreachable(verdict.diagnosis)
            await sleep(_REDIAL_STEP)
            return
        elif step.remedy is Remedy.WAIT and self._waits(healing):
            await sleep(_RETIRING_STEP)
        elif step.remedy is Remedy.SETTLE and self._settles(healing):
            await sleep(_SETTLE_STEP)
        elif step.remedy is Remedy.SETTLE and healing.moved:
            raise unsettled(verdict)
        elif healing.restarted or not self._restarts:
            raise beyond_repair(verdict, restarted=self._restarts)
        else:
            healing.restarted = True
            again = self._rebuild if step.remedy is Remedy.REBUILD else self._starter.restart
            self._replace(session, started, partial(again, session.key, started, step.why))
            return
        self.forget(session, started)

    def _waits(self, healing: Healing) -> bool:
        """Return whether it is still worth waiting for others, or for a better connection."""
        now = self._clock()
        if healing.give_up_at is None:
            healing.give_up_at = now + _RETIRING_FOR
        return now < healing.give_up_at

    def _settles(self, healing: Healing) -> bool:
        """Return whether others may still be about to leave it alone."""
        now = self._clock()
        if healing.settle_until is None:
            healing.settle_until = now + self._starter.patience
        return now < healing.settle_until

    async def acquire(self, session: Session) -> Started:
        """Return the session's running container, starting it if nobody has (hazards S4, S5).

        :raises SandboxError: what the start raised, afresh for each that waited for it.
        """
        flight = session.flight
        if flight is None or flight.failed:
            self._client.breaker.check()
            lost = self._starter.lost_container() if session.known else None
            flight = self._launch(session, partial(self._starter.start, session.key, lost=lost))
        started = await flight.join()
        session.known = True
        return started

    def forget(self, session: Session, started: Started) -> None:
        """Have the container looked at again, unless somebody newer already has it (hazard S4)."""
        if session.flight is not None and session.flight.holds(started):
            session.flight = None

    def restart(self, session: Session, started: Started, why: str) -> None:
        """Have the container restarted, unless somebody newer already has it."""
        self._replace(session, started, partial(self._starter.restart, session.key, started, why))

    def _replace(
        self, session: Session, started: Started, work: Callable[[], Awaitable[Started]]
    ) -> None:
        if session.flight is not None and session.flight.holds(started):
            self._launch(session, work)

    async def _rebuild(self, key: str, started: Started, why: str) -> Started:
        """Remove this very container and start another.

        What it has mounted is nowhere any more, and not every engine makes that at a start.
        """
        container = await self._starter.find(key)
        if container is not None and container.id == started.id:
            await self._starter.discard(container)
        log.warning("sandbox.rebuilt", key=key, why=why)
        again = await self._starter.start(key, lost=why)
        return evolve(again, reset=again.reset or why)

    def _launch(self, session: Session, work: Callable[[], Awaitable[Started]]) -> Flight[Started]:
        async def note_losses() -> Started:
            started = await work()
            if started.reset is not None:
                session.untold.append(started.reset)
                session.boot = None
            return started

        session.flight = Flight(self.group, note_losses)
        return session.flight

    def reap_lost(self, session: Session, started: Started) -> None:
        """Have what an earlier outage left running ended, now that the engine answers again."""
        tags, session.unreaped = session.unreaped, []
        for tag in tags:
            self.group.start_soon(self._reach.reap, started.id, tag)

    async def loss(
        self,
        session: Session,
        container: Started,
        cut: Diagnosis | None = None,
        **facts: Any,  # noqa: ANN401  # the error's
    ) -> SandboxError:
        """Return the error for something whose fate is unknown; it is never run again.

        :param cut: the engine's program said that it lost its engine, or was killed.
        :param facts: for the error: whether it had started, and what it had printed.
        """
        self.forget(session, container)
        try:
            running = await self._starter.is_running(container)
            if running and cut is None:
                # The call's end is often heard of before the engine knows of its container's.
                await sleep(_NOTICED)
                running = await self._starter.is_running(container)
        except DaemonUnavailableError as error:
            return error.fresh(**facts)
        if cut is not None:
            return self._client.unreachable(cut).fresh(**facts)
        what = (
            "the process that runs the command was killed inside the sandbox"
            if running
            else "the sandbox was stopped, restarted, paused or removed while the command ran"
        )
        return SandboxBrokenError(
            what,
            code="guest-lost" if running else "sandbox-lost",
            retryable=False,
            hint=BROKEN_HINT,
            **facts,
        )
