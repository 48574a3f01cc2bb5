"""The bytes of a regular file of this host: all that it had when it was opened, or an error."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator
from io import FileIO
from pathlib import Path
from typing import Final

from anyio import to_thread
from attrs import frozen

from sandbox_exec._errors import FileTransferError

__all__ = ["HostFile"]

_READ_AT_ONCE: Final = 2**20


@frozen
class HostFile:
    """The bytes of a file, from the beginning each time.

    What is appended meanwhile is left out, so that a log that grows all the time comes to an end.
    """

    _path: Path

    async def size(self) -> int | None:
        """Return how many bytes it has, ``None`` where that is not known before they are read.

        :raises OSError: when it is not there, or a directory.
        :raises ValueError: when it is no regular file.
        """
        found = await to_thread.run_sync(self._path.stat)
        self._check_regular(found)
        return found.st_size or None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # Not anyio's file, whose closing would be one more thing to await in a call that ends. A
        # thread that waits for a file system can only be left behind.
        left = threading.Event()
        try:
            file = await to_thread.run_sync(self._open, left, abandon_on_cancel=True)
        except BaseException:
            left.set()
            raise
        with file:
            begun = os.fstat(file.fileno())
            # The files of /proc say that they are empty, and are read to their end.
            missing = begun.st_size or sys.maxsize
            while missing and (
                data := await to_thread.run_sync(
                    file.read, min(missing, _READ_AT_ONCE), abandon_on_cancel=True
                )
            ):
                missing -= len(data)
                yield data
            # Those of /sys promise a page, keep less, and stay as they are.
            if missing and begun.st_size and _changed(begun, os.fstat(file.fileno())):
                raise self._shrunk(begun.st_size, missing)

    def _open(self, left: threading.Event) -> FileIO:
        # A fifo may have taken its place, and to open that would wait for somebody who writes.
        number = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # Without a buffer, whose closing would wait for the read of another thread.
        file = FileIO(number)
        try:
            self._check_regular(os.fstat(number))
        except BaseException:
            file.close()
            raise
        if left.is_set():
            file.close()
        return file

    def _check_regular(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self._path))
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(
                f"{self._path} is no regular file: give what comes out of it as an asynchronous "
                "iterable of bytes"
            )

    def _shrunk(self, size: int, missing: int) -> FileTransferError:
        return FileTransferError(
            f"{self._path} was cut while it was read: of {size} bytes {size - missing} were there",
            code="source-changed",
            path=str(self._path),
            retryable=True,
        )


def _changed(begun: os.stat_result, now: os.stat_result) -> bool:
    return (begun.st_size, begun.st_mtime_ns) != (now.st_size, now.st_mtime_ns)
