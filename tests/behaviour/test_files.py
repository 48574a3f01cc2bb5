"""Put, read and harvest on the fake engine: what comes back, and what survives which failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from anyio import CancelScope, create_task_group, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from sandbox_exec import (
    BinaryFile,
    DaemonUnavailableError,
    DeniedPath,
    DirectoryPath,
    FileTransferError,
    HarvestedFile,
    LocalDockerExecutor,
    MissingPath,
    ReadResult,
    SandboxBrokenError,
    SandboxDisposedError,
    SandboxError,
    SpecialPath,
    TextFile,
    TooLargeFile,
)
from sandbox_exec.testing import FakeDaemon

from . import vocabulary as do
from .calls import chat, until
from .places import FakePlace

pytestmark = pytest.mark.anyio

OUTBOX = "/workspace/outputs"
FILE = f"{OUTBOX}/f"


async def put(executor: LocalDockerExecutor, path: str = FILE, data: Any = b"new") -> None:  # noqa: ANN401  # put_file's
    await executor.put_file("chat", path, data)


async def read(executor: LocalDockerExecutor, path: str = FILE) -> ReadResult:
    return await executor.read_file("chat", path)


async def harvest(executor: LocalDockerExecutor, **limits: int) -> list[HarvestedFile]:
    found = await executor.harvest(
        "chat", OUTBOX, **{"max_files": 100, "max_bytes": 10**6, **limits}
    )
    return list(found)


async def drained(place: FakePlace, executor: LocalDockerExecutor) -> list[tuple[str, bytes]]:
    """Harvest, and wait for the guest to have deleted what it handed over."""
    found = [(one.path, one.data) for one in await harvest(executor)]
    await until(lambda: place.daemon.conversations == 0)
    return found


def inside(place: FakePlace) -> dict[str, bytes]:
    """What is in the outbox, but for what harvests keep there."""
    files = place.container("chat").files
    return {p: d for p, d in files.items() if p.startswith(OUTBOX) and "/.sandbox-exec" not in p}


async def pieces(*items: bytes) -> AsyncIterator[bytes]:
    for item in items:
        await checkpoint()
        yield item


@pytest.mark.parametrize("data", [b"", b"text", bytes(range(256)) * 2000])
@pytest.mark.parametrize("path", [FILE, "a/b c/'d'\n", "\udcff", "-rf", "/tmp/x"])
async def test_what_is_put_is_read(place: FakePlace, path: str, data: bytes) -> None:
    """Any bytes under any name; a relative one is in the workspace (P3)."""
    async with place.executor(max_read_bytes=600_000) as executor:
        await put(executor, path, data)
        found = await read(executor, path)
    if isinstance(found, TextFile):
        assert (found.text.encode(), found.bytes) == (data, len(data))
    else:
        assert found == BinaryFile(data)
    where = path if path.startswith("/") else f"/workspace/{path}"
    assert place.container("chat").files[where] == data


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(some.lists(some.binary(max_size=70_000), max_size=6))
async def test_a_stream_of_any_pieces_arrives(items: list[bytes]) -> None:
    """However it is cut; progress is told to the last byte."""
    place, told = FakePlace(), list[tuple[int, int | None]]()
    async with place.executor() as executor:

        def progress(done: int, total: int | None) -> None:
            told.append((done, total))

        await executor.put_file("chat", FILE, pieces(*items), progress=progress)
    whole = b"".join(items)
    assert place.container("chat").files[FILE] == whole
    assert [total for _, total in told] == [None] * len(told)
    assert ([0] + [done for done, _ in told])[-1] == len(whole)


async def test_a_file_of_this_host_is_streamed(place: FakePlace, tmp_path: Path) -> None:
    """With its size known; one that is not there is the caller's own error."""
    (tmp_path / "f").write_bytes(b"x" * 3_000_000)
    told = []
    async with place.executor() as executor:
        await executor.put_file(
            "chat", FILE, tmp_path / "f", progress=lambda *words: told.append(words)
        )
        with pytest.raises(FileNotFoundError):
            await put(executor, FILE, tmp_path / "none")
    assert told[-1] == (3_000_000, 3_000_000)
    assert place.container("chat").files[FILE] == b"x" * 3_000_000


@pytest.mark.parametrize(
    "path",
    [
        *("", "a/", "a/..", ".", "a\0b", "x" * 256, "/" + "a/" * 2100 + "b"),
        *(".sandbox-exec-put-5", "a/.sandbox-exec-put-123456789"),
    ],
)
async def test_a_path_that_names_no_file(place: FakePlace, path: str) -> None:
    """Is rejected before anything starts (P3)."""
    async with place.executor() as executor:
        with pytest.raises(ValueError, match="path"):
            await put(executor, path)
    assert place.daemon.calls == []


@pytest.mark.parametrize(("path", "code"), [("/workspace", "is-directory"), ("f/g", "bad-parent")])
async def test_a_put_that_cannot_be(place: FakePlace, path: str, code: str) -> None:
    """A directory of that name, a file where a directory belongs: an error that names the path."""
    async with place.executor() as executor:
        await put(executor, "f")
        with pytest.raises(FileTransferError) as caught:
            await put(executor, path)
    assert (caught.value.code, caught.value.path) == (code, path)


async def test_content_of_another_type(place: FakePlace) -> None:
    """Text has no bytes of its own: rejected."""
    async with place.executor() as executor:
        with pytest.raises(ValueError, match="content must be"):
            await put(executor, FILE, "text")


async def test_what_a_path_is(place: FakePlace) -> None:
    """Each kind has an answer of its own, and none of them is an error (P2, P4)."""
    async with place.executor(max_read_bytes=10) as executor:
        await chat(executor, do.speaks)
        container = place.container("chat")
        container.files.update(
            {
                "/workspace/text": "\N{REPLACEMENT CHARACTER}é".encode(),
                "/workspace/nul": b"a\0b",
                "/workspace/latin": b"\xe9",
                "/workspace/ten": b"x" * 10,
                "/workspace/big": b"x" * 11,
            }
        )
        container.odd.update({"/workspace/fifo": "special", "/workspace/secret": "denied"})
        found = {
            name: await read(executor, name)
            for name in ("text", "nul", "latin", "ten", "big", "none", "outputs/", "fifo", "secret")
        }
    assert found == {
        "text": TextFile("\N{REPLACEMENT CHARACTER}é", 5),
        "nul": BinaryFile(b"a\0b"),
        "latin": BinaryFile(b"\xe9"),
        "ten": TextFile("x" * 10, 10),
        "big": TooLargeFile(11),
        "none": MissingPath(),
        "outputs/": DirectoryPath(),
        "fifo": SpecialPath(),
        "secret": DeniedPath(),
    }


async def test_harvest_drains_in_order_and_once(place: FakePlace) -> None:
    """By path, and nothing is left."""
    async with place.executor() as executor:
        for name in ("b", "a/z", "a b", "\udcff", "'", "deep/er/x"):
            await put(executor, f"{OUTBOX}/{name}", name.encode("utf-8", "surrogateescape"))
        found = await drained(place, executor)
        assert [path for path, _ in found] == ["'", "a b", "a/z", "b", "deep/er/x", "\udcff"]
        assert all(path.encode("utf-8", "surrogateescape") == data for path, data in found)
        assert await harvest(executor) == []
        assert inside(place) == {}


async def test_limits_of_a_harvest(place: FakePlace) -> None:
    """By number, by size, by the sum; inclusive, and the rest stays (P6)."""
    async with place.executor() as executor:
        for name, size in (("a", 1000), ("b", 1001), ("c", 10), ("d", 600), ("e", 600)):
            await put(executor, f"{OUTBOX}/{name}", b"x" * size)

        async def names(**limits: int) -> list[str]:
            return [one.path for one in await harvest(executor, **limits)]

        assert await names(max_files=1, max_bytes=1000) == ["a"]
        assert await names(max_bytes=1000, max_total_bytes=700) == ["c", "d"]
        assert await names(max_bytes=1000, max_total_bytes=700) == ["e"]
        assert await names(max_bytes=1000) == []
        assert inside(place) == {f"{OUTBOX}/b": b"x" * 1001}


@pytest.mark.parametrize("limits", [{"max_files": 0}, {"max_bytes": -1}, {"max_total_bytes": 0}])
async def test_limits_below_one(place: FakePlace, limits: dict[str, int]) -> None:
    """Are rejected."""
    async with place.executor() as executor:
        with pytest.raises(ValueError, match=next(iter(limits))):
            await harvest(executor, **limits)


async def test_a_session_without_a_sandbox_has_nothing(place: FakePlace) -> None:
    """And gets none made for the question (P9)."""
    async with place.executor() as executor:
        assert await harvest(executor) == []
    assert place.containers() == []


async def test_files_waiting_across_a_restart_are_harvested(place: FakePlace) -> None:
    """The next process wakes the sandbox for it (P9)."""
    async with place.executor() as executor:
        await put(executor)
    place.stop("chat")
    async with place.executor() as executor:
        assert await harvest(executor) == [HarvestedFile("f", b"new")]


async def test_one_call_whatever_the_number_of_files(place: FakePlace) -> None:
    """To the engine, for a put, a read and a harvest each (P10)."""
    async with place.executor() as executor:
        await chat(executor, do.speaks)
        files = place.container("chat").files
        files.update({f"{OUTBOX}/{n}": b"x" for n in range(500)})
        before = len(place.daemon.calls)
        await put(executor)
        await read(executor)
        assert len(await harvest(executor, max_files=1000)) == 501
    assert [argv[1] for argv in place.daemon.calls[before:]] == ["exec"] * 3


async def test_a_put_that_dies_midway_leaves_the_old_content(place: FakePlace) -> None:
    """What could be sent again is; what was consumed is not, and the error says so (P1)."""
    async with place.executor() as executor:
        await put(executor, FILE, b"old")
        place.daemon.die_midway_next()
        with pytest.raises(FileTransferError) as caught:
            await put(executor, FILE, pieces(b"x" * 3_000_000, b"y"))
        assert (caught.value.code, caught.value.retryable) == ("interrupted", True)
        assert await read(executor) == TextFile("old", 3)
        place.daemon.die_midway_next()
        await put(executor, FILE, b"x" * 20_000_000)
        assert place.container("chat").files[FILE] == b"x" * 20_000_000


async def test_a_host_file_is_sent_again_from_its_beginning(
    place: FakePlace, tmp_path: Path
) -> None:
    """As it can be."""
    (tmp_path / "f").write_bytes(b"x" * 20_000_000)
    async with place.executor() as executor:
        await chat(executor, do.speaks)
        place.daemon.die_midway_next()
        await put(executor, FILE, tmp_path / "f")
    assert place.container("chat").files[FILE] == b"x" * 20_000_000


async def test_what_was_not_begun_is_tried_again(place: FakePlace) -> None:
    """A guest that died before it was ready has touched neither the file nor the source."""
    async with place.executor() as executor:
        await put(executor, FILE, b"old")
        place.remove("chat")
        await put(executor, FILE, pieces(b"a", b"b"))
        place.daemon.die_before_ready_next()
        await put(executor, FILE, pieces(b"c"))
        place.daemon.die_before_ready_next()
        assert await read(executor) == TextFile("c", 1)
        place.daemon.die_before_ready_next()
        assert await harvest(executor) == [HarvestedFile("f", b"c")]


async def test_a_source_that_fails_fails_the_put(place: FakePlace) -> None:
    """As itself; the old content stays, and the sandbox serves on."""

    async def failing() -> AsyncIterator[bytes]:
        yield b"x" * 3_000_000
        raise KeyError("mine")

    async with place.executor() as executor:
        await put(executor, FILE, b"old")
        with pytest.raises(KeyError, match="mine"):
            await put(executor, FILE, failing())
        assert await read(executor) == TextFile("old", 3)
    assert place.daemon.killed == []


@pytest.mark.parametrize("reason", ["disk", "rename", "parent", "directory"])
async def test_a_put_that_is_refused_says_why(place: FakePlace, reason: str) -> None:
    """And is not tried again."""
    async with place.executor() as executor:
        await chat(executor, do.speaks)
        before = len(place.ran("exec"))
        place.daemon.refuse_next(reason)
        with pytest.raises(FileTransferError) as caught:
            await put(executor)
        assert caught.value.path == FILE
        assert len(place.ran("exec")) == before + 1


@pytest.mark.parametrize(
    ("reason", "retryable"), [("outbox", False), ("tools", False), ("busy", True)]
)
async def test_a_harvest_that_is_refused_says_why(
    place: FakePlace, reason: str, *, retryable: bool
) -> None:
    """It never answers that there is nothing (P9)."""
    async with place.executor() as executor:
        await put(executor)
        place.daemon.refuse_next(reason)
        with pytest.raises(FileTransferError) as caught:
            await harvest(executor)
        assert (caught.value.retryable, caught.value.path) == (retryable, OUTBOX)
        assert await harvest(executor) == [HarvestedFile("f", b"new")]


@pytest.mark.parametrize("moment", ["midway", "after-sent"])
async def test_a_harvest_that_dies_is_delivered_again(place: FakePlace, moment: str) -> None:
    """Whatever it had claimed (P7)."""
    async with place.executor() as executor:
        await put(executor)
        if moment == "midway":
            place.daemon.die_midway_next()
        else:
            place.daemon.die_after_sent_next()
        with pytest.raises(SandboxBrokenError) as caught:
            await harvest(executor)
        assert caught.value.started is True
        await put(executor, FILE, b"newer")
        found = [(one.path, one.data) for _ in range(2) for one in await harvest(executor)]
        assert found[-1] == ("f", b"newer")
        assert found[0] == ("f", b"newer" if moment == "after-sent" else b"new")


async def test_two_harvests_at_once_share_the_files(place: FakePlace) -> None:
    """Each file goes to one of them."""
    async with place.executor() as executor, place.executor() as other:
        await chat(executor, do.speaks)
        files = place.container("chat").files
        files.update({f"{OUTBOX}/{n:03}": b"x" for n in range(300)})
        found: list[str] = []

        async def drain(one: LocalDockerExecutor) -> None:
            while files := await harvest(one, max_files=7):
                found.extend(file.path for file in files)

        async with create_task_group() as group:
            group.start_soon(drain, executor)
            group.start_soon(drain, other)
    assert sorted(found) == [f"{n:03}" for n in range(300)]


Operation = Callable[[LocalDockerExecutor], Awaitable[object]]
OPERATIONS: list[Operation] = [put, read, harvest]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_engine_that_is_gone_is_an_error(place: FakePlace, operation: Operation) -> None:
    """Never "missing", never "nothing there" (S13)."""
    async with place.executor() as executor:
        await put(executor)
        place.daemon.down()
        with pytest.raises(DaemonUnavailableError) as caught:
            await operation(executor)
        assert caught.value.started is False
        place.daemon.up()
        place.daemon.clock.advance(60)
        assert await drained(place, executor) == [("f", b"new")]


def failing_engine(place: FakePlace, verb: str, how: str) -> None:
    daemon = place.daemon
    if how == "fails":
        daemon.fail_next(verb, stderr="Error response from daemon: all is lost\n")
    elif how == "nonsense":
        daemon.fail_next(verb, stdout="{nonsense", exit_code=0)
    else:
        daemon.hang_next(verb)


@pytest.mark.parametrize("how", ["fails", "nonsense", "hangs"])
@pytest.mark.parametrize("verb", ["exec", "inspect", "start"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_each_call_of_a_transfer_fails(
    place: FakePlace, operation: Operation, verb: str, how: str
) -> None:
    """It may fail or succeed, but the file is whole, and nothing is lost."""
    async with place.hasty() as executor:
        await put(executor, FILE, b"old")
        place.stop("chat")
    async with place.hasty() as executor:
        failing_engine(place, verb, how)
        try:
            await operation(executor)
        except SandboxError:
            done = False
        else:
            done = True
        place.daemon.thaw()
    async with place.executor() as executor:
        after = await drained(place, executor)
    if operation is harvest and done:
        assert after == []
    else:
        assert after in ([("f", b"old")], [("f", b"new")])
        assert operation is put or after == [("f", b"old")]


@pytest.mark.parametrize("event", ["down", "stop", "remove", "hang"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_at_any_moment_the_engine_or_container_goes(
    place: FakePlace, operation: Operation, event: str
) -> None:
    """A transfer fails or succeeds whole; what it did not deliver is there for the next one."""
    for ticks in range(0, 400, 11):
        place.daemon = FakeDaemon(dict(place.daemon.commands))
        done: list[object] = []
        async with place.hasty(min_free_bytes=0, max_timeout=0.2, default_timeout=0.2) as executor:
            await put(executor, FILE, b"old" * 40_000)

            async def operate() -> None:
                with suppress(SandboxError):
                    done.append(await operation(executor))  # noqa: B023  # awaited before the next

            async with create_task_group() as group:
                group.start_soon(operate)
                for _ in range(ticks):
                    await checkpoint()
                early = not done
                if event == "down":
                    place.daemon.down()
                elif event == "hang":
                    place.daemon.hang()
                else:
                    getattr(place, event)("chat")
                if event in {"down", "hang"}:
                    await wait_all_tasks_blocked()
            place.daemon.up()
            place.daemon.thaw()
        if event != "remove":
            async with place.executor() as executor:
                after = [data for _, data in await drained(place, executor)]
            delivered = operation is harvest and done
            old, new = [b"old" * 40_000], [b"new"]
            assert after in ((old, []) if delivered else (old, new) if operation is put else (old,))
        if not early:
            return
    pytest.fail("it never ended")


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_cancelled_at_every_step(place: FakePlace, operation: Operation) -> None:
    """The old content or the new, and a harvest whose files nobody got is delivered again."""
    for ticks in range(400):
        place.daemon = FakeDaemon(dict(place.daemon.commands))
        async with place.executor(min_free_bytes=0) as executor:
            await put(executor, FILE, b"old")
            scope, done = CancelScope(), list[object]()

            async def operate() -> None:
                with scope:  # noqa: B023  # awaited before the next
                    done.append(await operation(executor))  # noqa: B023  # as above

            async with create_task_group() as group:
                group.start_soon(operate)
                for _ in range(ticks):
                    await checkpoint()
                scope.cancel()
            await until(lambda: place.daemon.conversations == 0)
            after = [data for _, data in await drained(place, executor)]
        if operation is harvest:
            assert after == ([] if done else [b"old"])
        else:
            assert after in ([b"old"], [b"new"])
        if done:
            return
    pytest.fail("it never ended")


async def test_disposal_ends_a_put(place: FakePlace) -> None:
    """Which gets its error at once, and leaves nothing behind (S10)."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await checkpoint()

    async with place.executor() as executor, create_task_group() as group:

        async def upload() -> None:
            with pytest.raises(SandboxDisposedError):
                await put(executor, FILE, endless())

        group.start_soon(upload)
        while not place.daemon.conversations:
            await checkpoint()
        await executor.dispose_session("chat")
    assert place.containers() == []


async def test_a_sandbox_with_a_transfer_is_not_idle(place: FakePlace) -> None:
    """However long it takes: it is neither stopped nor counted as unused (S6)."""
    go = CancelScope()

    async def slow() -> AsyncIterator[bytes]:
        yield b"a" * 3_000_000
        with go:
            await until(lambda: False)
        yield b"b"

    async with place.executor(idle_after=10) as executor, place.executor(idle_after=10) as other:
        async with create_task_group() as group:
            group.start_soon(put, executor, FILE, slow())
            await until(lambda: place.daemon.conversations)
            for _ in range(300):
                await checkpoint()
            place.daemon.clock.advance(1000)
            await other.sweep_unclaimed()
            assert place.state("chat") == "running"
            go.cancel()
        assert place.container("chat").files[FILE] == b"a" * 3_000_000 + b"b"
