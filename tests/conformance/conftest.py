"""Which engine the suite is run on, what it is excused from there, and the report about it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.engine.executors import Box, Deployment, deployment
from tests.engine.real_engine import IMAGE, RealEngine, answers, engine_environment

from .exceptions import deviations
from .report import Report

ENGINE = os.environ.get("SANDBOX_EXEC_CONFORMANCE") or "docker"


def pytest_configure(config: pytest.Config) -> None:
    """Have the report written by the process that sees every result."""
    path = os.environ.get("SANDBOX_EXEC_CONFORMANCE_REPORT")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(Path(path), _engine()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about another engine, and expect the failures that are excused."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    foreign = [item for item in here if ENGINE not in _engines_of(item)]
    items[:] = [item for item in items if item not in foreign]
    config.hook.pytest_deselected(items=foreign)
    excused = deviations(ENGINE)
    for item in here:
        if reason := excused.get(_name_of(item)):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _engines_of(item: pytest.Item) -> tuple[str, ...]:
    only = item.get_closest_marker("only")
    return only.args if only else (ENGINE,)


def _name_of(item: pytest.Item) -> str:
    """Return a test's name without parameters; that of a shared behaviour is the behaviour's."""
    assert isinstance(item, pytest.Function)
    parameters = getattr(item, "callspec", None)
    shared = parameters.params.get("behaviour") if parameters else None
    return shared.__name__ if shared else str(item.originalname)


@pytest.fixture
def anyio_backend() -> str:
    """What differs from one engine to the next is not the loop's doing."""
    return "asyncio"


def _engine() -> RealEngine:
    settings = json.loads(os.environ.get("SANDBOX_EXEC_CONFORMANCE_SETTINGS") or "{}")
    program = os.environ.get("SANDBOX_EXEC_ENGINE") or "docker"
    return RealEngine(program, engine_environment(), settings, plain=True)


@pytest.fixture(scope="session")
def real_engine() -> RealEngine:
    """The engine that the environment names; a missing one is a failure, never a skip."""
    engine = _engine()
    if not answers(engine.program, engine.environment):
        pytest.fail(f"no {engine.program} with the image {IMAGE} answers")
    return engine


@pytest.fixture
def here(real_engine: RealEngine) -> Iterator[Deployment]:
    """A deployment of the test's own."""
    with deployment(real_engine) as made:
        yield made


@pytest.fixture
async def box(here: Deployment) -> AsyncIterator[Box]:
    """An open executor, its image busybox."""
    async with here.executor() as executor:
        yield Box(executor, here)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A directory in which the engine, whoever it runs as, may make workspaces."""
    given = os.environ.get("SANDBOX_EXEC_CONFORMANCE_ROOM")
    if given is None:
        return tmp_path / "workspaces"
    # Made by whom the engine runs as, as a caller would who runs as them.
    made = Path(given) / f"{tmp_path.parent.name}-{tmp_path.name}"
    made.mkdir(mode=0o700)
    owner = Path(given).stat()
    os.chown(made, owner.st_uid, owner.st_gid)
    return made
