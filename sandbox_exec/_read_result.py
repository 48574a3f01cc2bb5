"""What a path in the sandbox turned out to be: a closed union, told apart by ``kind``.

Match on it and end with ``typing.assert_never``. Source: S0's ``ReadResult``, whose failures of
every kind were ``missing``; hazards P2 and P4.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import field, frozen

__all__ = [
    "BinaryFile",
    "DeniedPath",
    "DirectoryPath",
    "HarvestedFile",
    "MissingPath",
    "ReadResult",
    "SpecialPath",
    "TextFile",
    "TooLargeFile",
    "classify",
]


@frozen
class TextFile:
    """A file whose bytes are UTF-8 without a NUL.

    :param text: its content.
    :param bytes: its size in bytes.
    """

    text: str
    bytes: int
    kind: Literal["file"] = field(default="file", init=False)


@frozen
class BinaryFile:
    """A file that is no text; editing it as text would damage it.

    :param data: its content.
    """

    data: bytes = field(repr=False)
    kind: Literal["binary"] = field(default="binary", init=False)

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return len(self.data)


@frozen
class TooLargeFile:
    """A file larger than may be read; none of it was.

    :param bytes: its size in bytes, as far as it is known.
    """

    bytes: int
    kind: Literal["too-large"] = field(default="too-large", init=False)


@frozen
class MissingPath:
    """There is nothing of that name, or a link to nothing."""

    kind: Literal["missing"] = field(default="missing", init=False)


@frozen
class DirectoryPath:
    """It is a directory."""

    kind: Literal["directory"] = field(default="directory", init=False)


@frozen
class SpecialPath:
    """It is a fifo, a device or a socket: reading it could block for ever."""

    kind: Literal["special"] = field(default="special", init=False)


@frozen
class DeniedPath:
    """It is there, but may not be read."""

    kind: Literal["denied"] = field(default="denied", init=False)


ReadResult: TypeAlias = (
    TextFile | BinaryFile | TooLargeFile | MissingPath | DirectoryPath | SpecialPath | DeniedPath
)


@frozen
class HarvestedFile:
    """A file that was drained from an outbox.

    :param path: relative to the outbox, with ``/`` between directories; bytes that are not UTF-8
        as surrogate escapes.
    :param data: its content.

    Source: S0's ``HarvestedFile``.
    """

    path: str
    data: bytes = field(repr=False)


def classify(data: bytes) -> TextFile | BinaryFile:
    """Return a file's content as what it is: text is what decodes strictly, without a NUL.

    A genuine U+FFFD is text like any other (hazard P4).
    """
    if b"\0" not in data:
        try:
            return TextFile(data.decode("utf-8"), len(data))
        except UnicodeDecodeError:
            pass
    return BinaryFile(data)
