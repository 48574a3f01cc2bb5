"""The script that drains an outbox: list, choose, have claimed, receive, and only then delete.

The guest lists; this side chooses, in order and within the limits, and answers with a script of
its own making that claims what was chosen. What did not arrive is named in the next answer, and
the rest is deleted once the client says that it has seen the end.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable
from functools import partial
from itertools import groupby
from typing import Final

from attrs import define, field, frozen

from sandbox_exec._archive import Unreadable, archived_files
from sandbox_exec._channel import Channel, send
from sandbox_exec._command import within_limit
from sandbox_exec._errors import FileTransferError
from sandbox_exec._frames import Conversation, Frame, harvest_request, quote
from sandbox_exec._log import Log
from sandbox_exec._paths import harvested_path
from sandbox_exec._read_result import HarvestedFile

__all__ = ["DrainScript", "Found", "claim_script", "parse_listed"]

_LEFT_OVER = re.compile(rb"\./(\.sandbox-exec/\d+/old-\d+/(?:new|sent))/(.+)\Z", re.DOTALL)
_LONGEST_NAME: Final = 8192
_LONGEST_CLAIM: Final = 3500
"""A path is claimed under a longer one, which has to fit into what the kernel takes."""

_NAMES_AT_ONCE: Final = 400
_LARGEST: Final = 2**40

log = Log(__name__)


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


def claim_script(chosen: Iterable[Found], *, one_by_one: bool) -> bytes:
    """Return the shell text that claims files.

    :param one_by_one: without tar, it also says how they are handed over.
    """
    files = sorted(chosen)
    lines = []
    for (base, directory), group in groupby(sorted(files, key=_place), key=_place):
        names = [b"./" + found.path.rpartition(b"/")[2] for found in group]
        for start in range(0, len(names), _NAMES_AT_ONCE):
            words = (base, directory, *names[start : start + _NAMES_AT_ONCE])
            lines.append(b"sbx_pick " + b" ".join(map(quote, words)))
    if one_by_one:
        lines.append(b"sbx_hand_all() {")
        lines += (b"sbx_hand %d %b" % (number, quote(f.path)) for number, f in enumerate(files))
        lines.append(b":\n}")
    return b"\n".join((*lines, b""))


def _place(found: Found) -> tuple[bytes, bytes]:
    return found.base, found.path.rpartition(b"/")[0] or b"."


@define
class DrainScript:
    """Drains at most so many files of at most so many bytes, and so many bytes in all.

    :param skip: paths that an attempt before this one could not get hold of.
    :ivar files: what was received, in order.
    :ivar missed: what was chosen and could not be had: gone meanwhile, or not to be moved.
    """

    _conversation: Conversation
    _directory: bytes
    _max_files: int
    _max_bytes: int
    _max_total_bytes: int | None
    _skip: Collection[bytes] = ()
    files: list[HarvestedFile] = field(factory=list)
    missed: set[bytes] = field(factory=set)
    _heap: list[_Latest] = field(factory=list)
    _sizes: dict[bytes, int] = field(factory=dict)
    _chosen: list[Found] = field(factory=list)
    _text: bytes = b""
    _phase: str = ""
    _room: int = 0
    _packed: bytearray = field(factory=bytearray)
    _plain: dict[int, bytearray] = field(factory=dict)
    _whole: set[int] = field(factory=set)

    async def __call__(self, channel: Channel) -> None:
        """Hold the whole exchange; see :class:`Script`."""
        channel.report.tentative = True
        request = harvest_request(
            self._conversation,
            self._directory,
            min(self._max_bytes, _LARGEST),
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
            elif frame.word == "listed" and self._phase in {"", "list", "sizes"}:
                self._phase = "chosen"
                script = self._claim(one_by_one=frame.arguments[:1] != ("1",))
                await send(channel.process, self._answer(b"claim", script))
            elif self._phase == "plain" and frame.word in {"file", "done"}:
                self._take_plain(frame)
            elif frame.word == "packed" and self._phase in {"tar", "plain"}:
                keep = self._receive()
                self._phase = "received"
                await send(channel.process, self._answer(b"received", keep))

    def _answer(self, word: bytes, script: bytes) -> bytes:
        if not script:
            return word + b" 0\n"
        nonce = self._conversation.nonce.encode()
        return b"%b %d\n%b%b\n" % (word, len(script), script, nonce)

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
                    self._sizes[name] = int(size[:20])
        elif self._phase in {"tar", "plain"} and seen:
            self._room -= len(seen)
            if self._room < 0:
                raise FileTransferError("more came than was claimed", code="nonsense")
            if self._phase == "tar":
                self._packed += seen
            elif self._plain:
                self._plain[max(self._plain)] += seen

    def _take_name(self, name: bytes) -> None:
        found = parse_listed(name)
        if found is None or found.listed in self._sizes or found.path in self._skip:
            return
        if len(found.path) + len(self._directory) > _LONGEST_CLAIM:
            log.warning("harvest.path_too_long", path=found.path[:200])
            return
        # The smallest paths are kept, so that memory stays flat whatever is listed. A size that is
        # never told counts as the largest there can be.
        heapq.heappush(self._heap, _Latest(found))
        self._sizes[found.listed] = self._max_bytes
        if len(self._heap) > self._max_files:
            del self._sizes[heapq.heappop(self._heap).found.listed]

    def _claim(self, *, one_by_one: bool) -> bytes:
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
            # A tar also has a head for each directory, and longer ones for long paths.
            self._room += self._max_bytes + (found.path.count(b"/") + 2) * (len(found.path) + 2048)
        self._room += 2**16
        return claim_script(self._chosen, one_by_one=one_by_one) if self._chosen else b""

    def _take_plain(self, frame: Frame) -> None:
        number = frame.arguments[0] if frame.arguments else ""
        if not (number.isascii() and number.isdigit() and len(number) < 10):  # noqa: PLR2004
            return
        if frame.word == "file":
            self._plain[int(number)] = bytearray()
        elif number == "0" and self._plain:
            self._whole.add(max(self._plain))

    def _receive(self) -> bytes:
        """Take what arrived; return the script that names what did not, or should not have."""
        content = self._content()
        wanted = {found.path for found in self._chosen}
        for path in sorted(wanted & content.keys()):
            name = harvested_path(path)
            if name is not None and len(content[path]) <= self._max_bytes:
                self.files.append(HarvestedFile(name, content[path]))
                wanted.remove(path)
                del content[path]
        self.missed = wanted
        return b"".join(b"sbx_keep %b\n" % quote(p) for p in sorted(wanted | content.keys()))

    def _content(self) -> dict[bytes, bytes]:
        if self._phase == "plain":
            return {
                self._chosen[number].path: bytes(self._plain[number])
                for number in self._whole
                if number < len(self._chosen)
            }
        try:
            return archived_files(self._packed, self._max_bytes)
        except Unreadable as error:
            raise FileTransferError(f"nonsense was received: {error}", code="nonsense") from error
        finally:
            self._packed = bytearray()


@frozen(eq=False)
class _Latest:
    """Orders what was found the other way round, so that a heap gives up the largest first."""

    found: Found

    def __lt__(self, other: _Latest) -> bool:
        return other.found < self.found
