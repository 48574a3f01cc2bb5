"""The documented tests are run as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_about_tests_shows_tests_that_pass() -> None:
    """Of the whole file, none is skipped, and no engine is asked."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            "docs/examples/test_tool.py",
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    printed = ended.stdout.decode()
    assert ended.returncode == 0, printed
    assert "skipped" not in printed
    assert printed.count("passed") == 1
