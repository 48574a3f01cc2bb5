"""Put, read and harvest files through a session."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

from attrs import define

from sandbox_exec._address import Bounds
from sandbox_exec._drain import DrainScript
from sandbox_exec._errors import FileTransferError
from sandbox_exec._frames import Conversation
from sandbox_exec._host_file import HostFile
from sandbox_exec._log import Log
from sandbox_exec._paths import directory_path, file_path
from sandbox_exec._read_result import (
    DeniedPath,
    DirectoryPath,
    HarvestedFile,
    MissingPath,
    ReadResult,
    SpecialPath,
    TooLargeFile,
    classify,
)
from sandbox_exec._sessions import SessionMap
from sandbox_exec._transfer import Progress, PutScript, ReadScript, Source

__all__ = ["Content", "Files"]

Content: TypeAlias = bytes | bytearray | memoryview | PathLike[str] | AsyncIterable[bytes]
"""Bytes, the path of a regular file on this host, or an asynchronous iterable of bytes."""

_READ_LIMIT: Final = 30.0
"""Seconds for a read: some files of /proc never come to an end."""

_HARVESTS: Final = 8
"""Attempts to get hold of a file, when everything that was chosen is gone before it is claimed."""

log = Log(__name__)

_BY_KIND: Final[dict[str, Callable[[], ReadResult]]] = {
    "missing": MissingPath,
    "directory": DirectoryPath,
    "special": SpecialPath,
    "denied": DeniedPath,
}


@define
class Files:
    """The file operations of one executor."""

    _sessions: SessionMap
    _bounds: Bounds
    _max_read_bytes: int

    async def put(
        self, key: str, path: str, content: Content, progress: Progress | None = None
    ) -> None:
        """Write one file, whole or not at all.

        :raises ValueError: for a path that names no file, or one of this host that is no regular
            file, such as a fifo or a device.
        :raises OSError: when the file of this host cannot be read.
        :raises FileTransferError: when it could not be written, or the file of this host was cut
            while it was read; the old content is still there.
        """
        where = file_path(path)
        source = await _source(content)
        last: list[PutScript] = []

        def script(conversation: Conversation) -> PutScript:
            if last and last[-1].consumed:
                raise FileTransferError(
                    f"{path} was interrupted, and what was to be written cannot be read twice",
                    code="interrupted",
                    path=path,
                    retryable=True,
                )
            last.append(PutScript(conversation, where, source, progress))
            return last[-1]

        await self._transfer(key, script, path, "written")

    async def read(self, key: str, path: str) -> ReadResult:
        """Read one file, or say what else is there.

        :raises ValueError: for a path that names no file.
        :raises FileTransferError: when it could not be read to its end.
        """
        where = _absolute_for_read(path)
        last: list[ReadScript] = []

        def script(conversation: Conversation) -> ReadScript:
            limit = min(self._bounds.limit, _READ_LIMIT)
            made = ReadScript(conversation, where, limit, self._max_read_bytes)
            last.append(made)
            return made

        exit_code = await self._transfer(key, script, path, "read", failing=True)
        seen = last[-1]
        if seen.kind in _BY_KIND:
            return _BY_KIND[seen.kind]()
        if seen.kind != "file":
            raise FileTransferError(
                f"{path} could not be read", code="unreadable", path=path, started=True
            )
        if max(seen.size, len(seen.data)) > self._max_read_bytes:
            return TooLargeFile(max(seen.size, len(seen.data)))
        if exit_code != 0:
            return DeniedPath()
        return classify(bytes(seen.data))

    async def harvest(
        self,
        key: str,
        directory: str,
        *,
        max_files: int,
        max_bytes: int,
        max_total_bytes: int | None = None,
    ) -> list[HarvestedFile]:
        """Drain an outbox: return files in the order of their paths, and remove what was returned.

        :raises ValueError: for limits below 1, or a path that names no directory.
        :raises FileTransferError: when it could not be drained; nothing is lost.
        """
        where = directory_path(directory)
        _check_limits(max_files=max_files, max_bytes=max_bytes, max_total_bytes=max_total_bytes)
        largest = max_bytes if max_total_bytes is None else min(max_bytes, max_total_bytes)
        if not await self._sessions.exists(key):
            return []
        last: list[DrainScript] = []
        skip: set[bytes] = set()

        def script(conversation: Conversation) -> DrainScript:
            last.append(DrainScript(conversation, where, max_files, largest, max_total_bytes, skip))
            return last[-1]

        for _ in range(_HARVESTS):
            await self._transfer(key, script, directory, "drained")
            if last[-1].files or not last[-1].missed:
                break
            # Gone meanwhile, or not to be moved: that must not keep others from being delivered.
            skip |= last[-1].missed
        else:
            log.warning("harvest.not_claimed", key=key, directory=directory, files=len(skip))
        return last[-1].files

    async def _transfer(
        self,
        key: str,
        script: Callable[[Conversation], PutScript | ReadScript | DrainScript],
        path: str,
        what: str,
        *,
        failing: bool = False,
    ) -> int:
        try:
            result = await self._sessions.run(key, script, self._bounds, tells=False)
        except FileTransferError as error:
            words = str(error) if error.path is not None else f"{path}: {error}"
            raise error.fresh(path=path, message=words) from None
        if result.timed_out or (result.exit_code != 0 and not failing):
            why = "in time" if result.timed_out else f"(status {result.exit_code})"
            raise FileTransferError(
                f"{path} could not be {what} {why}",
                code="timeout" if result.timed_out else "failed",
                path=path,
                started=True,
            )
        return result.exit_code


def _absolute_for_read(path: str) -> bytes:
    # A directory may be asked about: the answer says that it is one.
    try:
        return file_path(path)
    except ValueError:
        return directory_path(path)


def _check_limits(**limits: object) -> None:
    for name, value in limits.items():
        if value is None and name == "max_total_bytes":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer above 0, not {value!r}")


async def _source(content: object) -> Source:
    if isinstance(content, bytes | bytearray | memoryview):
        data = bytes(content)
        return Source(data, len(data))
    if isinstance(content, AsyncIterable):
        return Source(content, None)
    if isinstance(content, PathLike):
        file = HostFile(Path(content))
        return Source(file, await file.size(), repeatable=True)
    message = f"content must be bytes, a path or an async iterable, not {type(content).__name__}"
    raise ValueError(message)  # rejected input is a ValueError, always
