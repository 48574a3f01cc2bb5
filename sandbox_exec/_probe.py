"""Probe sandboxes: made as any one-off is, under the same policy, to see what really holds."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from anyio import CancelScope, create_task_group
from attrs import evolve, frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.facts import EngineFacts, EngineLimits
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._errors import ContainerStartError, SandboxError
from sandbox_exec._guest import STATE_DIR, look_script, reach_script
from sandbox_exec._models import ExecResult, ExecSpec
from sandbox_exec._parts import Parts
from sandbox_exec._quota import disk_quota_works
from sandbox_exec._sighting import Reached, Sighting, parse_sighting
from sandbox_exec._tool_text import START_HINT, size_in_words

__all__ = ["PROBE_SECONDS", "Bench", "probe_limits", "reach"]

T = TypeVar("T")

PROBE_SECONDS: Final = 20.0
"""What a probe may take; each stops by itself long before, unless the machine is very busy."""

# Small, since without a cap it is the host that pays; a gVisor still starts with it.
_MEMORY: Final = 64 * 2**20
_CAP: Final = size_in_words(_MEMORY)
_PIDS: Final = 64
_SPIN_HUNDREDTHS: Final = 200

# Shares of a processor. A cap is kept in slices, so that it may be exceeded by a little; and where
# there is none, a busy machine may give a loop as little.
_CPUS: Final = 0.1
_BOUND_SHARE: Final = 0.15
_FREE_SHARE: Final = 0.2
_CONTROL_SHARE: Final = 0.3

_KILL_SECONDS: Final = 1.0
_KILLED: Final = 137

_OUTPUT_BYTES: Final = 100_000

_REACHED = re.compile(r"^reached (\d{1,18})$", re.MULTILINE)
_TIMES = re.compile(r"^(\d+)m(\d+(?:\.\d+)?)s (\d+)m(\d+(?:\.\d+)?)s$", re.MULTILINE)


def reach(limit: str, far: int, timeout: float, session: str | None = None) -> ExecSpec:
    """Return the command that reaches for a limit, and stops if it gets as far as ``far``."""
    env = {"SANDBOX_EXEC_LIMIT": limit, "SANDBOX_EXEC_FAR": str(far)}
    return ExecSpec(reach_script(), session, timeout, env=env)


@frozen
class Bench:
    """Where probes are made: an engine, and the settings that sandboxes have on it."""

    config: SandboxConfig
    runner: CommandRunner

    @property
    def client(self) -> EngineClient:
        """The engine."""
        config = self.config
        breaker = Breaker(time.monotonic)
        return EngineClient(self.runner, config.engine, config.control_timeout, breaker)

    async def require_image(self) -> None:
        """Insist on an image that is there: to fetch one is not for a probe to decide.

        :raises ContainerStartError: with code ``image-missing`` or ``bad-image``.
        """
        if await self.client.inspect_image(self.config.image) is None:
            raise ContainerStartError(
                f"there is no image {self.config.image!r}", code="image-missing", hint=START_HINT
            )

    async def use(self, work: Callable[[Parts], Awaitable[T]], **changes: Any) -> T:  # noqa: ANN401  # SandboxConfig's
        """Do ``work`` with the parts of an executor that is open for it alone.

        Not with an executor itself, which would be what ``get_executor`` returns meanwhile.
        """
        config = evolve(self.config, max_output_bytes=_OUTPUT_BYTES, **changes)
        results: list[T] = []
        failures: list[Exception] = []
        async with create_task_group() as group:
            parts = Parts.assemble(config, group, self.runner, time.monotonic, time.time)
            try:
                results.append(await work(parts))
            except (SandboxError, ValueError) as error:
                failures.append(error)  # raised below, outside of the group
            finally:
                with CancelScope(shield=True):
                    await parts.close()
            group.cancel_scope.cancel()
        for failure in failures:
            raise failure
        return results[0]

    async def look(self) -> Sighting:
        """Make a sandbox, and return what it looks like from inside.

        :raises SandboxError: when there can be none, or its shell does not get to the end.
        """
        env = {"SANDBOX_EXEC_STATE": STATE_DIR}
        spec = ExecSpec(look_script(), timeout=PROBE_SECONDS, env=env)
        result = await self.use(lambda parts: parts.run(spec), max_timeout=PROBE_SECONDS)
        sighting = parse_sighting(result.stdout)
        if not sighting.whole:
            why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.exit_code}"]
            raise ContainerStartError(
                f"the shell of the image {self.config.image!r} did not get through a short "
                f"script: {why[0]}",
                code="no-shell",
                stderr=result.stderr,
                hint=START_HINT,
            )
        return sighting

    async def _reach(self, limit: str, far: int, timeout: float, **changes: Any) -> ExecResult:  # noqa: ANN401  # as above
        spec = reach(limit, far, timeout)
        return await self.use(lambda parts: parts.run(spec), max_timeout=timeout, **changes)

    async def memory(self) -> Reached:
        """Fill memory to twice a cap."""
        try:
            result = await self._reach("memory", 2 * _MEMORY, PROBE_SECONDS, memory=_MEMORY)
        except SandboxError as error:
            # Of everything in the sandbox, the kernel may have chosen the guest.
            lost = error.code in {"sandbox-lost", "guest-lost"}
            return Reached(str(error), holds=lost or None)
        far = _furthest(result)
        if far >= 2 * _MEMORY:
            return Reached(f"{size_in_words(far)} fit into a sandbox of {_CAP}", holds=False)
        if result.oom_killed or result.exit_code == _KILLED:
            return Reached(f"killed on the way to twice a cap of {_CAP}", holds=True)
        return Reached(f"the probe ended with {result.exit_code}", holds=None)

    async def pids(self) -> Reached:
        """Start more processes at once than the cap allows."""
        try:
            result = await self._reach("pids", _PIDS * 3 // 2, 6.0, pids_limit=_PIDS)
        except SandboxError as error:
            return Reached(str(error), holds=None)
        far = _furthest(result)
        if far >= _PIDS:
            return Reached(f"{far} processes at once in a sandbox of {_PIDS}", holds=False)
        # One that was only slow has met no cap.
        if far and "fork" in result.stderr:
            return Reached(f"refused after {far} processes under a cap of {_PIDS}", holds=True)
        return Reached(f"the probe ended with {result.exit_code}", holds=None)

    async def cpus(self) -> Reached:
        """Keep one processor busy under a cap, and if that got little, under none to speak of."""
        try:
            share = await self._busy(_CPUS)
            if share is None:
                return Reached("a busy loop did not say what it got", holds=None)
            words = f"a busy loop got {share:.2f} of a cpu, of {_CPUS:g}"
            if share > _BOUND_SHARE:
                return Reached(words, holds=False if share >= _FREE_SHARE else None)
            control = await self._busy(1)
        except SandboxError as error:
            return Reached(str(error), holds=None)
        words += f", and {control or 0:.2f} of 1"
        return Reached(words, holds=True if control and control >= _CONTROL_SHARE else None)

    async def _busy(self, cpus: float) -> float | None:
        """Return the share of a processor that a busy loop got under a cap."""
        result = await self._reach("cpus", _SPIN_HUNDREDTHS, PROBE_SECONDS, cpus=cpus)
        spent, wall = _TIMES.search(result.stdout), _furthest(result) / 100
        if spent is None or not wall:
            return None
        minutes, seconds, more_minutes, more_seconds = (float(part) for part in spent.groups())
        return ((minutes + more_minutes) * 60 + seconds + more_seconds) / wall

    async def time_limit(self) -> Reached:
        """Run what ignores signals and has a child beyond its time."""
        try:
            result = await self._reach("time", 0, _KILL_SECONDS)
        except SandboxError as error:
            return Reached(str(error), holds=None)
        if result.timed_out:
            return Reached(f"killed after {result.duration:.1f} s of {_KILL_SECONDS:g}", holds=True)
        return Reached(f"not killed: the probe ended with {result.exit_code}", holds=False)


def _furthest(result: ExecResult) -> int:
    return max((int(number) for number in _REACHED.findall(result.stdout)), default=0)


async def probe_limits(bench: Bench, facts: EngineFacts) -> EngineLimits:
    """Return which limits hold: what probes have seen, and where they saw nothing, what is said.

    :raises SandboxError: when no sandbox can be made, its image missing before all.
    """
    await bench.require_image()
    sighting = await bench.look()
    memory, pids = await bench.memory(), await bench.pids()
    cpus = sighting.has_cpus(bench.config.cpus) or (await bench.cpus()).holds
    swap = True if sighting.swap == 0 or sighting.swap_on_host == "0" else facts.limits.swap
    disk = await disk_quota_works(
        bench.client, facts, bench.config.image, deployment=bench.config.deployment
    )
    said = facts.limits
    return EngineLimits(
        memory=said.memory if memory.holds is None else memory.holds,
        swap=swap,
        pids=said.pids if pids.holds is None else pids.holds,
        cpus=said.cpus if cpus is None else cpus,
        disk=disk,
    )
