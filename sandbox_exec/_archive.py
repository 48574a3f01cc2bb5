"""The files in a tar archive that was made inside a sandbox, hostile input assumed."""

from __future__ import annotations

import io
import tarfile

__all__ = ["Unreadable", "archived_files"]


class Unreadable(Exception):  # noqa: N818  # a verdict on somebody else's bytes
    """It is no archive, or one that makes no sense."""


def archived_files(data: bytes | bytearray, max_bytes: int) -> dict[bytes, bytes]:
    """Return files by path, without a leading ``./``; those of more than ``max_bytes`` cut short.

    A second name of one file is a link in an archive, and a file here.

    :raises Unreadable: for anything but a whole archive.
    """
    found: dict[bytes, bytes] = {}
    try:
        with tarfile.open(
            fileobj=io.BytesIO(data), mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as archive:
            for member in archive:
                path = _path(member.name)
                if member.islnk():
                    if (target := found.get(_path(member.linkname))) is not None:
                        found[path] = target
                elif member.isreg() and (stream := archive.extractfile(member)) is not None:
                    # One byte more tells that it is too large, whatever size it claims to have.
                    found[path] = stream.read(max_bytes + 1)
    except Exception as error:
        # What tarfile raises for nonsense is not all of one family.
        raise Unreadable(repr(error)) from error
    return found


def _path(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape").removeprefix(b"./")
