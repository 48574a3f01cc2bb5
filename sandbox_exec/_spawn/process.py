"""The process that a user of ``DockerBackend.spawn`` holds."""

from __future__ import annotations

import signal
from collections.abc import Callable

from anyio import CancelScope
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from sandbox_exec._spawn.checks import signal_number
from sandbox_exec._spawn.child import Child

__all__ = ["DockerProcess"]


class DockerProcess(Process):
    """A process inside of the container, like one of :func:`anyio.open_process`.

    A signal that ends it shows as an exit code of 128 and its number, as in a shell: 137 after
    :meth:`kill`. Signals are sent in order and in the background; that they were sent does not mean
    that they have arrived.

    :param send: has a signal sent, in the background.
    """

    def __init__(self, child: Child, send: Callable[[int], object]) -> None:
        self._child = child
        self._send = send

    async def wait(self) -> int:
        """Wait for its end and return its exit code, 0 to 255.

        :raises SandboxError: when it was lost with its container or the engine, or the backend was
            disposed; ``started`` is true. Then nobody knows how it ended. With code
            ``kill-unconfirmed`` when it was to be killed and the engine did not do it in time.
        """
        while self._child.returncode is None:
            # Anew after a kill that was in doubt and is tried again.
            await self._child.ended.wait()
            if self._child.failure is not None:
                raise self._child.failure.fresh()
        return self._child.returncode

    def kill(self) -> None:
        """Kill it and everything that it has started, however that has detached itself (B6).

        Can be tried again where the engine did not do it.
        """
        self._child.kill()

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, signal: int) -> None:
        """Send it a signal; SIGKILL is :meth:`kill`. Nothing happens to one that has ended.

        :raises ValueError: for what is no signal of Linux, 1 to 64.
        """
        number = signal_number(signal)
        if number == _KILL:
            self.kill()
        elif self.returncode is None:
            self._send(number)

    async def aclose(self) -> None:
        """Kill what is left of it, and wait until nothing is."""
        self._child.leave()
        with CancelScope(shield=True):
            await self._child.settled.wait()

    @property
    def pid(self) -> int:
        """The number of the engine's program on this host, for logs. Inside it has another one."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; ``None`` while it runs, and of one that was lost."""
        return self._child.returncode

    @property
    def stdin(self) -> ByteSendStream:
        """Its standard input."""
        return self._child.stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        """Its standard output."""
        return self._child.stdout

    @property
    def stderr(self) -> ByteReceiveStream:
        """Its standard error."""
        return self._child.stderr


_KILL = signal.SIGKILL
