"""Places the files of a request, all of them in the start of the container that is to use them.

Much of what files can be placed in is memory, which a stop empties, and all of it goes with the
container. So both are remembered: which container, and which start of it.
"""

from __future__ import annotations

from typing import Final

from attrs import define, frozen

from sandbox_exec._errors import FileTransferError
from sandbox_exec._roster import Session
from sandbox_exec._spawn.line import ANY_START
from sandbox_exec._spawn.parts import Parts
from sandbox_exec._spawn.values import SpawnRequest
from sandbox_exec._startup import Started

__all__ = ["Placing"]

_TRIES: Final = 4


@frozen
class _Place:
    """One start of one container."""

    container: str
    start: str


@define
class Placing:
    """The files of one request, and where they are."""

    _parts: Parts
    _request: SpawnRequest
    _place: _Place | None = None
    _tries: int = 0

    @property
    def start(self) -> str:
        """The start of the container that has the files; the wrapper inside refuses any other."""
        return ANY_START if self._place is None else self._place.start

    def lost(self) -> None:
        """Have everything placed anew."""
        self._place = None

    async def container(self, session: Session) -> Started:
        """Return a running container that has the files, as far as is known here.

        :raises FileTransferError: when one could not be placed, or no container kept them all.
        :raises SandboxError: when there is no container to be had.
        """
        while True:
            started = await self._parts.sessions.keeper.acquire(session)
            if not self._request.options.files:
                return started
            if self._place is not None and self._place.container == started.id:
                return started
            self._place = await self._put_all(session)

    async def _put_all(self, session: Session) -> _Place | None:
        """Place the files; return where they are, nothing if that is not one place."""
        self._tries += 1
        if self._tries > _TRIES:
            path = next(iter(self._request.options.files))
            raise FileTransferError(
                f"{path}: the container was replaced or restarted each time that it was placed",
                code="interrupted",
                path=path,
                retryable=True,
            )
        places = set()
        for path, data in self._request.options.files.items():
            await self._parts.files.put(self._parts.key, path, data)
            # Nothing was awaited since the guest's answer, so this is what that very call has met.
            started, start = session.started, session.boot
            places.add(_Place("" if started is None else started.id, start or ANY_START))
        return places.pop() if len(places) == 1 else None
