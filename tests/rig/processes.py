"""Processes known by pid *and* start time, so that a reused pid is never mistaken for ours and
signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


class RigError(Exception):
    """The rig cannot do what was asked; the message is one line for a person."""


@dataclass(frozen=True)
class ProcessId:
    """One process, for good: a pid alone names whoever has it now."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Identify the process that has this pid now; ``None`` for none and for a zombie."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except (OSError, ValueError):
            return None
        # The name in parentheses may hold blanks and parentheses of its own.
        fields = text.rpartition(")")[2].split()
        if fields[0] in {"Z", "X"}:
            return None
        return cls(pid, int(fields[19]))

    @classmethod
    def parse(cls, text: str) -> ProcessId | None:
        """Read what ``str`` wrote."""
        parts = text.split()
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            return None
        return cls(int(parts[0]), int(parts[1]))

    def __str__(self) -> str:
        return f"{self.pid} {self.start_time}"

    def alive(self) -> bool:
        """Tell whether it still runs (a zombie does not)."""
        return ProcessId.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Signal it if it is still the same process."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def end(self, *, patience: float) -> None:
        """Ask it to stop, thawed in case it was frozen, then kill it; returns when it is gone."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not wait_until(lambda: not self.alive(), patience):
            self.kill()

    def kill(self) -> None:
        """Kill it and wait until it is gone."""
        self.signal(signal.SIGKILL)
        if not wait_until(lambda: not self.alive(), 10):
            raise RigError(f"process {self.pid} survived SIGKILL")


def wait_until(condition: Callable[[], bool], limit: float) -> bool:
    """Poll until the condition holds; false when it does not within the limit (seconds)."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def every_pid() -> Iterator[int]:
    """List the pids of this moment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def command_line(pid: int) -> list[str]:
    """Return a process's argv, empty if it is gone or a kernel thread."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").split("\0")[:-1]


def descendants(pids: Iterable[int]) -> list[int]:
    """List all children of these processes, their children, and so on."""
    children: dict[int, list[int]] = {}
    for pid in every_pid():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    pending = list(pids)
    while pending:
        of_one = children.get(pending.pop(), [])
        found.extend(of_one)
        pending.extend(of_one)
    return found


def kill_all(pids: Iterable[int]) -> None:
    """Kill each of these processes and wait until they are gone."""
    identities = [identity for pid in pids if (identity := ProcessId.of(pid))]
    for identity in identities:
        identity.signal(signal.SIGKILL)
    for identity in identities:
        identity.kill()
