"""The image: fetched once when it is missing, known by what it is and not by its name."""

from __future__ import annotations

import pytest
from anyio import create_task_group, sleep

from sandbox_exec import ContainerStartError, ExecSpec
from sandbox_exec.testing import FakeDaemon

from . import vocabulary as do
from .calls import Caller, chat, failure
from .places import IMAGE, FakePlace

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_missing_image_is_fetched_once(place: FakePlace, session: str | None) -> None:
    """In a step of its own, before the command's clock (C3)."""
    place.daemon = FakeDaemon(dict(place.daemon.commands), registry=["far"])
    async with place.executor(image="far") as executor:
        for _ in range(2):
            assert (await executor.run(ExecSpec(do.counts, session))).exit_code == 0
    assert len(place.ran("pull")) == 1


@pytest.mark.parametrize("session", ["chat", None])
async def test_an_image_that_cannot_be_fetched(place: FakePlace, session: str | None) -> None:
    """One clear error; so if the engine claims to have fetched it and has not."""
    async with place.executor(image="nowhere") as executor:
        error = await failure(executor, ContainerStartError, do.counts, session)
        assert (error.code, error.started) == ("image-missing", False)
        assert "pull access denied" in error.stderr
        place.daemon.fail_next("pull", exit_code=0)
        error = await failure(executor, ContainerStartError, do.counts, session)
        assert (error.code, error.started) == ("image-missing", False)
    assert place.daemon.executed == []


UPPER = "invalid reference format: repository name must be lowercase"


@pytest.mark.parametrize("session", ["chat", None])
async def test_a_name_that_no_image_can_have(place: FakePlace, session: str | None) -> None:
    """It is the setting that is wrong, and not the engine that is down."""
    words = f"Error response from daemon: no such image: UPPER/Case: {UPPER}"
    place.daemon.fail_next("image inspect", stderr=words)
    place.daemon.fail_next("run --rm", stderr=f"docker: {UPPER}.", exit_code=125)
    async with place.executor(image="UPPER/Case") as executor:
        error = await failure(executor, ContainerStartError, do.counts, session)
    assert (error.code, error.retryable, error.started) == ("bad-image", False, False)
    assert UPPER in str(error)
    assert place.ran("pull") == []


async def test_a_bad_name_that_only_a_fetch_finds_out(place: FakePlace) -> None:
    """Where the engine looks for it first, as podman does."""
    place.daemon.fail_next("pull", stderr="Error: repository name must be lowercase", exit_code=125)
    async with place.executor(image="UPPER/Case") as executor:
        error = await failure(executor, ContainerStartError, do.counts)
    assert error.code == "bad-image"


async def test_a_slow_fetch_has_a_budget_of_its_own(place: FakePlace) -> None:
    """Longer than a control call's and a start's."""
    place.daemon = FakeDaemon(dict(place.daemon.commands), registry=["far"])
    hold = place.daemon.hold("pull")
    async with place.hasty(image="far", pull_timeout=5) as executor, create_task_group() as group:
        caller = Caller(executor, do.counts)
        group.start_soon(caller)
        await hold.reached()
        await sleep(0.4)
        hold.release()
    assert caller.result is not None


async def test_an_image_rebuilt_under_its_name(place: FakePlace) -> None:
    """Is another policy: the next server rebuilds, and says why (S8)."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    place.daemon.add_image(IMAGE)
    async with place.executor() as executor:
        result = await chat(executor, do.shows_count)
        assert (result.stdout, "(image)" in str(result.reset)) == ("none\n", True)


async def test_an_image_that_lost_its_name(place: FakePlace) -> None:
    """Is no reason to fetch anything for a container that is there."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
    place.daemon.untag(IMAGE)
    async with place.executor() as executor:
        result = await chat(executor, do.shows_count)
        assert (result.stdout, result.reset) == ("x\n", None)
    assert place.ran("pull") == []
