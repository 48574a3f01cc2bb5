"""What the engine's own words mean, asked only where no frame of a guest arrived.

Whole lines are matched, never words within them: a container may be called ``docker.sock``, and
"no such file or directory" is said of much more than sockets (hazards F1, F2, S12). What is not
known is :attr:`Fault.UNKNOWN`, on which nothing is removed and nothing assumed.

Until its first frame, an ``exec``'s standard error may still be written by what runs *inside*, say
a ``sh`` that somebody replaced. So a verdict on an ``exec`` is a reason to ask the engine by a
control call, not proof: a sandbox must not be able to call the engine down for every other one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from attrs import frozen

from sandbox_exec._docker.diagnose.fault import ENDINGS, Fault
from sandbox_exec._docker.diagnose.words import WORDS

__all__ = ["ENDINGS", "Diagnosis", "Fault", "absent", "diagnose"]

# What a hostile sandbox may have written takes no more than a moment to read.
_MAX_LINES: Final = 50
_MAX_LINE: Final = 4096
_STDOUT_STATUSES: Final = (126, 127)


@frozen
class Diagnosis:
    """A fault, and the line that says so; for an unknown one, the first line there is."""

    fault: Fault
    line: str = ""


_PATTERNS: Final = tuple(
    (fault, tuple(re.compile(pattern, re.DOTALL) for pattern in patterns))
    for fault, patterns in WORDS
)

# What stands beside the reason in an answer, and is none.
_ASIDE: Final = re.compile(
    r"(?:See|Run) 'docker .*|Usage: .*|time=\".*|Resource limits are not supported and ignored .*"
)

_SSH_QUOTE: Final = re.compile(r"(.*command \[ssh .*\] has exited with .* stderr=).*")

_ABSENT: Final = re.compile(
    # docker 20.10 and 28: inspect; podman 4.3.1: inspect, of one name and of several.
    r"Error: No such object: (?P<docker>[^ ]+)"
    r'|(?:Error: |error )inspecting object: no such object: "(?P<podman>[^"]+)"'
)


def _lines(text: bytes) -> Iterator[str]:
    for line in text.splitlines():
        if len(line) <= _MAX_LINE and (stripped := line.decode("utf-8", "replace").strip()):
            yield stripped


def diagnose(exit_code: int, stdout: bytes, stderr: bytes) -> Diagnosis:
    """Return what an engine's program meant by its last words.

    Standard output is only read for the statuses with which docker's ``exec`` reports there.

    Source: S0's ``isDaemonDown``, ``isMissingContainer`` and ``isStoppedContainer``, which took a
    command's own words for the engine's; hazards F1, F2, F11, F13, S12 and S15.
    """
    lines = list(islice(_lines(stderr), _MAX_LINES))
    if exit_code in _STDOUT_STATUSES:
        lines += islice(_lines(stdout), _MAX_LINES)
    for fault, patterns in _PATTERNS:
        for number, line in enumerate(lines):
            if any(pattern.fullmatch(line) for pattern in patterns):
                return Diagnosis(fault, _with_reason(line, lines[number + 1 :]))
    reasons = (line for line in lines if not _ASIDE.fullmatch(line))
    return Diagnosis(Fault.UNKNOWN, next(reasons, ""))


def _with_reason(line: str, rest: list[str]) -> str:
    """Return the line, with the last thing that ssh said in place of the first.

    docker's program quotes all of it, and of ten lines about a host's key the last says why.
    """
    quote = _SSH_QUOTE.fullmatch(line)
    said = [word for word in rest if not _ASIDE.fullmatch(word)]
    return f"{quote[1]}{said[-1]}" if quote and said else line


def absent(stderr: bytes) -> frozenset[str]:
    """Return the names of which ``inspect`` said that nothing has them.

    That a name is not in ``inspect``'s answer is no such statement: an engine that is down makes it
    print an empty answer and end with the same status (hazard S3).
    """
    found = (_ABSENT.fullmatch(line) for line in _lines(stderr))
    return frozenset(match["docker"] or match["podman"] for match in found if match)
