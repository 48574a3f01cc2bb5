"""A stream kept within its cap, head and tail, while it is read.

Whatever a command prints, the host holds the cap and a chunk (hazard C4).
"""

from __future__ import annotations

from typing import Final

from sandbox_exec._models import Gap

__all__ = ["Collector"]

_LONGEST_CHARACTER: Final = 4
_CONTINUATION: Final = 0b1000_0000
_CONTINUATION_MASK: Final = 0b1100_0000


class Collector:
    """Keeps the first half and the last half of ``cap`` bytes of what it is fed."""

    def __init__(self, cap: int) -> None:
        self._head_cap = (cap + 1) // 2
        self._tail_cap = cap - self._head_cap
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._total += len(data)
        if (room := self._head_cap - len(self._head)) > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_cap:
            self._tail[:] = data[len(data) - self._tail_cap :]
        elif data:
            self._tail += data
            del self._tail[: max(0, len(self._tail) - self._tail_cap)]

    def text(self) -> tuple[str, Gap | None]:
        """Return what was kept as text, and where its middle is missing.

        Cut on character boundaries; bytes that are not UTF-8 are replaced, never raised.
        """
        kept = len(self._head) + len(self._tail)
        if self._total <= kept:
            return bytes(self._head + self._tail).decode("utf-8", "replace"), None
        head = self._head[: _whole_characters(self._head)]
        tail = self._tail[_leading_remainder(self._tail) :]
        before = head.decode("utf-8", "replace")
        gap = Gap(at=len(before), omitted_bytes=self._total - len(head) - len(tail))
        return before + tail.decode("utf-8", "replace"), gap


def _is_continuation(byte: int) -> bool:
    return byte & _CONTINUATION_MASK == _CONTINUATION


def _whole_characters(data: bytearray) -> int:
    """Return the length of ``data`` without a character that is cut off at its end."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-back]
        if _is_continuation(byte):
            continue
        wanted = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)  # noqa: PLR2004
        return len(data) - back if wanted > back else len(data)
    return len(data)


def _leading_remainder(data: bytearray) -> int:
    """Return how many bytes at the start of ``data`` end a character that began before it."""
    count = 0
    while count < min(_LONGEST_CHARACTER - 1, len(data)) and _is_continuation(data[count]):
        count += 1
    return count
