"""Which engine a backend uses, and what it falls back to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal

import pytest
from attrs import Factory, define

from sandbox_exec import (
    Argv,
    CliProcess,
    Completed,
    ContainerStartError,
    DaemonUnavailableError,
    DockerBackend,
    DockerBackendOptions,
    EngineNotFoundError,
    LocalBackend,
    NoAnswer,
    ProgramMissing,
    SandboxBackend,
    create_backend,
)
from sandbox_exec._docker.interface import NO_VARIABLES
from sandbox_exec._spawn.engine import EngineInfo, advised, detect_engine

pytestmark = pytest.mark.anyio

DOCKER = b"Docker version 28.2.2, build 28.2.2-0\n"
PODMAN = b"podman version 4.3.1\n"


@define
class Programs:
    """A host with these programs, each with what it says of itself; ``None`` says nothing."""

    found: Mapping[str, bytes | None]
    calls: list[Argv] = Factory(list)

    async def run(
        self, argv: Argv, *, timeout: float, env: Mapping[str, str] = NO_VARIABLES
    ) -> Completed | NoAnswer:
        self.calls.append(argv)
        if argv[0] not in self.found:
            raise ProgramMissing(argv[0])
        words = self.found[argv[0]]
        return NoAnswer(timeout) if words is None else Completed(0, words)

    def open(
        self, argv: Argv, *, env: Mapping[str, str] = NO_VARIABLES
    ) -> AbstractAsyncContextManager[CliProcess]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("found", "override", "program", "family"),
    [
        ({"docker": DOCKER, "podman": PODMAN}, None, "docker", "docker"),
        ({"podman": PODMAN}, None, "podman", "podman"),
        ({"docker": PODMAN}, None, "docker", "podman"),
        ({"/usr/bin/docker": DOCKER}, None, "/usr/bin/docker", "docker"),
        ({"docker": b"who knows", "podman": PODMAN}, None, "podman", "podman"),
        ({"docker": DOCKER, "/opt/podman": DOCKER}, "/opt/podman", "/opt/podman", "docker"),
    ],
)
async def test_a_program_is_asked_what_it_is(
    found: dict[str, bytes], override: str | None, program: str, family: Literal["docker"]
) -> None:
    """A docker shim of podman is podman, whatever the path says (B8)."""
    engine = await detect_engine(override, runner=Programs(found))
    assert (engine.program, engine.family) == (program, family)
    assert engine.version in {"28.2.2", "4.3.1"}


async def test_what_is_not_there_is_said() -> None:
    """And silence is no absence."""
    with pytest.raises(EngineNotFoundError, match="docker and podman"):
        await detect_engine(runner=Programs({}))
    with pytest.raises(EngineNotFoundError, match="/opt/x"):
        await detect_engine("/opt/x", runner=Programs({"docker": DOCKER}))
    with pytest.raises(DaemonUnavailableError):
        await detect_engine(runner=Programs({"docker": None, "podman": PODMAN}))
    with pytest.raises(EngineNotFoundError):
        await detect_engine("/absent/program-of-nobody")


async def test_a_fall_back_needs_leave_and_says_so_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only for want of an engine: one that is silent is no reason to go without isolation."""
    nothing, silent = Programs({}), Programs({"docker": None})
    allowed = DockerBackendOptions(allow_local=True)
    with pytest.raises(EngineNotFoundError):
        await create_backend(DockerBackendOptions(), runner=nothing)
    backend: SandboxBackend = await create_backend(allowed, runner=nothing)
    assert isinstance(backend, LocalBackend)
    assert capsys.readouterr().err.count("not_isolated") == 1
    assert isinstance(await create_backend(allowed, runner=silent), DockerBackend)
    present = Programs({"docker": DOCKER})
    assert isinstance(await create_backend(allowed, runner=present), DockerBackend)
    assert capsys.readouterr().err == ""


async def test_what_was_found_is_not_asked_again() -> None:
    """The backend uses what the fall-back was decided on."""
    programs = Programs({"docker": DOCKER})
    backend = await create_backend(DockerBackendOptions(), runner=programs)
    assert isinstance(backend, DockerBackend)
    async with backend:
        found = await backend._assembled()
    assert (found.engine, len(programs.calls)) == (EngineInfo("docker", "docker", "28.2.2"), 1)


def test_an_engine_that_is_down_comes_with_advice() -> None:
    """Per engine, and only for that."""
    down = DaemonUnavailableError("the container engine is not available")
    assert "podman machine start" in str(advised(down, "podman"))
    assert "Docker Desktop" in str(advised(down, "docker"))
    other = ContainerStartError("no")
    assert advised(other, "docker") is other
