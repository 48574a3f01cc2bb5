"""One-off sandboxes: a container for one command, gone when it has ended."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from anyio.abc import TaskGroup
from attrs import Factory, define, evolve

from sandbox_exec._address import Bounds, Doubt
from sandbox_exec._call import Call
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.diagnose import Fault
from sandbox_exec._docker.interface import ProgramMissing
from sandbox_exec._errors import SandboxBrokenError, SandboxError
from sandbox_exec._frames import new_conversation
from sandbox_exec._models import ExecResult
from sandbox_exec._outcome import Ended, Lost, NotStarted, Verdict, judge
from sandbox_exec._reach import Reach
from sandbox_exec._remedy import GiveUp, treatment
from sandbox_exec._sessions import Scripts, closed
from sandbox_exec._slots import Slots, serve
from sandbox_exec._start_error import start_error
from sandbox_exec._startup import Starter
from sandbox_exec._tool_text import BROKEN_HINT
from sandbox_exec._visits import Visit, Visits

__all__ = ["OneOffs"]

_DOUBT_AFTER: Final = 0.6
"""Part of the control timeout after which a start that says nothing is doubted."""


@define
class OneOffs:
    """The one-off sandboxes of one executor."""

    _group: TaskGroup
    _client: EngineClient
    _starter: Starter
    _reach: Reach
    _slots: Slots
    _visits: Visits = Factory(Visits)
    closing: bool = False

    async def run(self, script: Scripts, bounds: Bounds, *, user: str | None) -> ExecResult:
        """Run a request in a sandbox of its own.

        :raises SandboxError: one of its leaves; there is nothing to heal, so at most the image is
            fetched before the command is tried again.
        :raises ValueError: for input that only the sandbox could reject, such as its user.
        """
        if self.closing:
            raise closed()
        async with self._visits.enter() as visit:
            self._client.breaker.check()
            await self._starter.storage.check()
            verdict = await self._attempt(visit, script, bounds, user)
            if isinstance(verdict, NotStarted) and verdict.diagnosis.fault is Fault.IMAGE_MISSING:
                await self._starter.images.ensure()
                verdict = await self._attempt(visit, script, bounds, user)
            if isinstance(verdict, Ended):
                await self._starter.storage.engine.try_to_learn()
                return verdict.result
            raise await self._failure(visit, verdict)

    async def close(self) -> None:
        """Let nothing begin, end what is in flight, and wait for it, in bounded time."""
        self.closing = True
        self._visits.end_all(closed)
        await self._visits.quiet()

    async def _attempt(
        self, visit: Visit, script: Scripts, bounds: Bounds, user: str | None
    ) -> Verdict:
        conversation = new_conversation()
        visit.call = Call(
            self._client.runner,
            self._reach.one_off(user, makes_workdir=self._starter.storage.makes_directories),
            conversation,
            script(conversation),
            bounds,
        )
        await self._slots.take(None)
        self._group.start_soon(serve, visit.call, self._slots)
        # The start may take long, but not because the engine is not there.
        patience = self._client.timeout
        check = partial(self._client.info, timeout=patience * (1 - _DOUBT_AFTER))
        try:
            return judge(await visit.call.outcome(Doubt(patience * _DOUBT_AFTER, check)))
        except ProgramMissing as error:
            raise self._client.missing_program(error) from error

    async def _failure(self, visit: Visit, verdict: NotStarted | Lost) -> Exception:
        facts: dict[str, Any] = {}
        if isinstance(verdict, Lost):
            facts = {
                "started": True,
                "partial_stdout": verdict.partial.stdout,
                "partial_stderr": verdict.partial.stderr,
            }
        # What a container says is no proof of what the engine is like, so the engine is asked.
        try:
            await self._client.info()
        except SandboxError as error:
            return error.fresh(**facts)
        broken = verdict.cut if isinstance(verdict, Lost) else verdict.diagnosis
        if broken is not None and broken.fault in {Fault.DAEMON_DOWN, Fault.DAEMON_DENIED}:
            return self._client.unreachable(broken).fresh(**facts)
        if isinstance(verdict, Lost):
            return SandboxBrokenError(
                "the sandbox was stopped, restarted, paused or removed while the command ran",
                code="sandbox-lost",
                hint=BROKEN_HINT,
                **facts,
            )
        step = treatment(verdict, looked=True)
        if isinstance(step, GiveUp) and step.rejected:
            return step.error()
        line = visit.call.argv if visit.call is not None else ()
        diagnosis = verdict.diagnosis
        if isinstance(step, GiveUp):
            diagnosis = evolve(diagnosis, line=step.what)
        elif verdict.refused is not None:
            diagnosis = evolve(diagnosis, line=f"its guest refused ({verdict.refused})")
        elif verdict.silent:
            diagnosis = evolve(diagnosis, line="it said nothing in time")
        failed = start_error(
            "a one-off sandbox could not be started",
            line,
            diagnosis,
            words=verdict.diagnosis.line,
            retryable=verdict.silent,
        )
        return failed.fresh(code="start-timeout") if verdict.silent else failed
