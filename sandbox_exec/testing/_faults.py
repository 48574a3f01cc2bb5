"""What goes wrong, as a test has scripted it."""

from __future__ import annotations

from typing import Final, Literal, TypeVar

from anyio import Event, sleep
from attrs import define, field, frozen

from sandbox_exec._docker.interface import Completed
from sandbox_exec._guest import PROTOCOL
from sandbox_exec.testing._commands import Command

__all__ = ["VERBS", "Failure", "FakeHold", "Faults", "Freeze", "GuestPlan", "Stall"]

VERBS: Final = frozenset(
    {
        *("context inspect", "exec", "image inspect", "info", "inspect", "ps", "pull"),
        *("restart", "rm", "run", "run --rm", "start", "stop", "top", "unpause", "version"),
    }
)


class FakeHold:
    """Commands of one kind that wait until a test lets them go on."""

    def __init__(self) -> None:
        self._released = Event()
        self._reached = Event()
        self.waiting: int = 0
        """How many wait now."""

    def release(self) -> None:
        """Let all of them go on, those to come included."""
        self._released.set()

    async def reached(self, waiting: int = 1) -> None:
        """Wait until so many wait."""
        while self.waiting < waiting:
            await self._reached.wait()

    async def wait(self) -> None:
        """Wait to be released."""
        if self._released.is_set():
            return
        self.waiting += 1
        reached, self._reached = self._reached, Event()
        reached.set()
        try:
            await self._released.wait()
        finally:
            self.waiting -= 1


@define
class Stall:
    """A command that takes its time.

    :param acts: what was asked for happens although its client has given up.
    """

    verb: str
    acts: bool
    times: float
    hold: FakeHold | None = None
    seconds: float = 0.0

    async def wait(self) -> None:
        """Take the time."""
        if self.hold is not None:
            await self.hold.wait()
        await sleep(self.seconds)


@define
class Failure:
    """A command that fails.

    :param answer: how it ends; ``None`` for one that is spared.
    :param creates: a ``run`` leaves the container that it could not start (hazard F11).
    """

    verb: str
    answer: Completed | None
    times: float
    creates: bool = False


@frozen
class GuestPlan:
    """How the next guest behaves.

    :param dies: before it says that it is ready, when it has the whole request, or midway: in a
        put, with some of the bytes, and in a harvest, when it has claimed.
    :param exit_code: what the engine's program ends with then.
    :param runs: the command runs before that.
    :param refuses: the reason it gives for not running the command.
    :param late: it has the whole request before it says that it retires.
    :param mute: the stream that gets no end frame.
    :param protocol: the version it says it speaks.
    :param knows_start: it can tell which start of its container this is.
    """

    dies: Literal["before-ready", "after-sent", "midway"] | None = None
    exit_code: int = 137
    runs: bool = True
    refuses: str | None = None
    late: bool = False
    mute: Literal["stdout", "stderr"] | None = None
    protocol: int = PROTOCOL
    knows_start: bool = True


class Freeze:
    """Whether the engine is one that accepts and never answers."""

    def __init__(self) -> None:
        self.frozen = False
        self._changed = Event()

    def change(self, *, frozen: bool | None = None) -> None:
        """Freeze, thaw, or only let those who wait look again."""
        if frozen is not None:
            self.frozen = frozen
        changed, self._changed = self._changed, Event()
        changed.set()

    async def thawed(self) -> None:
        """Wait while it is frozen."""
        while self.frozen:
            await self._changed.wait()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()


@define
class Faults:
    """The script: each entry is used up by the commands it meets."""

    stalls: list[Stall] = field(factory=list)
    failures: list[Failure] = field(factory=list)
    guests: list[GuestPlan] = field(factory=list)
    hung: list[FakeHold] = field(factory=list)

    def stall(self, command: Command) -> Stall | None:
        """Return how ``command`` is held up."""
        return _next(self.stalls, command)

    def failure(self, command: Command) -> Failure | None:
        """Return how ``command`` fails."""
        return _next(self.failures, command)

    def guest(self) -> GuestPlan:
        """Return how the guest that starts now behaves."""
        return self.guests.pop(0) if self.guests else GuestPlan()


_Entry = TypeVar("_Entry", Stall, Failure)


def _next(entries: list[_Entry], command: Command) -> _Entry | None:
    for entry in entries:
        if entry.verb == command.verb:
            entry.times -= 1
            if entry.times <= 0:
                entries.remove(entry)
            return entry
    return None
