"""What the ``sandbox-exec`` command prints: of a result, of an error, of a sandbox's shape."""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import asdict, frozen

from sandbox_exec._errors import SandboxError
from sandbox_exec._models import ExecResult, SandboxInfo
from sandbox_exec._tool_text import size_in_words

__all__ = ["FAILED", "PROGRAM", "TIMED_OUT", "Printout", "failed", "finished", "line", "shape"]

PROGRAM: Final = "sandbox-exec"

TIMED_OUT: Final = 124
FAILED: Final = 125


@frozen
class Printout:
    """What is to be written, and the status to exit with."""

    stdout: str = ""
    stderr: str = ""
    status: int = 0


def line(text: str) -> str:
    """Return a message of ours as one line, whatever it quotes."""
    return f"{PROGRAM}: {' '.join(text.split())}\n"


def _object(facts: dict[str, Any]) -> str:
    return json.dumps(facts) + "\n"


def _followed(text: str, *notes: str) -> str:
    """Return a command's output with lines of ours after it, none of them begun by the command."""
    if notes and text and not text.endswith("\n"):
        text += "\n"
    return text + "".join(map(line, notes))


def finished(result: ExecResult, *, limit: float, as_json: bool) -> Printout:
    """Return what is printed of a command that ended, or was ended by its limit.

    :param limit: the limit that it had, in seconds.
    """
    status = TIMED_OUT if result.timed_out else result.exit_code
    if as_json:
        facts = {**asdict(result), "ok": result.ok, "truncated": sorted(result.truncated)}
        return Printout(_object(facts), status=status)
    notes = []
    if result.reset is not None:
        notes.append(f"the sandbox is not as it was: {result.reset}")
    if result.timed_out:
        notes.append(f"the command was killed by its time limit of {limit:g} s")
    if result.oom_killed:
        notes.append("the kernel killed something in the sandbox for want of memory")
    for name, gap in (("stdout", result.stdout_gap), ("stderr", result.stderr_gap)):
        if gap is not None:
            notes.append(f"{gap.omitted_bytes} bytes in the middle of {name} were left out")
    return Printout(result.stdout, _followed(result.stderr, *notes), status)


def failed(error: SandboxError | ValueError, *, as_json: bool) -> Printout:
    """Return what is printed of a sandbox that failed, or refused the command."""
    if isinstance(error, ValueError):
        # What is rejected was not started.
        error = SandboxError(str(error), code="rejected")
    stdout, stderr = error.partial_stdout, error.partial_stderr
    if as_json:
        facts = {
            "error": str(error),
            "code": error.code,
            "started": error.started,
            "retryable": error.retryable,
            "hint": error.hint,
            "partial_stdout": stdout,
            "partial_stderr": stderr,
        }
        stdout, stderr = _object(facts), ""
    return Printout(stdout, _followed(stderr, str(error)), FAILED)


def shape(kind: str, info: SandboxInfo, *, as_json: bool) -> Printout:
    """Return what is printed of the sandbox that would be made."""
    facts: dict[str, Any] = {"kind": kind, **asdict(info)}
    if as_json:
        return Printout(_object(facts))
    facts["unbounded"] = ", ".join(info.unbounded)
    facts["cpus"] = f"{info.cpus:g}"
    facts["memory"] = size_in_words(info.memory)
    for name in ("default_timeout", "max_timeout"):
        facts[name] = f"{facts[name]:g} s"
    for name in ("network", "durable_workspace"):
        facts[name] = "yes" if facts[name] else "no"
    return Printout("".join(f"{name}: {value}\n" for name, value in facts.items()))
