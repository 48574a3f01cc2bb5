"""The disk on the daemon's host: room to start, and a workspace root that only root can enter."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from anyio import Lock, to_thread
from attrs import Factory, define

from sandbox_exec._config import SandboxConfig
from sandbox_exec._engine_source import EngineSource
from sandbox_exec._errors import ContainerStartError
from sandbox_exec._log import Log
from sandbox_exec._tidy import DELETE_SECONDS, Tidy
from sandbox_exec._tool_text import DISK_HINT

__all__ = ["Storage"]

log = Log(__name__)


def _free_bytes(path: str) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


@define
class Storage:
    """What an executor has to know about the daemon's disk.

    :param engine: says where the daemon keeps its data.
    :param tidy: what runs over the workspace root.
    :param free_bytes: returns the free bytes where a path is, or ``None`` if it is not there.
    """

    _config: SandboxConfig
    engine: EngineSource
    tidy: Tidy
    _free_bytes: Callable[[str], int | None] = _free_bytes
    _prepared: bool = False
    _preparing: Lock = Factory(Lock)

    @property
    def makes_directories(self) -> bool:
        """Whether the engine makes the directories that it is told of; known after ``check``."""
        return self.engine.facts is None or self.engine.facts.makes_directories

    async def check(self) -> None:
        """Refuse a start that would fill the disk (hazard R8).

        Only a daemon that keeps its data on a disk this process can see is checked.

        :raises ContainerStartError: with code ``disk-full``.
        :raises DaemonUnavailableError: when the engine does not answer.
        """
        facts = await self.engine.learn()
        if not self._config.min_free_bytes:
            return
        roots = (facts.data_root if facts else None, self._config.workspace_root)
        paths = [path for path in roots if path]
        for path in paths:
            free = await to_thread.run_sync(self._free_bytes, path)
            if free is not None and free < self._config.min_free_bytes:
                raise ContainerStartError(
                    f"only {free} bytes are free at {path} on the engine's host; "
                    f"at least {self._config.min_free_bytes} are wanted for a new sandbox",
                    code="disk-full",
                    path=path,
                    retryable=True,
                    hint=DISK_HINT,
                )

    async def make_room(self, key: str) -> None:
        """Check the disk, and make the workspace root on the daemon's host, with mode 0700, once.

        And a workspace in it, where the engine will not. A file made in a workspace keeps its suid
        bit on the host, so nobody but root may get at it (hazard R5). Done in a container, because
        the host may be another machine; but for the root of an engine that makes no directories.

        :raises ContainerStartError: as ``check``, and when it cannot be made or closed.
        """
        await self.check()
        root = self._config.workspace_root
        if root is None:
            return
        async with self._preparing:
            if not self._prepared:
                await self._close(root)
                self._prepared = True
        if not self.makes_directories:
            await self.tidy("make", key)

    async def _close(self, root: str) -> None:
        if not self.makes_directories and self.engine.facts and not self.engine.facts.remote:
            # What it cannot make is for the engine to complain of.
            with suppress(OSError):
                await to_thread.run_sync(partial(os.makedirs, root, 0o700, exist_ok=True))
        await self.tidy("close")
        if not await to_thread.run_sync(os.path.isdir, root):
            log.info("sandbox.workspace_root_elsewhere", workspace_root=root)

    async def remove_workspace(self, key: str) -> None:
        """Delete a session's files on the daemon's host; nothing happens without a root.

        Renamed first, so that a sandbox that starts meanwhile never meets half a workspace.

        :raises ContainerStartError: when they cannot be deleted.
        """
        if self._config.workspace_root is not None:
            await self.tidy("dispose", secrets.token_hex(8), key, seconds=DELETE_SECONDS)
