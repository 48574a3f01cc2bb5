"""Put, read and harvest on a real engine: any bytes under any name, and what a path is."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from sandbox_exec import (
    BinaryFile,
    DeniedPath,
    DirectoryPath,
    FileTransferError,
    HarvestedFile,
    MissingPath,
    SpecialPath,
    TextFile,
    TooLargeFile,
)

from . import puts
from .executors import Box, Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

OUTBOX = "/workspace/outputs"
SIZES = (0, 1, 65_535, 65_536, 65_537, 16 * 2**20 + 1)
LARGEST = 17 * 2**20
NUMBERS = itertools.count()


@pytest.fixture
def anyio_backend() -> str:
    """Two backends on the fake are enough."""
    return "asyncio"


@pytest.fixture(params=["busybox", "debian"])
async def box(request: pytest.FixtureRequest, place: Deployment) -> AsyncIterator[Box]:
    """An executor on each of the two families of tools."""
    async with place.executor(request.param, max_read_bytes=LARGEST) as executor:
        yield Box(executor, place)


def content(seed: int, size: int) -> bytes:
    """Bytes of every kind, from little for hypothesis to draw."""
    return random.Random(seed).randbytes(size)


names = some.binary(min_size=1, max_size=80).map(
    lambda data: os.fsdecode(data.replace(b"\0", b"0").replace(b"/", b"_"))
)
paths = some.lists(names.filter(lambda name: name not in {".", ".."}), min_size=1, max_size=3)
sizes = some.one_of(some.integers(0, 5 * 2**20), some.integers(0, 300), some.sampled_from(SIZES))


@settings(
    max_examples=16,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(paths, some.integers(0, 2**32), sizes)
async def test_round_trips(box: Box, parts: list[str], seed: int, size: int) -> None:
    """Through a put, a read and a harvest, the same bytes under the same name."""
    data, name = content(seed, size), "/".join((f"{next(NUMBERS)}", *parts))
    await box.executor.put_file(Box.session, f"{OUTBOX}/{name}", data)
    found = await box.executor.read_file(Box.session, f"outputs/{name}")
    assert isinstance(found, TextFile | BinaryFile)
    assert (found.text.encode() if isinstance(found, TextFile) else found.data) == data
    assert await box.harvest(max_bytes=LARGEST) == [HarvestedFile(name, data)]


async def test_what_a_path_is(box: Box) -> None:
    """Each kind is told apart; nothing hangs, and links are followed for reading (P2, P4)."""
    await box.run(
        "mkfifo fifo; ln -s loop loop; ln -s inputs/text link; printf 'x' > inputs/text;"
        "ln -s /etc/hostname out; : > empty; printf 'a\\0b' > nul"
    )
    found = {
        name: await box.executor.read_file(Box.session, name)
        for name in ("fifo", "loop", "link", "none", "inputs/", "/", "empty", "nul", "/dev/zero",
                     "inputs/text/x", "/proc/kmsg", "/dev/full", "/proc/1/mem")
    }  # fmt: skip
    assert found == {
        "fifo": SpecialPath(),
        "loop": MissingPath(),
        "link": TextFile("x", 1),
        "none": MissingPath(),
        "inputs/": DirectoryPath(),
        "/": DirectoryPath(),
        "empty": TextFile("", 0),
        "nul": BinaryFile(b"a\0b"),
        "/dev/zero": SpecialPath(),
        "inputs/text/x": MissingPath(),
        "/proc/kmsg": DeniedPath(),
        "/dev/full": SpecialPath(),
        "/proc/1/mem": DeniedPath(),
    }
    status = await box.executor.read_file(Box.session, "/proc/self/status")
    assert isinstance(status, TextFile)
    assert status.text.startswith("Name:")
    assert status.bytes == len(status.text.encode()) > 0


async def test_the_read_limit_is_exact(place: Deployment) -> None:
    """And inclusive, whatever the file system says about a size."""
    async with place.executor(max_read_bytes=1000) as executor:
        for size, kind in ((1000, "file"), (1001, "too-large"), (10**7, "too-large")):
            await executor.put_file(Box.session, "f", b"x" * size)
            found = await executor.read_file(Box.session, "f")
            assert (found.kind, getattr(found, "bytes", None)) == (kind, size)
        mounts = await executor.read_file(Box.session, "/proc/kallsyms")
        assert isinstance(mounts, TooLargeFile)


async def test_what_a_put_replaces_hands_on_mode_and_owner(box: Box) -> None:
    """A new file is root's with 0644; a bit that lends rights is not handed on; links give way."""
    await box.run(
        "echo old > script; chmod 4755 script; chown 1000:1001 script; ln -s script link; mkfifo p"
    )
    for name in ("script", "link", "new", "p"):
        await box.executor.put_file(Box.session, name, b"new")
    result = await box.run("stat -c '%A %a %u:%g %n' script link new p; cat script")
    assert result.stdout == (
        "-rwxr-xr-x 755 1000:1001 script\n-rw-r--r-- 644 0:0 link\n-rw-r--r-- 644 0:0 new\n"
        "-rw-r--r-- 644 0:0 p\nnew"
    )


@pytest.mark.parametrize(("path", "code"), puts.REFUSED)
async def test_a_put_that_cannot_be(box: Box, path: str, code: str) -> None:
    """Says why, and the sandbox serves on."""
    await puts.is_refused(box, path, code)


async def test_a_full_disk_leaves_the_old_content(box: Box) -> None:
    """And the next put finds room again."""
    await puts.fills_the_disk(box)
    assert (await box.run("ls -A /run/sandbox-exec | grep put")).stdout == ""


async def test_an_outbox_that_is_a_link(box: Box) -> None:
    """Is refused, itself or on the way to it; what a link in it points to is not touched (P8)."""
    await box.run(
        "mkdir -p other/sub; echo secret > other/sub/f; ln -s other linked; "
        "ln -s /workspace/other/sub/f outputs/f; ln -s /workspace/other outputs/d; mkfifo outputs/p"
    )
    for directory in ("linked", "linked/sub", "other/sub/f"):
        with pytest.raises(FileTransferError) as caught:
            await box.executor.harvest(Box.session, directory, max_files=9, max_bytes=99)
        assert caught.value.code == "bad-outbox"
    assert await box.harvest() == []
    assert await box.executor.harvest(Box.session, "none", max_files=9, max_bytes=9) == []
    assert (await box.run("cat other/sub/f; ls outputs")).stdout == "secret\nd\nf\np\n"


async def test_a_hidden_directory_of_ours_that_is_a_link(box: Box) -> None:
    """Gives way: nothing is read, written or deleted behind it."""
    await box.run(
        "mkdir -p other/4711/new; echo x > other/4711/new/f; ln -s ../other outputs/.sandbox-exec"
    )
    await box.executor.put_file(Box.session, f"{OUTBOX}/mine", b"m")
    assert await box.harvest() == [HarvestedFile("mine", b"m")]
    assert (await box.run("cat other/4711/new/f")).stdout == "x\n"


async def test_limits_of_a_harvest(box: Box) -> None:
    """By number, size and sum: exact, inclusive, and the rest stays (P6)."""
    for name, size in (("a", 1000), ("b\n", 1001), ("c", 10), ("d", 600), ("e", 600)):
        await box.executor.put_file(Box.session, f"{OUTBOX}/{name}", b"x" * size)
    assert [f.path for f in await box.harvest(max_files=1, max_bytes=1000)] == ["a"]
    assert [f.path for f in await box.harvest(max_bytes=1000, max_total_bytes=700)] == ["c", "d"]
    assert [f.path for f in await box.harvest(max_bytes=1000, max_total_bytes=700)] == ["e"]
    assert await box.harvest(max_bytes=1000) == []
    assert [f.path for f in await box.harvest(max_bytes=1001, max_total_bytes=1001)] == ["b\n"]


async def test_two_names_of_one_file(box: Box) -> None:
    """Both are delivered, although an archive holds the bytes once."""
    await box.run("echo x > outputs/a; ln outputs/a outputs/b")
    assert await box.harvest() == [HarvestedFile("a", b"x\n"), HarvestedFile("b", b"x\n")]


async def test_a_durable_workspace(place: Deployment, tmp_path: Path) -> None:
    """Files go through a mounted workspace alike, and wait there while the container is gone."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    async with place.executor(workspace_root=str(root)) as executor:
        await executor.put_file(Box.session, f"{OUTBOX}/a\nb", b"x")
        place.cli("rm", "--force", place.container(Box.session))
    async with place.executor(workspace_root=str(root)) as executor:
        found = await executor.harvest(Box.session, OUTBOX, max_files=9, max_bytes=9)
        assert found == [HarvestedFile("a\nb", b"x")]
        await executor.dispose_session(Box.session)


async def test_an_image_without_tools(place: Deployment) -> None:
    """Says so, in errors of this kind."""
    async with place.executor("minimal") as executor:
        for call in (
            executor.put_file(Box.session, "f", b"x"),
            executor.read_file(Box.session, "f"),
            executor.harvest(Box.session, "/workspace", max_files=1, max_bytes=1),
        ):
            with pytest.raises(FileTransferError) as caught:
                await call
            assert caught.value.code == "no-tools"


STREAM = """
import resource, sys, time
import anyio
from sandbox_exec import LocalDockerExecutor, SandboxConfig

async def zeros(mebibytes):
    for _ in range(mebibytes):
        yield bytes(2**20)

async def main(deployment, engine, mebibytes):
    config = SandboxConfig(image="sandbox-exec/busybox", deployment=deployment, engine=engine)
    async with LocalDockerExecutor(config, reaps=False) as executor:
        await executor.put_file("chat", "f", zeros(4))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await executor.put_file("chat", "f", zeros(mebibytes))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


@pytest.mark.parametrize(
    "mebibytes", [200, pytest.param(1024, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
async def test_a_long_stream_needs_no_memory(place: Deployment, mebibytes: int) -> None:
    """The host's memory stays flat, and every byte arrives."""
    done = subprocess.run(
        [sys.executable, "-c", STREAM, place.name, place.engine.program, str(mebibytes)],
        env=dict(place.engine.environment),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 64 * 1024
    size = place.cli("exec", place.container(Box.session), "wc", "-c", "/workspace/f")
    assert int(size.split()[0]) == mebibytes * 2**20
