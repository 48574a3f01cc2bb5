"""A place of the test's own on an engine in memory."""

from collections.abc import Iterator

import pytest

from .places import FakePlace


@pytest.fixture
def place() -> Iterator[FakePlace]:
    """A deployment on a new engine; at the end, nobody may still be talking to a guest."""
    made = FakePlace()
    yield made
    assert made.daemon.conversations == 0
