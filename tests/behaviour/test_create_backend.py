"""What a spawn backend falls back to, and what it says of an engine that is down."""

from __future__ import annotations

import pytest

from sandbox_exec import (
    ContainerStartError,
    DaemonUnavailableError,
    DockerBackend,
    DockerBackendOptions,
    EngineNotFoundError,
    LocalBackend,
    SandboxBackend,
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
    other = ContainerStartError("no")
    assert advised(other, "docker") is other
