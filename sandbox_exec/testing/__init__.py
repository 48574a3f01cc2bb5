r"""An engine in memory, and time that moves when told to: for our tests and yours.

::

    async def greet(call: FakeCall) -> int:
        await call.stdout(b"hi\n")
        return 0

    daemon = FakeDaemon(commands={"echo hi": greet})

A :class:`FakeDaemon` stands where the library otherwise runs the engine's program. It never runs
a shell; what a command does is a coroutine of the test's.
"""

from sandbox_exec.testing._call import FakeCall, Handler
from sandbox_exec.testing._clock import FakeClock
from sandbox_exec.testing._commands import UnknownArgv
from sandbox_exec.testing._containers import FakeContainer, FakeDisk, FakeImage
from sandbox_exec.testing._daemon import FakeDaemon
from sandbox_exec.testing._execution import FakeKill
from sandbox_exec.testing._faults import FakeHold

__all__ = [
    "FakeCall",
    "FakeClock",
    "FakeContainer",
    "FakeDaemon",
    "FakeDisk",
    "FakeHold",
    "FakeImage",
    "FakeKill",
    "Handler",
    "UnknownArgv",
]
