"""Starts a process in a container, and heals that while nothing of the process can have run."""

from __future__ import annotations

from functools import partial

from anyio import CancelScope, get_cancelled_exc_class

from sandbox_exec._docker.interface import ProgramMissing
from sandbox_exec._frames import new_conversation
from sandbox_exec._keeper import Healing
from sandbox_exec._outcome import NotStarted
from sandbox_exec._roster import Session
from sandbox_exec._spawn.child import Child, Handling
from sandbox_exec._spawn.line import Line, spawn_line
from sandbox_exec._spawn.parts import Parts
from sandbox_exec._spawn.placing import Placing
from sandbox_exec._spawn.values import SpawnRequest
from sandbox_exec._startup import Started

__all__ = ["launched"]


async def launched(parts: Parts, request: SpawnRequest, cwd: str, ready: float) -> Child:
    """Return a process that runs, with its files in place.

    From then on it ends with its user's block or a disposal.

    :param cwd: where it starts, inside.
    :param ready: seconds that it gets to say that it is there.
    :raises SandboxError: when it did not start, or may have and was lost.
    :raises ValueError: for what only the sandbox could reject.
    """
    healing, placing = Healing(), Placing(parts, request)
    async with parts.sessions.visit(parts.key) as (session, visit):
        while True:
            started = await placing.container(session)
            parts.sessions.keeper.reap_lost(session, started)
            child = _child(parts, session, started, request, placing, cwd, ready)
            parts.sessions.keeper.group.start_soon(child.run)
            try:
                await child.launched.wait()
            except get_cancelled_exc_class():
                visit.started = child.started
                await _leave(session, child)
                raise
            if child.running:
                parts.removal.living.add(child)
                return child
            await _leave(session, child)
            if isinstance(child.error, ProgramMissing):
                raise parts.client.missing_program(child.error) from child.error
            if child.error is not None:
                raise child.error
            verdict = child.verdict
            if not isinstance(verdict, NotStarted):
                # Its fate is unknown, so it is never run again.
                raise await parts.sessions.keeper.loss(session, started, started=None)
            if verdict.refused == "cwd":
                # A session would make it, so what it says of one does not hold here.
                given = cwd if request.options.cwd is None else request.options.cwd
                raise ValueError(f"the working directory {given!r} cannot be entered")
            if verdict.refused == "moved":
                placing.lost()
                continue
            if verdict.silent:
                # Either the engine is silent too, and this says so, or it is the container.
                await parts.client.inspect(started.id, timeout=ready)
            await parts.sessions.keeper.heal(session, started, verdict, healing)


def _child(
    parts: Parts,
    session: Session,
    started: Started,
    request: SpawnRequest,
    placing: Placing,
    cwd: str,
    ready: float,
) -> Child:
    conversation = new_conversation()
    line = spawn_line(
        started.id,
        mark=str(conversation.tag),
        cwd=cwd,
        env=request.options.env,
        command=(request.command, *request.args),
        nonce=conversation.nonce,
        start=placing.start,
    )
    handling = Handling(
        reap=partial(parts.ending, started, conversation.tag),
        signal=partial(parts.reach.signal, started.id, conversation.tag),
        loss=partial(parts.sessions.keeper.loss, session, started, started=True),
    )
    whole = Line(parts.client.line(line.argv), line.env)
    group = parts.sessions.keeper.group
    return Child(group, parts.client.runner, whole, conversation, handling, ready)


async def _leave(session: Session, child: Child) -> None:
    """Make sure that nothing of it is left; what could not be reached is ended later."""
    child.leave()
    with CancelScope(shield=True):
        await child.settled.wait()
    if child.unreaped:
        session.unreaped.append(child.tag)
