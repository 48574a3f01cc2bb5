"""Files in and out, through the real guest under dash, bash and busybox, without an engine."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define, frozen

from sandbox_exec._address import Address, Bounds
from sandbox_exec._call import Call
from sandbox_exec._channel import Channel
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._drain import DrainScript
from sandbox_exec._errors import FileTransferError
from sandbox_exec._frames import new_conversation
from sandbox_exec._guest import GUEST_VARIABLE, guest_script
from sandbox_exec._outcome import Ended, NotStarted, Verdict, judge
from sandbox_exec._read_result import HarvestedFile
from sandbox_exec._transfer import PutScript, ReadScript, Source

from .guest_host import SHELLS, missing

pytestmark = pytest.mark.anyio


@frozen
class Place:
    """Where a guest keeps its state and its files."""

    shell: str
    root: Path
    path: str

    @property
    def workspace(self) -> Path:
        """The directory that stands for /workspace."""
        return self.root / "workspace"

    @property
    def outbox(self) -> Path:
        """The directory that is drained."""
        return self.workspace / "outputs"

    async def talk(self, make: Callable[[Any], Any]) -> tuple[Verdict, Any]:
        """Hold one conversation and return its verdict and its script."""
        program, unshare = (shutil.which(tool) for tool in (SHELLS[self.shell][0], "unshare"))
        assert program is not None
        assert unshare is not None
        argv = (
            *(unshare, "--pid", "--fork", "--mount-proc", "--kill-child"),
            *("/bin/sh", "-c", '"$@"; exit $?', "init", program, *SHELLS[self.shell][1:]),
            *("-c", f'eval "${GUEST_VARIABLE}"', "guest"),
            *(str(self.root / "state"), str(self.workspace)),
        )

        async def fallback(_tag: int) -> bool:
            return False

        conversation = new_conversation()
        script = make(conversation)
        address = Address(argv, {GUEST_VARIABLE: guest_script()}, fallback)
        runner = SubprocessRunner({"PATH": self.path})
        call = Call(runner, address, conversation, script, Bounds(10, 20, 3, 1000))
        async with anyio.create_task_group() as group:
            group.start_soon(call.run)
            report = await call.outcome()
        return judge(report), script

    async def put(self, path: Path, data: Any, total: int | None = None) -> Verdict:  # noqa: ANN401  # Source's
        """Write a file."""
        source = Source(data, total)
        return (await self.talk(lambda talk: PutScript(talk, bytes(path), source)))[0]

    async def read(self, path: Path, max_bytes: int = 1000) -> tuple[Verdict, ReadScript]:
        """Read a file."""
        return await self.talk(lambda talk: ReadScript(talk, bytes(path), 10, max_bytes))

    async def drain(
        self, files: int = 100, size: int = 1000, total: int | None = None
    ) -> list[HarvestedFile]:
        """Drain the outbox."""
        verdict, script = await self.talk(
            lambda talk: DrainScript(talk, bytes(self.outbox), files, size, total)
        )
        assert isinstance(verdict, Ended), verdict
        assert verdict.result.exit_code == 0
        return list(script.files)


@pytest.fixture(params=sorted(SHELLS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for guests under one shell."""
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    (tmp_path / "state").mkdir()
    made = Place(request.param, tmp_path, os.environ["PATH"])
    made.outbox.mkdir(parents=True)
    return made


HARD_NAMES = [
    "plain",
    "two words",
    " edge ",
    "-rf",
    "new\nline",
    "quo'te\"s",
    "*?[a]",
    "\udcff\udc80",
    "é",
    "$(x)`y`;&|",
]


@pytest.mark.parametrize("name", HARD_NAMES)
@pytest.mark.parametrize("data", [b"", b"text", bytes(range(256)) * 300])
async def test_bytes_come_back_as_they_were_put(place: Place, name: str, data: bytes) -> None:
    """Any content under any name, in directories that were not there."""
    path = place.workspace / "a" / name / name
    verdict = await place.put(path, data, len(data))
    assert isinstance(verdict, Ended)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o644
    verdict, seen = await place.read(path, 10**6)
    assert isinstance(verdict, Ended)
    assert (seen.kind, seen.size, bytes(seen.data)) == ("file", len(data), data)


async def test_a_stream_of_any_pieces(place: Place) -> None:
    """Of unknown length, empty ones included."""

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(300):
            yield b"" if number % 7 == 0 else b"%d," % number * number

    whole = b"".join([piece async for piece in pieces()])
    await place.put(place.workspace / "f", pieces())
    assert (place.workspace / "f").read_bytes() == whole


async def test_what_fails_leaves_the_old_content(place: Place) -> None:
    """And nothing else (P1)."""
    path = place.workspace / "f"
    path.write_text("old")

    async def failing() -> AsyncIterator[bytes]:
        yield b"x" * 3_000_000
        raise RuntimeError("source")

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="source"), flatten_subgroups=True):
        await place.put(path, failing())
    assert path.read_text() == "old"
    (place.workspace / ".sandbox-exec-put-4711").write_text("left by a put that was killed")
    await place.put(place.workspace / "g", b"", 0)
    assert sorted(p.name for p in place.workspace.iterdir()) == ["f", "g", "inputs", "outputs"]


@pytest.mark.parametrize(("where", "reason"), [("outputs", "directory"), ("file/below", "parent")])
async def test_a_put_that_cannot_be(place: Place, where: str, reason: str) -> None:
    """Refused, with the reason."""
    (place.workspace / "file").touch()
    assert await place.put(place.workspace / where, b"x", 1) == NotStarted(refused=reason)


async def test_what_a_path_is(place: Place) -> None:
    """Each kind is told apart, in bounded time (P2, P4)."""
    work = place.workspace
    os.mkfifo(work / "fifo")
    (work / "loop").symlink_to("loop")
    (work / "link").symlink_to("text")
    (work / "text").write_bytes(b"x" * 1000)
    (work / "big").write_bytes(b"x" * 1001)
    kinds = {}
    for name in ("fifo", "loop", "link", "text", "big", "none", "outputs", "text/below"):
        _, seen = await place.read(work / name)
        kinds[name] = (seen.kind, seen.size, len(seen.data))
    assert kinds == {
        "fifo": ("special", 0, 0),
        "loop": ("missing", 0, 0),
        "link": ("file", 1000, 1000),
        "text": ("file", 1000, 1000),
        "big": ("file", 1001, 0),
        "none": ("missing", 0, 0),
        "outputs": ("directory", 0, 0),
        "text/below": ("missing", 0, 0),
    }
    _, seen = await place.read(Path("/dev/zero"))
    assert seen.kind == "special"
    _, seen = await place.read(Path("/proc/self/status"))
    assert seen.data.startswith(b"Name:")


async def test_an_outbox_is_drained_in_order_and_once(place: Place) -> None:
    """Whatever its files are called, and however deep they are (P5)."""
    wanted = {}
    for number, name in enumerate(HARD_NAMES):
        for path in (name, f"deep/{name}/{name}"):
            file = place.outbox / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.is_dir():
                file.write_text(f"{number}")
                wanted[path] = b"%d" % number
    files = await place.drain()
    assert [f.path for f in files] == sorted(wanted, key=os.fsencode)
    assert {f.path: f.data for f in files} == wanted
    assert await place.drain() == []
    assert not [p for p in place.outbox.rglob("*") if p.is_file()]
    assert not (place.outbox / ".sandbox-exec").exists()


async def test_limits_are_exact_and_the_rest_stays(place: Place) -> None:
    """By number, by size, and by the sum of sizes (P6)."""
    for name, size in (("a", 1000), ("b", 1001), ("c", 10), ("d", 600), ("e", 600)):
        (place.outbox / name).write_bytes(b"x" * size)
    assert [f.path for f in await place.drain(1, 1000)] == ["a"]
    assert [f.path for f in await place.drain(10, 1000, 700)] == ["c", "d"]
    assert [f.path for f in await place.drain(10, 1000, 700)] == ["e"]
    assert await place.drain(10, 1000) == []
    assert [p.name for p in place.outbox.iterdir()] == ["b"]


async def test_links_are_not_followed(place: Place, tmp_path: Path) -> None:
    """Neither the outbox itself nor what is in it (P8)."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret").touch()
    (place.outbox / "file").symlink_to(other / "secret")
    (place.outbox / "dir").symlink_to(other)
    assert await place.drain() == []
    place.outbox.rename(tmp_path / "real")
    place.outbox.symlink_to(tmp_path / "real")
    verdict, _ = await place.talk(
        lambda talk: DrainScript(talk, bytes(place.outbox), 10, 1000, None)
    )
    assert verdict == NotStarted(refused="outbox")
    assert (other / "secret").exists()


async def test_what_a_dead_harvest_claimed_is_delivered(place: Place) -> None:
    """Before anything newer of the same name (P7)."""
    claimed = place.outbox / ".sandbox-exec" / "4711" / "new" / "sub"
    claimed.mkdir(parents=True)
    (claimed / "f").write_text("old")
    (place.outbox / "sub").mkdir()
    (place.outbox / "sub" / "f").write_text("new")
    assert await place.drain() == [HarvestedFile("sub/f", b"old")]
    assert await place.drain() == [HarvestedFile("sub/f", b"new")]


async def test_nothing_is_left_of_a_dead_harvest(place: Place) -> None:
    """Not even the times it had noted, once what it had claimed was delivered."""
    for claimed in ("4711", "4711/old-4712"):
        (place.outbox / ".sandbox-exec" / claimed / "new").mkdir(parents=True)
        (place.outbox / ".sandbox-exec" / claimed / "new" / f"f{len(claimed)}").touch()
        (place.outbox / ".sandbox-exec" / claimed / "time").touch()
    assert [file.path for file in await place.drain()] == ["f13", "f4"]
    with anyio.fail_after(5):
        while list(place.outbox.iterdir()):
            await place.drain()


async def test_an_image_without_tar(place: Place, tmp_path: Path) -> None:
    """Files come one by one."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in (
        "mkdir",
        "chmod",
        "rm",
        "mv",
        "sleep",
        "dd",
        "cat",
        "find",
        "touch",
        "ls",
        "rmdir",
    ):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    (place.outbox / "a").write_bytes(bytes(range(256)))
    (place.outbox / "b c").write_text("x")
    bare = Place(place.shell, place.root, str(tools))
    files = await bare.drain()
    assert files == [HarvestedFile("a", bytes(range(256))), HarvestedFile("b c", b"x")]
    assert await bare.drain() == []


async def test_a_file_with_holes(place: Place) -> None:
    """Is delivered whole: tar makes it an ordinary one."""
    with (place.outbox / "holes").open("wb") as file:
        file.seek(50_000)
        file.write(b"x")
    assert await place.drain(size=60_000) == [HarvestedFile("holes", bytes(50_000) + b"x")]


def replace(place: Place, tmp_path: Path, tool: str, text: str) -> Place:
    """Put another tool in the place of one."""
    if place.shell == "busybox":
        pytest.skip("its tools are parts of itself")
    tools = tmp_path / "replaced"
    tools.mkdir()
    (tools / tool).write_text(f"#!/bin/sh\n{text}\n")
    (tools / tool).chmod(0o755)
    return Place(place.shell, place.root, f"{tools}:{place.path}")


async def test_a_tar_that_makes_something_up(place: Place, tmp_path: Path) -> None:
    """Delivers nothing, and what it was to pack is kept for a harvest with a better one."""
    (place.outbox / "f").write_text("data")
    member = tarfile.TarInfo("./f")
    member.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[386:398] = block[483:495] = b"%011o\0" % 900
    block[398:410] = b"00000000000\0"
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "made.tar").write_bytes(bytes(block) * 100 + bytes(1024))
    bad = replace(place, tmp_path, "tar", f"cat {tmp_path}/made.tar")
    assert await bad.drain() == []
    assert await place.drain() == [HarvestedFile("f", b"data")]


# The nonce, out of the memory of whoever runs this.
STEALING = r"""
while read -r range perm rest; do
  case $perm in rw*) ;; *) continue ;; esac
  a=$((0x${range%-*} / 4096)) b=$((0x${range#*-} / 4096))
  n=$(dd if=/proc/$PPID/mem bs=4096 skip=$a count=$((b - a)) 2>/dev/null |
    tr -c '0-9a-z_=' '\n' | grep -a -o -E 'sbx_nonce=[0-9a-f]{32}' | head -1)
  [ "$n" ] && break
done <"/proc/$PPID/maps"
n=${n#sbx_nonce=}
"""


@pytest.mark.parametrize(("tool", "first"), [("find", "plain"), ("find", "list"), ("tar", "plain")])
async def test_frames_without_end(place: Place, tmp_path: Path, tool: str, first: str) -> None:
    """Are nonsense as soon as one has no place, or there are too many; nothing is lost."""
    if place.shell != "dash":
        pytest.skip("the words are found in dash's memory only")
    (place.outbox / "f").write_text("data")
    forging = f"{STEALING}printf '\\036%s {first}\\n' $n\nyes \"$(printf '\\036%s file 0' $n)\""
    bad = replace(place, tmp_path, tool, forging)
    nonsense = pytest.RaisesExc(FileTransferError, check=lambda error: error.code == "nonsense")
    with anyio.fail_after(8), pytest.RaisesGroup(nonsense):
        await bad.drain()
    assert [file.read_text() for file in place.outbox.rglob("f")] == ["data"]


async def test_what_a_put_replaces_hands_on_its_mode(place: Place) -> None:
    """But no bit that lends somebody's rights; and a link gives way to a file."""
    (place.workspace / "script").write_text("old")
    (place.workspace / "script").chmod(0o4750)
    os.chown(place.workspace / "script", 1, 2)
    (place.workspace / "link").symlink_to("script")
    for name in ("script", "link"):
        assert isinstance(await place.put(place.workspace / name, b"new", 3), Ended)
    status = (place.workspace / "script").stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o750, 1, 2)
    assert not (place.workspace / "link").is_symlink()


async def test_more_files_than_one_command_line_takes(place: Place) -> None:
    """Are claimed, handed over and deleted; also what is a second name of another."""
    wanted = {f"{'x' * 200}{number:04}": b"%d" % number for number in range(900)}
    for name, data in wanted.items():
        (place.outbox / name).write_bytes(data)
    os.link(place.outbox / ("x" * 200 + "0000"), place.outbox / "zz")
    files = await place.drain(2000)
    assert {file.path: file.data for file in files} == {**wanted, "zz": b"0"}
    assert list(place.outbox.iterdir()) == []


async def test_what_an_upload_is_put_together_in_is_not_harvested(place: Place) -> None:
    """It is not a file of anybody's yet."""
    (place.outbox / ".sandbox-exec-put-4711").touch()
    (place.outbox / ".put-4711").touch()
    assert await place.drain() == [HarvestedFile(".put-4711", b"")]


async def test_what_arrived_before_a_harvest_died(place: Place) -> None:
    """Is deleted unless it was written to since; then it is delivered in its later version."""
    sent = place.outbox / ".sandbox-exec" / "4711" / "sent"
    sent.mkdir(parents=True)
    for name in ("same", "changed"):
        (sent / name).write_text(name)
    os.utime(sent / "same", (86400, 86400))
    assert await place.drain() == [HarvestedFile("changed", b"changed")]
    assert await place.drain() == []
    assert list(place.outbox.iterdir()) == []


async def test_what_grew_too_large_after_its_claim_goes_back(place: Place) -> None:
    """To where it was, unless something newer is there, which is not held up by it."""
    new = place.outbox / ".sandbox-exec" / "4711" / "new"
    (new / "sub").mkdir(parents=True)
    for path in ("sub/alone", "other"):
        (new / path).write_bytes(b"x" * 1001)
    (place.outbox / "other").write_text("newer")
    assert await place.drain() == [HarvestedFile("other", b"newer")]
    assert (place.outbox / "sub" / "alone").read_bytes() == b"x" * 1001
    files = await place.drain(size=2000)
    assert [file.path for file in files] == ["other", "sub/alone"]


@pytest.mark.parametrize("kind", ["link", "file"])
async def test_what_is_no_directory_of_ours_gives_way(
    place: Place, tmp_path: Path, kind: str
) -> None:
    """Whoever made it: nothing happens behind it, and harvests go on."""
    other = tmp_path / "other" / "4711" / "new"
    other.mkdir(parents=True)
    (other / "secret").touch()
    ours = place.outbox / ".sandbox-exec"
    if kind == "link":
        ours.symlink_to(tmp_path / "other")
    else:
        ours.write_text("x")
    (place.outbox / "f").touch()
    files = [file.path for file in await place.drain()]
    assert files[0] == "f"
    assert len(files) == (1 if kind == "link" else 2)
    assert (other / "secret").exists()


@pytest.mark.parametrize("lock", ["free", "4711 5", "nonsense", "4711 99999999999999999999"])
async def test_a_lock_that_nobody_holds_is_taken(place: Place, lock: str) -> None:
    """Its holder died, or was never a guest."""
    (place.root / "state" / "harvest-41").write_text(f"{lock}\n")
    (place.root / "state" / "harvest-x").touch()
    (place.root / "state" / "run-4711").write_text("999999 busy\n")
    (place.outbox / "f").touch()
    assert await place.drain() == [HarvestedFile("f", b"")]
    assert (place.root / "state" / "harvest-42").read_text() == "free\n"


@pytest.mark.parametrize("name", ["harvest-41", "harvest-9223372036854775807", "last"])
async def test_a_fifo_among_the_notes_holds_up_no_harvest(place: Place, name: str) -> None:
    """Nor does a number after which there is none, or a fifo among what a harvest has left."""
    left = place.outbox / ".sandbox-exec" / "5"
    (left / "sent").mkdir(parents=True)
    for planted in (place.root / "state" / name, left / "hidden"):
        os.mkfifo(planted)
    (place.outbox / "f").touch()
    assert await place.drain() == [HarvestedFile("f", b"")]


async def test_a_harvest_that_nobody_waits_for_deletes_nothing(place: Place) -> None:
    """What was handed over to a caller that is gone by then is delivered again."""
    (place.outbox / "f").write_text("x")

    @define
    class Leaving(DrainScript):
        async def __call__(self, channel: Channel) -> None:
            await super().__call__(channel)
            raise RuntimeError("gone")

    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        await place.talk(lambda talk: Leaving(talk, bytes(place.outbox), 9, 99, None))
    assert not (place.outbox / "f").exists()
    assert await place.drain() == [HarvestedFile("f", b"x")]
    assert await place.drain() == []
