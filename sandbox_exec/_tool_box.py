"""What the containers may do in which short programs of our own run: as little as they need."""

from __future__ import annotations

from typing import Final

from sandbox_exec._docker.engine import without_proxies

__all__ = ["quota_flags", "tool_flags"]

_MEMORY: Final = str(128 * 2**20)


def tool_flags(root: str, mounted: str) -> tuple[str, ...]:
    """Return the flags of the container in which lines of our own shell tidy a workspace root.

    It runs the image's tools over every session's files, so it may do nothing else.
    """
    added = ("--cap-add", "DAC_OVERRIDE", "--cap-add", "FOWNER")
    return (*_box(), *added, "--volume", f"{root}:{mounted}")


def quota_flags(size: int) -> tuple[str, ...]:
    """Return the flags of the container that is made to see whether its disk can be bounded.

    :param size: bytes that its own files may take.
    """
    return (*_box(), "--storage-opt", f"size={size}")


def _box() -> tuple[str, ...]:
    return (
        *("--user", "0:0", "--network", "none", "--log-driver", "none", "--no-healthcheck"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "32"),
        *("--memory", _MEMORY, "--memory-swap", _MEMORY),
        *without_proxies(),
    )
