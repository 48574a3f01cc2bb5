"""The `put`, `get` and `harvest` verbs of the ``sandbox-exec`` command."""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, assert_never

from sandbox_exec._cli_output import line
from sandbox_exec._cli_source import content_of
from sandbox_exec._errors import FileTransferError
from sandbox_exec._executor import LocalDockerExecutor
from sandbox_exec._naming import session_key
from sandbox_exec._paths import directory_path, file_path, harvested_path
from sandbox_exec._read_result import (
    BinaryFile,
    DeniedPath,
    DirectoryPath,
    HarvestedFile,
    MissingPath,
    SpecialPath,
    TextFile,
    TooLargeFile,
)

__all__ = ["VERBS", "add_verbs", "check", "store", "work"]

VERBS: Final = frozenset({"put", "get", "harvest"})

_SESSION: Final = "whose sandbox"
_RELATIVE: Final = "in the sandbox; a relative one starts at /workspace"
_MAX_BYTES: Final = 64 * 2**20
_MAX_FILES: Final = 1000
_BAR: Final = 30
_BAR_EVERY: Final = 0.1


def add_verbs(add: Callable[..., argparse.ArgumentParser]) -> list[argparse.ArgumentParser]:
    """Return the parsers of the verbs, each made by ``add``."""
    put = add("put", help="write a file in a session's sandbox", allow_abbrev=False)
    put.add_argument("session", metavar="SESSION", help=_SESSION)
    put.add_argument("local", metavar="LOCAL", help="the file here; - for standard input")
    put.add_argument("remote", metavar="REMOTE", help=f"the path {_RELATIVE}")
    get = add("get", help="read a file of a session's sandbox", allow_abbrev=False)
    get.add_argument("session", metavar="SESSION", help=_SESSION)
    get.add_argument("remote", metavar="REMOTE", help=f"the path {_RELATIVE}")
    get.add_argument(
        "local",
        metavar="LOCAL",
        nargs="?",
        default="-",
        help="where it goes here; - or left out: it is printed",
    )
    get.add_argument(
        "--max-bytes",
        type=int,
        dest="max_read_bytes",
        default=_MAX_BYTES,
        metavar="BYTES",
        help="refuse a larger file (default: %(default)s)",
    )
    harvest = add(
        "harvest", help="move the files out of a directory of the sandbox", allow_abbrev=False
    )
    harvest.add_argument("session", metavar="SESSION", help=_SESSION)
    harvest.add_argument("remote", metavar="DIR", help=f"the directory {_RELATIVE}")
    harvest.add_argument("local", metavar="LOCAL_DIR", help="where they go here; made if missing")
    bounds = (
        ("--max-files", _MAX_FILES, "NUMBER", "at most so many (default: %(default)s)"),
        ("--max-bytes", _MAX_BYTES, "BYTES", "leave larger files there (default: %(default)s)"),
        ("--max-total-bytes", None, "BYTES", "at most so much of all (default: no bound)"),
    )
    for name, default, metavar, purpose in bounds:
        harvest.add_argument(name, type=int, default=default, metavar=metavar, help=purpose)
    return [put, get, harvest]


def check(options: argparse.Namespace) -> None:
    """Look at the arguments before anything starts.

    :raises ValueError: for those that make no sense.
    """
    session_key(options.session)
    if options.verb == "harvest":
        directory_path(options.remote)
        for name in ("max_files", "max_bytes", "max_total_bytes"):
            if (value := getattr(options, name)) is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be above 0")
    else:
        file_path(options.remote)


def work(
    executor: LocalDockerExecutor, options: argparse.Namespace
) -> Callable[[], Awaitable[str]]:
    """Return what a verb does once the executor is open; it returns what is to be printed."""
    verb = {"put": _put, "get": _get, "harvest": _harvest}[options.verb]

    async def told() -> str:
        try:
            return await verb(executor, options)
        finally:
            # A file that is missing may be so because the sandbox was rebuilt just now.
            reset = executor.pending_reset(options.session)
            if reset is not None and sys.stderr is not None:
                sys.stderr.write(line(f"the sandbox is not as it was: {reset}"))

    return told


async def _put(executor: LocalDockerExecutor, options: argparse.Namespace) -> str:
    with _local(options.local), _Bar.shown(options.remote) as progress:
        content = content_of(options.local)
        await executor.put_file(options.session, options.remote, content, progress=progress)
    return ""


async def _get(executor: LocalDockerExecutor, options: argparse.Namespace) -> str:
    found = await executor.read_file(options.session, options.remote)
    match found:
        case TextFile():
            data = found.text.encode()
        case BinaryFile():
            data = found.data
        case TooLargeFile():
            raise _failure(options, f"has {found.bytes} bytes: see --max-bytes")
        case MissingPath():
            raise _failure(options, "is not there")
        case DirectoryPath():
            raise _failure(options, "is a directory")
        case SpecialPath():
            raise _failure(options, "is a fifo, a device or a socket")
        case DeniedPath():
            raise _failure(options, "may not be read")
        case _:
            assert_never(found)
    if options.local == "-":
        return data.decode("utf-8", "surrogateescape")
    with _local(options.local):
        _save(options.local, data)
    return ""


async def _harvest(executor: LocalDockerExecutor, options: argparse.Namespace) -> str:
    target = Path(options.local)
    with _local(options.local):
        _make(target)
    files = await executor.harvest(
        options.session,
        options.remote,
        max_files=options.max_files,
        max_bytes=options.max_bytes,
        max_total_bytes=options.max_total_bytes,
    )
    # Not awaiting anything: until then the files are still in the sandbox, whatever happens here.
    refused: list[tuple[HarvestedFile, Exception]] = []
    for file in files:
        try:
            store(target, file)
        except (OSError, ValueError) as error:
            refused.append((file, error))
    for file, _ in refused:
        await executor.put_file(options.session, f"{options.remote}/{file.path}", file.data)
    if refused:
        why = "; ".join(f"{file.path!r}: {error}" for file, error in refused[:3])
        raise FileTransferError(
            f"{len(refused)} of {len(files)} files could not be stored, and were put back: {why}",
            code="not-stored",
        )
    return "".join(f"{_printable(file.path)}\n" for file in files)


def _printable(name: str) -> str:
    """Return a name that others have chosen as one line that steers no terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _save(local: str, data: bytes) -> None:
    """Write a file that the user has named: through a link, and into a device, as any program."""
    path = Path(os.path.realpath(local))
    if path.exists() and not (path.is_file() or path.is_dir()):
        path.write_bytes(data)
    else:
        _write_whole(path.parent, path.name, data, ())


def _make(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)


def store(target: Path, file: HarvestedFile) -> None:
    """Write a file below ``target``, whatever its path would like: no link is followed.

    :raises ValueError: for a path that leads elsewhere.
    :raises OSError: where it cannot be written.
    """
    path = os.fsencode(file.path)
    if harvested_path(path) is None:
        raise ValueError("its path leads out of the directory")
    *above, name = (os.fsdecode(part) for part in path.split(b"/"))
    _write_whole(target, name, file.data, above)


def _write_whole(target: Path, name: str, data: bytes, above: Sequence[str]) -> None:
    """Write a file in a directory below ``target``; the old one stays until the new is whole."""
    directory = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in above:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=directory)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = below
        mode = None
        with suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISDIR(there):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            # What is replaced hands on its mode, as inside.
            mode = stat.S_IMODE(there) & 0o777 if stat.S_ISREG(there) else None
        temporary = f".sandbox-exec-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=directory), "wb") as stream:
                stream.write(data)
                if mode is not None:
                    os.fchmod(stream.fileno(), mode)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
    finally:
        os.close(directory)


@contextmanager
def _local(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileTransferError(
            f"{path}: {error.strerror or error}", code="local", path=path
        ) from error


def _failure(options: argparse.Namespace, what: str) -> FileTransferError:
    return FileTransferError(f"{options.remote} {what}", code="unreadable", path=options.remote)


class _Bar:
    """A line on a terminal that shows how far a transfer is."""

    def __init__(self, stream: BinaryIO, what: str) -> None:
        self._stream = stream
        self._what = "".join(c if c.isprintable() else "?" for c in what)[-30:]
        self._shown = -1.0
        self._done = (0, 0)

    @classmethod
    @contextmanager
    def shown(cls, what: str) -> Iterator[Callable[[int, int | None], None] | None]:
        """Return what takes the numbers, ``None`` where there is no terminal to show them on."""
        if not sys.stderr.isatty():
            yield None
            return
        bar = cls(sys.stderr.buffer, what)
        try:
            yield bar.take
        finally:
            bar.end()

    def take(self, done: int, total: int | None) -> None:
        """Show ``done`` of ``total`` bytes, but not too often."""
        if (now := time.monotonic()) - self._shown < _BAR_EVERY and done != total:
            return
        self._shown = now
        size = f"{done / 2**20:.1f} MiB"
        if total:
            part = min(done / total, 1.0)
            filled = int(part * _BAR)
            size = f"[{'#' * filled}{'.' * (_BAR - filled)}] {part:4.0%} {size}"
        with suppress(OSError):
            self._stream.write(f"\r{self._what}: {size}".encode("utf-8", "replace"))
            self._stream.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._shown >= 0:
            with suppress(OSError):
                self._stream.write(b"\n")
                self._stream.flush()
