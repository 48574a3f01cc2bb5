"""An executor learns once what its engine does not enforce, and says so."""

from __future__ import annotations

import pytest

from sandbox_exec import DaemonUnavailableError, ExecSpec, describe_sandbox
from sandbox_exec.testing import FakeDaemon

from . import vocabulary as do
from .calls import chat, failure
from .places import FakePlace

pytestmark = pytest.mark.anyio

NAMES = ("memory", "swap", "pids", "cpus")


def careless(place: FakePlace) -> FakeDaemon:
    """An engine that enforces nothing, as podman without root under cgroups v1."""
    place.daemon = FakeDaemon(dict(place.daemon.commands), ignores=NAMES)
    return place.daemon


@pytest.mark.parametrize("session", ["chat", None])
@pytest.mark.parametrize("floor", [0, 1])
async def test_what_an_engine_ignores_is_said(
    place: FakePlace, session: str | None, floor: int
) -> None:
    """From the first start on, whichever kind of sandbox it is, and never promised to a model."""
    careless(place)
    seen = []
    async with place.executor(min_free_bytes=floor) as executor:
        seen.append(executor.info.unbounded)
        await executor.run(ExecSpec(do.counts, session))
        seen.append(executor.info.unbounded)
        assert "of memory" not in describe_sandbox(executor.info)
    assert [*seen, executor.info.unbounded] == [("disk",), ("disk", *NAMES), ("disk", *NAMES)]


async def test_an_engine_that_enforces_all_is_not_blamed(place: FakePlace) -> None:
    """Only the disk has no limit."""
    async with place.executor() as executor:
        await chat(executor, do.counts)
        assert executor.info.unbounded == ("disk",)


async def test_a_session_that_is_adopted_teaches_as_much(place: FakePlace) -> None:
    """A server that starts again knows it, though it makes no sandbox; it asks once."""
    daemon = careless(place)
    async with place.executor() as executor:
        await chat(executor, do.counts)
        await executor.run(ExecSpec(do.counts, "other"))
    before = len(place.ran("info"))
    async with place.executor() as executor:
        for session in ("chat", "other", "chat"):
            await executor.run(ExecSpec(do.counts, session))
        assert executor.info.unbounded == ("disk", *NAMES)
    assert len(place.ran("info")) == before + 1
    assert daemon.conversations == 0


async def test_the_engine_is_not_asked_again(place: FakePlace) -> None:
    """No call but the first pays for it."""
    async with place.executor() as executor:
        for session in ("chat", "chat", "other", None, None):
            await executor.run(ExecSpec(do.counts, session))
    assert len(place.ran("info")) == 1


async def test_an_engine_that_does_not_say_is_no_reason_to_fail(place: FakePlace) -> None:
    """A session that runs is usable; nothing is known then, and it is not asked again and again."""
    careless(place)
    async with place.executor() as executor:
        await chat(executor, do.counts)
        await executor.run(ExecSpec(do.counts, "other"))
    async with place.hasty() as executor:
        place.daemon.hang_next("info")
        await chat(executor, do.shows_count)
        await executor.run(ExecSpec(do.counts, "other"))
        assert executor.info.unbounded == ("disk",)
    for answer in ("nonsense\n", "[]\n"):
        async with place.executor() as executor:
            place.daemon.fail_next("info", stdout=answer, exit_code=0)
            await chat(executor, do.shows_count)
            assert executor.info.unbounded == ("disk",)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
            "daemon-unavailable",
        ),
        ("something that nobody has seen", "daemon-unavailable"),
    ],
)
async def test_a_client_that_reports_an_outage_with_status_0(
    place: FakePlace, words: str, code: str
) -> None:
    """As docker 20.10 does for its info: the engine is down, and the sandbox is not to blame."""
    async with place.executor() as executor:
        await executor.run(ExecSpec(do.counts))
        place.daemon.fail_next("run --rm", stderr="docker: odd.\n", exit_code=125)
        answer = f'{{"ServerErrors":["{words}"],"ClientInfo":{{}}}}\n'
        place.daemon.fail_next("info", stdout=answer, exit_code=0)
        error = await failure(executor, DaemonUnavailableError, do.counts, None)
        assert (error.code, words in str(error)) == (code, True)
