"""Removes the workspaces of sessions that have no container and were not used for long."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping

import structlog
from anyio import Lock
from attrs import Factory, define, field, frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.inventory import EngineState, ListedContainer
from sandbox_exec._errors import SandboxError
from sandbox_exec._naming import LABEL_KEY, is_key
from sandbox_exec._reapers.census import Census, is_session, key_in, take_census
from sandbox_exec._roster import Roster
from sandbox_exec._tidy import DELETE_SECONDS, Tidy

__all__ = ["Root", "WorkspaceReaper", "holders", "last_uses", "read_root", "stale"]

_ASIDE = re.compile(r"aside ([a-z0-9-]+) ([0-9a-f]{16})")
_USE = re.compile(r"([a-z0-9-]+) (\d{1,12})")

log = structlog.get_logger(__name__)


@frozen
class Root:
    """What there is in a workspace root.

    :param now: by the clock of the disk's host.
    :param last_use: of each workspace, by its key.
    :param aside: keys and suffixes of those that were set aside by a sweep that did not end.
    """

    now: int
    last_use: Mapping[str, int] = field(factory=dict)
    aside: tuple[tuple[str, str], ...] = ()


def read_root(printed: bytes) -> Root:
    """Read what ``tidy.sh look`` printed.

    :raises SandboxError: for anything it does not print.
    """
    first, *lines = printed.decode("utf-8", "replace").splitlines() or [""]
    match = _USE.fullmatch(first)
    if match is None or match[1] != "now":
        raise SandboxError(f"the workspace root cannot be read: {first[:80]!r}", code="bad-mount")
    uses = (found for line in lines if (found := _USE.fullmatch(line)) and is_key(found[1]))
    asides = (found for line in lines if (found := _ASIDE.fullmatch(line)) and is_key(found[1]))
    return Root(
        int(match[2]),
        {found[1]: int(found[2]) for found in uses},
        tuple((found[1], found[2]) for found in asides),
    )


def last_uses(census: Census, ahead: float) -> dict[str, float]:
    """Return the last use of each workspace that a container holds.

    :param ahead: seconds to the next look, until when one that runs may be used.
    """
    if census.now is None:
        return {}
    return {
        one.labels[LABEL_KEY]: (
            one.finished
            if one.state is EngineState.EXITED and one.finished is not None
            else census.now + ahead
        )
        for one in census.containers
        if is_session(one)
    }


def holders(listed: Iterable[ListedContainer], root: str, deployment: str) -> frozenset[str]:
    """Return the keys that have a container here, or whose workspace another's has mounted."""
    below = f"{root.rstrip('/')}/"
    mounts = (mount for one in listed for mount in one.mounts if mount.startswith(below))
    names = (key_in(one.name) for one in listed if one.name.startswith(f"sbx.{deployment}."))
    return frozenset((*(mount.removeprefix(below) for mount in mounts), *names))


def stale(root: Root, held: Iterable[str], ttl: float) -> dict[str, int]:
    """Return the workspaces, with their last use, that no container holds and that are too old."""
    holding = frozenset(held)
    return {
        key: used
        for key, used in root.last_use.items()
        if key not in holding and root.now - used > ttl
    }


@define
class WorkspaceReaper:
    """Source: S0's ``sweepWorkspaces``; hazard R3."""

    _config: SandboxConfig
    _client: EngineClient
    _roster: Roster
    _tidy: Tidy
    _wall: Callable[[], float]
    _sweeping: Lock = Factory(Lock)

    async def sweep(self) -> int:
        """Remove what is stale; return how many.

        A workspace is set aside by a rename, then everything is asked again, and only then is it
        deleted: whoever starts meanwhile either has it back or has a new one.

        :raises SandboxError: when the engine gives no certain answer, and the next sweep goes on.
        """
        if self._config.workspace_root is None:
            return 0
        async with self._sweeping:
            census = await take_census(
                self._client, self._config.deployment, self._config.idle_after, self._wall
            )
            root = await self._look(census)
            found = stale(root, census.keys, self._config.ttl)
            found = {key: used for key, used in found.items() if not self._roster.claims(key)}
            suffix = secrets.token_hex(8)
            aside = {suffix: await self._set_aside(suffix, found)}
            for key, left in root.aside:
                aside.setdefault(left, []).append(key)
            return await self._finish(aside)

    async def _look(self, census: Census) -> Root:
        ahead = self._config.workspace_sweep_every
        await self._tidy.note(last_uses(census, ahead).items())
        return read_root(await self._tidy("look"))

    async def _set_aside(self, suffix: str, found: Mapping[str, int]) -> list[str]:
        pairs = [f"{key}={used}" for key, used in found.items()]
        moved = await self._tidy.each("aside", (suffix,), pairs)
        return [key for key in moved.decode("ascii", "replace").split() if key in found]

    async def _finish(self, aside: Mapping[str, list[str]]) -> int:
        """Delete what was set aside, but for what somebody has claimed meanwhile."""
        if not any(aside.values()):
            return 0
        # Of any deployment: another one may be on the same root, by mistake.
        listed = await self._client.list_containers(f"label={LABEL_KEY}")
        holding = holders(listed, self._config.workspace_root or "", self._config.deployment)
        deleted = 0
        for suffix, keys in aside.items():
            claimed = [key for key in keys if key in holding or self._roster.claims(key)]
            doomed = [key for key in keys if key not in claimed]
            await self._tidy.each("back", (suffix,), claimed)
            await self._tidy.each("delete", (suffix,), doomed, seconds=DELETE_SECONDS)
            if doomed:
                log.info("workspaces.removed", keys=doomed)
                # What is known of their sessions is no longer worth telling.
                self._roster.forget(self._config.ttl)
            deleted += len(doomed)
        return deleted
