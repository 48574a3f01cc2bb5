"""Slots are bounded, fair between owners, and never lost."""

from __future__ import annotations

import anyio.lowlevel
import pytest
from anyio import CancelScope, create_task_group, move_on_after, wait_all_tasks_blocked

from sandbox_exec import ExecutorBusyError
from sandbox_exec._slots import Slots

pytestmark = pytest.mark.anyio


async def test_sessions_take_turns() -> None:
    """One that asks for many does not make another wait for all of them (C10)."""
    slots, order = Slots(1, 10), []
    await slots.take("holder")

    async def ask(owner: str) -> None:
        await slots.take(owner)
        order.append(owner)
        slots.give_back()

    async with create_task_group() as group:
        for owner in ["greedy"] * 4 + ["modest", "modest"]:
            group.start_soon(ask, owner)
            await wait_all_tasks_blocked()
        slots.give_back()
    assert order == ["greedy", "modest", "greedy", "modest", "greedy", "greedy"]
    await slots.take("anybody")


async def test_waiting_ends_in_a_typed_error() -> None:
    """Nothing was started, so it may be tried again."""
    slots = Slots(1, 0.05)
    await slots.take("a")
    with pytest.raises(ExecutorBusyError) as caught:
        await slots.take("b")
    assert (caught.value.started, caught.value.retryable) == (False, True)
    slots.give_back()
    with move_on_after(0):
        await slots.take("b")
        await anyio.lowlevel.checkpoint()
    slots.give_back()


@pytest.mark.parametrize("granted", [False, True])
async def test_a_waiter_that_leaves_loses_no_slot(granted: bool) -> None:
    """Neither before nor in the very moment it was its turn."""
    slots, scope = Slots(1, 10), CancelScope()
    await slots.take("a")

    async def wait() -> None:
        with scope:
            await slots.take("b")

    async with create_task_group() as group:
        group.start_soon(wait)
        await wait_all_tasks_blocked()
        scope.cancel()
        if granted:
            slots.give_back()
    if not granted:
        slots.give_back()
    with move_on_after(1) as patience:
        await slots.take("c")
    assert not patience.cancelled_caught
