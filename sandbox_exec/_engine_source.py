"""What the engine says of itself, asked once for as long as an executor is open."""

from __future__ import annotations

from attrs import Factory, define, field

from sandbox_exec._docker.answers import UnreadableAnswer
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.describe import parse_info
from sandbox_exec._docker.facts import EngineFacts
from sandbox_exec._errors import SandboxError
from sandbox_exec._log import Log

__all__ = ["EngineSource"]

log = Log(__name__)


@define
class EngineSource:
    """Asks with the first start of a sandbox, so that no later call pays for it.

    :ivar facts: what it said; ``None`` until it was asked, and if it says nothing that can be read.
        Whoever knows it already gives it, and nobody is asked.
    """

    _client: EngineClient
    facts: EngineFacts | None = None
    _asked: bool = field(
        default=Factory(lambda self: self.facts is not None, takes_self=True), init=False
    )
    _tried: bool = field(default=False, init=False)

    async def learn(self) -> EngineFacts | None:
        """Ask, unless that was done, and return what is known.

        :raises DaemonUnavailableError: when the engine is not there; then it is asked again.
        :raises EngineNotFoundError: when there is no such program.
        """
        if self._asked:
            return self.facts
        answer = await self._client.info()
        self._asked = True
        try:
            self.facts = parse_info(answer.stdout)
        except UnreadableAnswer as error:
            log.info("engine.unreadable", why=str(error))
        else:
            if ignored := self.facts.limits.ignored:
                log.info("engine.limits_without_effect", limits=ignored)
        return self.facts

    async def try_to_learn(self) -> None:
        """Ask once, on behalf of a sandbox that runs: it is usable whatever comes of that."""
        if self._tried:
            return
        self._tried = True
        try:
            await self.learn()
        except SandboxError as error:
            log.info("engine.unknown", why=str(error))
