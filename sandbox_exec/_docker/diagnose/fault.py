"""The faults that an engine's own words can name."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["ENDINGS", "Fault"]


class Fault(Enum):
    """What went wrong, as far as the engine's words tell."""

    DAEMON_DOWN = auto()
    """No engine answers there as one does: absent, refused, unknown host, broken, wrong version."""
    DAEMON_DENIED = auto()
    """This user may not use the engine's socket."""
    CONTEXT_MISSING = auto()
    """The context or connection that names the engine is not known to the program."""
    CONTAINER_MISSING = auto()
    CONTAINER_STOPPED = auto()
    """Created or exited. podman 4.3 says the same of a paused one: look at its state."""
    CONTAINER_PAUSED = auto()
    CONTAINER_RESTARTING = auto()
    NAME_TAKEN = auto()
    BEING_REMOVED = auto()
    IMAGE_MISSING = auto()
    """The image is not here, or cannot be fetched."""
    BAD_IMAGE = auto()
    """No image can have that name."""
    NO_SHELL = auto()
    """The program is missing or cannot be run."""
    BAD_USER = auto()
    BAD_CWD = auto()
    PROCESSES_EXHAUSTED = auto()
    """A shell could not fork, which had then started, or the runtime could make no thread.

    Most often it is said in the words of :attr:`INIT_LOST`.
    """
    MEMORY_EXHAUSTED = auto()
    """The runtime was killed for want of memory before it ran the program."""
    DISK_FULL = auto()
    RACED = auto()
    """The exec met the end of its container. Whether its program ran is for the frames to say."""
    INIT_LOST = auto()
    """The runtime's own process ended before it ran the program.

    Its container ended, or has no process left within its limit: see whether it goes on as before.
    """
    NO_QUOTA = auto()
    """The storage driver, or the disk below it, cannot limit a container's size."""
    BAD_RUNTIME = auto()
    BAD_NETWORK = auto()
    BAD_MOUNT = auto()
    BAD_FLAG = auto()
    """A setting that the program or the engine refuses."""
    UNKNOWN = auto()


ENDINGS: Final = frozenset(
    {
        Fault.CONTAINER_MISSING,
        Fault.CONTAINER_STOPPED,
        Fault.CONTAINER_PAUSED,
        Fault.CONTAINER_RESTARTING,
        Fault.BEING_REMOVED,
        Fault.RACED,
    }
)
"""What is said of a container that somebody stops, restarts or removes just then."""
