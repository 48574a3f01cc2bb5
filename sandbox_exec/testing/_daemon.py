"""An in-memory engine behind the runner seam, and what a test can do behind our back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import cast

from anyio import create_task_group, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint

from sandbox_exec._docker.interface import (
    NO_VARIABLES,
    Argv,
    CliProcess,
    Completed,
    NoAnswer,
    ProgramMissing,
)
from sandbox_exec._guest import SPAWN_VARIABLE
from sandbox_exec.testing._call import Handler
from sandbox_exec.testing._checks import SPAWN_WORDS, check_conversation
from sandbox_exec.testing._clock import FakeClock
from sandbox_exec.testing._commands import Command, Create, Exec, UnknownArgv, parse
from sandbox_exec.testing._containers import FakeContainer, FakeDisk, FakeImage
from sandbox_exec.testing._conversation import Conversation
from sandbox_exec.testing._execution import FakeKill
from sandbox_exec.testing._guest import Book, Guest
from sandbox_exec.testing._meddling import Meddling
from sandbox_exec.testing._probing import checked, probes
from sandbox_exec.testing._scripting import Scripting
from sandbox_exec.testing._spawned import Spawned
from sandbox_exec.testing._store import Refused, Store
from sandbox_exec.testing._verbs import failure, perform

__all__ = ["FakeDaemon"]

_CUT_OFF = 255


class FakeDaemon(Meddling, Scripting):
    """An engine in memory: give it to whatever takes a runner.

    It knows exactly the command lines that the library builds, answers in docker's words, and
    fails the test loudly on anything else. A command is a coroutine, never a shell.

    :param commands: what each command does, by its text; may be changed later.
    :param default: what all others do; without it, one that was not foreseen fails the test.
    :param images: names of the images it has.
    :param registry: names of those it can pull.
    :param clock: its time; one that only moves when told to, unless given.
    :param program: the name its program goes by.
    :param host: the address it says it is not at when it is down.
    :param data_root: where it says it keeps its data; on no disk of this host, unless given.
    :param ignores: what it does not enforce, though it is asked to: ``memory``, ``swap``, ``pids``,
        ``cpus``, which its ``info`` admits; ``network``, ``capabilities``, ``no-new-privileges``,
        ``state`` and ``time``, which only a probe finds out.
    :param quotas: its disk can bound what a container writes.
    :ivar calls: each command line seen, in order.
    :ivar executed: container name and text of each command that really ran, in order.
    :ivar killed: the commands that were ended, and why.
    """

    def __init__(
        self,
        commands: Mapping[str, Handler] | None = None,
        *,
        default: Handler | None = None,
        images: Iterable[str] = ("sandbox-exec/busybox",),
        registry: Iterable[str] = (),
        clock: FakeClock | None = None,
        program: str = "docker",
        host: str = "unix:///var/run/docker.sock",
        data_root: str | None = None,
        ignores: Iterable[str] = (),
        quotas: bool = False,
    ) -> None:
        Scripting.__init__(self, host)
        self.clock: FakeClock = FakeClock() if clock is None else clock
        Meddling.__init__(self, Store(self.clock, registry=set(registry)))
        self.commands: dict[str, Handler] = dict(commands or {})
        self.calls: list[Argv] = []
        self._program = program
        self._store.host, self._store.quotas = host, quotas
        self._store.ignored = checked(ignores)
        if data_root is not None:
            self._store.data_root = data_root
        self._book = Book(self.clock, self.commands, default, probes(self._store.ignored))
        self._conversations: list[Conversation] = []
        for name in images:
            self.add_image(name)

    @property
    def executed(self) -> list[tuple[str, str]]:
        """Container name and text of each command that really ran, in order."""
        return self._book.executed

    @property
    def killed(self) -> list[FakeKill]:
        """The commands that were ended, and why."""
        return self._book.killed

    @property
    def containers(self) -> Mapping[str, FakeContainer]:
        """The containers there are, by name."""
        return MappingProxyType(self._store.containers)

    @property
    def disks(self) -> Mapping[str, FakeDisk]:
        """The directories of its host that were mounted, by path, but for those since removed."""
        return MappingProxyType(self._store.disks)

    @property
    def conversations(self) -> int:
        """How many guests are being talked to now; 0 when nothing was left open."""
        return len(self._conversations)

    def add_image(
        self,
        name: str,
        *,
        user: str = "",
        entrypoint: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> FakeImage:
        """Add an image, or give its name to a new one."""
        return self._store.add_image(name, user=user, entrypoint=tuple(entrypoint), labels=labels)

    def untag(self, name: str) -> None:
        """Take an image's name away; the image stays for the containers made from it."""
        self._store.untag(name)

    def down(self, words: str | None = None, exit_code: int | None = None) -> None:
        """Let the engine be gone: calls say so at once; what runs in conversations is lost.

        :param words: what the program says instead of that it cannot connect.
        :param exit_code: what it ends with then.
        """
        super().down(words, exit_code)
        for conversation in list(self._conversations):
            conversation.cut(_CUT_OFF)

    def up(self, *, restarted: bool = False) -> None:
        """Let the engine be there again.

        :param restarted: as after a reboot: no container runs any more (hazard S17).
        """
        super().up()
        if restarted:
            for container in self._store.containers.values():
                if container.running:
                    container.stop()

    async def run(
        self,
        argv: Argv,
        *,
        timeout: float,
        env: Mapping[str, str] = NO_VARIABLES,  # noqa: ARG002  # control calls need none
    ) -> Completed | NoAnswer:
        """Answer a control call; see :meth:`sandbox_exec.CommandRunner.run`."""
        command = self._hear(argv)
        if isinstance(command, Exec) or (
            isinstance(command, Create) and command.kind == "attached"
        ):
            raise UnknownArgv(f"a conversation is opened, not run: {argv}")
        with move_on_after(timeout):
            return await self._answer(command)
        return NoAnswer(timeout)

    @asynccontextmanager
    async def open(
        self, argv: Argv, *, env: Mapping[str, str] = NO_VARIABLES
    ) -> AsyncIterator[CliProcess]:
        """Open a conversation with a guest; see :meth:`sandbox_exec.CommandRunner.open`."""
        command = self._hear(argv)
        check_conversation(argv, command, env)

        async def connect(conversation: Conversation) -> Guest | Spawned | Completed:
            return await self._connect(command, conversation, env)

        def close(guest: Guest | Spawned) -> None:
            self._close(conversation, guest)

        conversation = Conversation(self._freeze, connect, close)
        self._conversations.append(conversation)
        failure: Exception | None = None
        try:
            async with create_task_group() as group:
                group.start_soon(conversation.run)
                try:
                    yield conversation
                except Exception as error:  # noqa: BLE001  # raised below, outside of the group
                    failure = error
                finally:
                    conversation.leave()
        finally:
            self._conversations.remove(conversation)
        if conversation.error is not None:
            raise conversation.error from failure
        if failure is not None:
            raise failure

    def _hear(self, argv: Argv) -> Command:
        self.calls.append(argv)
        if argv[0] != self._program:
            raise ProgramMissing(f"cannot run {argv[0]!r}: No such file or directory")
        return parse(argv)

    async def _stall(self, command: Command) -> None:
        await checkpoint()
        await self._freeze.thawed()
        stall = self._faults.stall(command)
        if stall is None:
            return
        try:
            await stall.wait()
        except get_cancelled_exc_class():
            if stall.acts and self._absence(command) is None:
                perform(self._store, command)
            raise
        await self._freeze.thawed()

    def _fault(self, command: Command) -> Completed | None:
        absence = self._absence(command)
        if absence is not None:
            return absence
        scripted = self._faults.failure(command)
        if scripted is None:
            return None
        if scripted.creates and isinstance(command, Create):
            self._store.create(command)
        return scripted.answer

    async def _answer(self, command: Command) -> Completed:
        if (absence := self._absence(command)) is not None:
            await checkpoint()
            return absence
        await self._stall(command)
        return self._fault(command) or perform(self._store, command)

    async def _connect(
        self, command: Command, conversation: Conversation, env: Mapping[str, str]
    ) -> Guest | Spawned | Completed:
        if self._absence(command) is None:
            await self._stall(command)
        if (fault := self._fault(command)) is not None:
            return fault
        try:
            container = self._enter(command)
        except Refused as refused:
            return failure(command, str(refused))
        container.inhabitants.append(conversation)
        user = command.user if isinstance(command, Exec) else None
        if isinstance(command, Exec) and SPAWN_VARIABLE in command.variables:
            return Spawned(
                container,
                container.user,
                self._faults.guest(),
                self._book,
                conversation.input,
                conversation.stdout,
                conversation.stderr,
                command.command[SPAWN_WORDS:],
                env,
            )
        return Guest(
            container,
            container.user if user is None else user,
            self._faults.guest(),
            self._book,
            conversation.input,
            conversation.stdout,
            conversation.stderr,
            alone=isinstance(command, Create),
        )

    def _enter(self, command: Command) -> FakeContainer:
        if isinstance(command, Exec):
            return self._store.exec_target(command)
        container = self._store.create(cast("Create", command))
        container.start()
        return container

    def _close(self, conversation: Conversation, guest: Guest | Spawned) -> None:
        container = guest.container
        if conversation in container.inhabitants:
            container.inhabitants.remove(conversation)
        if guest.execution is None or not guest.execution.survives:
            self._book.running.pop(guest.key, None)
        if guest.alone and self._store.containers.get(container.name) is container:
            self._store.discard(container)
