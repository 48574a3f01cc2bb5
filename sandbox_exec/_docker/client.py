"""Control calls to one engine: a deadline, a diagnosis, and a typed error for "no answer"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from attrs import frozen

from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.answers import UnreadableAnswer
from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.describe import server_errors
from sandbox_exec._docker.diagnose import Diagnosis, Fault, absent, diagnose
from sandbox_exec._docker.interface import (
    Argv,
    CommandRunner,
    Completed,
    NoAnswer,
    ProgramMissing,
)
from sandbox_exec._docker.inventory import (
    ContainerFacts,
    ImageFacts,
    Inventory,
    ListedContainer,
    parse_inspect,
    parse_ps,
)
from sandbox_exec._errors import (
    ContainerStartError,
    DaemonUnavailableError,
    EngineNotFoundError,
)
from sandbox_exec._tool_text import DAEMON_DOWN_HINT, START_HINT

__all__ = ["EngineClient", "in_batches"]

_BATCH: Final = 500
"""Ids in one command line, which has its limits, as has one call's time."""

_EACH: Final = 0.02
"""Seconds more for each container beyond the first that a call is about."""

_CODES: Final = {
    Fault.DAEMON_DOWN: "daemon-unavailable",
    Fault.DAEMON_DENIED: "daemon-denied",
    Fault.CONTEXT_MISSING: "bad-context",
}
"""What is certain enough to be remembered, unlike silence (hazard S12)."""

_PASSING: Final = frozenset({"daemon-unavailable", "daemon-silent"})


@frozen
class EngineClient:
    """One engine, asked through its program.

    :param program: the program's name or path.
    :param timeout: seconds a control call gets unless it says otherwise.
    """

    runner: CommandRunner
    program: str
    timeout: float
    breaker: Breaker

    def line(self, argv: Argv) -> Argv:
        """Return the whole command line."""
        return (self.program, *argv)

    def missing_program(self, error: ProgramMissing) -> EngineNotFoundError:
        """Return what a caller is told when the program cannot be found."""
        return EngineNotFoundError(
            f"the container engine is not usable here: {error}",
            argv=(self.program,),
            hint=DAEMON_DOWN_HINT,
        )

    def unavailable(
        self, argv: Argv, why: str, stderr: str = "", *, code: str = "daemon-unavailable"
    ) -> DaemonUnavailableError:
        """Return what a caller is told when the engine gave no usable answer."""
        return DaemonUnavailableError(
            f"the container engine {why}",
            code=code,
            retryable=code in _PASSING,
            argv=self.line(argv),
            stderr=stderr,
            hint=DAEMON_DOWN_HINT,
        )

    def unreachable(self, diagnosis: Diagnosis) -> DaemonUnavailableError:
        """Return what a caller is told of a connection that failed, though the engine answers."""
        why = f"could not be reached: {diagnosis.line}"
        return self.unavailable((), why, diagnosis.line)

    async def control(self, argv: Argv, *, timeout: float | None = None) -> Completed:
        """Make a control call and return how it ended, which need not be well.

        :raises DaemonUnavailableError: when there was no answer, or one that says that the daemon
            is not there.
        :raises EngineNotFoundError: when there is no such program, or it prints without end.
        """
        answer = await self.attempt(argv, self.timeout if timeout is None else timeout)
        if isinstance(answer, NoAnswer):
            why = f"did not answer within {answer.after:g} s"
            raise self.unavailable(argv, why, code="daemon-silent")
        return answer

    async def attempt(self, argv: Argv, seconds: float) -> Completed | NoAnswer:
        """Make a control call whose silence need not mean that the engine is silent.

        :raises DaemonUnavailableError: when the answer says that the daemon is not there.
        :raises EngineNotFoundError: when there is no such program, or it prints without end.
        """
        try:
            answer = await self.runner.run(self.line(argv), timeout=seconds)
        except ProgramMissing as error:
            raise self.missing_program(error) from error
        if isinstance(answer, NoAnswer):
            if answer.excess:
                raise EngineNotFoundError(
                    f"{self.program!r} does not answer as docker or podman do: it printed more "
                    "than 64 MiB, and was ended",
                    code="not-an-engine",
                    argv=self.line(argv),
                    hint=DAEMON_DOWN_HINT,
                )
            return answer
        if answer.exit_code == 0:
            self.breaker.clear()
            return answer
        self._raise_if_down(argv, answer.exit_code, answer.stdout, answer.stderr)
        return answer

    def _raise_if_down(self, argv: Argv, exit_code: int, stdout: bytes, stderr: bytes) -> None:
        diagnosis = diagnose(exit_code, stdout, stderr)
        if (code := _CODES.get(diagnosis.fault)) is not None:
            why = f"is not available: {diagnosis.line}"
            down = self.unavailable(argv, why, diagnosis.line, code=code)
            self.breaker.trip(down)
            raise down

    async def info(self, *, timeout: float | None = None) -> Completed:
        """Ask the engine about itself, which is also the way to learn whether it is there.

        docker's program 20.10 exits with 0 when it is not, and says so only in its answer.

        :raises DaemonUnavailableError: when there was no answer, or one that says that the daemon
            is not there.
        :raises EngineNotFoundError: when there is no such program.
        """
        argv = command_line.info()
        answer = await self.control(argv, timeout=timeout)
        if errors := "\n".join(server_errors(answer.stdout)):
            self._raise_if_down(argv, 1, b"", errors.encode())
            raise self.unavailable(argv, f"is not available: {errors.splitlines()[0]}", errors)
        return answer

    async def inspect(
        self, container: str, *images: str, timeout: float | None = None
    ) -> Inventory:
        """Describe a container, by name or id, and images, in one call (hazard F22).

        What is not in the answer is not there: anything less certain is an error (hazard S3).

        :raises DaemonUnavailableError: also for an answer that does not account for the container.
        """
        argv = command_line.inspect(container, *images)
        answer = await self.control(argv, timeout=timeout)
        inventory = self._parse(argv, answer)
        found = any(container in {facts.name, facts.id} for facts in inventory.containers)
        if not found and container not in absent(answer.stderr):
            raise self.unavailable(argv, "gave no certain answer", answer.error_text)
        return inventory

    async def list_containers(self, *filters: str) -> tuple[ListedContainer, ...]:
        """List containers in any state.

        :raises DaemonUnavailableError: for any answer that is not certain.
        """
        argv = command_line.list_containers(*filters)
        answer = await self.control(argv)
        if answer.exit_code != 0:
            raise self.unavailable(argv, "gave no certain answer", answer.error_text)
        try:
            return parse_ps(answer.stdout)
        except UnreadableAnswer as error:
            raise self.unavailable(argv, f"gave an unreadable answer: {error}") from error

    async def inspect_all(self, ids: Sequence[str]) -> tuple[ContainerFacts, ...]:
        """Describe containers by id; those that are gone are left out.

        :raises DaemonUnavailableError: for an answer that does not account for each of them.
        """
        found: list[ContainerFacts] = []
        for argv, batch in in_batches(command_line.inspect, ids):
            answer = await self.control(argv, timeout=self.patience(batch))
            containers = self._parse(argv, answer).containers
            known = {facts.id for facts in containers} | absent(answer.stderr)
            if not known.issuperset(batch):
                raise self.unavailable(argv, "gave no certain answer", answer.error_text)
            found += containers
        return tuple(found)

    def patience(self, batch: Sequence[str]) -> float:
        """Return the seconds that a call about so many containers gets."""
        return self.timeout + _EACH * len(batch)

    async def inspect_image(self, image: str) -> ImageFacts | None:
        """Describe an image, even where a container has its name; ``None`` if it is not there.

        :raises ContainerStartError: with code ``bad-image`` for a name that no image can have.
        :raises DaemonUnavailableError: for any answer that is not certain.
        """
        argv = command_line.image_inspect(image)
        answer = await self.control(argv)
        if answer.exit_code == 0:
            return next(iter(self._parse(argv, answer).images), None)
        diagnosis = diagnose(answer.exit_code, answer.stdout, answer.stderr)
        if diagnosis.fault is Fault.IMAGE_MISSING:
            return None
        if diagnosis.fault is Fault.BAD_IMAGE:
            raise ContainerStartError(
                f"{image!r} is no name that an image can have: {diagnosis.line}",
                code="bad-image",
                argv=self.line(argv),
                stderr=answer.error_text,
                hint=START_HINT,
            )
        raise self.unavailable(argv, "gave no certain answer", answer.error_text)

    def _parse(self, argv: Argv, answer: Completed) -> Inventory:
        try:
            inventory = parse_inspect(answer.stdout)
        except UnreadableAnswer as error:
            raise self.unavailable(argv, f"gave an unreadable answer: {error}") from error
        self.breaker.clear()
        return inventory


def in_batches(
    build: Callable[..., Argv], ids: Sequence[str]
) -> Iterator[tuple[Argv, Sequence[str]]]:
    """Yield command lines about all of ``ids``, none of them too long, and what each is about."""
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        yield build(*batch), batch
