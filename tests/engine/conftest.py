"""The real engine of these tests; a missing one is a skip, or a failure where it is required."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import Factory, frozen

from sandbox_exec._docker.runner import SubprocessRunner

IMAGE = "sandbox-exec/busybox"

# These run on both event loops in every run; of the others, whose minutes are an engine's and not
# the loop's, trio's turn comes with `make soak`.
BOTH_LOOPS = {"test_shared_real.py", "test_seam.py", "test_wedged.py", "test_lifecycle_races.py"}


@frozen
class RealEngine:
    """An engine that answers, and the environment in which its program reaches it.

    :param settings: what an executor must be told to use it, beyond its program.
    :param plain: executors are made as a caller makes them, who hands in nothing but settings.
    """

    program: str
    environment: Mapping[str, str]
    settings: Mapping[str, Any] = Factory(dict)
    plain: bool = False

    @property
    def runner(self) -> SubprocessRunner:
        return SubprocessRunner(self.environment)


def engine_environment() -> dict[str, str]:
    """Return what of this process's environment decides which engine is spoken to."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "HOME", "XDG_RUNTIME_DIR"} or name.startswith(("DOCKER_", "CONTAINER"))
    }


def answers(program: str, environment: Mapping[str, str]) -> bool:
    if shutil.which(program, path=environment.get("PATH")) is None:
        return False
    argv = [program, "image", "inspect", IMAGE]
    try:
        ended = subprocess.run(argv, env=environment, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the second event loop of slow tests to the long run."""
    for item in items:
        below = Path(__file__).parent in item.path.parents
        if below and item.path.name not in BOTH_LOOPS and "trio" in item.name:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def real_engine() -> RealEngine:
    """The engine that the environment names, docker unless it says otherwise."""
    program = os.environ.get("SANDBOX_EXEC_ENGINE") or "docker"
    environment = engine_environment()
    if not answers(program, environment):
        message = f"no {program} with the image {IMAGE} answers"
        if program in os.environ.get("SANDBOX_EXEC_REQUIRE_ENGINE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    return RealEngine(program, environment)
