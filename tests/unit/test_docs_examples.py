"""The documented programs that need no engine, and what the others do when theirs is gone."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from runpy import run_path
from typing import Any

import anyio
import pytest

from sandbox_exec import LocalDockerExecutor, SandboxConfig
from sandbox_exec.testing import FakeCall, FakeDaemon

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "sandbox-exec/busybox"


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
        timeout=110,
        check=False,
    )
    printed = ended.stdout.decode()
    assert ended.returncode == 0, printed
    assert "skipped" not in printed
    assert printed.count("passed") == 1


def test_the_pages_can_be_read_where_they_are_not_built() -> None:
    """A code host shows no link without a text, and nothing of a file that is included."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    for page in pages:
        text = page.read_text()
        assert "[](" not in text, page
        for line in text.splitlines():
            if line.startswith("```{literalinclude} "):
                assert f"]({line.split()[-1]})" in text, (page, line)


@pytest.fixture
def agent_loop() -> dict[str, Any]:
    """What the example defines, by name."""
    return run_path(str(ROOT / "docs/examples/agent_loop.py"))


def test_the_agent_loop_tells_the_operator_what_the_model_is_not_told(
    agent_loop: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The model reads the hint; the words of the engine, addresses included, are logged."""
    daemon = FakeDaemon()
    daemon.down()

    async def call() -> str:
        async with LocalDockerExecutor(SandboxConfig(image=IMAGE), runner=daemon) as executor:
            text: str = await agent_loop["run_tool"](executor, "s", "ls")
            return text

    text = anyio.run(call)
    assert "sandbox is down" in text
    assert "docker.sock" not in text
    assert "docker.sock" in caplog.text


def test_the_agent_loop_does_not_hide_why_it_failed(
    agent_loop: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A sandbox that cannot be removed at the end is a line in the log."""

    async def fine(_call: FakeCall) -> int:
        return 0

    daemon = FakeDaemon(default=fine)

    class Broken:
        def __init__(self, turns: object) -> None:
            pass

        async def reply(self, *_arguments: object) -> str:
            daemon.down()
            raise RuntimeError("the model is gone")

    names = agent_loop["main"].__globals__
    names["LocalDockerExecutor"] = partial(LocalDockerExecutor, runner=daemon)
    names["ScriptedModel"] = Broken
    with pytest.raises(RuntimeError, match="the model is gone"):
        anyio.run(agent_loop["main"])
    assert "left behind" in caplog.text
