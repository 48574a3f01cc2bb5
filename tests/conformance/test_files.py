"""Files in and out, under any name, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_exec import (
    BinaryFile,
    DeniedPath,
    DirectoryPath,
    FileTransferError,
    HarvestedFile,
    MissingPath,
    SpecialPath,
    TextFile,
)
from tests.engine import puts
from tests.engine.executors import Box, Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]

OUTBOX = "/workspace/outputs"
NAMES = (
    *("plain", " blank ", "-rf", "a\nb", "d i r/e\tf", "*?[x]", "'\"$(id)`", "…/ü", "{}", "\\"),
    os.fsdecode(b"not-utf8-\xff\xfe"),
    "n" * 200,
)
DATA = bytes(range(256)) * 300


@pytest.mark.parametrize("image", ["busybox", "debian"])
async def test_round_trips(here: Deployment, image: str) -> None:
    """Through a put, a read and a harvest, the same bytes under the same name."""
    async with here.executor(image) as executor:
        box = Box(executor, here)
        for name in NAMES:
            await executor.put_file(Box.session, f"{OUTBOX}/{name}", DATA)
        for name in NAMES[:3]:
            found = await executor.read_file(Box.session, f"outputs/{name}")
            assert found == BinaryFile(DATA)
        files = await box.harvest(max_bytes=len(DATA))
        assert {file.path: file.data for file in files} == dict.fromkeys(NAMES, DATA)
        assert await box.harvest() == []


async def test_a_large_file(box: Box) -> None:
    """Of more than a command's largest input, streamed both ways."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield bytes(2**20)

    await box.executor.put_file(Box.session, f"{OUTBOX}/large", pieces())
    assert (await box.run(f"wc -c < {OUTBOX}/large")).stdout.strip() == str(40 * 2**20)
    (file,) = await box.harvest(max_bytes=40 * 2**20)
    assert (file.path, len(file.data)) == ("large", 40 * 2**20)


async def test_what_a_path_is(box: Box) -> None:
    """Each kind is told apart, and nothing hangs (P2, P4)."""
    await box.run("mkfifo fifo; ln -s loop loop; printf 'x' > text; printf 'a\\0b' > nul")
    names = ("fifo", "loop", "text", "none", "inputs", "nul", "/dev/zero", "text/x")
    found = [await box.executor.read_file(Box.session, name) for name in names]
    assert found == [
        SpecialPath(),
        MissingPath(),
        TextFile("x", 1),
        MissingPath(),
        DirectoryPath(),
        BinaryFile(b"a\0b"),
        SpecialPath(),
        MissingPath(),
    ]


async def test_a_path_that_may_not_be_read(box: Box) -> None:
    """Even by root, says so (P4)."""
    assert await box.executor.read_file(Box.session, "/proc/1/mem") == DeniedPath()


async def test_what_a_put_replaces_hands_on_mode_and_owner(box: Box) -> None:
    """A bit that lends rights is not handed on."""
    await box.run("echo old > script; chmod 4755 script; chown 1000:1001 script")
    await box.executor.put_file(Box.session, "script", b"new")
    result = await box.run("stat -c '%A %u:%g' script; cat script")
    assert result.stdout == "-rwxr-xr-x 1000:1001\nnew"


@pytest.mark.parametrize(("path", "code"), puts.REFUSED)
async def test_a_put_that_cannot_be(box: Box, path: str, code: str) -> None:
    """Says why, and the sandbox serves on."""
    await puts.is_refused(box, path, code)


async def test_a_full_disk_leaves_the_old_content(box: Box) -> None:
    """And the next put finds room again."""
    await puts.fills_the_disk(box)


async def test_an_outbox_that_is_a_link(box: Box) -> None:
    """Is refused, and what a link in it points to is not touched (P8)."""
    await box.run(
        "mkdir other; echo secret > other/f; ln -s other linked; ln -s ../other outputs/d"
    )
    with pytest.raises(FileTransferError) as caught:
        await box.executor.harvest(Box.session, "linked", max_files=9, max_bytes=99)
    assert caught.value.code == "bad-outbox"
    assert await box.harvest() == []
    assert (await box.run("cat other/f")).stdout == "secret\n"


async def test_a_workspace_outlives_its_container(here: Deployment, room: Path) -> None:
    """In a directory of the engine's host that nobody but root can enter (R5)."""
    async with here.executor(workspace_root=str(room)) as executor:
        box = Box(executor, here)
        await executor.put_file(Box.session, f"{OUTBOX}/a\nb", b"x")
        assert (await box.run("echo kept > f; cat f", user="app")).stdout == "kept\n"
        here.cli("rm", "--force", here.container(Box.session))
        assert (await box.run("cat f")).stdout == "kept\n"
    async with here.executor(workspace_root=str(room)) as executor:
        assert await Box(executor, here).harvest() == [HarvestedFile("a\nb", b"x")]
        assert room.stat().st_mode & 0o777 == 0o700
        await executor.dispose_session(Box.session)
        assert not [path for path in room.iterdir() if not path.name.startswith(".")]
