"""Every asynchronous test runs on both event loops, and signals do what they do at a terminal."""

import signal

import pytest

# A shell that starts this in the background has it ignore them, and every process below it: then
# no test of what a signal does can hold.
for _number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(
            _number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        )


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {}), id="asyncio"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """The event loop and its options, for anyio's pytest plugin."""
    return request.param
