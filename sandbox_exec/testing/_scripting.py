"""The faults that a test can script, as methods of the fake daemon."""

from __future__ import annotations

from math import inf
from typing import Literal

from sandbox_exec._docker.interface import Completed
from sandbox_exec.testing._commands import Command
from sandbox_exec.testing._faults import VERBS, Failure, FakeHold, Faults, Freeze, GuestPlan, Stall
from sandbox_exec.testing._verbs import failure

__all__ = ["Scripting"]


class Scripting:
    """What can go wrong with an engine.

    A verb is the engine's own word: ``context inspect``, ``exec``, ``inspect``, ``image inspect``,
    ``info``, ``ps``, ``pull``, ``restart``, ``rm``, ``start``, ``stop``, ``top``, ``unpause``,
    ``version``, ``run`` for a container that stays, and ``run --rm`` for one that does not.
    """

    def __init__(self, host: str) -> None:
        self._freeze = Freeze()
        self._faults = Faults()
        self._unreachable = (
            f"Cannot connect to the Docker daemon at {host}. Is the docker daemon running?"
        )
        self._down: tuple[str, int | None] | None = None

    def down(self, words: str | None = None, exit_code: int | None = None) -> None:
        """Let the engine be gone: calls say so at once, conversations end with status 255.

        :param words: what the program says instead of that it cannot connect.
        :param exit_code: what it ends with then.
        """
        self._down = (self._unreachable if words is None else words, exit_code)

    def up(self) -> None:
        """Let the engine be there again, with its containers as they were."""
        self._down = None

    def hang(self) -> None:
        """Let the engine accept every call and answer none; conversations freeze."""
        self._freeze.change(frozen=True)

    def thaw(self) -> None:
        """Let the engine go on, with what it was asked meanwhile; ends :meth:`hang_next` too."""
        self._freeze.change(frozen=False)
        for stall in self._faults.hung:
            stall.release()

    def fail_next(
        self,
        verb: str,
        *,
        stderr: str = "",
        stdout: str = "",
        exit_code: int = 1,
        times: int = 1,
        creates: bool = False,
    ) -> None:
        """Let the next calls of ``verb`` fail and do nothing.

        :param creates: a ``run`` leaves a container that never ran (hazard F11).
        """
        answer = Completed(exit_code, stdout.encode(), stderr.encode())
        self._faults.failures.append(Failure(_known(verb), answer, times, creates))

    def hang_next(self, verb: str, *, times: int = 1, acts: bool = False) -> None:
        """Let the next calls of ``verb`` get no answer.

        :param acts: what they ask for is done all the same, once their client gives up.
        """
        hold = FakeHold()
        self._faults.hung.append(hold)
        self._faults.stalls.append(Stall(_known(verb), acts, times, hold))

    def spare_next(self, verb: str) -> None:
        """Let the next call of ``verb`` go well, where the one after it shall not."""
        self._faults.failures.append(Failure(_known(verb), None, 1))
        self._faults.stalls.append(Stall(verb, acts=False, times=1))

    def hold(self, verb: str, *, acts: bool = False) -> FakeHold:
        """Let calls of ``verb`` wait until they are released.

        :param acts: what they ask for is done even if their client gives up meanwhile.
        """
        hold = FakeHold()
        self._faults.stalls.append(Stall(_known(verb), acts, inf, hold))
        return hold

    def slow_start(self, seconds: float, *, acts: bool = False) -> None:
        """Let each ``run`` of a container that stays take so long, really.

        :param acts: it is made even if its client gives up meanwhile.
        """
        self._faults.stalls.append(Stall("run", acts, inf, None, seconds))

    def die_before_ready_next(self, *, exit_code: int = 137) -> None:
        """Let the next guest end before it says anything."""
        self._faults.guests.append(GuestPlan(dies="before-ready", exit_code=exit_code))

    def die_after_sent_next(self, *, runs: bool = True, exit_code: int = 137) -> None:
        """Let the next guest end when it has its whole request, without an end frame.

        :param runs: the command runs, whole, before that (hazard F19).
        """
        self._faults.guests.append(GuestPlan(dies="after-sent", exit_code=exit_code, runs=runs))

    def die_midway_next(self, *, exit_code: int = 137) -> None:
        """Let the next guest end with some of a put's bytes, or with a harvest's claims made."""
        self._faults.guests.append(GuestPlan(dies="midway", exit_code=exit_code))

    def lose_end_frame_next(self, stream: Literal["stdout", "stderr"]) -> None:
        """Let the next guest forget the end frame of one stream."""
        self._faults.guests.append(GuestPlan(mute=stream))

    def refuse_next(self, reason: str) -> None:
        """Let the next guest refuse to run its command, e.g. for want of ``space``."""
        self._faults.guests.append(GuestPlan(refuses=reason))

    def speak_next(self, protocol: int) -> None:
        """Let the next guest be one of another version."""
        self._faults.guests.append(GuestPlan(protocol=protocol))

    def forget_start_next(self) -> None:
        """Let the next guest not know which start of its container this is."""
        self._faults.guests.append(GuestPlan(knows_start=False))

    def behave_next(self) -> None:
        """Let the next guest behave, where the one after it shall not."""
        self._faults.guests.append(GuestPlan())

    def _absence(self, command: Command) -> Completed | None:
        """Return how a command ends for want of an engine, or ``None`` if there is one."""
        if self._down is None or command.verb == "context inspect":
            return None
        words, exit_code = self._down
        answer = failure(command, words)
        if exit_code is None:
            return answer
        return Completed(exit_code, answer.stdout, answer.stderr)


def _known(verb: str) -> str:
    if verb not in VERBS:
        raise ValueError(f"no such verb: {verb!r}; there are {', '.join(sorted(VERBS))}")
    return verb
