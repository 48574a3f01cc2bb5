"""Which engine a backend uses: found, and asked what it is (hazard B8)."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable
from typing import Final, Literal, Protocol

from attrs import frozen

from sandbox_exec._docker.engine import cli_environment
from sandbox_exec._docker.interface import CommandRunner, NoAnswer, ProgramMissing
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._errors import DaemonUnavailableError, EngineNotFoundError, SandboxError
from sandbox_exec._tool_text import DAEMON_DOWN_HINT

__all__ = ["Detect", "EngineInfo", "Family", "advised", "detect_engine"]

Family = Literal["docker", "podman"]

_CANDIDATES: Final = (
    *("docker", "/usr/local/bin/docker", "/opt/homebrew/bin/docker", "/usr/bin/docker"),
    *("podman", "/opt/homebrew/bin/podman", "/usr/bin/podman"),
)
_VERSION: Final = re.compile(r"(?:(Docker)|(podman)(?:-remote)?) version ([^\s,]+)", re.IGNORECASE)


@frozen
class EngineInfo:
    """An engine's program, and what it says that it is."""

    program: str
    family: Family
    version: str


class Detect(Protocol):
    """Finds an engine."""

    def __call__(
        self, override: str | None = None, *, docker_host: str | None, runner: CommandRunner
    ) -> Awaitable[EngineInfo]:
        """Return the engine that is to be used."""


async def detect_engine(
    override: str | None = None,
    *,
    docker_host: str | None = None,
    runner: CommandRunner | None = None,
    timeout: float = 5.0,
) -> EngineInfo:
    """Find docker or podman, and ask the program which of the two it is.

    :param override: the program to use, in place of S1's candidates and PATH.
    :raises EngineNotFoundError: when there is none.
    :raises DaemonUnavailableError: when it does not answer in ``timeout`` seconds.

    Source: S1's ``detectRuntime``, which judged by the path's text; hazard B8.
    """
    if runner is None:
        runner = SubprocessRunner(cli_environment(os.environ, docker_host=docker_host))
    for program in _CANDIDATES if override is None else (override,):
        try:
            answer = await runner.run((program, "--version"), timeout=timeout)
        except ProgramMissing:
            continue
        if isinstance(answer, NoAnswer):
            raise DaemonUnavailableError(
                f"{program} did not answer within {timeout:g} s", hint=DAEMON_DOWN_HINT
            )
        if match := _VERSION.search(answer.stdout.decode("utf-8", "replace")):
            return EngineInfo(program, "docker" if match[1] else "podman", match[3])
    raise EngineNotFoundError(
        f"there is no container engine here: looked for {override or 'docker and podman'}",
        hint=DAEMON_DOWN_HINT,
    )


_ADVICE: Final[dict[Family, str]] = {
    "docker": "start Docker Desktop, or the docker service",
    "podman": "run 'podman machine start' if there is a machine, or start podman's service",
}


def advised(error: SandboxError, family: Family) -> SandboxError:
    """Return an error with what an operator can do about it, if it is about an engine that is down.

    Source: S1's hint per runtime.
    """
    if not isinstance(error, DaemonUnavailableError):
        return error
    return error.fresh(message=f"{error}; {_ADVICE[family]}")
