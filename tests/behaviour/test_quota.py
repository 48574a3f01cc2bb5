"""Whether a disk can be bounded is tried once where no engine can say, and never guessed (B7)."""

from __future__ import annotations

import time

import pytest

from sandbox_exec import ContainerStartError, DaemonUnavailableError, EngineFacts, EngineLimits
from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._quota import disk_quota_works
from sandbox_exec.testing import FakeDaemon

pytestmark = pytest.mark.anyio

IMAGE = "sandbox-exec/busybox"
NO_PQUOTA = (
    "docker: Error response from daemon: --storage-opt is supported only for overlay over xfs "
    "with 'pquota' mount option.\n"
)
UNSEEN = "docker: Error response from daemon: Filesystem does not support quotas here.\n"


def client(daemon: FakeDaemon) -> EngineClient:
    return EngineClient(daemon, "docker", 5, Breaker(time.monotonic))


def facts(*, disk: bool | None) -> EngineFacts:
    return EngineFacts(version="1", limits=EngineLimits(disk=disk))


async def test_a_disk_that_certainly_has_no_quotas_is_not_tried() -> None:
    """The engine is not even called."""
    daemon = FakeDaemon(quotas=True)
    assert not await disk_quota_works(client(daemon), facts(disk=False), IMAGE)
    assert daemon.calls == []


@pytest.mark.parametrize("disk", [True, None])
async def test_a_disk_that_takes_a_quota(disk: bool | None) -> None:
    """A container is made with one, and is gone afterwards."""
    daemon = FakeDaemon(quotas=True)
    assert await disk_quota_works(client(daemon), facts(disk=disk), IMAGE, deployment="other")
    (argv,) = daemon.calls
    assert argv[argv.index("--storage-opt") + 1].startswith("size=")
    assert "sandbox-exec.deployment=other" in argv
    assert daemon.containers == {}


async def test_a_disk_that_refuses_a_quota() -> None:
    """As docker does on a file system without, which S1 took for a silent no-op."""
    assert not await disk_quota_works(client(FakeDaemon()), None, IMAGE)


@pytest.mark.parametrize("words", [NO_PQUOTA, UNSEEN])
async def test_a_refusal_in_any_words(words: str) -> None:
    """What cannot be made with a quota has none that works."""
    daemon = FakeDaemon(quotas=True)
    daemon.fail_next("run --rm", stderr=words, exit_code=125)
    assert not await disk_quota_works(client(daemon), None, IMAGE)


async def test_what_is_not_about_the_quota_is_an_error() -> None:
    """An image that is missing, or an engine, says nothing about the disk."""
    daemon = FakeDaemon(quotas=True)
    with pytest.raises(ContainerStartError) as caught:
        await disk_quota_works(client(daemon), None, "absent")
    assert caught.value.code == "image-missing"
    daemon.down()
    with pytest.raises(DaemonUnavailableError):
        await disk_quota_works(client(daemon), None, IMAGE)
