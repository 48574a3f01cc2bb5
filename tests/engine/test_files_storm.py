"""Files under storms on a real engine: interrupted uploads, and outboxes that never stand still."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anyio import Event, create_task_group, move_on_after, sleep

from sandbox_exec import HarvestedFile, LocalDockerExecutor, TextFile

from .executors import Box, Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

OUTBOX = "/workspace/outputs"


@pytest.fixture
def anyio_backend() -> str:
    """Two backends on the fake are enough."""
    return "asyncio"


async def test_a_cancelled_upload_changes_nothing(box: Box) -> None:
    """At whatever moment: the old content is whole, or the new one is."""
    chance = random.Random(1)
    expected = b"0" * 100_000
    await box.executor.put_file(Box.session, "f", expected)
    cancelled = 0
    for number in range(1, 13):
        new = str(number % 10).encode() * 4_000_000

        async def pieces(new: bytes = new) -> AsyncIterator[bytes]:
            for start in range(0, len(new), 100_000):
                await sleep(0.002)
                yield new[start : start + 100_000]

        with move_on_after(chance.uniform(0, 0.25)) as scope:
            await box.executor.put_file(Box.session, "f", pieces())
        cancelled += scope.cancelled_caught
        sizes = (await box.run("wc -c < f; head -c 1 f; tail -c 1 f")).stdout.split()
        old = [str(len(expected)), expected[:1].decode() * 2]
        if sizes != old:
            expected = new
            assert sizes == [str(len(new)), new[:1].decode() * 2]
    assert cancelled > 1
    assert (await box.run("ls -A")).stdout.split() == ["f", "inputs", "outputs"]


UPLOADER = """
import sys
import anyio
from sandbox_exec import LocalDockerExecutor, SandboxConfig

async def endless():
    print("sending", flush=True)
    while True:
        yield b"x" * 100_000

async def main(deployment, engine, image):
    config = SandboxConfig(image=f"sandbox-exec/{image}", deployment=deployment, engine=engine)
    async with LocalDockerExecutor(config, reaps=False) as executor:
        await executor.put_file("chat", "f", endless())

anyio.run(main, *sys.argv[1:])
"""


def child(place: Deployment, code: str, *words: str) -> subprocess.Popen[str]:
    """A process of the library's user, in the same deployment."""
    return subprocess.Popen(
        [sys.executable, "-c", code, place.name, place.engine.program, *words],
        env=dict(place.engine.environment),
        stdout=subprocess.PIPE,
        text=True,
    )


def await_line(process: subprocess.Popen[str], line: str) -> None:
    """Wait for what a child says between lines of its log."""
    assert process.stdout is not None
    while (said := process.stdout.readline()) != f"{line}\n":
        assert said, "it ended"


async def test_an_uploader_that_is_killed_changes_nothing(box: Box) -> None:
    """With kill -9: no later call finds a fragment, nor what it was put together in."""
    chance = random.Random(2)
    await box.executor.put_file(Box.session, "f", b"old")
    image = (box.executor.info.image).rpartition("/")[2]
    for _ in range(3):
        with child(box.place, UPLOADER, image) as process:
            await_line(process, "sending")
            await sleep(chance.uniform(0, 0.3))
            process.kill()
        assert await box.executor.read_file(Box.session, "f") == TextFile("old", 3)
    await box.executor.put_file(Box.session, "g", b"")
    assert (await box.run("ls -A")).stdout.split() == ["f", "g", "inputs", "outputs"]


# Three kinds of files, each with a version that a later one replaces: by a rename, by writing it
# anew, and through a descriptor that stays open for a while.
WRITER = """
cd outputs; n=$1; rounds=$2; mkdir ../tmp r c d
i=0; while [ $i -lt $n ]; do
    echo "$i 0" > r/$i; echo "$i 0" > c/$i; echo "$i 0" > d/$i
    i=$((i + 3))
done
round=1; while [ $round -le $rounds ]; do
    i=$(((round % 7) * 3)); while [ $i -lt $n ]; do
        echo "$i $round" > ../tmp/r; mv ../tmp/r r/$i
        echo "$i $round" > c/$i
        exec 7>> d/$i; exec 8>> d/$((n - n % 3 - i))
        echo "$i more" >&7
        echo "$i $round" > ../tmp/r; mv ../tmp/r r/$i
        echo "$i $round" >&7
        exec 7>&- 8>&-
        i=$((i + 21))
    done
    round=$((round + 1))
done
echo done
"""


@pytest.mark.parametrize(
    "number",
    [2_000, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
async def test_a_drain_beside_a_writer(box: Box, number: int) -> None:
    """Batches in order; what is replaced by rename comes once a version; the last always comes."""
    over = Event()
    seen: list[HarvestedFile] = []

    async def write() -> None:
        text = f"set -- {number} 4; {WRITER}"
        result = await box.run(text, timeout=300)
        assert result.stdout == "done\n", result
        over.set()

    batches = 0
    async with create_task_group() as group:
        group.start_soon(write)
        while True:
            last = over.is_set()
            files = await box.harvest(max_files=300)
            names = [os.fsencode(file.path) for file in files]
            assert names == sorted(set(names))
            seen += files
            batches += bool(files)
            if last and not files:
                break
    # Each time a batch is asked for and there is one, it is full but for the last of a pass.
    assert batches >= number // 300
    versions = Counter((file.path, file.data) for file in seen if file.path.startswith("r/"))
    # The same version is written twice in a round, so it may come twice.
    assert max(versions.values()) <= 2, versions.most_common(3)
    final = {file.path: file.data for file in seen}
    paths = {f"{kind}/{i}" for kind in "rc" for i in range(0, number, 3)}
    assert paths <= final.keys()
    for path in paths:
        i = int(path[2:])
        round_ = max((r for r in range(1, 5) if i % 21 == (r % 7) * 3), default=0)
        assert final[path] == b"%d %d\n" % (i, round_), path
    appended = Counter[str]()
    for file in seen:
        if file.path.startswith("d/"):
            appended[file.path] += file.data.endswith(b"%d 4\n" % int(file.path[2:]))
    written = [i for i in range(0, number, 3) if i % 21 == (4 % 7) * 3]
    assert all(appended[f"d/{i}"] for i in written)
    assert (await box.run("find outputs -type f | grep -v sandbox-exec")).stdout == ""


@pytest.mark.parametrize("user", ["0:0", "1000:1000"])
async def test_what_is_held_open_comes_again_only_when_it_changed(box: Box, user: str) -> None:
    """Whoever holds it: once, and once more in its last version, and then it is deleted."""
    await box.run(
        "(exec 7>>outputs/log; echo a >&7; until [ -e inputs/go ]; do sleep 0.1; done; echo b >&7; "
        "until [ -e inputs/end ]; do sleep 0.1; done) >/dev/null 2>&1 & "
        "until [ -s outputs/log ]; do sleep 0.1; done",
        user=user,
    )
    assert await box.harvest() == [HarvestedFile("log", b"a\n")]
    assert [await box.harvest() for _ in range(3)] == [[]] * 3
    await box.run("touch inputs/go; sleep 1")
    assert await box.harvest() == [HarvestedFile("log", b"a\nb\n")]
    assert await box.harvest() == []
    # The guest of a command that left something running stays for a while, and hides as much.
    await box.run(
        "touch inputs/end; sleep 1; for p in /proc/[0-9]*; do "
        "[ $(stat -c %u $p) != 1000 ] || kill -9 ${p#/proc/}; done"
    )
    assert [await box.harvest() for _ in range(2)] == [[]] * 2
    await sleep(0.3)
    assert (await box.run("find outputs -type f")).stdout == ""


async def test_held_files_of_any_name(box: Box) -> None:
    """Characters that mean something to a shell, to find or to ls do not make it miss one."""
    names = ["a b", "new\nline", "[x]", "a*", "b\\", "é", "?", "-rf", " -> x"]
    for name in names:
        await box.executor.put_file(Box.session, f"{OUTBOX}/{name}", b"1")
    await box.run(
        'cd outputs; for f in *; do (sleep 4; echo 2 >&7) 7>>"./$f" >/dev/null 2>&1 & done; '
        "sleep 0.3"
    )
    assert {file.path: file.data for file in await box.harvest()} == dict.fromkeys(names, b"1")
    assert await box.harvest() == []
    await sleep(5)
    assert {file.path: file.data for file in await box.harvest()} == dict.fromkeys(names, b"12\n")


async def test_two_harvests_at_once(box: Box) -> None:
    """Never return the same file, and together return them all."""
    await box.run("cd outputs; i=0; while [ $i -lt 400 ]; do echo $i > $i; i=$((i + 1)); done")
    found: list[str] = []

    async def drain(executor: LocalDockerExecutor) -> None:
        other = Box(executor, box.place)
        while files := await other.harvest(max_files=25):
            found.extend(file.path for file in files)

    image = box.executor.info.image.rpartition("/")[2]
    async with box.place.executor(image) as second, create_task_group() as group:
        for executor in (box.executor, second, box.executor):
            group.start_soon(drain, executor)
    assert sorted(found) == sorted(str(number) for number in range(400))


HARVESTER = """
import os, pathlib, sys
import anyio
from sandbox_exec import LocalDockerExecutor, SandboxConfig

async def main(deployment, engine, image, target):
    config = SandboxConfig(image=f"sandbox-exec/{image}", deployment=deployment, engine=engine)
    async with LocalDockerExecutor(config, reaps=False) as executor:
        number = 0
        while True:
            files = await executor.harvest(
                "chat", "/workspace/outputs", max_files=20, max_bytes=1000
            )
            # Before anything else is awaited: until then, nothing is deleted.
            for file in files:
                number += 1
                part = pathlib.Path(target, "part")
                part.write_bytes(file.path.encode() + b" " + file.data)
                # Whole or not at all, whenever the kill comes; a part is delivered again.
                part.replace(pathlib.Path(target, f"{os.getpid()}-{number}"))
            print("harvested", flush=True)

anyio.run(main, *sys.argv[1:])
"""


async def test_a_harvester_that_is_killed_loses_nothing(box: Box, tmp_path: Path) -> None:
    """With kill -9; and of the versions of a file, the last one comes last."""
    chance = random.Random(3)
    image = box.executor.info.image.rpartition("/")[2]
    number = 0
    for _ in range(4):
        await box.run(
            f"cd outputs; i=0; while [ $i -lt 200 ]; do echo {number} > $i; i=$((i + 1)); done"
        )
        with child(box.place, HARVESTER, image, str(tmp_path)) as process:
            await_line(process, "harvested")
            await box.run(
                f"cd outputs; i=0; while [ $i -lt 200 ]; do echo {number + 1} > ../t; mv ../t $i; "
                "i=$((i + 1)); done"
            )
            await sleep(chance.uniform(0, 0.4))
            process.kill()
        number += 2
        last: dict[str, str] = {}
        kept = sorted(tmp_path.glob("*-*"), key=lambda path: int(path.name.partition("-")[2]))
        for path in kept:
            name, _, version = path.read_text().partition(" ")
            last[name] = version.strip()
            path.unlink()
        while files := await box.harvest():
            last.update({file.path: file.data.decode().strip() for file in files})
        assert last == {str(i): str(number - 1) for i in range(200)}, json.dumps(last)
