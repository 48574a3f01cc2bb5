"""A container that was found running, and which start of it that was."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from sandbox_exec._docker.inventory import ContainerFacts, EngineState

__all__ = ["FIRST", "Started"]

FIRST: Final = 0.0
"""The moment of the first start, for one that was made just now and not looked at since."""


@frozen
class Started:
    """A container that runs under today's policy.

    :param id: the engine's id for it, which a successor of the same name does not share.
    :param reset: why processes or packages of earlier calls are gone, if they are (hazard S16).
    :param since: when it last started, by the engine's clock; ``None`` if that does not matter.
    """

    id: str
    reset: str | None = None
    since: float | None = None

    def goes_on(self, found: ContainerFacts | None) -> bool:
        """Return whether what was found is this container, running and not started again."""
        if found is None or found.id != self.id or found.state is not EngineState.RUNNING:
            return False
        if self.since == FIRST:
            return found.finished is None
        return self.since in {None, found.started}

    def is_same_start(self, later: Started) -> bool:
        """Return whether a later look found the same start of the same container."""
        return self.id == later.id and self.since in {None, FIRST, later.since}
