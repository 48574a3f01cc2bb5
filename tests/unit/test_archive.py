"""Archives from a sandbox: what is read of them, and that nonsense is only nonsense."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sandbox_exec._archive import Unreadable, archived_files


def archive(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(
        fileobj=target, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as made:
        for member, data in members:
            made.addfile(member, io.BytesIO(data))
    return target.getvalue()


def entry(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    member.size = len(data)
    return member, data


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_by_path(form: int) -> None:
    """Of any name and depth; what is no file is left out, and a second name is a file too."""
    long = "/".join(["x" * 100] * 20)
    found = archived_files(
        archive(
            entry("./", kind=tarfile.DIRTYPE),
            entry("./a", b"1"),
            entry("./b\nc\udcff", b"2"),
            entry(f"./{long}", b"3"),
            entry("./l", kind=tarfile.SYMTYPE, link="/etc/passwd"),
            entry("./h", kind=tarfile.LNKTYPE, link="./a"),
            entry("./none", kind=tarfile.LNKTYPE, link="/etc/passwd"),
            entry("./p", kind=tarfile.FIFOTYPE),
            form=form,
        ),
        10,
    )
    assert found == {b"a": b"1", b"b\nc\xff": b"2", long.encode(): b"3", b"h": b"1"}


def test_a_file_that_is_too_large_is_cut() -> None:
    """After one byte more than is wanted."""
    assert archived_files(archive(entry("a", b"x" * 5000)), 1000) == {b"a": b"x" * 1001}


def test_a_size_that_is_a_lie() -> None:
    """Of a sparse file takes no more room than a true one."""
    member, _ = entry("a")
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[386:398] = b"00000000000\0"
    block[398:410] = b"00000000000\0"
    block[483:495] = b"77777777777\0"
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    found = archived_files(bytes(block) + bytes(1024), 1000)
    assert all(len(data) <= 1001 for data in found.values())


def test_what_is_cut_off_is_unreadable() -> None:
    """An archive comes whole or not at all."""
    whole = archive(entry("a", b"x" * 5000), entry("b", b"y"))
    for length in (1, 511, 1000, 5000):
        with pytest.raises(Unreadable):
            archived_files(whole[:length], 10_000)


@given(some.binary(max_size=2000), some.integers(0, 1500), some.binary(max_size=600))
def test_nonsense_is_only_nonsense(prefix: bytes, start: int, middle: bytes) -> None:
    """Whatever the bytes, there are files or there is this one error."""
    whole = archive(entry("a", b"1"), entry("b" * 200, b"2"))
    for data in (prefix, whole[:start] + middle + whole[start + len(middle) :]):
        try:
            archived_files(data, 100)
        except Unreadable:
            continue
