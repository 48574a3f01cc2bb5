"""Adopt, start or recreate a container that stays: a session's, or a spawn backend's.

A loop of looking and one step, until the container runs under today's policy: whatever happens in
between, a name that is taken, a removal under way, somebody else's start, the next look sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anyio import sleep
from attrs import define, evolve

from sandbox_exec._config import SandboxConfig
from sandbox_exec._disposition import Disposition, disposition, is_ours
from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.diagnose import ENDINGS, Fault, diagnose
from sandbox_exec._docker.interface import Argv, Completed, NoAnswer
from sandbox_exec._docker.inventory import ContainerFacts, EngineState
from sandbox_exec._errors import ContainerStartError, SandboxBrokenError
from sandbox_exec._image import ImageSource
from sandbox_exec._log import Log
from sandbox_exec._naming import LABEL_POLICY, container_name
from sandbox_exec._policy import Policy, Preset, changed_parts
from sandbox_exec._start_error import start_error_from
from sandbox_exec._started import FIRST, Started
from sandbox_exec._storage import Storage
from sandbox_exec._tool_text import BROKEN_HINT, START_HINT
from sandbox_exec._trial import try_out

__all__ = ["Started", "Starter"]

_LOOK_EVERY: Final = 0.2
_WAKE_TRIES: Final = 3
_WOKEN: Final = "it had been stopped: its files are as they were, its processes are gone"

log = Log(__name__)


@define
class _Attempt:
    """One session's start: what was lost on the way, for whoever is told."""

    key: str
    name: str
    lost: str | None
    reset: str | None = None
    woken: int = 0


@define
class Starter:
    """Starts the containers of one preset, whose wishes the engine may leave unfulfilled."""

    _config: SandboxConfig
    _client: EngineClient
    _preset: Preset
    images: ImageSource
    storage: Storage
    _clock: Callable[[], float]
    _unfulfilled: bool = False

    async def start(self, key: str, *, lost: str | None = None) -> Started:
        """Return a running container for ``key``.

        :param lost: what is known to be lost should the container turn out to be gone; ``None``
            for a session that this process has not seen before.
        :raises ContainerStartError: when it cannot be started.
        :raises DaemonUnavailableError: when the engine does not answer; then nothing was removed.
        """
        name = self.name(key)
        attempt = _Attempt(key, name, lost)
        deadline = self._clock() + self._config.start_timeout
        while True:
            inventory = await self._client.inspect(name, self._config.image)
            container = inventory.container(name)
            policy = await self.images.policy(inventory, container)
            step = disposition(
                container,
                policy,
                deployment=self._config.deployment,
                key=key,
                kind=self._preset.kind,
            )
            log.debug("sandbox.disposition", container=name, step=step.name)
            if (started := await self._take(step, attempt, container, policy)) is not None:
                await self.storage.engine.try_to_learn()
                return started
            if self._clock() >= deadline:
                raise self._too_slow(name)

    @property
    def patience(self) -> float:
        """Seconds that a start may take."""
        return self._config.start_timeout

    def name(self, key: str) -> str:
        """Return the name of the container with a key."""
        return container_name(self._config.deployment, key, self._preset.kind)

    def _too_slow(self, name: str, argv: Argv = ()) -> ContainerStartError:
        return ContainerStartError(
            f"{name} was not running after {self._config.start_timeout:g} s",
            code="start-timeout",
            argv=argv,
            retryable=True,
            hint=START_HINT,
        )

    async def _patiently(self, argv: Argv, name: str) -> Completed:
        """Make a call that starts a container, for as long as a start may take.

        Nothing is removed when that was too long: the engine may still be at it, and the next start
        then adopts what came of it.

        :raises ContainerStartError: when it takes longer, of an engine that answers all the same.
        :raises DaemonUnavailableError: when the engine answers nothing else either.
        """
        answer = await self._client.attempt(argv, self._config.start_timeout)
        if isinstance(answer, NoAnswer):
            await self._client.info()
            raise self._too_slow(name, self._client.line(argv))
        return answer

    async def _take(
        self,
        step: Disposition,
        attempt: _Attempt,
        container: ContainerFacts | None,
        policy: Policy,
    ) -> Started | None:
        """Take one step; return the container once it runs, else ``None`` to look again."""
        if step is Disposition.FOREIGN:
            raise ContainerStartError(
                f"the name {attempt.name} is taken by a container that is not a sandbox of ours",
                code="name-taken",
                hint=START_HINT,
            )
        if container is None:
            made = await self._create(attempt.name, attempt.key, policy)
            reset = attempt.reset or attempt.lost
            return None if made is None else Started(made, reset, FIRST)
        match step:
            case Disposition.ADOPT:
                return Started(container.id, attempt.reset, container.started)
            case Disposition.START:
                if attempt.woken == _WAKE_TRIES:
                    raise _broken(container, "it ends as soon as it has been started")
                attempt.woken += 1
                attempt.reset = await self._wake(container) or attempt.reset
            case Disposition.UNPAUSE:
                await self._client.control(command_line.unpause(container.id))
            case Disposition.RECREATE:
                attempt.reset = await self._replace(attempt.key, container, policy)
            case _:
                await sleep(_LOOK_EVERY)
        return None

    async def restart(self, key: str, started: Started, why: str) -> Started:
        """Stop and start a container that no longer serves: its files stay (hazard S15).

        Then looked at like any other.
        """
        answer = await self._patiently(command_line.restart(started.id), self.name(key))
        log.warning("sandbox.restarted", key=key, why=why, exit_code=answer.exit_code)
        again = await self.start(key, lost=self.lost_container())
        done = answer.exit_code == 0
        return evolve(again, reset=again.reset or (why if done else None))

    async def is_running(self, started: Started) -> bool:
        """Return whether this very container runs, and has not been started again.

        :raises DaemonUnavailableError: when the engine does not say.
        """
        inventory = await self._client.inspect(started.id)
        return started.goes_on(inventory.container(started.id))

    async def exists(self, key: str) -> bool:
        """Return whether there is anything of a session: a container, or durable files."""
        if self._preset.durable:
            return True
        return await self.find(key) is not None

    async def find(self, key: str) -> ContainerFacts | None:
        """Return the container that has a key's name, if it is of this preset's kind and ours.

        :raises DaemonUnavailableError: when the engine does not say.
        """
        name = self.name(key)
        found = (await self._client.inspect(name)).container(name)
        deployment, kind = self._config.deployment, self._preset.kind
        return found if found is not None and is_ours(found, deployment, key, kind) else None

    async def remove(self, key: str) -> None:
        """Remove a session's container and its workspace, in this order."""
        if (container := await self.find(key)) is not None:
            await self.discard(container)
        await self.storage.remove_workspace(key)

    async def _create(self, name: str, key: str, policy: Policy) -> str | None:
        """Make the container and return its id, or ``None`` if somebody else has."""
        await self.storage.make_room(key)
        deployment, kind = self._config.deployment, self._preset.kind
        argv = command_line.run_detached(
            name,
            labels=policy.labels(deployment=deployment, kind=kind, key=key),
            flags=self._flags(key),
            image=self._config.image,
            command=self._preset.command,
        )
        answer = await self._patiently(argv, name)
        if answer.exit_code == 0:
            log.info("sandbox.created", container=name, image=self._config.image)
            return answer.stdout.decode("ascii", "replace").strip()
        fault = diagnose(answer.exit_code, answer.stdout, answer.stderr).fault
        if fault in {Fault.NAME_TAKEN, Fault.BEING_REMOVED}:
            await sleep(_LOOK_EVERY)
            return None
        # A run that failed leaves a container that never ran (hazard F11).
        await self._discard_unstarted(name, policy)
        if fault is Fault.NO_QUOTA and not self._unfulfilled:
            self._unfulfilled = True
            log.warning("sandbox.no_disk_limit", container=name, why=answer.error_text[:300])
            return None
        raise start_error_from(f"{name} could not be started", self._client.line(argv), answer)

    def _flags(self, key: str) -> tuple[str, ...]:
        wishes = () if self._unfulfilled else self._preset.wishes
        return (*self._preset.flags(key, self.storage.makes_directories), *wishes)

    async def _discard_unstarted(self, name: str, policy: Policy) -> None:
        container = (await self._client.inspect(name)).container(name)
        if (
            container is not None
            and container.state is EngineState.CREATED
            and container.labels.get(LABEL_POLICY) == policy.fingerprint
        ):
            await self._client.control(command_line.remove(container.id, force=False))

    async def _wake(self, container: ContainerFacts) -> str | None:
        """Start a container that does not run; return what was lost, ``None`` to look again.

        One that will not start is left as it is, since its files may matter; S0 removed it. Only
        one that never ran holds nothing.
        """
        argv = command_line.start(container.id)
        answer = await self._patiently(argv, container.name)
        never_ran = container.state is EngineState.CREATED
        if answer.exit_code == 0:
            log.info("sandbox.woken", container=container.name)
            return None if never_ran else _WOKEN
        diagnosis = diagnose(answer.exit_code, answer.stdout, answer.stderr)
        if diagnosis.fault in _GONE_MEANWHILE:
            await sleep(_LOOK_EVERY)
        elif never_ran:
            await self.discard(container)
        elif diagnosis.fault is Fault.NO_SHELL:
            raise _broken(container, diagnosis.line)
        else:
            what = f"{container.name} could not be started again"
            raise start_error_from(what, self._client.line(argv), answer)
        return None

    async def _replace(self, key: str, container: ContainerFacts, policy: Policy) -> str:
        await self.images.ensure()
        await self.storage.make_room(key)
        await try_out(self._config, self._client, self._flags(key), container.name)
        parts = changed_parts(policy, container.labels)
        changed = ", ".join(parts) or "its state"
        log.info("sandbox.replaced", container=container.name, changed=changed)
        await self.discard(container)
        left = self._left(moved="workspace" in parts)
        return f"its policy changed ({changed}) and it was rebuilt: {left}"

    def _left(self, *, moved: bool) -> str:
        if not self._preset.durable:
            return "files, packages and processes are gone"
        kept = "is another directory now" if moved else "has its files as they were"
        return f"/workspace {kept}, packages and processes are gone"

    def lost_container(self) -> str:
        """Return what to say when a session's container has disappeared."""
        return f"its container had been removed and was rebuilt: {self._left(moved=False)}"

    async def discard(self, container: ContainerFacts) -> None:
        """Remove this very container, by id: a successor of its name is somebody else's.

        :raises ContainerStartError: when the engine refuses.
        """
        argv = command_line.remove(container.id, force=True)
        answer = await self._client.control(argv, timeout=self._config.start_timeout)
        if answer.exit_code != 0:
            fault = diagnose(answer.exit_code, answer.stdout, answer.stderr).fault
            if fault not in _GONE_MEANWHILE:
                what = f"{container.name} could not be removed"
                raise start_error_from(what, self._client.line(argv), answer)
            await sleep(_LOOK_EVERY)


_GONE_MEANWHILE: Final = ENDINGS | {Fault.INIT_LOST}


def _broken(container: ContainerFacts, why: str) -> SandboxBrokenError:
    what = f"{container.name} can no longer run: {why}"
    return SandboxBrokenError(what, code="no-shell", hint=BROKEN_HINT)
