"""Input is checked before anything starts; results say what happened."""

from __future__ import annotations

import math

import pytest
from attrs.exceptions import FrozenInstanceError

from sandbox_exec import CommandFailedError, ExecResult, ExecSpec, Gap
from sandbox_exec._models import MAX_COMMAND_BYTES, MAX_STDIN_BYTES, encode_text


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "a\0b"},
        {"command": "\ud800"},
        {"command": "x" * (MAX_COMMAND_BYTES + 1)},
        {"command": 3},
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": math.nan},
        {"timeout": -math.inf},
        {"timeout": True},
        {"timeout": "3"},
        {"session": ""},
        {"session": 7},
        {"env": {"A B": "x"}},
        {"env": {"": "x"}},
        {"env": {"1A": "x"}},
        {"env": {"A": "x\0"}},
        {"env": {"A": "\udfff"}},
        {"env": {"A\n": "x"}},
        {"env": {"OPTIND": "abc"}},
        {"env": {"OPTIND": ""}},
        {"env": {"A": "x" * (MAX_COMMAND_BYTES + 1)}},
        {"cwd": ""},
        {"cwd": "a\0"},
        {"user": ""},
        {"user": "-u"},
        {"user": "a b"},
        {"user": "a:b:c"},
        {"user": "a\n"},
        {"stdin": b"x" * (MAX_STDIN_BYTES + 1)},
        {"stdin": 5},
        {"stdin": [1, 2]},
        {"env": 5},
        {"env": [("A", "x")]},
        {"env": None},
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_run_is_refused(arguments: dict[str, object]) -> None:
    """With one ValueError that names the field (C6, C8)."""
    with pytest.raises(ValueError, match=next(iter(arguments)).removeprefix("env") or "env"):
        ExecSpec(**{"command": "true", **arguments})  # type: ignore[arg-type]  # wrong on purpose


def test_what_can_run_is_taken() -> None:
    """Huge limits are clamped later; raw bytes may be carried as surrogate escapes."""
    assert ExecSpec("true", timeout=10**400).timeout == 10**400
    spec = ExecSpec("caf\udce9", "chat", math.inf, env={"_A1": "\n'\udcff"}, user="1000:app")
    assert encode_text(spec.command, "command") == b"caf\xe9"
    assert ExecSpec("x", stdin="é").stdin == b"\xc3\xa9"
    assert ExecSpec("x", stdin=bytearray(b"a")).stdin == b"a"
    assert ExecSpec("x", stdin=memoryview(b"a")).stdin == b"a"
    assert ExecSpec("x" * MAX_COMMAND_BYTES).timeout is None


def test_values_do_not_change_and_secrets_do_not_show() -> None:
    """A spec may be logged."""
    env = {"A": "v4lue"}
    spec = ExecSpec("true", env=env, stdin=b"hidden")
    env["A"] = "changed"
    assert spec.env["A"] == "v4lue"
    assert "v4lue" not in repr(spec)
    assert "hidden" not in repr(spec)
    with pytest.raises(TypeError):
        spec.env["A"] = "b"  # type: ignore[index]  # what must not work
    with pytest.raises(FrozenInstanceError):
        spec.command = "false"  # type: ignore[misc]  # what must not work


def test_a_result_knows_whether_it_is_well() -> None:
    """check() hands on a good one and raises for any other, with the facts."""
    good = ExecResult("out", "", 0)
    assert good.ok
    assert good.check() is good
    with pytest.raises(CommandFailedError, match="exited with 3") as caught:
        ExecResult("out", "err", 3).check()
    assert (caught.value.exit_code, caught.value.stdout, caught.value.stderr) == (3, "out", "err")
    assert caught.value.started is True
    with pytest.raises(CommandFailedError, match="time limit"):
        ExecResult("", "", -1, timed_out=True).check()


def test_truncated_says_which() -> None:
    """Empty, hence false, when nothing was cut."""
    assert not ExecResult("", "", 0).truncated
    assert ExecResult("", "", 0, stderr_gap=Gap(0, 1)).truncated == {"stderr"}
