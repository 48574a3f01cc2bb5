"""The file verbs of the ``sandbox-exec`` command as a process of its own, on a real engine."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from .test_cli import PATIENCE, Shell, shell

__all__ = ["shell"]

pytestmark = pytest.mark.engine


def test_files_go_in_and_out(shell: Shell, tmp_path: Path) -> None:
    """Through names and standard streams, byte for byte; a harvest moves them."""
    data = os.urandom(3_000_000)
    assert shell.call("put", "s", "-", "outputs/a b/c", stdin=data).returncode == 0
    assert shell.call("get", "s", "outputs/a b/c").stdout == data
    ended = shell.call("harvest", "s", "outputs", str(tmp_path / "here"))
    assert (ended.returncode, ended.stdout) == (0, b"a b/c\n")
    assert (tmp_path / "here" / "a b" / "c").read_bytes() == data
    ended = shell.call("harvest", "s", "outputs", str(tmp_path / "here"))
    assert (ended.returncode, ended.stdout) == (0, b"")
    ended = shell.call("get", "s", "outputs/a b/c")
    assert (ended.returncode, ended.stderr) == (125, b"sandbox-exec: outputs/a b/c is not there\n")


def test_hostile_names_stay_in_their_directory(shell: Shell, tmp_path: Path) -> None:
    """Newlines, escapes and links inside end up as files here, or not at all."""
    victim = tmp_path / "victim"
    victim.write_text("safe")
    shell.call(
        *("run", "--session", "s", "--"),
        "cd outputs; echo x > $(printf 'a\\nb'); echo x > $(printf '\\033[2J\\377'); "
        f"ln -s {victim} l; mkdir -p d; echo x > d/f; echo x > ...; ln -s / r",
    )
    here = tmp_path / "here"
    here.mkdir()
    (here / "d").symlink_to(tmp_path)
    ended = shell.call("harvest", "s", "outputs", str(here))
    assert ended.returncode == 125
    assert b"'d/f'" in ended.stderr
    names = sorted(os.fsencode(path.name) for path in here.iterdir())
    assert names == [b"\x1b[2J\xff", b"...", b"a\nb", b"d"]
    assert victim.read_text() == "safe"
    assert not (tmp_path / "f").exists()
    assert shell.call("get", "s", "outputs/d/f").stdout == b"x\n"


def test_a_signal_ends_a_put(shell: Shell) -> None:
    """With the shell's status for it, at once, although standard input says nothing; the old
    content stays.
    """
    assert shell.call("put", "s", "-", "f", stdin=b"old").returncode == 0
    with subprocess.Popen(
        shell.line("put", "s", "-", "f"), env=shell.environment, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"x" * 2_000_000)
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert shell.call("get", "s", "f").stdout == b"old"


def test_other_settings_are_told(shell: Shell) -> None:
    """A file that is missing since the sandbox was replaced is not just missing."""
    assert shell.call("put", "s", "-", "f", stdin=b"x").stderr == b""
    ended = shell.call("get", "--memory", "300m", "s", "f")
    assert (ended.returncode, ended.stdout) == (125, b"")
    assert b"the sandbox is not as it was: its policy changed (limits)" in ended.stderr
    assert b"f is not there" in ended.stderr
