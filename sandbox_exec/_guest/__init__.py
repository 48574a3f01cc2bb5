"""The shell text that runs inside containers, and its loader.

The text lives in ``.sh`` files so that shellcheck and real shells can check it. It reaches a
container in an environment variable and not in an argument, so that ``ps`` inside shows one short
line instead of the whole script.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

__all__ = [
    "BOOTSTRAP",
    "GUEST_VARIABLE",
    "PROTOCOL",
    "SPAWN_VARIABLE",
    "STATE_DIR",
    "WORKSPACE",
    "bootstrap",
    "guest_script",
    "keepalive_command",
    "look_script",
    "reach_script",
    "spawn_command",
    "spawn_script",
    "tidy_command",
]

PROTOCOL: Final = 1
"""Version of what is said over a guest's streams; in READY and in the label (hazard S18)."""

STATE_DIR: Final = "/run/sandbox-exec"
"""Where the guests of a container keep their marks: a tmpfs, so a restart clears it."""

WORKSPACE: Final = "/workspace"

GUEST_VARIABLE: Final = "SANDBOX_EXEC_GUEST"

SPAWN_VARIABLE: Final = "SANDBOX_EXEC_SPAWN"


def bootstrap(home: str) -> tuple[str, ...]:
    """Return the arguments to ``sh`` that start the guest, found in :data:`GUEST_VARIABLE`.

    :param home: the workspace it makes; nothing for one that is not its own to make.
    """
    return ("-c", f'eval "${GUEST_VARIABLE}"', "sandbox-exec-guest", STATE_DIR, home)


BOOTSTRAP: Final = bootstrap(WORKSPACE)
"""Arguments to ``sh`` that start the guest in a sandbox with a workspace of ours."""


_GUEST_FILES: Final = (
    *("base", "proc", "limits", "run", "files", "outbox", "harvest", "retire", "loop"),
)
_SPAWN_FILES: Final = ("proc", "spawn")


@cache
def _load(name: str) -> str:
    """Return the text of ``name``.sh without comments and indentation, which only readers need."""
    source = files(__name__).joinpath(f"{name}.sh").read_text(encoding="ascii")
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))


@cache
def guest_script() -> str:
    """Return the whole text of the guest."""
    return "\n".join(_load(name) for name in _GUEST_FILES)


@cache
def spawn_script() -> str:
    """Return the whole text that runs one spawned process."""
    return "\n".join(_load(name) for name in _SPAWN_FILES)


def spawn_command(*words: str) -> tuple[str, ...]:
    """Return the arguments to ``sh`` that run a spawned process; see ``spawn.sh`` for the words.

    Without its environment it is nothing, which must not look like success.
    """
    script = f'eval "${{{SPAWN_VARIABLE}:?start this with options.env as its environment}}"'
    return ("-c", script, "sandbox-exec-spawn", STATE_DIR, *words)


def keepalive_command(home: str = WORKSPACE) -> tuple[str, ...]:
    """Return the arguments to ``sh`` that make it PID 1 of a container that stays.

    :param home: as for :func:`bootstrap`.
    """
    return ("-c", _load("keepalive"), "sandbox-exec-init", home, STATE_DIR)


@cache
def look_script() -> str:
    """Return a command that says what its sandbox is, one fact a line."""
    return _load("look")


@cache
def reach_script() -> str:
    """Return a command that reaches for one of its sandbox's limits."""
    return _load("reach")


def tidy_command(root: str, seconds: int, verb: str, *arguments: str) -> tuple[str, ...]:
    """Return the arguments to ``sh`` that tidy a workspace root mounted at ``root``."""
    return ("-c", _load("tidy"), "sandbox-exec-tidy", root, str(seconds), verb, *arguments)
