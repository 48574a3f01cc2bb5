"""One spawned process over one of the engine's programs: how it starts, runs, ends and is left.

It lives in a task of the backend and not of its user, who may leave at any moment; what is then
left inside is ended here, in bounded time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from anyio import CancelScope, Event, create_task_group, move_on_after
from anyio.abc import TaskGroup
from attrs import frozen

from sandbox_exec._channel import send, take
from sandbox_exec._collect import Collector
from sandbox_exec._docker.interface import CliProcess, CommandRunner
from sandbox_exec._errors import SandboxError
from sandbox_exec._frames import Conversation, Frame, FrameScanner, parse_end, parse_ready
from sandbox_exec._log import Log
from sandbox_exec._outcome import Report, Verdict, judge
from sandbox_exec._spawn.line import Line
from sandbox_exec._spawn.streams import Inlet, Outlet

__all__ = ["Child", "Handling", "unconfirmed"]

_NO_OUTPUT: Final = 64
_REST: Final = 2.0
"""Seconds for the rest of standard error, once the other stream has come to its end."""

KILLED: Final = 137

log = Log(__name__)


@frozen
class Handling:
    """What can be done about a process from outside of it.

    :param reap: kills its whole tree; returns whether nothing is left.
    :param signal: sends it a signal; returns whether that was possible.
    :param loss: returns the error for a process that was lost.
    """

    reap: Callable[[], Awaitable[bool]]
    signal: Callable[[int], Awaitable[bool]]
    loss: Callable[[], Awaitable[SandboxError]]


class Child:
    """The state of one spawned process.

    :ivar launched: it runs, or it is known that it does not.
    :ivar ended: there is an exit code, or a failure.
    :ivar settled: nothing of it is left on this side, nor, unless the log says so, inside.
    :ivar error: what kept the engine's program itself from running.
    """

    def __init__(
        self,
        group: TaskGroup,
        runner: CommandRunner,
        line: Line,
        conversation: Conversation,
        handling: Handling,
        ready: float,
    ) -> None:
        self.launched, self.ended, self.settled = Event(), Event(), Event()
        self.returncode: int | None = None
        self.failure: SandboxError | None = None
        self.error: Exception | None = None
        self.running = False
        self.stdout, self.stderr = Outlet(lambda: self.failure), Outlet(lambda: self.failure)
        self.stdin: Inlet
        self.pid = 0
        self._program: CliProcess
        self._report = Report(Collector(_NO_OUTPUT), Collector(_NO_OUTPUT))
        self._group = group
        self._runner = runner
        self._line = line
        self._conversation = conversation
        self._handling = handling
        self._ready = ready
        self._talking = CancelScope()
        self._scanner = FrameScanner.of(conversation)
        self._stderr_end = Event()
        self._killing: Event | None = None
        self._reaped = False
        self._doubtful = False

    @property
    def tag(self) -> int:
        """What its processes carry."""
        return self._conversation.tag

    @property
    def verdict(self) -> Verdict:
        """Why it does not run, of one that does not."""
        return judge(self._report)

    @property
    def started(self) -> bool | None:
        """Whether its command has begun; ``None`` when nobody can know."""
        if self.running:
            return True
        return None if self._report.sending and self._report.refused is None else False

    @property
    def unreaped(self) -> bool:
        """Whether something of it may live on inside."""
        report = self._report
        begun = report.sending and report.refused is None
        return begun and not self._reaped and (report.end is None or report.end.survivors)

    def leave(self, failure: SandboxError | None = None) -> None:
        """Let it be ended, whole; whoever still waits for it gets ``failure``, if there is one."""
        if failure is not None and not self.ended.is_set():
            self._conclude(failure=failure)
        self._talking.cancel()

    def kill(self) -> None:
        """Have its whole tree killed."""
        if self.returncode is None and self._killing is None:
            if self._doubtful:
                # Whoever waits now waits for what comes of this.
                self.ended, self.failure, self._doubtful = Event(), None, False
            self._killing = Event()
            self._group.start_soon(self._kill, self._killing)

    async def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if not (self.ended.is_set() or await self._handling.signal(number)):
            log.info("spawn.not_signalled", signal=number, tag=self.tag)

    async def run(self) -> None:
        """Be the process, to be started as a task; never raises."""
        # Shielded because every wait in here has a bound or is ended by leave().
        with CancelScope(shield=True):
            try:
                async with self._runner.open(self._line.argv, env=self._line.env) as program:
                    self._program, self.stdin, self.pid = program, Inlet(program), program.pid
                    async with create_task_group() as pumps:
                        pumps.start_soon(self._pump_stderr)
                        with self._talking:
                            await self._live()
                        await self._part()
                        pumps.cancel_scope.cancel()
            except Exception as error:  # noqa: BLE001  # raised in the user's task instead
                self.error = error
            finally:
                self.stdout.end()
                self.stderr.end()
                self.launched.set()
                self.settled.set()

    async def _live(self) -> None:
        self.running = await self._launch()
        self.launched.set()
        if self.running:
            await self._pump_stdout()
            with move_on_after(_REST):
                await self._stderr_end.wait()

    async def _launch(self) -> bool:
        """Wait for READY, let the command begin, and wait until it says that it has."""
        with move_on_after(self._ready) as patience:
            frame = await self._next_frame()
            self._report.hello = parse_ready(frame) if frame is not None else None
        if not self._report.ready:
            self._report.silent = patience.cancelled_caught
            return False
        self._report.sending = True
        with move_on_after(self._ready):
            self._report.sent = await send(self._program, f"{self._conversation.nonce}\n".encode())
            while (frame := await self._next_frame()) is not None:
                if frame.word == "started":
                    return True
                if self._report.over:
                    break
        return False

    async def _next_frame(self) -> Frame | None:
        """Return the next frame, noted; what stands before it is the engine's, and no output."""
        while True:
            before, frame = self._scanner.feed(b"")
            while not before and frame is None:
                data = await self._program.receive_stdout()
                if not data:
                    self._report.overhear(stdout=self._scanner.flush())
                    self._report.exit_code = await self._program.wait()
                    await self._stderr_end.wait()
                    return None
                before, frame = self._scanner.feed(data)
            self._report.overhear(stdout=before)
            if frame is not None:
                take(self._report, frame)
                return frame

    async def _pump_stdout(self) -> None:
        """Hand on what is printed, to the end of the stream."""
        data = b""
        while True:
            before, frame = self._scanner.feed(data)
            await self.stdout.put(before)
            data = b""
            if frame is not None:
                if self._is_last(frame):
                    break
            elif not (data := await self._program.receive_stdout()):
                await self.stdout.put(self._scanner.flush())
                await self._program.wait()
                break
        if not self.ended.is_set():
            await self._lost()
        self.stdout.end()

    def _is_last(self, frame: Frame) -> bool:
        """Note how it ended; return whether nothing of it is left that could still print."""
        end = parse_end(frame)
        if end is None:
            return False
        self._report.end = end
        self._conclude(end.exit_code)
        return not end.survivors

    async def _lost(self) -> None:
        """The stream ended without a word about how the process did."""
        if self._killing is not None:
            await self._killing.wait()
        if not self.ended.is_set():
            self._conclude(failure=await self._handling.loss())

    def _conclude(self, code: int | None = None, failure: SandboxError | None = None) -> None:
        # What is certain takes the place of a doubt.
        if not self.ended.is_set() or (self._doubtful and code is not None):
            self.returncode, self.failure = code, failure
            self._doubtful = self._doubtful and code is None
            self.ended.set()

    async def _pump_stderr(self) -> None:
        scanner = FrameScanner.of(self._conversation)
        ready, data = False, b""
        while True:
            before, frame = scanner.feed(data)
            if ready:
                await self.stderr.put(before)
            else:
                self._report.overhear(stderr=before)
            data = b""
            if frame is not None:
                ready = ready or frame.word == "ready"
                # Here as well: a standard output that nobody reads must not hide the end.
                if self._is_last(frame):
                    break
            elif not (data := await self._program.receive_stderr()):
                rest = scanner.flush()
                if ready:
                    await self.stderr.put(rest)
                break
        self.stderr.end()
        self._stderr_end.set()

    async def _kill(self, done: Event) -> None:
        try:
            self._reaped = await self._handling.reap()
            if self._reaped:
                # How it ended is certain, even where its streams are full and nobody reads them.
                self._conclude(KILLED)
            else:
                log.warning("spawn.not_killed", tag=self.tag)
                self._doubtful = not self.ended.is_set()
                self._conclude(failure=unconfirmed())
        finally:
            done.set()
            if not self._reaped:
                self._killing = None

    async def _part(self) -> None:
        """End what is left of it inside."""
        if self._killing is not None:
            await self._killing.wait()
        if self.unreaped:
            self._reaped = await self._handling.reap()
            if not self._reaped:
                log.warning("spawn.not_reaped", tag=self.tag)
        if self._reaped or not self.unreaped:
            self._conclude(KILLED)
        self._conclude(failure=unconfirmed())


def unconfirmed() -> SandboxError:
    """Return the error for a process of which nobody can say whether it was killed."""
    return SandboxError(
        "it could not be confirmed that the process was killed",
        code="kill-unconfirmed",
        started=True,
    )
