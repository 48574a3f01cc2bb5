"""What is done about a call that did not start."""

from __future__ import annotations

import pytest

from sandbox_exec._docker.diagnose import ENDINGS, Diagnosis, Fault
from sandbox_exec._outcome import NotStarted
from sandbox_exec._remedy import GiveUp, Remedy, Treatment, treatment


def by_fault(fault: Fault, *, looked: bool = False, stood: int = 0) -> Treatment | GiveUp:
    """Return the treatment of what the engine said."""
    verdict = NotStarted(diagnosis=Diagnosis(fault, "words"))
    return treatment(verdict, looked=looked, stood=stood)


@pytest.mark.parametrize("fault", [Fault.BAD_USER])
def test_the_callers_own_mistakes_are_rejected(fault: Fault) -> None:
    """Nothing is healed for them."""
    step = by_fault(fault)
    assert isinstance(step, GiveUp)
    assert step.rejected


@pytest.mark.parametrize("fault", [Fault.PROCESSES_EXHAUSTED, Fault.MEMORY_EXHAUSTED])
def test_a_full_sandbox_is_restarted_at_once(fault: Fault) -> None:
    """With words about what was lost (S15)."""
    step = by_fault(fault)
    assert isinstance(step, Treatment)
    assert step.remedy is Remedy.RESTART
    assert "processes are gone" in step.why


def test_what_nobody_knows_is_looked_at_once_and_then_restarted() -> None:
    """The cheap remedy first."""
    first, second = by_fault(Fault.UNKNOWN), by_fault(Fault.UNKNOWN, looked=True, stood=1)
    assert isinstance(first, Treatment)
    assert first.remedy is Remedy.LOOK_AGAIN
    assert isinstance(second, Treatment)
    assert second.remedy is Remedy.RESTART


@pytest.mark.parametrize("fault", sorted(ENDINGS | {Fault.INIT_LOST, Fault.UNKNOWN}, key=str))
def test_what_others_stop_is_looked_at_again_and_not_restarted(fault: Fault) -> None:
    """A restart would be one more, and end what runs in it."""
    first, second = by_fault(fault), by_fault(fault, looked=True)
    assert isinstance(first, Treatment)
    assert first.remedy is Remedy.LOOK_AGAIN
    assert isinstance(second, Treatment)
    assert second.remedy is Remedy.SETTLE


@pytest.mark.parametrize("fault", [Fault.DAEMON_DOWN, Fault.DAEMON_DENIED])
def test_a_way_that_fails_is_no_reason_for_a_restart(fault: Fault) -> None:
    """The engine answers, the container is as it was, and what runs in it goes on."""
    first, second = by_fault(fault), by_fault(fault, looked=True)
    assert isinstance(first, Treatment)
    assert first.remedy is Remedy.LOOK_AGAIN
    assert second == Treatment(Remedy.REDIAL)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("retiring", Remedy.WAIT),
        ("fork", Remedy.RESTART),
        ("space", Remedy.RESTART),
        ("state", Remedy.RESTART),
        ("something new", Remedy.RESTART),
    ],
)
def test_refusals_that_heal(reason: str, remedy: Remedy) -> None:
    """The guest said that nothing started."""
    step = treatment(NotStarted(refused=reason), looked=False)
    assert isinstance(step, Treatment)
    assert step.remedy is remedy


@pytest.mark.parametrize(
    ("reason", "rejected"), [("cwd", True), ("dd", False), ("workspace", False), ("tag", False)]
)
def test_refusals_that_do_not(reason: str, rejected: bool) -> None:
    """Only a directory is the caller's own doing."""
    step = treatment(NotStarted(refused=reason), looked=False)
    assert isinstance(step, GiveUp)
    assert step.rejected is rejected


def test_silence_is_not_believed_to_be_what_was_said_before() -> None:
    """A silent engine is asked; a silent sandbox restarted."""
    silent = NotStarted(silent=True)
    first, second = treatment(silent, looked=False), treatment(silent, looked=True)
    assert isinstance(first, Treatment)
    assert first.remedy is Remedy.LOOK_AGAIN
    assert isinstance(second, Treatment)
    assert second.remedy is Remedy.RESTART


def test_an_exec_that_seems_to_race_in_a_healthy_container_found_it_full() -> None:
    """A runtime without a process left says the very same as one whose container ended."""
    step = by_fault(Fault.INIT_LOST, looked=True, stood=3)
    assert isinstance(step, Treatment)
    assert "run out of processes" in step.why
    before = by_fault(Fault.INIT_LOST, looked=True, stood=2)
    assert isinstance(before, Treatment)
    assert before.remedy is Remedy.SETTLE


@pytest.mark.parametrize(
    ("verdict", "looked", "why", "done"),
    [
        (NotStarted(refused="fork"), False, "refused: fork", "restart"),
        (NotStarted(silent=True), False, "no answer", "look again"),
        (NotStarted(diagnosis=Diagnosis(Fault.NO_SHELL, "x")), True, "no shell", "none (no-shell)"),
    ],
)
def test_a_decision_has_names_for_the_log(
    verdict: NotStarted, looked: bool, why: str, done: str
) -> None:
    """Readable ones, and nothing of what the engine said."""
    assert (verdict.why, treatment(verdict, looked=looked).name) == (why, done)
