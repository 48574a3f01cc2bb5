"""Sweeps the containers that no session of this process holds: asks, decides, re-checks, acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anyio import Lock
from attrs import Factory, define, evolve, field

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient, in_batches
from sandbox_exec._docker.interface import Argv
from sandbox_exec._docker.inventory import ContainerFacts, EngineState
from sandbox_exec._log import Log
from sandbox_exec._naming import LABEL_KEY, LABEL_KIND, Kind
from sandbox_exec._reapers.asking import Asker
from sandbox_exec._reapers.census import Census, is_lasting, is_session, take_census
from sandbox_exec._reapers.dormant_cap import surplus
from sandbox_exec._reapers.unclaimed import Fate, Rules, fate, unchanged
from sandbox_exec._roster import Roster
from sandbox_exec._tidy import Tidy

__all__ = ["FleetReaper"]

log = Log(__name__)


def _key(facts: ContainerFacts) -> str:
    return facts.labels.get(LABEL_KEY, "")


@define
class FleetReaper:
    """The unclaimed reaper, and the dormant cap after it.

    :param kind: sweeps only containers of this kind; ``None`` for all.
    :ivar _mute: containers that did not answer though nothing is in them, with their start.
    """

    _config: SandboxConfig
    _client: EngineClient
    _roster: Roster
    _asker: Asker
    _tidy: Tidy
    _clock: Callable[[], float]
    _wall: Callable[[], float]
    _watching_since: float
    _kind: Kind | None = None
    _mute: dict[str, float | None] = field(factory=dict)
    _sweeping: Lock = Factory(Lock)

    async def sweep(self) -> int:
        """Stop what is idle, remove what is old and what is too much; return how many.

        :raises SandboxError: when the engine gives no certain answer; what was not done is done by
            the next sweep.

        Source: S0's ``sweepUnclaimed``.
        """
        async with self._sweeping:
            census = await take_census(
                self._client, self._config.deployment, self._config.idle_after, self._wall
            )
            if self._kind is not None:
                own = (one for one in census.containers if one.labels.get(LABEL_KIND) == self._kind)
                census = evolve(census, containers=tuple(own))
            rules = Rules(
                self._config.idle_after, self._config.ttl, self._clock() - self._watching_since
            )
            fates = {one.id: fate(one, census.now, rules) for one in census.containers}
            self._asker.keep_only(fates)
            silent, retired = await self._ask(census, fates)
            doomed = self._doomed(census, fates)
            removed, stopped = await self._act(doomed, silent)
            return retired + removed + stopped

    async def _ask(
        self, census: Census, fates: dict[str, Fate]
    ) -> tuple[tuple[ContainerFacts, ...], int]:
        due = {
            one.id: one
            for one in census.containers
            if fates[one.id] is Fate.ASK
            and not self._roster.holds(_key(one))
            and self._asker.is_due(one.id)
        }
        keys = {id_: _key(one) for id_, one in due.items()}
        answers = await self._asker.ask(keys, self._roster.holds)
        self._mute = {id_: start for id_, start in self._mute.items() if id_ in answers.silent}
        return tuple(due[id_] for id_ in answers.silent), len(answers.retired)

    def _doomed(self, census: Census, fates: dict[str, Fate]) -> tuple[ContainerFacts, ...]:
        unclaimed = [one for one in census.containers if not self._roster.claims(_key(one))]
        old = tuple(one for one in unclaimed if fates[one.id] is Fate.REMOVE)
        dormant = (
            one
            for one in unclaimed
            if fates[one.id] is Fate.KEEP and is_lasting(one) and one.state is EngineState.EXITED
        )
        return old + surplus(dormant, self._config.max_dormant)

    async def _act(
        self, doomed: Sequence[ContainerFacts], silent: Sequence[ContainerFacts]
    ) -> tuple[int, int]:
        """Do what was decided, to what is still what it was and nobody uses at this moment."""
        if not doomed and not silent:
            return 0, 0
        await self._note_last_use(doomed)
        fresh = await self._client.inspect_all([one.id for one in (*doomed, *silent)])
        mute = [one for one in unchanged(silent, fresh) if not one.exec_ids]
        twice = [one.id for one in mute if self._mute.get(one.id, -1.0) == one.started]
        self._mute = {one.id: one.started for one in mute if one.id not in twice}
        gone = [one for one in unchanged(doomed, fresh) if not self._roster.claims(_key(one))]
        removed = await self._call(_remove, [one.id for one in gone], "sandbox.removed")
        silent_still = {one.id: _key(one) for one in mute}
        unheld = [id_ for id_ in twice if not self._roster.holds(silent_still[id_])]
        return removed, await self._call(command_line.stop, unheld, "sandbox.stopped_mute")

    async def _note_last_use(self, doomed: Iterable[ContainerFacts]) -> None:
        """Have workspaces age from their last use, of which the container is the only record."""
        if self._config.workspace_root is None:
            return
        uses = ((_key(one), one.finished or one.created) for one in doomed if is_session(one))
        await self._tidy.note(uses)

    async def _call(self, build: Callable[..., Argv], ids: Sequence[str], event: str) -> int:
        """Make a batched call; one that is refused for some of them has done the others."""
        done = 0
        for argv, batch in in_batches(build, ids):
            answer = await self._client.control(argv, timeout=self._client.patience(batch))
            names = set(answer.stdout.decode("utf-8", "replace").split())
            done += len(names.intersection(batch))
            log.info(event, containers=sorted(names.intersection(batch)))
            if answer.exit_code != 0:
                log.warning("reaper.refused", argv=argv[:2], stderr=answer.error_text[:1000])
        return done


def _remove(*ids: str) -> Argv:
    return command_line.remove(*ids, force=False)
