"""The real engine of these tests; a missing one is a skip, or a failure where it is required."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .executors import Box, Deployment, deployment
from .real_engine import IMAGE, RealEngine, answers, engine_environment

# These run on both event loops in every run; of the others, whose minutes are an engine's and not
# the loop's, trio's turn comes with `make soak`.
BOTH_LOOPS = {"test_shared_real.py", "test_seam.py", "test_wedged.py", "test_lifecycle_races.py"}


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


@pytest.fixture
def place(real_engine: RealEngine) -> Iterator[Deployment]:
    """A deployment of the test's own."""
    with deployment(real_engine) as made:
        yield made


@pytest.fixture(params=["busybox", "debian"])
async def box(request: pytest.FixtureRequest, place: Deployment) -> AsyncIterator[Box]:
    """An executor on each of the two families of tools."""
    async with place.executor(request.param) as executor:
        yield Box(executor, place)
