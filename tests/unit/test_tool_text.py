"""What a model is told is true and leads somewhere."""

import re
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec import _tool_text
from sandbox_exec._models import ExecResult, Gap, SandboxInfo
from sandbox_exec._tool_text import describe_sandbox, format_exec_result

INFO = SandboxInfo(
    image="python:3.13-slim",
    network=False,
    durable_workspace=True,
    default_timeout=30.0,
    max_timeout=300.0,
    memory=512 * 2**20,
    cpus=1.0,
    pids_limit=512,
    unbounded=("disk",),
)

HINTS = [name for name in _tool_text.__all__ if name.endswith("_HINT")]


def test_a_plain_result() -> None:
    """The three parts of S0, in its order; an empty standard error is left out."""
    assert format_exec_result(ExecResult("hi\n", "", 0)) == "exit code: 0\n\nstdout:\nhi"
    assert (
        format_exec_result(ExecResult("hi\n", "oops\n", 3))
        == "exit code: 3\n\nstdout:\nhi\n\nstderr:\noops"
    )


@pytest.mark.parametrize("text", ["", "\n", "  \n\t"])
def test_empty_output_is_said(text: str) -> None:
    """Nothing at all after a heading looks like a fault of the tool."""
    assert format_exec_result(ExecResult(text, text, 0)) == "exit code: 0\n\nstdout:\n(empty)"


def test_a_time_out_leads_to_a_next_step() -> None:
    """It comes first, and the output it speaks of is below it."""
    text = format_exec_result(ExecResult("half", "", -1, timed_out=True))
    note, rest = text.split("\n\n", 1)
    assert "time limit" in note
    assert "below" in note
    assert "longer timeout" in note
    assert rest == "exit code: -1\n\nstdout:\nhalf"


def test_a_longer_timeout_is_not_advised_where_there_is_none() -> None:
    """Where the default is the maximum, asking for more would cost a turn."""
    assert "longer timeout" in describe_sandbox(INFO)
    text = describe_sandbox(evolve(INFO, default_timeout=300.0))
    assert "killed after 300 seconds. The" in text
    assert "longer" not in text
    assert "less than the maximum" in format_exec_result(ExecResult("", "", -1, timed_out=True))


def test_notes_come_before_what_they_change() -> None:
    """A reader that stops early has read what matters."""
    result = ExecResult("out", "", -1, timed_out=True, oom_killed=True, reset="the image changed.")
    reset, limit, memory, *rest = format_exec_result(result).split("\n\n")
    assert "the image changed. Check" in reset
    assert "time limit" in limit
    assert "out of memory" in memory
    assert rest == ["exit code: -1", "stdout:\nout"]


def test_a_gap_is_named_where_it_is() -> None:
    """Head and tail must not read as one text."""
    result = ExecResult("headtail", "ab", 0, stdout_gap=Gap(4, 1_234_567), stderr_gap=Gap(0, 1))
    text = format_exec_result(result)
    assert "head\n[... 1,234,567 bytes of output left out here ...]\ntail" in text
    assert text.endswith("stderr:\n[... 1 bytes of output left out here ...]\nab")


@given(st.text(), st.integers(0, 20), st.integers(1, 10**12))
def test_a_gap_loses_nothing_that_was_kept(text: str, at: int, omitted: int) -> None:
    """Wherever the gap is, head and tail are both there."""
    at = min(at, len(text))
    shown = format_exec_result(ExecResult(text, "", 0, stdout_gap=Gap(at, omitted)))
    body = shown.partition("stdout:\n")[2]
    head, _, tail = body.partition(f"[... {omitted:,} bytes of output left out here ...]")
    assert head.strip() == text[:at].strip()
    assert tail.strip() == text[at:].strip()


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_ends_a_loop(name: str) -> None:
    """Each is short, plain and says what to do instead of trying again."""
    hint = getattr(_tool_text, name)
    assert len(hint) < 400
    assert hint.endswith(".")
    assert "\n" not in hint
    assert re.search(r"again|once more|repeat", hint)


def test_without_network_no_installs_are_promised() -> None:
    """The model would spend a turn on a command that cannot work."""
    text = describe_sandbox(INFO)
    assert "no network" in text
    assert "cannot be installed" in text


def test_with_network_nothing_is_said_about_where_it_leads() -> None:
    """A hidden host name is not a filter, and which packages can be had is up to the image."""
    text = describe_sandbox(evolve(INFO, network=True))
    assert "has network access" in text
    assert not re.search(r"install|filter|blocked|host\b|internal", text)


def test_whether_files_are_durable_is_said() -> None:
    """It decides what is worth writing down."""
    assert "kept even when the sandbox is rebuilt" in describe_sandbox(INFO)
    lost = describe_sandbox(evolve(INFO, durable_workspace=False))
    assert "all of them are lost when the sandbox is rebuilt" in lost
    assert "kept" not in lost


@pytest.mark.parametrize(
    ("ignored", "sentence"),
    [
        (("memory",), " The sandbox has 1 CPU and room for 512 processes and threads."),
        (("memory", "swap", "pids"), " The sandbox has 1 CPU."),
        (("pids",), " The sandbox has 512 MiB of memory and 1 CPU."),
        (("memory", "pids", "cpus"), ""),
    ],
)
def test_a_limit_that_the_engine_ignores_is_no_promise(
    ignored: tuple[str, ...], sentence: str
) -> None:
    """What is not bounded may be more or less than was asked for."""
    text = describe_sandbox(evolve(INFO, unbounded=("disk", *ignored)))
    assert text.endswith("at most 300 seconds." + sentence)


def test_places_and_limits_are_named() -> None:
    """Where files go, how long and how much, in words and not in bytes."""
    text = describe_sandbox(INFO)
    for fact in (
        "python:3.13-slim",
        "/workspace/inputs",
        "/workspace/outputs",
        "30 seconds",
        "300 seconds",
        "512 MiB",
        "1 CPU ",
        "512 processes",
    ):
        assert fact in text


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"memory": 1000}, "1000 bytes of memory"),
        ({"memory": 1536 * 2**20}, "1.5 GiB"),
        ({"memory": 2**50}, "1024 TiB"),
        ({"cpus": 0.5}, "0.5 CPUs"),
        ({"cpus": 2.0}, "2 CPUs"),
        ({"default_timeout": 1.0}, "after 1 second "),
        ({"default_timeout": 2.5}, "after 2.5 seconds "),
        ({"max_timeout": 1_000_000.0}, "1000000 seconds"),
    ],
)
def test_amounts_read_well(changes: dict[str, Any], fact: str) -> None:
    """No exponents, no needless digits."""
    assert fact in describe_sandbox(evolve(INFO, **changes))
