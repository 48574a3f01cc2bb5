"""One request through one guest, over one process of the engine's program.

A call runs as a task of the executor, not of its caller: the caller may leave at any moment, and
what it left behind is ended here, in bounded time, whether or not anybody still waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import CancelScope, Event, create_task_group, get_cancelled_exc_class, move_on_after

from sandbox_exec._address import Address, Bounds, Doubt
from sandbox_exec._channel import Channel, Script, send, take
from sandbox_exec._collect import Collector
from sandbox_exec._docker.interface import Argv, CliProcess, CommandRunner
from sandbox_exec._errors import SandboxError
from sandbox_exec._frames import (
    DONE,
    Conversation,
    FrameScanner,
    hello,
    parse_ready,
)
from sandbox_exec._outcome import Report

__all__ = ["Call"]


class Call:
    """The state of one conversation.

    :ivar report: what was seen; final once ``answered`` is set.
    :ivar answered: the caller may go on.
    :ivar settled: nothing of the call is left on this side.
    """

    def __init__(
        self,
        runner: CommandRunner,
        address: Address,
        conversation: Conversation,
        script: Script,
        bounds: Bounds,
    ) -> None:
        self.report = Report(Collector(bounds.cap), Collector(bounds.cap))
        self.answered = Event()
        self.settled = Event()
        self.error: Exception | None = None
        self._runner = runner
        self._address = address
        self._conversation = conversation
        self._script = script
        self._bounds = bounds
        self._talking = CancelScope()
        self._stdout = FrameScanner.of(conversation)
        self._stderr = FrameScanner.of(conversation)
        self._stderr_ready = False
        self._stderr_end = Event()
        self._left_by_itself = False
        self._taken = False
        self._left = Event()

    @property
    def tag(self) -> int:
        """What the command's processes carry."""
        return self._conversation.tag

    @property
    def argv(self) -> Argv:
        """The engine command line of this call."""
        return self._address.argv

    @property
    def started(self) -> bool | None:
        """Whether the command has begun; ``None`` while its request is on the way."""
        if self.report.sent and self.report.refused is None:
            return True
        return None if self.report.sending and self.report.refused is None else False

    def abort(self) -> None:
        """Let the call end its command and itself; harmless when it already has."""
        self._left.set()
        self._talking.cancel()

    async def outcome(self, doubt: Doubt | None = None) -> Report:
        """Wait for the report; a caller that is cancelled meanwhile takes the command with it.

        :raises SandboxError: what the doubt's check raised; the call ends in the background.
        """
        try:
            if doubt is not None:
                with move_on_after(doubt.after):
                    await self.answered.wait()
                if not (self.answered.is_set() or self.report.ready):
                    await self._settle(doubt)
            await self.answered.wait()
            self._taken = self.error is None
            self._left.set()
        except get_cancelled_exc_class():
            self.abort()
            with CancelScope(shield=True):
                await self.settled.wait()
            raise
        if self.error is not None:
            raise self.error
        return self.report

    async def _settle(self, doubt: Doubt) -> None:
        try:
            await doubt.check()
        except SandboxError:
            # READY is better evidence than an answer that did not come, and may be the newer one.
            if not self.report.ready:
                self.abort()
                raise

    async def run(self) -> None:
        """Hold the conversation, to be started as a task; never raises what it can report."""
        # Shielded because every wait in here has a bound, and abort() is the way to end it early.
        with CancelScope(shield=True):
            try:
                async with self._runner.open(self._address.argv, env=self._address.env) as process:
                    async with create_task_group() as readers:
                        readers.start_soon(self._attempt, self._read_stderr, process)
                        with self._talking:
                            await self._attempt(self._try_to_talk, process)
                        await self._attempt(self._part, process)
                        readers.cancel_scope.cancel()
                    await self._bury(process)
                if self._may_live_on():
                    self.report.reaped = await self._address.fallback(self._conversation.tag)
            except Exception as error:  # noqa: BLE001  # raised in the caller's task instead
                self.error = error
            finally:
                self.answered.set()
                self.settled.set()

    def _may_live_on(self) -> bool:
        """Whether something of the call may still be there although nobody listens to it."""
        if self._address.ephemeral and not self._left_by_itself:
            return True
        return self.report.sending and self.report.end is None and self.report.refused is None

    async def _attempt(
        self, step: Callable[[CliProcess], Awaitable[None]], process: CliProcess
    ) -> None:
        try:
            await step(process)
        except Exception as error:  # noqa: BLE001  # raised in the caller's task instead
            # A source of bytes that fails, say, or a bug of ours: the guest is left as politely as
            # ever, and whether something lives on is still looked after.
            self.error = self.error or error
            self._stderr_end.set()
            self._talking.cancel()

    async def _try_to_talk(self, process: CliProcess) -> None:
        try:
            await self._talk(process)
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if isinstance(error, get_cancelled_exc_class()) and self._talking.cancel_called:
                raise
            # Nobody has cancelled this call: it is what the caller's own code in it was ended by,
            # and let out of here, it would end every other call as well.
            what = f"what was to be sent could not be had: {error!r}"
            raise SandboxError(what, code="source-failed") from error

    async def _talk(self, process: CliProcess) -> None:
        if not await self._await_ready(process):
            return
        channel = Channel(process, self._stdout, self._stderr_end, self.report, self._bounds)
        started = self._bounds.clock()
        await self._script(channel)
        self.report.duration = self._bounds.clock() - started
        if self.report.end is not None and not self._address.ephemeral:
            self.answered.set()

    async def _await_ready(self, process: CliProcess) -> bool:
        await send(process, hello(self._conversation))
        with move_on_after(self._bounds.ready):
            while data := await process.receive_stdout():
                before, frame = self._stdout.feed(data)
                self.report.overhear(stdout=before)
                if frame is not None:
                    self.report.hello = parse_ready(frame)
                    take(self.report, frame)
                    return self.report.ready
            # The program ended by itself: what it said and how it ended is all there will be.
            self.report.exit_code = await process.wait()
            await self._stderr_end.wait()
            return False
        self.report.silent = True
        return False

    async def _read_stderr(self, process: CliProcess) -> None:
        while data := await process.receive_stderr():
            while True:
                before, frame = self._stderr.feed(data)
                if not self._stderr_ready:
                    self.report.overhear(stderr=before)
                elif not self._stderr_end.is_set():
                    self.report.stderr.feed(before)
                if frame is None:
                    break
                self._stderr_ready = self._stderr_ready or frame.word == "ready"
                if frame.word == "end":
                    self._stderr_end.set()
                data = b""
        self._stderr_end.set()

    async def _part(self, process: CliProcess) -> None:
        """End the conversation: politely where it came to an end, else so that the tree dies."""
        if self.report.end is not None and await self._lasts():
            await send(process, DONE)
            if self.report.end.survivors and not self._address.ephemeral:
                # The guest stays with the command's background processes. Once it has said so,
                # the program here is not needed; before, its death would look like ours.
                with move_on_after(self._bounds.grace):
                    await self._drain(process, until="lingering")
                process.kill()
                return
        if not (self.report.sending or self._address.ephemeral):
            return
        await process.close_stdin()
        with move_on_after(self._bounds.grace):
            await self._drain(process, until=None)
            self.report.exit_code = await process.wait()
            self._left_by_itself = True

    async def _lasts(self) -> bool:
        """Return whether the guest may be told that its end was seen; waits for the caller's sake.

        A caller that is cancelled just now never gets what it would be told to delete.
        """
        if not self.report.tentative:
            return True
        with move_on_after(self._bounds.grace):
            await self._left.wait()
        return self._taken

    async def _drain(self, process: CliProcess, *, until: str | None) -> None:
        data = b""
        while True:
            _, frame = self._stdout.feed(data)
            data = b""
            if frame is not None:
                if frame.word == until:
                    return
                if self.report.end is None:
                    take(self.report, frame)
            elif not (data := await process.receive_stdout()):
                return

    async def _bury(self, process: CliProcess) -> None:
        """Make sure that the program ends, and learn how."""
        process.kill()
        with move_on_after(self._bounds.grace):
            self.report.exit_code = await process.wait()
