"""The script that drains an outbox: list, choose, have claimed, receive, and only then delete.

The guest lists; this side chooses, in order and within the limits, and answers with a script of
its own making that claims what was chosen. What did not arrive is named in the next answer, and
the rest is deleted once the client says that it has seen the end.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Final

from anyio import to_thread
from attrs import define, field, frozen

from sandbox_exec._archive import Archived, Unreadable, archived_files
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
_FRAME: Final = 200
"""What a frame counts as, so that of these, too, no more come than can be meant."""

_NEXT: Final[Mapping[str, Collection[str]]] = {
    "": {"list", "listed"},
    "list": {"sizes", "listed"},
    "sizes": {"listed"},
    "listed": {"tar", "plain"},
    "tar": {"packed"},
    "plain": {"file", "done", "packed"},
}
"""The frames that may follow on the last one, but for an end."""

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
    _current: int | None = None
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
            if frame is not None and not channel.report.over:
                await self._step(channel, frame)

    async def _step(self, channel: Channel, frame: Frame) -> None:
        if frame.word not in _NEXT.get(self._phase, ()):
            # A frame in its place is one of so many; any other may be one of endlessly many.
            raise FileTransferError(f"{frame.word[:20]!r} was out of place", code="nonsense")
        if frame.word in {"file", "done"}:
            self._take_plain(frame)
            return
        before, self._phase, self._text = self._phase, frame.word, b""
        if frame.word == "listed":
            script = self._claim(one_by_one=frame.arguments[:1] != ("1",))
            await send(channel.process, self._answer(b"claim", script))
        elif frame.word == "packed":
            keep = await self._receive(one_by_one=before == "plain")
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
            self._use_room(len(seen))
            if self._phase == "tar":
                self._packed += seen
            elif self._current is not None:
                self._plain[self._current] += seen

    def _use_room(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise FileTransferError("more came than was claimed", code="nonsense")

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
            self._room += (found.path.count(b"/") + 2) * (len(found.path) + 2048)
        claimed = len(self._chosen) * self._max_bytes
        if self._max_total_bytes is not None:
            # One of them may have grown since it was listed.
            claimed = min(claimed, self._max_total_bytes + self._max_bytes)
        self._room += claimed + 2**16
        return claim_script(self._chosen, one_by_one=one_by_one) if self._chosen else b""

    def _take_plain(self, frame: Frame) -> None:
        self._use_room(_FRAME)
        number = frame.arguments[0] if frame.arguments else ""
        if frame.word == "done" and number == "0" and self._current is not None:
            self._whole.add(self._current)
        self._current = None
        if frame.word == "file" and number.isascii() and number.isdigit() and len(number) < 10:  # noqa: PLR2004
            self._begin_plain(int(number))

    def _begin_plain(self, number: int) -> None:
        if number < len(self._chosen) and number not in self._plain:
            self._current = number
            self._plain[number] = bytearray()

    async def _receive(self, *, one_by_one: bool) -> bytes:
        """Take what arrived; return the script that names what did not, or should not have."""
        wanted = {found.path for found in self._chosen}
        arrived = self._handed_over() if one_by_one else await self._unpacked(wanted)
        room = self._max_total_bytes
        for path, content in sorted(arrived.files.items()):
            name = harvested_path(path)
            # Any may have grown since it was chosen.
            if name is None or len(content) > self._max_bytes:
                continue
            if room is not None and (room := room - len(content)) < 0:
                break
            self.files.append(HarvestedFile(name, content))
            wanted.remove(path)
        self.missed = wanted
        return b"".join(b"sbx_keep %b\n" % quote(p) for p in sorted(wanted | arrived.others))

    def _handed_over(self) -> Archived:
        return Archived({self._chosen[n].path: bytes(self._plain[n]) for n in self._whole})

    async def _unpacked(self, wanted: Collection[bytes]) -> Archived:
        packed, self._packed = self._packed, bytearray()
        try:
            # In a thread, as it may take a while.
            return await to_thread.run_sync(archived_files, packed, wanted, self._max_bytes)
        except Unreadable as error:
            raise FileTransferError(f"nonsense was received: {error}", code="nonsense") from error


@frozen(eq=False)
class _Latest:
    """Orders what was found the other way round, so that a heap gives up the largest first."""

    found: Found

    def __lt__(self, other: _Latest) -> bool:
        return other.found < self.found
