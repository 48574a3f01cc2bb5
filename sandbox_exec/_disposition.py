"""What to do with the container that has a session's name: a pure decision."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from sandbox_exec._docker.inventory import ContainerFacts, EngineState
from sandbox_exec._naming import LABEL_DEPLOYMENT, LABEL_KEY, LABEL_KIND, LABEL_POLICY, Kind
from sandbox_exec._policy import Policy

__all__ = ["Disposition", "disposition", "is_ours"]


class Disposition(Enum):
    """What to do with the container that has this name."""

    CREATE = auto()
    ADOPT = auto()
    UNPAUSE = auto()
    START = auto()
    RECREATE = auto()
    WAIT = auto()
    FOREIGN = auto()


_BY_STATE: Final[Mapping[EngineState, Disposition]] = {
    EngineState.RUNNING: Disposition.ADOPT,
    EngineState.PAUSED: Disposition.UNPAUSE,
    EngineState.EXITED: Disposition.START,
    EngineState.CREATED: Disposition.START,
    EngineState.RESTARTING: Disposition.WAIT,
    EngineState.REMOVING: Disposition.WAIT,
    EngineState.DEAD: Disposition.RECREATE,
    EngineState.UNKNOWN: Disposition.WAIT,
}


def disposition(
    container: ContainerFacts | None, policy: Policy, *, deployment: str, key: str, kind: Kind
) -> Disposition:
    """Return what to do with the container that has a session's name.

    A changed policy is never adopted, however convenient the contents. A container that is not
    ours is never touched.

    Source: S0's ``adoptable``; hazards S3, S7, S9.
    """
    if container is None:
        return Disposition.CREATE
    if not is_ours(container, deployment, key, kind):
        return Disposition.FOREIGN
    by_state = _BY_STATE[container.state]
    if by_state is Disposition.WAIT or container.labels.get(LABEL_POLICY) == policy.fingerprint:
        return by_state
    return Disposition.RECREATE


def is_ours(container: ContainerFacts, deployment: str, key: str, kind: Kind) -> bool:
    """Return whether it is the container of this very session, or of this very spawn backend."""
    found = tuple(container.labels.get(name) for name in (LABEL_DEPLOYMENT, LABEL_KEY, LABEL_KIND))
    return found == (deployment, key, kind)
