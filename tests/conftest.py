"""Every asynchronous test runs on both event loops."""

import pytest


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"debug": True}), id="asyncio"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """The event loop and its options, for anyio's pytest plugin."""
    return request.param
