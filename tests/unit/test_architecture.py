"""The promises about the shape of the code that neither ruff nor import-linter can check."""

import ast
import inspect
import re
import sys
import tomllib
from pathlib import Path
from types import FunctionType

import pytest

import sandbox_exec

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sandbox_exec"
TESTS = ROOT / "tests"
ONLY_STARTER = PACKAGE / "_docker" / "runner.py"

STARTER = re.compile(
    r"""
    (.+\.)? (run_process | open_process | create_subprocess_(exec|shell) | subprocess_(exec|shell))
    | subprocess\.\w+
    | os\. (system | popen | fork | forkpty | startfile | (spawn|exec|posix_spawn)\w*)
    | pty\. (spawn | fork)
    | anyio\.to_process\.\w+
    | multiprocessing\. .+
    | concurrent\.futures\. (process\.)? ProcessPoolExecutor
    """,
    re.VERBOSE,
)


def sources(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Each local name that an import binds, with the dotted name it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                names[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def process_starts(source: str) -> list[str]:
    """The dotted names of all calls in `source` that start a process, aliases resolved."""
    tree = ast.parse(source)
    names = imported_names(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            root, dot, rest = ast.unparse(node.func).partition(".")
            called = names.get(root, root) + dot + rest
            if STARTER.fullmatch(called):
                found.append(called)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import anyio\nanyio.run_process(['true'])",
        "from anyio import open_process as start\nstart(['true'])",
        "import asyncio as aio\naio.create_subprocess_exec('true')",
        "loop.subprocess_shell(None, 'true')",
        "import subprocess\nsubprocess.run(['true'])",
        "from subprocess import Popen\nPopen(['true'])",
        "import os\nos.system('true')",
        "import os\nos.posix_spawnp('true', [], {})",
        "from os import execvp\nexecvp('true', [])",
        "from anyio import to_process\nto_process.run_sync(print)",
        "import multiprocessing\nmultiprocessing.Process()",
        "from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor()",
    ],
)
def test_every_way_to_start_a_process_is_seen(source: str) -> None:
    """The check below sees a start under any alias."""
    assert len(process_starts(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nlimit = subprocess.PIPE",
        "import os\nos.getpid()",
        "executor.run(spec)",
        "def run_process() -> None: ...",
        "from anyio import to_thread\nto_thread.run_sync(print)",
    ],
)
def test_what_only_looks_like_a_start_is_let_through(source: str) -> None:
    """A constant, a definition or somebody else's `run` starts nothing."""
    assert process_starts(source) == []


@pytest.mark.parametrize("path", sources(PACKAGE), ids=name_of)
def test_only_the_runner_starts_processes(path: Path) -> None:
    """One module starts processes, so one place bounds, reaps and kills them."""
    if path != ONLY_STARTER:
        assert process_starts(path.read_text()) == []


@pytest.mark.parametrize("path", sources(PACKAGE, TESTS), ids=name_of)
def test_a_file_says_in_one_sentence_what_it_is(path: Path) -> None:
    """Every file's docstring begins with a sentence."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = docstring.split("\n\n")[0].strip()
    assert first.endswith((".", ":")), f"no sentence: {first!r}"


@pytest.mark.parametrize("path", sources(TESTS), ids=name_of)
def test_a_test_states_its_rule(path: Path) -> None:
    """Every test's docstring says in a sentence or two what must hold."""
    bare = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and path.name.startswith("test_")
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert bare == []


@pytest.mark.parametrize("path", sources(PACKAGE), ids=name_of)
def test_a_file_has_one_subject(path: Path) -> None:
    """A file much longer than 300 lines has a second subject and is split."""
    assert len(path.read_text().splitlines()) <= 320


@pytest.mark.parametrize("path", sources(PACKAGE, TESTS), ids=name_of)
def test_a_module_name_says_something(path: Path) -> None:
    """A name that fits anything says nothing."""
    words = re.split(r"[_.]", path.stem)
    assert not {"util", "utils", "helper", "helpers", "common", "misc"}.intersection(words)


@pytest.mark.parametrize("path", sources(PACKAGE), ids=name_of)
def test_coverage_has_no_exceptions(path: Path) -> None:
    """Only `__main__` and type-checking blocks are left out, and the settings do that."""
    if path.name != "__main__.py":
        assert "no cover" not in path.read_text()


def test_runtime_dependencies_are_the_promised_three() -> None:
    """Nothing but anyio, attrs and structlog comes with the library."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[<>=~!\[ ]", entry)[0] for entry in declared} == {
        "anyio",
        "attrs",
        "structlog",
    }


@pytest.mark.parametrize("path", sources(PACKAGE), ids=name_of)
def test_imports_are_declared(path: Path) -> None:
    """The package imports itself, the standard library and its three dependencies."""
    allowed = {"sandbox_exec", "anyio", "attrs", "structlog", *sys.stdlib_module_names}
    roots = {
        dotted.split(".")[0] for dotted in imported_names(ast.parse(path.read_text())).values()
    }
    assert roots <= allowed


@pytest.mark.parametrize("path", sources(PACKAGE), ids=name_of)
def test_only_one_module_logs_through_structlog(path: Path) -> None:
    """By itself it prints to standard output, so the library's modules use `Log`."""
    used = "structlog" in imported_names(ast.parse(path.read_text())).values()
    assert not used or path.name in {"_log.py", "cli.py"}


def test_public_modules_are_few() -> None:
    """Everything else is private, so that it can change."""
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    public = {name for name in found if not name.startswith("_")}
    assert public <= {"cli", "testing"}


def test_all_lists_each_public_name_once() -> None:
    """`__all__` is the whole public surface, and each name in it exists."""
    assert len(set(sandbox_exec.__all__)) == len(sandbox_exec.__all__)
    assert [name for name in sandbox_exec.__all__ if not hasattr(sandbox_exec, name)] == []


def public_things() -> dict[str, type | FunctionType]:
    """The public classes and functions; aliases and constants carry no docstring of their own."""
    things = {name: getattr(sandbox_exec, name) for name in sandbox_exec.__all__}
    return {k: v for k, v in things.items() if isinstance(v, type | FunctionType)}


@pytest.mark.parametrize("name", public_things())
def test_a_public_name_is_ours_and_documented(name: str) -> None:
    """Every public class and function says what it is, and is not a re-export of somebody's."""
    thing = public_things()[name]
    assert thing.__module__.split(".")[0] == "sandbox_exec"
    assert thing.__doc__, f"{name} has no docstring of its own"


@pytest.mark.parametrize("name", [n for n, v in public_things().items() if isinstance(v, type)])
def test_public_methods_are_documented(name: str) -> None:
    """Every public method and property of a public class says what it does."""
    bare = [
        attribute
        for attribute, value in vars(public_things()[name]).items()
        if not attribute.startswith("_")
        and isinstance(value, FunctionType | property | classmethod | staticmethod)
        and not inspect.getdoc(getattr(public_things()[name], attribute))
    ]
    assert bare == []
