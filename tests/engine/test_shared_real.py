"""The shared behaviour on a real engine, which keeps the fake honest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.behaviour.shared import BEHAVIOURS, Behaviour

from .real_engine import RealEngine
from .real_place import RealPlace, real_place

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


@pytest.fixture
def place(real_engine: RealEngine) -> Iterator[RealPlace]:
    """A deployment of the test's own."""
    with real_place(real_engine) as made:
        yield made


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.__name__)
async def test_on_the_engine(behaviour: Behaviour, place: RealPlace) -> None:
    """What the fake does, the engine does."""
    await behaviour(place)
