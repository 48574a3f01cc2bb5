"""The second event loop of the tests whose minutes are the guest's and not the loop's."""

from pathlib import Path

import pytest

THOROUGH_ON_TRIO = {"test_transfers.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave them to `make test`: the runner's own tests are what differs between loops."""
    for item in items:
        below = Path(__file__).parent in item.path.parents
        if below and item.path.name in THOROUGH_ON_TRIO and "trio" in item.name:
            item.add_marker(pytest.mark.thorough)
