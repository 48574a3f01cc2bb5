"""Times as engines print them, in epoch seconds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

__all__ = ["moment", "rough_moment"]

_TIME: Final = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[Tt ](?P<clock>\d\d:\d\d:\d\d)(?P<fraction>\.\d+)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d))",
    re.ASCII,
)

# Go's time.String(), which docker's ps prints: "2026-11-29 17:57:44 +0000 UTC".
_GO_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)? ([+-]\d\d)(\d\d)( .*)?", re.ASCII
)


def moment(text: str) -> float | None:
    """Return an RFC 3339 time, and the year 1, Go's "never", as ``None``.

    :raises ValueError: for anything else.
    """
    if not (match := _TIME.fullmatch(text)):
        raise ValueError(f"not a time: {text!r}")
    if match["day"].startswith("0001-"):
        return None
    offset = timedelta()
    if match["sign"]:
        offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"]))
    try:
        zone = timezone(-offset if match["sign"] == "-" else offset)
        whole = datetime.fromisoformat(f"{match['day']}T{match['clock']}").replace(tzinfo=zone)
        return whole.timestamp() + float(match["fraction"] or 0)
    except OverflowError as error:
        raise ValueError(f"not a time: {text!r}") from error


def rough_moment(value: object) -> float | None:
    """Return the time that ``ps`` shows, or ``None`` if it is not one, as it is only a hint."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _GO_TIME.fullmatch(value) if isinstance(value, str) else None
    try:
        text = f"{match[1]}{match[2] or ''}{match[3]}:{match[4]}" if match else str(value)
        return moment(text)
    except ValueError:
        return None
