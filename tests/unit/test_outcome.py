"""A report is judged by frames alone; the engine's words matter only where there is none."""

from __future__ import annotations

import pytest

from sandbox_exec._collect import Collector
from sandbox_exec._docker.diagnose import Fault
from sandbox_exec._frames import End
from sandbox_exec._outcome import Ended, Lost, NotStarted, Report, judge

LIES = (
    b"Error: No such container: x",
    b"Error response from daemon: Container x is not running",
    b"Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
)


def report(*, stdout: bytes = b"", stderr: bytes = b"", **facts: object) -> Report:
    """Return a report of a conversation."""
    made = Report(Collector(1000), Collector(1000), **facts)  # type: ignore[arg-type]  # as given
    made.stdout.feed(stdout)
    made.stderr.feed(stderr)
    return made


@pytest.mark.parametrize("text", LIES)
@pytest.mark.parametrize("code", [0, 1, 126, 137, 255])
def test_a_command_may_say_and_return_anything(text: bytes, code: int) -> None:
    """With an end frame it is a result, whatever it looks like (S2)."""
    verdict = judge(report(stdout=text, stderr=text, sent=True, end=End(code)))
    assert isinstance(verdict, Ended)
    assert (verdict.result.exit_code, verdict.result.timed_out) == (code, False)
    assert verdict.result.stderr == text.decode()


@pytest.mark.parametrize("text", LIES)
def test_without_a_request_nothing_can_have_started(text: bytes) -> None:
    """So the engine's words may be believed."""
    verdict = judge(report(engine_stderr=text, exit_code=1))
    assert isinstance(verdict, NotStarted)
    assert verdict.diagnosis.fault is not Fault.UNKNOWN
    assert verdict.diagnosis.line == text.decode()


@pytest.mark.parametrize("text", LIES)
def test_a_request_without_an_end_is_lost(text: bytes) -> None:
    """Whatever was said: it may have run (F19)."""
    verdict = judge(report(stdout=text, sent=True, exit_code=1))
    assert isinstance(verdict, Lost)
    assert verdict.partial.stdout == text.decode()


CUT = (
    "command [ssh -T -- host docker system dial-stdio] has exited with exit status 255, make sure "
    "the URL is valid, and Docker 18.09 or later is installed on the remote host: stderr=first\n"
    "ssh: the last words\n\n"
)


def test_a_cut_connection_is_told_from_a_lost_sandbox() -> None:
    """By the last words of the engine's program, which are not the command's."""
    verdict = judge(report(stderr=f"own\n{CUT}".encode(), sent=True, exit_code=1))
    assert isinstance(verdict, Lost)
    assert verdict.partial.stderr == "own\n"
    assert verdict.cut is not None
    assert verdict.cut.fault is Fault.DAEMON_DOWN
    assert verdict.cut.line.endswith("stderr=ssh: the last words")


@pytest.mark.parametrize(("code", "more"), [(137, ""), (0, ""), (1, "x\n" * 30)])
def test_a_command_that_talks_of_a_cut_connection(code: int, more: str) -> None:
    """Keeps its words where the program's status, or what follows, says that they are its own."""
    text = CUT + more
    verdict = judge(report(stderr=text.encode(), sent=True, exit_code=code))
    assert isinstance(verdict, Lost)
    assert (verdict.partial.stderr, verdict.cut) == (text, None)


def test_time_limits() -> None:
    """The guest says so; or the host's timer fired, and the guest or a second one confirms."""
    by_guest = judge(report(sent=True, end=End(137, timed_out=True), stdout=b"partial"))
    by_host = judge(report(sent=True, overdue=True, end=End(137, killed=True)))
    by_other = judge(report(sent=True, overdue=True, reaped=True))
    for verdict in (by_guest, by_host, by_other):
        assert isinstance(verdict, Ended)
        assert (verdict.result.exit_code, verdict.result.timed_out) == (-1, True)
    assert isinstance(by_guest, Ended)
    assert by_guest.result.stdout == "partial"
    assert isinstance(judge(report(sent=True, overdue=True)), Lost)
    late_but_done = judge(report(sent=True, overdue=True, end=End(3)))
    assert isinstance(late_but_done, Ended)
    assert late_but_done.result.exit_code == 3


def test_flags_come_through() -> None:
    """What the guest noticed is on the result."""
    verdict = judge(
        report(sent=True, end=End(137, unkillable=True, timed_out=True, oom_killed=True))
    )
    assert isinstance(verdict, Ended)
    assert verdict.unkillable
    assert verdict.result.oom_killed


def test_silence_and_refusal() -> None:
    """Both mean that nothing started."""
    assert judge(report(silent=True, exit_code=-9)) == NotStarted(silent=True)
    assert judge(report()) == NotStarted(silent=True)
    assert judge(report(sent=True, refused="cwd")) == NotStarted(refused="cwd")
