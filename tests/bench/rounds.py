"""Interleaved rounds of several things to measure, and their ratios to the first."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping

from attrs import frozen

__all__ = ["Row", "interleave", "table"]

Work = Callable[[int], Awaitable[object]]


@frozen
class Row:
    """What one thing took, in seconds."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of all rounds."""
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        """What nineteen of twenty rounds stayed within."""
        return sorted(self.seconds)[int(len(self.seconds) * 0.95)]


async def interleave(works: Mapping[str, Work], rounds: int, warm_up: int = 5) -> list[Row]:
    """Do each thing once a round, so that whatever slows the machine slows all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(-warm_up, rounds):
        for name, work in works.items():
            began = time.perf_counter()
            await work(number)
            if number >= 0:
                taken[name].append(time.perf_counter() - began)
    return [Row(name, tuple(seconds)) for name, seconds in taken.items()]


def table(title: str, rows: list[Row]) -> str:
    """Return rows as text: milliseconds for orientation, ratios to the first row for claims."""
    base = rows[0]
    lines = [f"{title} ({len(base.seconds)} rounds)"]
    lines += [
        f"  {row.name:<42} median {row.median * 1e3:8.1f} ms  x{row.median / base.median:5.2f}"
        f"   p95 {row.p95 * 1e3:8.1f} ms  x{row.p95 / base.p95:5.2f}"
        for row in rows
    ]
    return "\n".join(lines)
