"""A bounded number of engine processes, shared fairly between sessions.

One session that asks for a hundred cannot make another wait for all of them: sessions take turns
(hazard C10).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable

from anyio import Event, get_cancelled_exc_class, move_on_after

from sandbox_exec._call import Call
from sandbox_exec._errors import ExecutorBusyError
from sandbox_exec._tool_text import BUSY_HINT

__all__ = ["Slots", "serve"]


class Slots:
    """``total`` slots; whoever waits longer than ``timeout`` seconds is told so."""

    def __init__(self, total: int, timeout: float) -> None:
        self._free = total
        self._total = total
        self._timeout = timeout
        self._queues: OrderedDict[Hashable, deque[Event]] = OrderedDict()

    async def take(self, owner: Hashable) -> None:
        """Wait for a slot, in turn with the other owners.

        :raises ExecutorBusyError: when none came free in time; nothing was started.
        """
        if self._free and not self._queues:
            self._free -= 1
            return
        turn = Event()
        self._queues.setdefault(owner, deque()).append(turn)
        try:
            with move_on_after(self._timeout):
                await turn.wait()
        except get_cancelled_exc_class():
            self._withdraw(owner, turn)
            if turn.is_set():
                self.give_back()
            raise
        if not turn.is_set():
            self._withdraw(owner, turn)
            raise ExecutorBusyError(
                f"all {self._total} slots for commands stayed taken for {self._timeout:g} s",
                hint=BUSY_HINT,
            )

    def give_back(self) -> None:
        """Free a slot that was taken, for the owner whose turn it is."""
        if not self._queues:
            self._free += 1
            return
        owner, queue = self._queues.popitem(last=False)
        queue.popleft().set()
        if queue:
            self._queues[owner] = queue

    def _withdraw(self, owner: Hashable, turn: Event) -> None:
        queue = self._queues.get(owner)
        if queue and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[owner]


async def serve(call: Call, slots: Slots) -> None:
    """Hold a call's conversation in a slot that was taken for it, to be started as a task."""
    try:
        await call.run()
    finally:
        slots.give_back()
