"""Decides on the containers that no session of this process holds, by state and age."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from attrs import frozen

from sandbox_exec._docker.inventory import ContainerFacts, EngineState
from sandbox_exec._reapers.census import is_lasting, old_age

__all__ = ["Fate", "Rules", "fate", "unchanged"]


class Fate(Enum):
    """What a reaper decides on one container."""

    KEEP = auto()
    ASK = auto()
    """Have its guest stop it, if it is idle."""

    REMOVE = auto()


@frozen
class Rules:
    """Ages in seconds.

    :param watched: for how long this process has been watching.
    """

    idle_after: float
    ttl: float
    watched: float


def fate(container: ContainerFacts, now: float | None, rules: Rules) -> Fate:
    """Return what is to become of a container that no session of this process holds.

    :param now: by the daemon's clock, as the container's times are; ``None`` makes nothing old.

    Source: S0's ``sweepUnclaimed``; hazards R1 and R2.
    """
    lasting = is_lasting(container)
    if container.state is EngineState.RUNNING:
        up = _age(container.started, now) if now is not None else rules.watched
        # Idleness counts from when this process could first have seen a use, so that a restart
        # never stops the fleet.
        due = lasting and min(up, rules.watched) >= rules.idle_after
        return Fate.ASK if due else Fate.KEEP
    if now is None:
        return Fate.KEEP
    if container.state is EngineState.EXITED:
        limit = rules.ttl if lasting else old_age(rules.idle_after)
        return Fate.REMOVE if _age(container.finished, now) > limit else Fate.KEEP
    if container.state in {EngineState.CREATED, EngineState.DEAD}:
        since = container.finished or container.created
        return Fate.REMOVE if _age(since, now) > old_age(rules.idle_after) else Fate.KEEP
    return Fate.KEEP


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else now - since


def unchanged(
    decided: Iterable[ContainerFacts], fresh: Iterable[ContainerFacts]
) -> tuple[ContainerFacts, ...]:
    """Return, as they are now, those containers that are still what the decision was about."""
    now = {facts.id: facts for facts in fresh}
    return tuple(
        now[old.id]
        for old in decided
        if old.id in now and _what_counts(now[old.id]) == _what_counts(old)
    )


def _what_counts(facts: ContainerFacts) -> tuple[object, ...]:
    return (facts.state, facts.started, facts.finished, facts.name, dict(facts.labels))
