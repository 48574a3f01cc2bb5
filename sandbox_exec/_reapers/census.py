"""What of ours there is on the engine, and what time it is there, as values to decide on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from attrs import frozen

from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.inventory import ContainerFacts, EngineState, ListedContainer
from sandbox_exec._docker.moments import moment
from sandbox_exec._naming import (
    LABEL_DEPLOYMENT,
    LABEL_KEY,
    LABEL_KIND,
    Kind,
    container_name,
    is_key,
)

__all__ = ["Census", "engine_time", "is_lasting", "is_session", "key_in", "old_age", "take_census"]

_LEAST_OLD_AGE = 600.0
_LASTING: Final[tuple[Kind, ...]] = ("session", "spawn")


@frozen
class Census:
    """The containers of one deployment.

    :param now: the time by the daemon's own clock, taken before anything else; ``None`` if it does
        not say, and then nothing is old.
    :param keys: of all sessions that have a container, also one that is only just being made.
    """

    now: float | None
    containers: tuple[ContainerFacts, ...] = ()
    keys: frozenset[str] = frozenset()


def old_age(idle_after: float) -> float:
    """Return the seconds after which what never ran, or served one call, is a leftover."""
    return max(idle_after, _LEAST_OLD_AGE)


def engine_time(info: bytes, wall: Callable[[], float]) -> float | None:
    """Return the time by the daemon's clock from its ``info``.

    podman does not say, but has no daemon: unless it says that it is a remote one, the clock is
    this host's.
    """
    try:
        facts = json.loads(info)
        if isinstance(facts, dict) and isinstance(stamp := facts.get("SystemTime"), str):
            return moment(stamp)
    except ValueError:
        return None
    host = facts.get("host") if isinstance(facts, dict) else None
    local = isinstance(host, dict) and host.get("serviceIsRemote") is False
    return wall() if local else None


def is_session(facts: ContainerFacts) -> bool:
    """Return whether it is a session's container; only those have a workspace of ours."""
    return facts.labels.get(LABEL_KIND) == "session"


def is_lasting(facts: ContainerFacts) -> bool:
    """Return whether it is one that stays, and has files that somebody may want (hazard B4)."""
    return facts.labels.get(LABEL_KIND) in _LASTING


def key_in(name: str) -> str:
    """Return what would be the session's key in a container's name."""
    return name.rpartition(".")[2]


def _is_ours(facts: ContainerFacts, deployment: str) -> bool:
    # Labels travel into images, by a commit, and from there into anybody's containers; the names
    # are ours alone.
    if facts.labels.get(LABEL_DEPLOYMENT) != deployment:
        return False
    for kind in _LASTING:
        if facts.labels.get(LABEL_KIND) == kind:
            key = facts.labels.get(LABEL_KEY, "")
            return is_key(key) and facts.name == container_name(deployment, key, kind)
    known = facts.labels.get(LABEL_KIND) in {"one-off", "reaper"}
    return known and facts.name.startswith(f"sbx.{deployment}.once.")


def _to_inspect(
    listed: Iterable[ListedContainer], now: float | None, idle_after: float
) -> list[str]:
    """Return the ids to ask about: ``inspect`` waits for one that is being made (hazard F7)."""
    return [
        one.id
        for one in listed
        if one.state is not EngineState.CREATED
        or (now is not None and (one.created is None or now - one.created > old_age(idle_after)))
    ]


async def take_census(
    client: EngineClient, deployment: str, idle_after: float, wall: Callable[[], float]
) -> Census:
    """Ask the engine what there is, in three calls for any number of containers.

    :raises DaemonUnavailableError: for any answer that is not certain.
    """
    listed = await client.list_containers(f"label={LABEL_DEPLOYMENT}={deployment}")
    if not listed:
        return Census(None)
    answer = await client.info()
    now = engine_time(answer.stdout, wall) if answer.exit_code == 0 else None
    inspected = await client.inspect_all(_to_inspect(listed, now, idle_after))
    return Census(
        now,
        tuple(facts for facts in inspected if _is_ours(facts, deployment)),
        frozenset(key for one in listed if is_key(key := key_in(one.name))),
    )
