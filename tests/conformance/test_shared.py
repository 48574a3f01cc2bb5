"""What the fake engine does, every real one does."""

from __future__ import annotations

import pytest

from tests.behaviour.shared import BEHAVIOURS, Behaviour
from tests.engine.real_engine import RealEngine
from tests.engine.real_place import real_place

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.__name__)
async def test_shared_behaviour(behaviour: Behaviour, real_engine: RealEngine) -> None:
    """One of the behaviours that hold on any engine."""
    with real_place(real_engine) as place:
        await behaviour(place)
