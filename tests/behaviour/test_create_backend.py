"""What a spawn backend falls back to, and what it says of an engine that is down."""

from __future__ import annotations

import pytest

from sandbox_exec import (
    Completed,
    ContainerStartError,
    DaemonUnavailableError,
    DockerBackend,
    DockerBackendOptions,
    EngineNotFoundError,
    ExecutorClosedError,
    LocalBackend,
    SandboxBackend,
    SpawnRequest,
    create_backend,
)
from sandbox_exec._spawn.engine import advised

from .programs import Programs
from .test_detect import DOCKER, PODMAN

pytestmark = pytest.mark.anyio


async def test_a_fall_back_needs_leave_and_says_so_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only for want of an engine: one that is silent is no reason to go without isolation."""
    nothing, silent = Programs({}), Programs({"docker": {}})
    allowed = DockerBackendOptions(allow_local=True)
    with pytest.raises(EngineNotFoundError):
        await create_backend(DockerBackendOptions(), runner=nothing)
    backend: SandboxBackend = await create_backend(allowed, runner=nothing)
    assert isinstance(backend, LocalBackend)
    warning = capsys.readouterr().err
    assert (warning.count("not_isolated"), "run on this host" in warning) == (1, True)
    assert isinstance(await create_backend(allowed, runner=silent), DockerBackend)
    present = Programs({"docker": DOCKER})
    assert isinstance(await create_backend(allowed, runner=present), DockerBackend)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("engine", [None, "docker"])
@pytest.mark.parametrize("crash", [b"panic: runtime error\n", b""])
async def test_a_broken_program_is_no_reason_to_go_without_isolation(
    engine: str | None, crash: bytes
) -> None:
    """Nor for podman: only one that is not there is."""
    broken = Programs({"docker": {"version": Completed(2, b"", crash)}, "podman": PODMAN})
    with pytest.raises(EngineNotFoundError, match="'docker' does not answer") as errors:
        await create_backend(DockerBackendOptions(allow_local=True, engine=engine), runner=broken)
    assert errors.value.code == "not-an-engine"


@pytest.mark.parametrize(
    "why", ["plain-text password is not supported", "hostname is empty", "invalid query"]
)
async def test_an_address_that_cannot_be_is_said_by_the_first_spawn(why: str) -> None:
    """An address like that gets no answer from docker's program but these words."""
    words = f"Failed to initialize: ssh host connection is not valid: invalid SSH URL: {why}\n"
    docker = Programs({"docker": {"version": Completed(1, b"", words.encode())}, "podman": PODMAN})
    options = DockerBackendOptions(allow_local=True, docker_host="ssh://u:p@builder")
    backend = await create_backend(options, runner=docker)
    assert isinstance(backend, DockerBackend)
    async with backend:
        with pytest.raises(DaemonUnavailableError, match=why):
            await backend.wrap_spawn(SpawnRequest("true"))


async def test_what_was_found_is_not_asked_again() -> None:
    """The backend uses what the fall-back was decided on: podman behind a shim stays podman."""
    programs = Programs({"docker": PODMAN})
    backend = await create_backend(DockerBackendOptions(), runner=programs)
    asked = len(programs.calls)
    assert isinstance(backend, DockerBackend)
    async with backend:
        found = (await backend._assembled()).engine
    assert (found.program, found.family, len(programs.calls)) == ("docker", "podman", asked)


def test_an_engine_that_is_down_comes_with_advice() -> None:
    """Per engine, and only for that."""
    down = DaemonUnavailableError("the container engine is not available")
    assert "podman machine start" in str(advised(down, "podman"))
    assert "Docker Desktop" in str(advised(down, "docker"))
    closing = ExecutorClosedError("the executor is closing", started=True)
    assert str(advised(closing, "docker")) == "the backend is closing"
    other = ContainerStartError("no")
    assert advised(other, "docker") is other
