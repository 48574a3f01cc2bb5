"""Archives from a sandbox: what is read of them, and that nonsense is only nonsense."""

import io
import tarfile
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sandbox_exec._archive import Archived, Unreadable, archived_files


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
    wanted = {b"a", b"b\nc\xff", long.encode(), b"h", b"l", b"none", b"p"}
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
        wanted,
        10,
    )
    assert found.files == {b"a": b"1", b"b\nc\xff": b"2", long.encode(): b"3", b"h": b"1"}
    assert found.others == {b"none"}


def test_only_what_is_wanted_is_read() -> None:
    """And once, if it is not too large; the paths of the rest are told."""
    made = archive(entry("big", b"x" * 1001), entry("a", b"1"), entry("a", b"2"), entry("no", b"3"))
    assert archived_files(made, {b"a", b"big", b"x", b"y"}, 1000) == Archived(
        {b"a": b"1"}, {b"big", b"no"}
    )


def sparse(name: str, size: int) -> bytes:
    """A file of a size of which the archive has not a byte."""
    member, _ = entry(name)
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[386:398] = b"%011o\0" % size
    block[398:410] = b"00000000000\0"
    block[483:495] = b"%011o\0" % size
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def test_a_size_that_is_a_lie() -> None:
    """Of a sparse file is not believed: it costs nothing, and the file is told of."""
    found = archived_files(sparse("a", 900) + archive(entry("b", b"1")), {b"a", b"b"}, 1000)
    assert found == Archived({b"b": b"1"}, {b"a"})


def test_many_members_are_not_looked_at() -> None:
    """But so many as the wanted files and their directories may be."""
    made = b"".join(sparse(f"f{number}", 10**9) for number in range(30_000)) + bytes(1024)
    began = time.process_time()
    found = archived_files(made, {b"d/e", b"f"}, 2**40)
    assert (found.files, len(found.others)) == ({}, 5)
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_is_too_long(kind: bytes) -> None:
    """Is nonsense; one without digits' end once took a parser hours."""
    made = archive(entry("h", b"1" * 10**6, kind), entry("a", b"1"))
    with pytest.raises(Unreadable):
        archived_files(made, {b"a"}, 10)


def test_what_is_cut_off_is_unreadable() -> None:
    """An archive comes whole or not at all."""
    whole = archive(entry("a", b"x" * 5000), entry("b", b"y"))
    for length in (1, 511, 1000, 5000):
        with pytest.raises(Unreadable):
            archived_files(whole[:length], {b"a", b"b"}, 10_000)


@given(some.binary(max_size=2000), some.integers(0, 1500), some.binary(max_size=600))
def test_nonsense_is_only_nonsense(prefix: bytes, start: int, middle: bytes) -> None:
    """Whatever the bytes, there are files or there is this one error."""
    whole = archive(entry("a", b"1"), entry("b" * 200, b"2"))
    for data in (prefix, whole[:start] + middle + whole[start + len(middle) :]):
        try:
            archived_files(data, {b"a", b"b" * 200}, 100)
        except Unreadable:
            continue
