"""What ``sandbox-exec put`` sends: a file, or whatever comes out of a pipe until it ends."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final

from anyio import to_thread

from sandbox_exec._files import Content

__all__ = ["content_of"]

_READ_AT_ONCE: Final = 2**20


def content_of(local: str) -> Content:
    """Return what the user has named: a file, or what comes out of a pipe or a device."""
    if local == "-":
        return _stream(None)
    path = Path(local)
    mode = path.stat().st_mode
    return path if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else _stream(path)


async def _stream(path: Path | None) -> AsyncIterator[bytes]:
    """Read a pipe to its end; without a path, standard input."""
    # A thread that waits for a terminal or a writer cannot be cancelled, only left behind, and its
    # descriptor with it, to the end of this program.
    number = 0
    if path is not None:
        number = await to_thread.run_sync(os.open, path, os.O_RDONLY, abandon_on_cancel=True)
    read = partial(os.read, number, _READ_AT_ONCE)
    while data := await to_thread.run_sync(read, abandon_on_cancel=True):
        yield data
