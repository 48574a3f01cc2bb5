"""The list of what engines cannot do names what there is, and the documentation shows it."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.behaviour.shared import BEHAVIOURS
from tests.conformance.exceptions import EXCEPTIONS, deviations, table
from tests.rig.conformance import Row
from tests.rig.conformance import table as results
from tests.rig.lineup import LINEUP

ROOT = Path(__file__).parents[2]


def names() -> set[str]:
    """Return the names of all tests of the suite, and of the shared behaviours."""
    found = {behaviour.__name__ for behaviour in BEHAVIOURS}
    for path in (ROOT / "tests/conformance").glob("test_*.py"):
        tree = ast.parse(path.read_text())
        found |= {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    return found


def test_exceptions_are_about_what_there_is() -> None:
    """A test that was renamed would be excused for nothing."""
    assert {entry.test for entry in EXCEPTIONS} <= names()
    assert {entry.engine for entry in EXCEPTIONS} <= LINEUP.keys()
    assert len({(entry.engine, entry.test) for entry in EXCEPTIONS}) == len(EXCEPTIONS)
    assert all(entry.reason for entry in EXCEPTIONS)
    assert deviations("docker") == {}


def test_the_documentation_shows_the_list() -> None:
    """Word by word."""
    assert table() in (ROOT / "docs/engines/exceptions.md").read_text()


def test_every_engine_is_in_the_documentation() -> None:
    """By its name in the table of results, or by a page of its own."""
    pages = {path.stem for path in (ROOT / "docs/engines").glob("*.md")}
    told = (ROOT / "docs/ci.md").read_text() + (ROOT / "docs/engines/index.md").read_text()
    assert all(name in pages or name in told for name in LINEUP)


def test_the_table_of_results() -> None:
    """What failed is told in its line, and what does not count is not counted."""
    good = {"client": "28", "server": "20", "passed": 70, "excepted": 1, "failed": 0}
    text = results(
        [
            Row("docker", 61.4, good, "a note"),
            Row("podman", 3, {}, fault="cannot be set up: no disk\nand more"),
            Row("kata", 60, good),
        ]
    )
    head, docker, podman, kata, end = (line for line in text.splitlines() if line)
    assert " ".join(head.split()) == "engine client server passed excepted failed seconds"
    assert " ".join(docker.split()) == "docker 28 20 70 1 0 61 a note"
    assert podman.split() == [
        "podman",
        "-",
        "-",
        "-",
        "-",
        "-",
        "3",
        "cannot",
        "be",
        "set",
        "up:",
        "no",
        "disk",
    ]
    assert kata.endswith("not counted")
    assert end == "1 of 2 engines conform"


def test_a_run_without_a_test_is_no_success() -> None:
    """A selection that is empty by mistake shows nothing."""
    assert Row("docker", 1, {"passed": 0}).failed
    assert Row("docker", 1, {"passed": 1}, fault="see above").failed
    assert not Row("docker", 1, {"passed": 1}).failed
