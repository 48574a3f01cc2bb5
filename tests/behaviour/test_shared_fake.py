"""The shared behaviour on the engine in memory."""

import pytest

from .places import FakePlace
from .shared import BEHAVIOURS, Behaviour

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.__name__)
async def test_on_the_fake(behaviour: Behaviour) -> None:
    """What holds on a real engine holds here, and leaves no conversation open."""
    place = FakePlace()
    await behaviour(place)
    assert place.daemon.conversations == 0
