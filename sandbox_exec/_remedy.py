"""What to do about a call that certainly did not start: a pure decision."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from attrs import frozen

from sandbox_exec._docker.diagnose import ENDINGS, Fault
from sandbox_exec._errors import FileTransferError, SandboxBrokenError
from sandbox_exec._outcome import NotStarted
from sandbox_exec._tool_text import BROKEN_HINT, UNSETTLED_HINT

__all__ = [
    "GiveUp",
    "Rejected",
    "Remedy",
    "Treatment",
    "beyond_repair",
    "treatment",
    "unsettled",
]


class Remedy(Enum):
    """Ways to heal a session's container."""

    LOOK_AGAIN = auto()
    """Ask the engine what became of the container; start, unpause or rebuild it as needed."""

    WAIT = auto()
    """Somebody is putting it to sleep right now: wait, then wake it."""

    SETTLE = auto()
    """Others stop or start it just then: pause and look again, for as long as a start may take."""

    REDIAL = auto()
    """The way to it failed although the engine answers: wait, and try again, for a while."""

    RESTART = auto()
    """Stop and start it: its files stay, its processes are lost."""

    REBUILD = auto()
    """Remove it and make another, with a workspace of its own: only files of the workspace stay."""


class Rejected(ValueError):  # noqa: N818  # what the caller sees is a ValueError
    """The sandbox rejects what it was given; ``{user}`` and ``{cwd}`` stand for the values."""


@frozen
class Treatment:
    """A remedy and, for one that costs something, the words about why."""

    remedy: Remedy
    why: str = ""

    @property
    def name(self) -> str:
        """What is done, for logs."""
        return self.remedy.name.lower().replace("_", " ")


@frozen
class GiveUp:
    """Nothing heals this.

    :param rejected: it was the caller's input.
    :param transfer: it is about a file, and not about the sandbox.
    :param passing: it may well be otherwise a moment later.
    """

    code: str
    what: str
    rejected: bool = False
    transfer: bool = False
    passing: bool = False

    @property
    def name(self) -> str:
        """What is done, for logs."""
        return f"none ({self.code})"

    def error(self) -> Exception:
        """Return what the caller is told."""
        if self.transfer:
            return FileTransferError(self.what, code=self.code, retryable=self.passing)
        if self.rejected:
            return Rejected(self.what)
        return SandboxBrokenError(self.what, code=self.code, hint=BROKEN_HINT)


def beyond_repair(verdict: NotStarted, *, restarted: bool = True) -> SandboxBrokenError:
    """Return what the caller is told when no remedy is left.

    :param restarted: whether a restart was among those that were tried.
    """
    reason = verdict.refused or verdict.diagnosis.line or "no answer"
    tried = "even after a restart" if restarted else "and others may still use it"
    return SandboxBrokenError(
        f"the sandbox cannot serve calls, {tried} ({reason})",
        code="sandbox-mute",
        stderr=verdict.diagnosis.line,
        hint=BROKEN_HINT,
    )


def unsettled(verdict: NotStarted) -> SandboxBrokenError:
    """Return what the caller is told when others would not leave the container alone."""
    return SandboxBrokenError(
        f"the sandbox kept being stopped or restarted by others ({verdict.diagnosis.line})",
        code="sandbox-unsettled",
        retryable=True,
        stderr=verdict.diagnosis.line,
        hint=UNSETTLED_HINT,
    )


_FULL: Final = (
    "it had run out of {} and was restarted: its files are as they were, its processes are gone"
)

_FAULTS: Final[dict[Fault, Treatment | GiveUp]] = {
    Fault.BAD_USER: GiveUp("bad-user", "the sandbox has no user {user!r}", rejected=True),
    Fault.NO_SHELL: GiveUp("no-shell", "the sandbox has no working sh"),
    Fault.DISK_FULL: GiveUp("disk-full", "the disk on the engine's host is full"),
    Fault.PROCESSES_EXHAUSTED: Treatment(Remedy.RESTART, _FULL.format("processes")),
    Fault.MEMORY_EXHAUSTED: Treatment(Remedy.RESTART, _FULL.format("memory")),
}

_REFUSALS: Final[dict[str, Treatment | GiveUp]] = {
    "cwd": GiveUp(
        "bad-cwd", "the working directory {cwd!r} can neither be entered nor made", rejected=True
    ),
    "dd": GiveUp("no-dd", "the image has no dd, without which no standard input can be given"),
    "workspace": GiveUp("no-workspace", "/workspace is gone and cannot be made again"),
    "workspace-gone": Treatment(
        Remedy.REBUILD,
        "its workspace had been removed and is empty; its container was rebuilt: packages and "
        "processes are gone",
    ),
    "directory": GiveUp("is-directory", "there is a directory of that name", transfer=True),
    "parent": GiveUp(
        "bad-parent", "its directory can neither be made nor written to", transfer=True
    ),
    "disk": GiveUp("no-space", "it could not be written whole", transfer=True),
    "rename": GiveUp("rename", "it could not be put in its place", transfer=True),
    "outbox": GiveUp("bad-outbox", "the outbox is a link or no directory", transfer=True),
    "tools": GiveUp("no-tools", "the image lacks dd, find, ls, mkdir, mv or touch", transfer=True),
    "busy": GiveUp(
        "outbox-busy", "another harvest has not ended for a minute", transfer=True, passing=True
    ),
    "retiring": Treatment(
        Remedy.WAIT,
        "it was marked as stopping and did not stop, so it was restarted: its files are as they "
        "were, its processes are gone",
    ),
    "fork": Treatment(Remedy.RESTART, _FULL.format("processes")),
    "space": Treatment(Remedy.RESTART, _FULL.format("memory for requests")),
    "state": Treatment(
        Remedy.RESTART,
        "its guest's notes could not be written and it was restarted: its files are as they were, "
        "its processes are gone",
    ),
    "tag": GiveUp("no-tag", "processes cannot be tagged in this sandbox, so no limit would hold"),
}

_WAYS: Final = frozenset({Fault.DAEMON_DOWN, Fault.DAEMON_DENIED, Fault.CONTEXT_MISSING})

_STOOD: Final = 3
"""Looks at a container that goes on as before, after which it has not ended but is full."""

_MUTE: Final = Treatment(
    Remedy.RESTART,
    "it no longer answered and was restarted: its files are as they were, its processes are gone",
)


def treatment(verdict: NotStarted, *, looked: bool, stood: int = 0) -> Treatment | GiveUp:
    """Return how to heal the container of a call that did not start.

    :param looked: it was already looked at again for this call, and seemed well.
    :param stood: how many looks in a row found that it had not even been started again.
    """
    if verdict.refused is not None:
        return _REFUSALS.get(verdict.refused, _MUTE)
    if verdict.silent:
        return _MUTE if looked else Treatment(Remedy.LOOK_AGAIN)
    fault = verdict.diagnosis.fault
    if fault is Fault.INIT_LOST and stood >= _STOOD:
        # The container is there as it was, so it was not its end that the exec met.
        fault = Fault.PROCESSES_EXHAUSTED
    ends = fault in ENDINGS or fault is Fault.INIT_LOST or (fault is Fault.UNKNOWN and not stood)
    if looked and ends:
        # A restart of ours would only be one more, and end what others run in it.
        return Treatment(Remedy.SETTLE, _MUTE.why)
    if looked and fault in _WAYS:
        # The container is not to blame, and what runs in it must not be.
        return Treatment(Remedy.REDIAL)
    known = _FAULTS.get(fault)
    return known or (_MUTE if looked else Treatment(Remedy.LOOK_AGAIN))
