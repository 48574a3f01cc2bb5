"""The script that drains an outbox: list, choose, have claimed, receive, and only then delete.

The guest lists; this side chooses, in order and within the limits, and answers with a script of
its own making that claims what was chosen. What it receives is confirmed, and deleted then.
"""

from __future__ import annotations

import heapq
import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Final

from attrs import define, field, frozen

from sandbox_exec._channel import Channel, send
from sandbox_exec._command import within_limit
from sandbox_exec._frames import Conversation, Frame, harvest_request
from sandbox_exec._paths import harvested_path
from sandbox_exec._read_result import HarvestedFile

__all__ = ["DrainScript", "Found", "claim_script", "parse_listed"]

_LEFT_OVER = re.compile(rb"\./(\.sandbox-exec/\d+/(?:old-\d+/)+new)/(.+)\Z", re.DOTALL)
_LONGEST_NAME: Final = 8192
_NAMES_AT_ONCE: Final = 400
_RECEIVED: Final = b"received\n"


@frozen(order=True)
class Found:
    """One file that could be claimed; in order of path, and of two with one path the older first.

    :param path: relative to the outbox.
    :param newer: it is in the outbox itself, and not among what an earlier harvest had claimed.
    :param base: the directory it is in now.
    """

    path: bytes
    newer: bool
    base: bytes

    @property
    def listed(self) -> bytes:
        """The name by which it was listed."""
        prefix = b"./" if self.newer else b"./" + self.base + b"/"
        return prefix + self.path


def parse_listed(name: bytes) -> Found | None:
    """Return what one listed name stands for, ``None`` for what must not be touched."""
    if match := _LEFT_OVER.match(name):
        found = Found(match[2], newer=False, base=match[1])
    else:
        found = Found(name.removeprefix(b"./"), newer=True, base=b".")
    return found if harvested_path(found.path) is not None else None


def _quote(word: bytes) -> bytes:
    return b"'" + word.replace(b"'", b"'\\''") + b"'"


def claim_script(chosen: Iterable[Found]) -> bytes:
    """Return the shell text that claims files, and that hands them over one by one if need be."""
    files = sorted(chosen)
    lines = []
    for (base, directory), group in groupby(sorted(files, key=_place), key=_place):
        names = [b"./" + found.path.rpartition(b"/")[2] for found in group]
        for start in range(0, len(names), _NAMES_AT_ONCE):
            words = (base, directory, *names[start : start + _NAMES_AT_ONCE])
            lines.append(b"sbx_pick " + b" ".join(map(_quote, words)))
    lines.append(b"sbx_hand_all() {")
    lines += (b"sbx_hand %d %b" % (number, _quote(f.path)) for number, f in enumerate(files))
    lines.append(b":\n}\n")
    return b"\n".join(lines)


def _place(found: Found) -> tuple[bytes, bytes]:
    return found.base, found.path.rpartition(b"/")[0] or b"."


@define
class DrainScript:
    """Drains at most so many files of at most so many bytes, and so many bytes in all.

    :ivar files: what was received, in order.
    """

    _conversation: Conversation
    _directory: bytes
    _max_files: int
    _max_bytes: int
    _max_total_bytes: int | None
    files: list[HarvestedFile] = field(factory=list)
    _heap: list[_Latest] = field(factory=list)
    _sizes: dict[bytes, int] = field(factory=dict)
    _chosen: list[Found] = field(factory=list)
    _text: bytes = b""
    _phase: str = "list"
    _packed: bytearray = field(factory=bytearray)
    _plain: dict[int, bytearray] = field(factory=dict)

    async def __call__(self, channel: Channel) -> None:
        """Hold the whole exchange; see :class:`Script`."""
        request = harvest_request(
            self._conversation,
            self._directory,
            self._max_bytes,
            sizes=self._max_total_bytes is not None,
        )
        if await channel.request((request,)):
            await within_limit(channel, partial(self._exchange, channel))

    async def _exchange(self, channel: Channel) -> None:
        while not channel.report.over:
            seen, frame = await channel.next()
            self._take(seen)
            if frame is None:
                continue
            if frame.word in {"list", "sizes", "tar", "plain"}:
                self._phase, self._text = frame.word, b""
            elif frame.word == "listed" and self._phase != "chosen":
                self._phase = "chosen"
                await send(channel.process, self._claim())
            elif frame.word == "file" and self._phase == "plain":
                self._next_plain(frame)
            elif frame.word == "packed":
                self._unpack()
                await send(channel.process, _RECEIVED)

    def _take(self, seen: bytes) -> None:
        if self._phase == "list":
            *names, rest = (self._text + seen).split(b"\0")
            self._text = rest[:_LONGEST_NAME]
            for name in names:
                self._take_name(name)
        elif self._phase == "sizes":
            *lines, rest = (self._text + seen).split(b"\n")
            self._text = rest[:_LONGEST_NAME]
            for line in lines:
                size, _, name = line.partition(b" ")
                if name in self._sizes and size.isdigit():
                    self._sizes[name] = int(size)
        elif self._phase == "tar":
            self._packed += seen
        elif self._phase == "plain" and self._plain:
            self._plain[max(self._plain)] += seen

    def _take_name(self, name: bytes) -> None:
        found = parse_listed(name)
        if found is None or found.listed in self._sizes:
            return
        # The smallest paths are kept, so that memory stays flat whatever is listed. A size that is
        # never told counts as the largest there can be.
        heapq.heappush(self._heap, _Latest(found))
        self._sizes[found.listed] = self._max_bytes
        if len(self._heap) > self._max_files:
            del self._sizes[heapq.heappop(self._heap).found.listed]

    def _claim(self) -> bytes:
        room = self._max_total_bytes
        paths: set[bytes] = set()
        for found in sorted(item.found for item in self._heap):
            if found.path in paths:
                # An earlier version was claimed before; this one comes with the next harvest.
                continue
            if room is not None:
                room -= self._sizes[found.listed]
                if room < 0:
                    break
            paths.add(found.path)
            self._chosen.append(found)
        if not self._chosen:
            return b"claim 0\n"
        script = claim_script(self._chosen)
        return b"claim %d\n%b%b\n" % (len(script), script, self._conversation.nonce.encode())

    def _next_plain(self, frame: Frame) -> None:
        number = frame.arguments[0] if frame.arguments else ""
        if number.isascii() and number.isdigit() and len(number) < 10:  # noqa: PLR2004
            self._plain[int(number)] = bytearray()

    def _unpack(self) -> None:
        wanted = {found.path for found in self._chosen}
        content = dict(self._unpacked())
        for path in sorted(wanted & content.keys()):
            name = harvested_path(path)
            if name is not None and len(content[path]) <= self._max_bytes:
                self.files.append(HarvestedFile(name, bytes(content[path])))

    def _unpacked(self) -> Iterator[tuple[bytes, bytes | bytearray]]:
        if self._phase == "plain":
            for number, data in self._plain.items():
                if number < len(self._chosen):
                    yield self._chosen[number].path, data
            return
        with tarfile.open(
            fileobj=io.BytesIO(self._packed), encoding="utf-8", errors="surrogateescape"
        ) as archive:
            for member in archive:
                if member.isreg() and (stream := archive.extractfile(member)) is not None:
                    path = member.name.encode("utf-8", "surrogateescape").removeprefix(b"./")
                    yield path, stream.read()


@frozen(eq=False)
class _Latest:
    """Orders what was found the other way round, so that a heap gives up the largest first."""

    found: Found

    def __lt__(self, other: _Latest) -> bool:
        return other.found < self.found
