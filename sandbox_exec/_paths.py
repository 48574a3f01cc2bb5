"""Paths that callers give for files inside a sandbox, checked and made absolute (hazard P3)."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from sandbox_exec._guest import WORKSPACE
from sandbox_exec._models import encode_text

__all__ = ["directory_path", "file_path", "harvested_path"]

_LONGEST_PATH: Final = 4095
_LONGEST_NAME: Final = 255
_HALF_A_PUT: Final = re.compile(rb"\.sandbox-exec-put-[0-9]+")


def file_path(path: str) -> bytes:
    """Return the bytes of an absolute path to a file; a relative one starts at ``/workspace``.

    :raises ValueError: for a path that cannot name a file.
    """
    encoded = _absolute(path)
    if encoded.rpartition(b"/")[2] in {b"", b".", b".."}:
        raise ValueError(f"path {path!r} names a directory, not a file")
    if _HALF_A_PUT.fullmatch(encoded.rpartition(b"/")[2]):
        # The next put into that directory would take it for what another left, and delete it.
        raise ValueError(f"path {path!r} is a name that uploads use themselves")
    return encoded


def directory_path(path: str) -> bytes:
    """Return the bytes of an absolute path to a directory, without dots and doubled slashes.

    :raises ValueError: for a path that cannot name a directory.
    """
    return b"/" + posixpath.normpath(_absolute(path)).lstrip(b"/")


def _absolute(path: str) -> bytes:
    encoded = encode_text(path, "path")
    if not encoded:
        raise ValueError("path must not be empty")
    if not encoded.startswith(b"/"):
        encoded = WORKSPACE.encode() + b"/" + encoded
    too_long = len(encoded) > _LONGEST_PATH
    if too_long or any(len(name) > _LONGEST_NAME for name in encoded.split(b"/")):
        raise ValueError(f"path {path[:80]!r}... is longer than any file system allows")
    return encoded


def harvested_path(path: bytes) -> str | None:
    """Return a path that was listed below an outbox as text, ``None`` if it leads anywhere else."""
    parts = path.split(b"/")
    if not path or any(part in {b"", b".", b".."} for part in parts):
        return None
    return path.decode("utf-8", "surrogateescape")
