"""Keeps the number of stopped sandboxes bounded: the longest cold retire first."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox_exec._docker.inventory import ContainerFacts

__all__ = ["over_dormant_cap", "surplus"]


def over_dormant_cap(dormant: Iterable[tuple[str, float]], maximum: int) -> list[str]:
    """Return which stopped sandboxes to remove to keep at most ``maximum`` of them.

    The time-to-live bounds a sandbox's age; this bounds the fleet's size, which is what the
    daemon's disk feels. A removal costs a session its environment and, with a workspace root, none
    of its work.

    :param dormant: name of each, and when it stopped.
    :param maximum: how many to keep; 0 or less for any number.
    :returns: names, the longest cold first.

    Source: S0's ``overDormantCap``.
    """
    coldest = sorted(dormant, key=lambda one: one[1])
    return [name for name, _ in coldest[: max(len(coldest) - maximum, 0)]] if maximum > 0 else []


def surplus(dormant: Iterable[ContainerFacts], maximum: int) -> tuple[ContainerFacts, ...]:
    """Return which of the stopped containers are beyond the cap."""
    # Of those that stopped in the same moment, the one that was made first goes first.
    by_id = {facts.id: facts for facts in sorted(dormant, key=lambda one: one.created)}
    # Without a time there is nothing to go by: it may only just be starting (hazard F7).
    times = [(facts.id, facts.finished) for facts in by_id.values() if facts.finished is not None]
    return tuple(by_id[id_] for id_ in over_dormant_cap(times, maximum))
