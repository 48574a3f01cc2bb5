"""What of the guest's slower tests runs in every round, and what waits for `make test`."""

from pathlib import Path

import pytest

SLOW = {"test_transfers.py", "test_spawn_wrapper.py", "test_guest.py", "test_retire.py"}
LATER = ("trio", "bash", "busybox")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the second event loop, and the second and third shell, to `make test`."""
    for item in items:
        below = Path(__file__).parent in item.path.parents
        if below and item.path.name in SLOW and any(word in item.name for word in LATER):
            item.add_marker(pytest.mark.thorough)
