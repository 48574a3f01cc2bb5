"""What a put must do where it cannot be done, on any engine."""

from __future__ import annotations

from typing import Final

import pytest

from sandbox_exec import FileTransferError, TextFile

from .executors import Box

REFUSED: Final = [("inputs", "is-directory"), ("file/x", "bad-parent"), ("/proc/x", "bad-parent")]
"""Paths that cannot be written, and the codes that say why."""


async def is_refused(box: Box, path: str, code: str) -> None:
    """It says why, and the sandbox serves on."""
    await box.run("touch file")
    with pytest.raises(FileTransferError) as caught:
        await box.executor.put_file(Box.session, path, b"x")
    assert (caught.value.code, caught.value.path) == (code, path)
    assert (await box.run("echo on")).stdout == "on\n"


async def fills_the_disk(box: Box) -> None:
    """The old content stays."""
    # The only bounded file system here that is not the host's disk.
    where = "/run/sandbox-exec/big"
    await box.executor.put_file(Box.session, where, b"old")
    with pytest.raises(FileTransferError) as caught:
        await box.executor.put_file(Box.session, where, b"x" * (200 * 2**20))
    assert caught.value.code == "no-space"
    assert await box.executor.read_file(Box.session, where) == TextFile("old", 3)
