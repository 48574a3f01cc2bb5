"""Runs our shell over the workspace root, in a container of its own, since the disk is there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._errors import ContainerStartError
from sandbox_exec._guest import tidy_command
from sandbox_exec._naming import LABEL_DEPLOYMENT, LABEL_KIND, one_off_name
from sandbox_exec._start_error import start_error_from
from sandbox_exec._tool_box import tool_flags

__all__ = ["DELETE_SECONDS", "Tidy"]

DELETE_SECONDS: Final = 600.0
"""A budget of its own: a workspace may hold any number of files."""

_BATCH: Final = 1000

_MOUNTED: Final = "/sandbox-exec-root"
_NOT_OURS: Final = 7
_DONE: Final = {
    "close": "closed to other users of its host",
    "make": "given a workspace {0}",
    "dispose": "cleared of {1}",
}


@frozen
class Tidy:
    """Tidies one executor's workspace root on the daemon's host."""

    _config: SandboxConfig
    _client: EngineClient

    async def each(
        self, verb: str, fixed: Iterable[str], items: Sequence[str], *, seconds: float | None = None
    ) -> bytes:
        """Do ``verb`` to all of ``items``, in as many runs as their number takes."""
        printed = b""
        for start in range(0, len(items), _BATCH):
            batch = items[start : start + _BATCH]
            printed += await self(verb, *fixed, *batch, seconds=seconds)
        return printed

    async def note(self, uses: Iterable[tuple[str, float]]) -> None:
        """Write down when workspaces, given by their keys, were last used."""
        await self.each("stamp", (), [f"{key}={int(used)}" for key, used in uses])

    async def __call__(self, verb: str, *arguments: str, seconds: float | None = None) -> bytes:
        """Do what ``_guest/tidy.sh`` calls ``verb``; return what it printed.

        :param seconds: what it may take; the time for a start, unless told otherwise.
        :raises ContainerStartError: when it cannot be done.
        :raises DaemonUnavailableError: when it did not end in time; it ends itself then.
        """
        root, budget = self._config.workspace_root, seconds or self._config.start_timeout
        if root is None:
            return b""
        argv = command_line.run_tool(
            one_off_name(self._config.deployment),
            labels={LABEL_DEPLOYMENT: self._config.deployment, LABEL_KIND: "reaper"},
            flags=tool_flags(root, _MOUNTED),
            image=self._config.image,
            command=("sh", *tidy_command(_MOUNTED, math.ceil(budget), verb, *arguments)),
        )
        answer = await self._client.control(argv, timeout=budget)
        if answer.exit_code == _NOT_OURS:
            raise ContainerStartError(
                f"the workspace root {root} holds other things than workspaces, so it is not "
                "closed to other users: name a directory of its own",
                code="bad-mount",
                path=root,
            )
        if answer.exit_code != 0:
            done = _DONE.get(verb, f"tidied ({verb})").format(*arguments)
            what = f"the workspace root {root} could not be {done}"
            error = start_error_from(what, self._client.line(argv), answer)
            raise error.fresh(code="bad-mount", path=root)
        return answer.stdout
