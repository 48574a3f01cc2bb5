"""Runs the conformance suite engine by engine, and prints what came of it as one table."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig import dind, places
from tests.rig.child import run_child
from tests.rig.engine import Engine, some_engine
from tests.rig.images import ensure_images
from tests.rig.lineup import LINEUP, Entry
from tests.rig.processes import RigError

_SUITE = "tests/conformance"
_IMAGES = ("busybox", "debian", "busybox-entrypoint", "busybox-user", "minimal")
_INSIDE = ".conformance.json"


@dataclass(frozen=True)
class Row:
    """What came of one engine: the suite's own report, or why there is none."""

    name: str
    seconds: float
    report: dict[str, Any]
    note: str = ""
    fault: str = ""

    @property
    def failed(self) -> bool:
        """Whether anything is not as it should be; a suite that ran no test is not."""
        return bool(self.fault) or not self.report.get("passed")


def run_lineup(names: Sequence[str], options: Sequence[str]) -> int:
    """Run the suite on these engines, or on all; the status is 1 if anything failed on any."""
    unknown = [name for name in names if name not in LINEUP]
    if unknown:
        raise RigError(f"no engine is called {unknown[0]!r}; there are: {', '.join(LINEUP)}")
    rows = [_row(name, options) for name in names or LINEUP]
    print(table(rows))
    return 1 if any(row.failed for row in rows) else 0


def _row(name: str, options: Sequence[str]) -> Row:
    entry = LINEUP[name]
    print(f"\n=== {name}: {entry.title}", flush=True)
    began = time.monotonic()
    note, fault, report = "", "", dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="sbx-report-", dir=places.data_base()) as scratch:
        path = Path(scratch) / "report.json"
        try:
            status, note = _run(name, entry, path, options)
            report = json.loads(path.read_text()) if path.exists() else {}
            if status or not report:
                fault = "see above" if report else f"the suite ended with {status}, unreported"
        except RigError as error:
            fault = f"cannot be set up: {error}"
            print(f"rig: {name} {fault}", file=sys.stderr, flush=True)
    return Row(name, time.monotonic() - began, report, note, fault)


def _run(name: str, entry: Entry, path: Path, options: Sequence[str]) -> tuple[int, str]:
    """Return the suite's exit status, and what is to be noted of the engine."""
    pytest = ["-m", "pytest", _SUITE, "-m", "not soak", *options]
    if entry.alone:
        # The last word counts.
        pytest += ["-n", "0"]
    variables = {"SANDBOX_EXEC_CONFORMANCE": name}
    if entry.start is None:
        with some_engine() as outer:
            inside = {**variables, "SANDBOX_EXEC_CONFORMANCE_REPORT": f"/work/{_INSIDE}"}
            fetch = {_INSIDE: path}
            return dind.run_inside(["python3", *pytest], outer, variables=inside, fetch=fetch), ""
    with entry.start() as engine:
        ensure_images(
            _IMAGES, environment=engine.environment, engine=(*engine.prefix, engine.command)
        )
        return run_child(
            [*engine.prefix, sys.executable, *pytest], _environment(engine, variables, path)
        ), engine.note


def _environment(engine: Engine, variables: dict[str, str], path: Path) -> dict[str, str]:
    return {
        **engine.environment,
        **variables,
        "SANDBOX_EXEC_ENGINE": engine.command,
        "SANDBOX_EXEC_REQUIRE_ENGINE": engine.command,
        "SANDBOX_EXEC_CONFORMANCE_SETTINGS": json.dumps(dict(engine.settings)),
        "SANDBOX_EXEC_CONFORMANCE_REPORT": str(path),
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
    }


_HEAD = ("engine", "client", "server", "passed", "excepted", "failed", "seconds", "")


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in columns, with what is to be noted behind them."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    counted = [row for row in rows if LINEUP[row.name].counts]
    good = sum(not row.failed for row in counted)
    return "\n".join(["", *text, "", f"{good} of {len(counted)} engines conform"])


def _cells(row: Row) -> tuple[str, ...]:
    report = row.report
    words = [word for word in (row.note, row.fault) if word]
    if not LINEUP[row.name].counts:
        words.append("not counted")
    numbers = [str(report.get(name, "-")) for name in ("passed", "excepted", "failed")]
    versions = [str(report.get(name, "-")) for name in ("client", "server")]
    # A fault of many lines would tear the table; all of it was printed where it happened.
    what = "; ".join(words).splitlines() or [""]
    return (row.name, *versions, *numbers, f"{row.seconds:.0f}", what[0])
