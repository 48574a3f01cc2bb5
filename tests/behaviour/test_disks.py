"""The daemon's disk: room for new sandboxes, and a workspace root that is made and cleared."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import create_task_group

from sandbox_exec import ContainerStartError, ExecSpec
from sandbox_exec._naming import session_key
from sandbox_exec.testing import FakeDaemon

from . import vocabulary as do
from .calls import chat, failure
from .places import FakePlace

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("session", ["chat", None])
@pytest.mark.parametrize("where", ["data", "workspace"])
async def test_a_full_disk_refuses_new_sandboxes(
    place: FakePlace, session: str | None, where: str, tmp_path: Path
) -> None:
    """Wherever the daemon keeps things, if that can be seen from here; none is made (R8)."""
    root = str(tmp_path)
    place.daemon = FakeDaemon(
        dict(place.daemon.commands), data_root=root if where == "data" else None
    )
    workspace_root = root if where == "workspace" else None
    async with place.executor(min_free_bytes="1024t", workspace_root=workspace_root) as executor:
        error = await failure(executor, ContainerStartError, do.counts, session)
        assert (error.code, error.retryable, error.path) == ("disk-full", True, root)
        assert error.hint
    assert (place.ran("run"), place.daemon.executed) == ([], [])
    async with place.executor(min_free_bytes=1, workspace_root=workspace_root) as executor:
        assert (await executor.run(ExecSpec(do.counts, session))).exit_code == 0


async def test_a_full_disk_refuses_no_running_sandbox(place: FakePlace, tmp_path: Path) -> None:
    """Its files are there already."""
    place.daemon = FakeDaemon(dict(place.daemon.commands), data_root=str(tmp_path))
    async with place.executor() as executor:
        await chat(executor, do.counts)
    async with place.executor(min_free_bytes="1024t") as executor:
        assert (await chat(executor, do.shows_count)).stdout == "x\n"
        place.stop("chat")
        assert (await chat(executor, do.shows_count)).stdout == "x\n"


async def test_a_disk_that_cannot_be_seen_is_not_judged(place: FakePlace) -> None:
    """The daemon may be on another machine, or say nothing that can be read."""
    async with place.executor(min_free_bytes="1024t") as executor:
        assert (await chat(executor, do.counts)).exit_code == 0
    for answer in ("[]\n", "nonsense\n", "{}\n", '{"store": {"graphRoot": 3}}\n'):
        place.daemon.fail_next("info", stdout=answer, exit_code=0)
        async with place.executor(min_free_bytes="1024t") as executor:
            assert (await executor.run(ExecSpec(do.counts))).exit_code == 0


def tools(place: FakePlace) -> list[tuple[str, ...]]:
    """The command lines of our own short-lived containers."""
    return [argv for argv in place.ran("run") if argv[2] == "--rm" and argv[3] == "--name"]


async def test_a_workspace_root_is_prepared_once(place: FakePlace) -> None:
    """Mode 0700 before the first sandbox, by a container, whoever starts at the same time (R5)."""
    async with place.executor(workspace_root="/srv/w") as executor:
        async with create_task_group() as group:
            for session in ("chat", "b", "c"):
                group.start_soon(executor.run, ExecSpec(do.counts, session))
        await executor.run(ExecSpec(do.counts, "d"))
        (tool,) = tools(place)
        assert tool[-1] == "close"
        assert "/srv/w:" in tool[tool.index("--volume") + 1]
        assert tool[tool.index("--network") + 1] == "none"
        runs = place.ran("run")
        assert runs.index(tool) == 0
    key = session_key("chat")
    assert place.container("chat").mounts == {"/workspace": f"/srv/w/{key}"}


async def test_a_workspace_root_that_cannot_be_closed(place: FakePlace) -> None:
    """No sandbox is made in it, and the next start tries again."""
    async with place.executor(workspace_root="/srv/w") as executor:
        place.daemon.fail_next("run --rm", stderr="chmod: no\n")
        error = await failure(executor, ContainerStartError, do.counts)
        assert (error.code, error.path, "chmod: no" in str(error)) == ("bad-mount", "/srv/w", True)
        assert place.containers() == []
        assert (await chat(executor, do.counts)).exit_code == 0


async def test_a_workspace_root_that_holds_other_things(place: FakePlace) -> None:
    """Is not closed to those who own them, and not used."""
    async with place.executor(workspace_root="/srv/w") as executor:
        place.daemon.fail_next("run --rm", exit_code=7)
        error = await failure(executor, ContainerStartError, do.counts)
        assert (error.code, "a directory of its own" in str(error)) == ("bad-mount", True)
        assert place.containers() == []


async def test_a_workspace_outlives_its_container(place: FakePlace) -> None:
    """Until it is disposed, after the container; then it is empty."""
    async with place.executor(workspace_root="/srv/w") as executor:
        await chat(executor, do.counts)
        place.remove("chat")
        result = await chat(executor, do.shows_count)
        assert (result.stdout, "/workspace has its files as they were" in str(result.reset)) == (
            "x\n",
            True,
        )
        before = len(place.daemon.calls)
        await executor.dispose_session("chat")
        acts = [argv[1] for argv in place.daemon.calls[before:] if argv[1] != "inspect"]
        assert acts == ["rm", "run"]
        assert session_key("chat") in tools(place)[-1][-1]
        assert (await chat(executor, do.shows_count)).stdout == "none\n"


@pytest.mark.parametrize("before", [None, "/srv/v"])
async def test_another_root_is_another_workspace(place: FakePlace, before: str | None) -> None:
    """And the words about a rebuilt sandbox do not promise the old files (S16)."""
    async with place.executor(workspace_root=before) as executor:
        await chat(executor, do.counts)
    async with place.executor(workspace_root="/srv/w") as executor:
        result = await chat(executor, do.shows_count)
        assert result.stdout == "none\n"
        assert "/workspace is another directory now" in str(result.reset)


async def test_a_workspace_that_cannot_be_removed(place: FakePlace) -> None:
    """The disposal says so, and can be repeated."""
    async with place.executor(workspace_root="/srv/w") as executor:
        await chat(executor, do.counts)
        place.daemon.fail_next("run --rm", exit_code=1)
        with pytest.raises(ContainerStartError, match="could not be cleared of"):
            await executor.dispose_session("chat")
        await executor.dispose_session("chat")
        assert (await chat(executor, do.shows_count)).stdout == "none\n"
