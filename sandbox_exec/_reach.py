"""Where a guest is reached, and how to be rid of what it runs once it no longer answers."""

from __future__ import annotations

from collections.abc import Container, Mapping

from anyio import move_on_after
from attrs import frozen

from sandbox_exec._address import Address
from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.interface import Argv, ProgramMissing
from sandbox_exec._errors import SandboxError
from sandbox_exec._frames import (
    Frame,
    FrameScanner,
    hello,
    new_conversation,
    reap_request,
    retire_request,
    signal_request,
)
from sandbox_exec._guest import BOOTSTRAP, GUEST_VARIABLE, WORKSPACE, bootstrap, guest_script
from sandbox_exec._naming import LABEL_DEPLOYMENT, LABEL_KIND, one_off_name
from sandbox_exec._policy import one_off_flags

__all__ = ["Reach"]


def _guest_env() -> Mapping[str, str]:
    return {GUEST_VARIABLE: guest_script()}


@frozen
class Reach:
    """Makes the addresses of one executor's guests.

    :param home: the workspace that guests make; nothing for one that is not theirs to make.
    """

    _config: SandboxConfig
    _client: EngineClient
    _home: str = WORKSPACE

    def in_container(self, name: str, user: str | None) -> Address:
        """Return the address of a guest in a running container."""

        async def fallback(tag: int) -> bool:
            # As root, whoever the command runs as: only root may signal everybody.
            return await self.reap(name, tag)

        return Address(self._exec(name, user), _guest_env(), fallback)

    def one_off(self, user: str | None, *, makes_workdir: bool) -> Address:
        """Return the address of a guest that is the command of a container of its own."""
        name = one_off_name(self._config.deployment)

        async def fallback(_tag: int) -> bool:
            try:
                answer = await self._client.control(command_line.remove(name, force=True))
            except SandboxError:
                return False
            return answer.exit_code == 0

        line = command_line.run_attached(
            name,
            labels={LABEL_DEPLOYMENT: self._config.deployment, LABEL_KIND: "one-off"},
            flags=one_off_flags(self._config, user, makes_workdir=makes_workdir),
            variable=GUEST_VARIABLE,
            image=self._config.image,
            command=("sh", *BOOTSTRAP),
        )
        return Address(self._client.line(line), _guest_env(), fallback, ephemeral=True)

    def _exec(self, name: str, user: str | None) -> Argv:
        return self._client.line(
            command_line.exec_stdin(
                name,
                variables=(GUEST_VARIABLE,),
                user=user,
                command=("sh", *bootstrap(self._home)),
            )
        )

    async def retire(self, name: str, idle_after: float) -> Frame | None:
        """Stop a container from within unless it was used lately; return the guest's answer.

        ``retired``, or ``kept`` and the seconds for which it may not be asked again, or ``refused``
        because somebody else is at it; ``None`` when there was no answer.
        """
        words = ("retired", "kept", "refused")
        frame = await self._ask(self._exec(name, None), retire_request(idle_after), words)
        # Any other refusal means that this guest can do nothing.
        mute = frame is not None and frame.word == "refused" and frame.arguments != ("retiring",)
        return None if mute else frame

    async def reap(self, name: str, tag: int) -> bool:
        """Kill what carries ``tag``, and its guest, through a second guest.

        :returns: whether nothing is left; ``False`` also when there was no answer in time.
        """
        answer = await self._ask(self._exec(name, None), reap_request(tag), ("reaped",))
        return answer == Frame("reaped", ("0",))

    async def signal(self, name: str, tag: int, number: int) -> bool:
        """Send a signal to the process that was spawned with ``tag``, through a second guest.

        :returns: whether it was sent; ``False`` also when there was no answer in time.
        """
        request = signal_request(tag, number)
        answer = await self._ask(self._exec(name, None), request, ("signalled",))
        return answer == Frame("signalled", ("0",))

    async def _ask(self, argv: Argv, request: bytes, words: Container[str]) -> Frame | None:
        """Put a question to a guest and return its answer, ``None`` if there is none in time."""
        conversation = new_conversation()
        scanner = FrameScanner.of(conversation)
        with move_on_after(self._config.control_timeout):
            try:
                async with self._client.runner.open(argv, env=_guest_env()) as process:
                    await process.send(hello(conversation) + request)
                    while data := await process.receive_stdout():
                        _, frame = scanner.feed(data)
                        while frame is not None:
                            if frame.word in words:
                                return frame
                            _, frame = scanner.feed(b"")
            except (BrokenPipeError, ProgramMissing):
                return None
        return None
