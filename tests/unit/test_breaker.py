"""The memo that the engine is down stands for a moment, and no longer."""

import pytest

from sandbox_exec._docker.breaker import MEMO_SECONDS, PROBE_SECONDS, Breaker
from sandbox_exec._errors import DaemonUnavailableError


class Hands:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def breaker(clock: Hands) -> Breaker:
    return Breaker(clock)


def down() -> DaemonUnavailableError:
    return DaemonUnavailableError(
        "no daemon", started=True, hint="do not retry", stderr="words", partial_stdout="half"
    )


def test_nothing_stands_at_first(breaker: Breaker) -> None:
    """An engine is tried before it is blamed."""
    breaker.check()


def test_each_call_gets_an_error_of_its_own(breaker: Breaker) -> None:
    """One exception raised in many tasks would collect all their tracebacks; and of what another
    call had begun, this one knows nothing.
    """
    cause = down()
    breaker.trip(cause)
    caught = []
    for _ in range(2):
        with pytest.raises(DaemonUnavailableError, match="no daemon") as info:
            breaker.check()
        caught.append(info.value)
    assert len({id(error) for error in (cause, *caught)}) == 3
    assert caught[0].hint == "do not retry"
    assert caught[0].stderr == "words"
    assert caught[0].started is False
    assert caught[0].partial_stdout == ""


def test_the_memo_ends(breaker: Breaker, clock: Hands) -> None:
    """A daemon can come back between two calls."""
    breaker.trip(down())
    clock.now += MEMO_SECONDS
    for _ in range(3):
        breaker.check()


def test_one_call_a_second_finds_out_whether_the_engine_is_back(
    breaker: Breaker, clock: Hands
) -> None:
    """The others go on failing fast; without a probe nobody could clear the memo."""
    breaker.trip(down())
    for _ in range(3):
        clock.now += PROBE_SECONDS
        breaker.check()
        with pytest.raises(DaemonUnavailableError):
            breaker.check()


def test_a_success_clears_it(breaker: Breaker) -> None:
    """Who has just been answered knows better than the memo."""
    breaker.trip(down())
    breaker.clear()
    breaker.check()


def test_a_new_answer_counts_from_its_own_moment(breaker: Breaker, clock: Hands) -> None:
    """Each certain answer is fresh evidence."""
    breaker.trip(down())
    clock.now += MEMO_SECONDS - 1
    breaker.trip(DaemonUnavailableError("still no daemon"))
    clock.now += PROBE_SECONDS / 2
    with pytest.raises(DaemonUnavailableError, match="still"):
        breaker.check()


def test_the_length_of_the_memo_can_be_set(clock: Hands) -> None:
    """Tests and short-lived programs want another one."""
    breaker = Breaker(clock, memo=1)
    breaker.trip(down())
    clock.now += 1
    breaker.check()
