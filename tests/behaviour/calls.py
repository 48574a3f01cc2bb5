"""Calls whose end a test looks at while others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import fail_after, sleep, wait_all_tasks_blocked
from attrs import define

from sandbox_exec import ExecResult, ExecSpec, LocalDockerExecutor

E = TypeVar("E", bound=Exception)


async def chat(executor: LocalDockerExecutor, command: str, **how: object) -> ExecResult:
    """Run a command in the session that most tests need only one of."""
    return await executor.run(ExecSpec(command, "chat", **how))  # type: ignore[arg-type]  # passed through


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds and everybody waits."""
    with fail_after(10):
        while not holds():  # noqa: ASYNC110  # what is waited for has no event
            await sleep(0.001)
        await wait_all_tasks_blocked()


@define
class Caller:
    """One call and what came of it."""

    executor: LocalDockerExecutor
    command: str
    session: str | None = "chat"
    timeout: float | None = None
    result: ExecResult | None = None
    error: Exception | None = None

    async def __call__(self) -> None:
        """Make the call."""
        try:
            spec = ExecSpec(self.command, self.session, self.timeout)
            self.result = await self.executor.run(spec)
        except Exception as error:  # noqa: BLE001  # looked at by the test
            self.error = error

    def failed(self, kind: type[E]) -> E:
        """Return its error, which must be of this kind."""
        assert type(self.error) is kind, repr(self.error or self.result)
        return self.error


async def failure(
    executor: LocalDockerExecutor, kind: type[E], command: str, session: str | None = "chat"
) -> E:
    """Return the error that a call ends with."""
    caller = Caller(executor, command, session)
    await caller()
    return caller.failed(kind)
