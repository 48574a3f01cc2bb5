"""The ``doctor`` verb of the ``sandbox-exec`` command: its options, its table and its JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence

from attrs import asdict

from sandbox_exec._cli_output import Printout
from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._doctor import examine
from sandbox_exec._verdicts import Check

__all__ = ["BROKEN", "add_doctor", "checks", "report"]

BROKEN = 1
"""The exit status for a set-up in which something failed."""


def add_doctor(add: Callable[..., argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Return the parser of the verb, made by ``add``."""
    doctor = add("doctor", help="find out what is wrong with the set-up", allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    return doctor


async def checks(
    config: SandboxConfig, *, override: str | None, runner: CommandRunner
) -> list[Check]:
    """Make all checks, one after the other."""
    return [check async for check in examine(config, override=override, runner=runner)]


def report(found: Sequence[Check], *, as_json: bool) -> Printout:
    """Return what is printed: a row for each check, and below it what to do about it."""
    broken = any(check.verdict == "fail" for check in found)
    status = BROKEN if broken else 0
    if as_json:
        facts = {"ok": not broken, "checks": [asdict(check) for check in found]}
        return Printout(json.dumps(facts) + "\n", status=status)
    width = max(len(check.name) for check in found)
    return Printout("".join(_row(check, width) for check in found), status=status)


def _row(check: Check, width: int) -> str:
    row = f"{check.verdict:<4}  {check.name:<{width}}  {_one_line(check.seen)}\n"
    if check.advice:
        row += f"{'':<4}  {'':<{width}}  -> {_one_line(check.advice)}\n"
    return row


def _one_line(text: str) -> str:
    return " ".join(text.split())
