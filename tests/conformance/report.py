"""What came of a run, as a file: counts, the engine's versions, and the excused failures."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from attrs import Factory, define

from tests.engine.real_engine import RealEngine


@define
class Report:
    """A plugin that counts results and writes them down at the end."""

    path: Path
    engine: RealEngine
    counts: Counter[str] = Factory(Counter)
    excused: dict[str, str] = Factory(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of one test; a set-up or tear-down that fails counts as a failure."""
        if report.failed:
            self.counts["failed"] += 1
        elif report.skipped and hasattr(report, "wasxfail"):
            self.counts["excepted"] += 1
            self.excused[report.nodeid] = report.wasxfail
        elif report.skipped:
            # Nothing here is skipped: what cannot be is in the list.
            self.counts["failed"] += 1
        elif report.when == "call":
            self.counts["passed"] += 1

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        client, server = self.versions()
        facts = {
            "client": client,
            "server": server,
            "excused": self.excused,
            **{name: self.counts[name] for name in ("passed", "excepted", "failed")},
        }
        self.path.write_text(json.dumps(facts, indent=1))

    def versions(self) -> tuple[str, str]:
        """Ask the program for its version and its engine's, in the words of each family."""
        answer = subprocess.run(
            [self.engine.program, "version", "--format", "{{json .}}"],
            env=dict(self.engine.environment),
            capture_output=True,
            timeout=30,
            check=False,
        )
        try:
            facts = json.loads(answer.stdout)
        except ValueError:
            return "?", "?"
        client = facts.get("Client") or {}
        server = facts.get("Server") or client
        return tuple(  # type: ignore[return-value]  # two
            str(side.get("Version", "?")).partition("+")[0] for side in (client, server)
        )
