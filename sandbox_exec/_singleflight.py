"""Start once in the background; many callers await the one outcome.

The work belongs to the task group, so that no caller's cancellation is everybody's (hazard S5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from anyio import Event, get_cancelled_exc_class
from anyio.abc import TaskGroup

from sandbox_exec._errors import ExecutorClosedError, SandboxError

__all__ = ["Flight"]

T = TypeVar("T")


class Flight(Generic[T]):
    """One piece of background work and its outcome.

    A failure is kept as a value: every waiter raises a fresh exception of its own.
    """

    def __init__(self, group: TaskGroup, work: Callable[[], Awaitable[T]]) -> None:
        self._landed = Event()
        self._value: T | None = None
        self._error: SandboxError | None = None
        group.start_soon(self._fly, work)

    async def _fly(self, work: Callable[[], Awaitable[T]]) -> None:
        self._error = ExecutorClosedError("the executor closed while this was under way")
        try:
            self._value = await work()
            self._error = None
        except SandboxError as error:
            self._error = error
        except get_cancelled_exc_class():
            raise
        except Exception as error:  # noqa: BLE001  # handed to whoever waits, never lost
            self._error = SandboxError(f"unexpected {error!r}", code="internal-error")
            self._error.__cause__ = error
        finally:
            self._landed.set()

    @property
    def landed(self) -> bool:
        """Whether there is an outcome."""
        return self._landed.is_set()

    @property
    def failed(self) -> bool:
        """Whether there is an outcome and it is a failure."""
        return self.landed and self._error is not None

    @property
    def value(self) -> T | None:
        """The outcome, if there is one and it is a success."""
        return self._value if self.landed and self._error is None else None

    def holds(self, value: T) -> bool:
        """Whether this very value is the outcome."""
        return self.landed and self._value is value

    async def wait(self) -> None:
        """Wait until there is an outcome, whichever."""
        await self._landed.wait()

    async def join(self) -> T:
        """Wait for the outcome and return it.

        :raises SandboxError: a fresh one for each waiter, if the work failed.
        """
        await self._landed.wait()
        if self._error is not None:
            raise self._error.fresh() from self._error.__cause__
        return self._value  # type: ignore[return-value]  # set whenever there is no error
