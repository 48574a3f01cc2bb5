"""Work is done once, and belongs to nobody who waits for it."""

from __future__ import annotations

import pytest
from anyio import Event, create_task_group, move_on_after

from sandbox_exec import ContainerStartError, SandboxError
from sandbox_exec._singleflight import Flight

pytestmark = pytest.mark.anyio


async def test_a_waiter_that_leaves_ends_nothing() -> None:
    """The work goes on for the others (S5)."""
    go = Event()

    async def work() -> str:
        await go.wait()
        return "done"

    async with create_task_group() as group:
        flight = Flight(group, work)
        with move_on_after(0.01) as patience:
            await flight.join()
        assert patience.cancelled_caught
        assert not flight.landed
        go.set()
        value = await flight.join()
        assert value == "done"
        assert flight.holds(value)
        assert not flight.failed


async def test_each_waiter_raises_its_own_error() -> None:
    """With the same facts, so that no traceback is shared."""

    async def work() -> None:
        raise ContainerStartError("no", code="image-missing", argv=("docker", "run"), stderr="why")

    caught = []
    async with create_task_group() as group:
        flight = Flight(group, work)
        for _ in range(2):
            with pytest.raises(ContainerStartError, match="no") as info:
                await flight.join()
            caught.append(info.value)
    assert flight.failed
    assert caught[0] is not caught[1]
    assert caught[0].__dict__ == caught[1].__dict__
    assert (caught[0].code, caught[0].argv, caught[0].stderr) == (
        "image-missing",
        ("docker", "run"),
        "why",
    )


async def test_a_bug_reaches_who_waits() -> None:
    """And does not tear down everything else."""

    async def work() -> None:
        raise KeyError("oops")

    async with create_task_group() as group:
        flight = Flight(group, work)
        with pytest.raises(SandboxError, match="oops") as info:
            await flight.join()
    assert info.value.code == "internal-error"
    assert isinstance(info.value.__cause__, KeyError)


async def test_closing_lands_the_flight() -> None:
    """Nobody is left waiting for work that was cancelled with its group."""
    flights: list[Flight[None]] = []

    async def work() -> None:
        await Event().wait()

    async with create_task_group() as group:
        flights.append(Flight(group, work))
        group.cancel_scope.cancel()
    with pytest.raises(SandboxError, match="closed"):
        await flights[0].join()
