"""A deployment of its own for each test, on the shared engine or on a private one to mistreat."""

import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.faults.freezer import set_frozen
from tests.engine.faults.outside import Outside
from tests.engine.real_engine import RealEngine
from tests.rig.daemon import PrivateDaemon
from tests.rig.images import ensure_images
from tests.rig.processes import RigError


def new_deployment() -> str:
    return f"fault-{secrets.token_hex(6)}"


@pytest.fixture
def shared(real_engine: RealEngine) -> Iterator[Outside]:
    """A deployment on the engine of all tests, which must not be harmed; removed afterwards."""
    outside = Outside(real_engine.program, real_engine.environment, new_deployment())
    yield outside
    outside.clear()


@pytest.fixture
def live_restore() -> bool:
    """Whether containers outlive the private daemon; a test says so by overriding it."""
    return False


@pytest.fixture
def daemon(live_restore: bool) -> Iterator[PrivateDaemon]:
    """A docker daemon of this test's own, to be killed and frozen."""
    daemon = PrivateDaemon(network=False, live_restore=live_restore)
    try:
        daemon.start()
        ensure_images(["busybox"], environment=daemon.environment)
    except RigError as error:
        if "docker" in os.environ.get("SANDBOX_EXEC_REQUIRE_ENGINE", "").split(","):
            raise
        pytest.skip(str(error))
    try:
        yield daemon
    finally:
        daemon.thaw()
        # A frozen process does not even die.
        set_frozen(daemon, frozen=False)
        daemon.stop()


@pytest.fixture
def private(daemon: PrivateDaemon) -> Outside:
    """A deployment on the daemon that is this test's own."""
    return Outside("docker", daemon.environment, new_deployment())


@pytest.fixture
def silent() -> Iterator[Outside]:
    """A daemon that accepts every connection and never answers."""
    # Not below pytest's own directories: a socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = Path(directory) / "docker.sock"
        listener.bind(str(path))
        listener.listen(512)
        environment = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
        yield Outside("docker", environment, new_deployment())
