"""What runs inside of a sandbox, seen from in there, as not every engine shows it outside."""

from __future__ import annotations

from typing import Final

from tests.engine.executors import Box

_LIST: Final = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null"


async def running(box: Box, number: int) -> int:
    """Return how many processes sleep for this many seconds, which nobody else's do."""
    listed = (await box.run(_LIST)).stdout.splitlines()
    return sum(line.split() == ["sleep", str(number)] for line in listed)
