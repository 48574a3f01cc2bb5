"""The verb "retire" under dash, bash and busybox: a check and a stop that nobody comes between."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from sandbox_exec._frames import DONE, Frame, hello, retire_request

from .guest_host import SHELLS, Guest, missing

Start: TypeAlias = Callable[..., Guest]


@pytest.fixture(params=sorted(SHELLS))
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts guests under one shell that share a state directory; READY has been seen, if it was
    waited for.
    """
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    guests: list[Guest] = []

    def begin(*, greeted: bool = True) -> Guest:
        guests.append(Guest(request.param, tmp_path))
        return guests[-1].greet() if greeted else guests[-1]

    yield begin
    for guest in guests:
        guest.__exit__(None, None, None)


def uptime() -> int:
    """Return the seconds that containers count in."""
    return int(float(Path("/proc/uptime").read_text().split()[0]))


def retire(guest: Guest, idle_after: float) -> Frame:
    """Ask for a retirement and return the answer."""
    guest.say(retire_request(idle_after))
    frame = guest.until_frame(0)[1]
    assert frame is not None
    return frame


def test_an_idle_container_is_retired(start: Start) -> None:
    """Its last use is long enough ago, and nobody has a mark."""
    guest = start()
    (guest.state / "last").write_text(f"{uptime() - 100}.50\n")
    assert retire(guest, 99) == Frame("retired")
    assert (guest.state / "retired").exists()
    assert not (guest.state / "retiring").exists()


@pytest.mark.parametrize("name", ["last", "retiring", "sleep", "run-5", "run-1-5"])
def test_a_fifo_among_the_notes_holds_up_no_retirement(start: Start, name: str) -> None:
    """It says nothing; one in the place of "last" has the container be kept as one just used."""
    guest = start()
    (guest.state / "last").write_text(f"{uptime() - 100}.50\n")
    (guest.state / name).unlink(missing_ok=True)
    os.mkfifo(guest.state / name)
    assert retire(guest, 99) == (Frame("kept", ("99",)) if name == "last" else Frame("retired"))


def test_a_used_container_is_kept_for_as_long_as_it_must_be(start: Start) -> None:
    """The answer says when it is worth asking again."""
    guest = start()
    (guest.state / "last").write_text(f"{uptime() - 40}.00\n")
    frame = retire(guest, 100)
    assert frame.word == "kept"
    assert 58 <= int(frame.arguments[0]) <= 61
    assert not list(guest.state.glob("retir*"))


def test_a_running_command_keeps_its_container(start: Start) -> None:
    """However long ago it began: what is in flight is never idle (S6)."""
    runner, sweeper = start(), start()
    # Marks name processes by number, so here, where each guest has its own, one is borrowed.
    for mark in sweeper.state.glob("run-*"):
        mark.unlink()
    (sweeper.state / "last").write_text("1.00\n")
    (sweeper.state / "run-4711").write_text("1 busy 2\n")
    assert retire(sweeper, 5) == Frame("kept", ("6",))
    (sweeper.state / "run-4711").write_text("1 linger\n")
    (sweeper.state / "run-4712").write_text("999999 busy 2\n")
    assert retire(sweeper, 5) == Frame("retired")
    runner.ask("echo ran")
    assert runner.until_frame(0)[1] == Frame("refused", ("retiring",))


def test_a_guest_that_waits_for_its_request_keeps_its_container(start: Start) -> None:
    """What was sent to it would be lost with it; but only for a moment, as it may wait for ever."""
    waiting, sweeper = start(), start()
    (sweeper.state / "last").write_text("1.00\n")
    assert retire(sweeper, 5) == Frame("kept", ("1",))
    assert waiting.run("echo ran")[0] == b"ran\n"


def test_a_guest_that_comes_too_late_says_so(start: Start) -> None:
    """Before anything is sent to it."""
    sweeper = start()
    (sweeper.state / "last").write_text("1.00\n")
    assert retire(sweeper, 5) == Frame("retired")
    late = start(greeted=False)
    late.say(hello(late.talk))
    assert late.until_frame(0) == (b"", Frame("refused", ("retiring",)))


def test_a_mark_is_never_empty(start: Start) -> None:
    """A retirement that met it then would see nobody; so it is written over (S11)."""
    runner, sweeper = start(), start()
    runner.ask("sleep 0.5")
    seen = set()
    began = time.monotonic()
    while time.monotonic() - began < 0.4:
        seen |= {mark.read_text() for mark in sweeper.state.glob("run-*")}
    assert all(text.endswith("\n") for text in seen), seen


def test_only_one_retirement_is_at_it(start: Start) -> None:
    """Unless the other one died at it."""
    guest = start()
    (guest.state / "last").write_text("1.00\n")
    (guest.state / "retiring").write_text(f"{uptime()}\n")
    assert retire(guest, 5) == Frame("kept", ("10",))
    (guest.state / "retiring").write_text(f"{uptime() - 11}\n")
    assert retire(guest, 5) == Frame("retired")


def test_a_call_takes_over_from_a_dead_retirement(start: Start) -> None:
    """Whoever renames the mark has won, so a retirement that wakes up late does nothing."""
    guest = start()
    (guest.state / "retiring").write_text(f"{uptime() - 11}\n")
    assert guest.run("echo ran")[0] == b"ran\n"
    assert not list(guest.state.glob("retir*"))


@pytest.mark.parametrize("nonsense", ["", "x\n", "-5\n", "9" * 30 + "\n"])
def test_nonsense_in_the_state_is_no_reason_to_stop(start: Start, nonsense: str) -> None:
    """A command may write there what it likes; it can keep its own sandbox awake, no more."""
    guest = start()
    (guest.state / "last").write_text(nonsense)
    (guest.state / "sleep").write_text(nonsense)
    (guest.state / "run-x").write_text(nonsense)
    assert retire(guest, 1000).word == "kept"
    assert guest.run("echo fine")[0] == b"fine\n"


def test_the_last_use_is_the_end_of_the_last_command(start: Start) -> None:
    """Not its beginning."""
    guest = start()
    guest.ask("sleep 1.2")
    began = uptime()
    guest.answer()
    guest.say(DONE)
    time.sleep(0.1)
    assert float((guest.state / "last").read_text()) >= began + 1
