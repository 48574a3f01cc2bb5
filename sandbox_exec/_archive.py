"""The files in a tar archive that was made inside a sandbox, hostile input assumed."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Collection
from typing import Final

from attrs import Factory, define

__all__ = ["Archived", "Unreadable", "archived_files"]

_LONGEST_HEADER: Final = 2**15
"""Bytes of one extended header: room for two paths, and little for what makes parsing slow."""


class Unreadable(Exception):  # noqa: N818  # a verdict on somebody else's bytes
    """It is no archive, or one that makes no sense."""


@define
class Archived:
    """What an archive has.

    :ivar files: those that were wanted, by path, without a leading ``./``.
    :ivar others: paths of what was not wanted, or is not to be had.
    """

    files: dict[bytes, bytes] = Factory(dict)
    others: set[bytes] = Factory(set)


def archived_files(data: bytes | bytearray, wanted: Collection[bytes], max_bytes: int) -> Archived:
    """Read the wanted files of at most ``max_bytes`` each.

    A second name of one file is a link in an archive, and a file here. After as many members as the
    wanted files and their directories can be, the rest is not looked at: each one takes time.

    :raises Unreadable: for anything but a whole archive.
    """
    found = Archived()
    try:
        with tarfile.open(
            fileobj=_Headers(data), mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as archive:
            for _ in range(2 + sum(path.count(b"/") + 1 for path in wanted)):
                if (member := archive.next()) is None:
                    break
                # Whoever keeps the members keeps all their headers, and may pay for some twice.
                archive.members.clear()  # type: ignore[attr-defined]  # typeshed lacks it
                path = _path(member.name)
                content = None
                if path in wanted and path not in found.files:
                    content = _content(member, data, found, max_bytes)
                if content is not None:
                    found.files[path] = content
                elif (member.isreg() or member.islnk()) and path not in found.files:
                    found.others.add(path)
    except Exception as error:
        # What tarfile raises for nonsense is not all of one family.
        raise Unreadable(repr(error)) from error
    return found


def _content(
    member: tarfile.TarInfo, data: bytes | bytearray, found: Archived, max_bytes: int
) -> bytes | None:
    """Return a file's bytes, which are in the archive one by one, if they are not too many."""
    if member.islnk():
        return found.files.get(_path(member.linkname))
    # A sparse file, which tar only makes when it is told to, claims bytes that are not there.
    if not member.isreg() or member.issparse() or member.size > max_bytes:
        return None
    with memoryview(data) as view:
        content = bytes(view[member.offset_data : member.offset_data + member.size])
    if len(content) != member.size:
        raise tarfile.ReadError("unexpected end of data")
    return content


class _Headers(io.BytesIO):
    """An archive of which only headers are read, none of them a long one."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _LONGEST_HEADER:
            raise tarfile.ReadError("a header is too long")
        return super().read(size)


def _path(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape").removeprefix(b"./")
