"""The file verbs of the command line on the fake engine, and what a hostile name can do here."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from sandbox_exec import HarvestedFile, cli
from sandbox_exec._cli_files import _Bar, store
from sandbox_exec._naming import container_name, session_key
from sandbox_exec.testing import FakeContainer, FakeDaemon

OUTBOX = "/workspace/outputs"


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves its logging behind, or depends on the machine's environment."""
    monkeypatch.setenv("SANDBOX_EXEC_IMAGE", "sandbox-exec/busybox")
    monkeypatch.delenv("SANDBOX_EXEC_ENGINE", raising=False)
    yield
    structlog.reset_defaults()


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


def container(daemon: FakeDaemon) -> FakeContainer:
    return daemon.containers[container_name("default", session_key("s"))]


def failed(capsys: pytest.CaptureFixture[str], daemon: FakeDaemon, *argv: str) -> str:
    """The one line that a failure is answered with."""
    assert cli.main(argv, runner=daemon) == 125
    line = capsys.readouterr().err
    assert line.startswith("sandbox-exec: ")
    assert line.count("\n") == 1
    return line.removeprefix("sandbox-exec: ").rstrip("\n")


def test_a_file_goes_in_and_comes_out(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Whatever its bytes; the one here is replaced as a whole."""
    data = bytes(range(256)) * 4000
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_text("old")
    assert cli.main(["put", "s", str(tmp_path / "in"), "f"], runner=daemon) == 0
    assert cli.main(["get", "s", "f", str(tmp_path / "out")], runner=daemon) == 0
    assert (tmp_path / "out").read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_what_is_written_to_stays_what_it_is(daemon: FakeDaemon, tmp_path: Path) -> None:
    """A device, a link, a mode: replaced as a file, /dev/null would be lost to the whole host."""
    private, link, pipe = (tmp_path / name for name in ("private", "link", "pipe"))
    private.write_text("old")
    private.chmod(0o600)
    link.symlink_to(private)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "in").write_bytes(b"new")
    assert cli.main(["put", "s", str(tmp_path / "in"), "f"], runner=daemon) == 0
    for target in (link, pipe, Path(os.devnull)):
        assert cli.main(["get", "s", "f", str(target)], runner=daemon) == 0
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert Path(os.devnull).is_char_device()
    assert (private.read_bytes(), private.stat().st_mode & 0o777) == (b"new", 0o600)


def test_names_that_were_harvested_steer_no_terminal(
    daemon: FakeDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each, whatever the sandbox calls them."""
    (tmp_path / "in").write_bytes(b"x")
    name = "outputs/a\nb\033[31mé"
    assert cli.main(["put", "s", str(tmp_path / "in"), name], runner=daemon) == 0
    assert cli.main(["harvest", "s", "outputs", str(tmp_path / "out")], runner=daemon) == 0
    assert capsys.readouterr().out == "a\\nb\\x1b[31mé\n"


def test_a_dash_is_a_standard_stream(
    daemon: FakeDaemon, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In for a put, out for a get, byte for byte."""
    data = b"\xff\0\r\n" * 50_000
    read, write = os.pipe()
    own = os.dup(0)
    os.dup2(read, 0)
    try:
        with os.fdopen(write, "wb") as stream:
            stream.write(data[:60_000])
        assert cli.main(["put", "s", "-", "f"], runner=daemon) == 0
    finally:
        os.dup2(own, 0)
        for number in (own, read):
            os.close(number)
    assert container(daemon).files["/workspace/f"] == data[:60_000]
    for argv in (["get", "s", "f"], ["get", "s", "f", "-"]):
        assert cli.main(argv, runner=daemon) == 0
        assert capfdbinary.readouterr().out == data[:60_000]


def test_what_comes_out_of_a_pipe_is_put(daemon: FakeDaemon) -> None:
    """By the path that a shell's process substitution gives."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as stream:
        stream.write(b"x" * 60_000)
    assert cli.main(["put", "s", f"/dev/fd/{read}", "f"], runner=daemon) == 0
    os.close(read)
    assert container(daemon).files["/workspace/f"] == b"x" * 60_000


def test_what_is_no_file_is_a_failure(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each in its own words, with status 125."""
    (tmp_path / "f").write_bytes(b"x" * 11)
    assert cli.main(["put", "s", str(tmp_path / "f"), "f"], runner=daemon) == 0
    container(daemon).odd.update({"/workspace/p": "special", "/workspace/d": "denied"})
    said = [
        failed(capsys, daemon, "get", "s", "--max-bytes", "10", name)
        for name in ("f", "none", "outputs", "p", "d")
    ]
    assert said == [
        "f has 11 bytes: see --max-bytes",
        "none is not there",
        "outputs is a directory",
        "p is a fifo, a device or a socket",
        "d may not be read",
    ]


def test_what_is_missing_here_is_a_failure(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of ours, and the line says which file it is about."""
    missing = tmp_path / "none"
    said = failed(capsys, daemon, "put", "s", str(missing), "f")
    assert said == f"{missing}: No such file or directory"
    assert cli.main(["put", "s", __file__, "f"], runner=daemon) == 0
    said = failed(capsys, daemon, "get", "s", "f", str(missing / "f"))
    assert said == f"{missing}/f: No such file or directory"


@pytest.mark.parametrize(
    "argv",
    [
        ["put", "", "a", "f"],
        ["put", "s", "a", "f/"],
        ["get", "s", ""],
        ["get", "s", "f", "--max-bytes", "x"],
        ["harvest", "s", "outputs", "out", "--max-files", "0"],
        ["harvest", "s", "outputs", "out", "--max-total-bytes", "0"],
        ["harvest", "s", "outputs"],
    ],
)
def test_wrong_arguments(
    daemon: FakeDaemon, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Are answered with status 2 and a line, before anything starts."""
    with pytest.raises(SystemExit) as ended:
        cli.main(argv, runner=daemon)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert daemon.calls == []


def test_a_harvest_moves_files_here(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Into a directory that is made, within the limits, and prints their paths."""
    cli.main(["put", "s", __file__, "f"], runner=daemon)
    files = container(daemon).files
    files.update({f"{OUTBOX}/{name}": name.encode() for name in ("a", "b/c", "d", "é")})
    target = tmp_path / "new" / "dir"
    limits = ["--max-files", "3", "--max-bytes", "9", "--max-total-bytes", "99"]
    assert cli.main(["harvest", "s", "outputs", str(target), *limits], runner=daemon) == 0
    assert capsys.readouterr().out == "a\nb/c\nd\n"
    assert (target / "b" / "c").read_text() == "b/c"
    assert [path for path in files if path.startswith(OUTBOX)] == [f"{OUTBOX}/é"]
    assert cli.main(["harvest", "s", "outputs", str(target)], runner=daemon) == 0
    assert capsys.readouterr().out == "é\n"


def test_what_cannot_be_stored_is_put_back(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The others are stored all the same, and the status says that not all were."""
    cli.main(["put", "s", __file__, "f"], runner=daemon)
    files = container(daemon).files
    files.update({f"{OUTBOX}/{name}": name.encode() for name in ("a/b", "c")})
    (tmp_path / "a").symlink_to("/tmp")
    said = failed(capsys, daemon, "harvest", "s", "outputs", str(tmp_path))
    assert said.startswith("1 of 2 files could not be stored, and were put back: 'a/b'")
    assert (tmp_path / "c").read_text() == "c"
    assert {p: d for p, d in files.items() if p.startswith(OUTBOX)} == {f"{OUTBOX}/a/b": b"a/b"}


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a/../../x", "", "a//b", "./x", "..", "a/.", "a\0b"]
)
def test_a_path_that_leads_elsewhere_is_not_stored(tmp_path: Path, path: str) -> None:
    """Whatever a sandbox would call its files."""
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match=r"out of the directory|embedded null"):
        store(tmp_path / "in", HarvestedFile(path, b"x"))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A link for a directory is refused, and one for the file itself is replaced."""
    (tmp_path / "in" / "real").mkdir(parents=True)
    (tmp_path / "victim").write_text("safe")
    (tmp_path / "in" / "dir").symlink_to(tmp_path)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "in" / "dangling").symlink_to(tmp_path / "made")
    for path in ("dir/victim", "real"):
        with pytest.raises(OSError, match=r"Not a directory|Is a directory"):
            store(tmp_path / "in", HarvestedFile(path, b"x"))
    for path in ("link", "dangling", "real/f"):
        store(tmp_path / "in", HarvestedFile(path, b"x"))
    assert (tmp_path / "victim").read_text() == "safe"
    assert not (tmp_path / "made").exists()
    assert (tmp_path / "in" / "link").read_bytes() == b"x"
    assert not (tmp_path / "in" / "link").is_symlink()


class Terminal:
    """A standard error that somebody looks at."""

    def __init__(self) -> None:
        self.shown = b""
        self.buffer = self

    def isatty(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self.shown += data
        return len(data)

    def flush(self) -> None:
        pass


def test_a_bar_on_a_terminal(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Shows how far it is, up to the end, in printable characters; elsewhere there is none."""
    terminal: Any = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    (tmp_path / "f").write_bytes(b"x" * 2**20)
    assert cli.main(["put", "s", str(tmp_path / "f"), "a\x1b[2J"], runner=daemon) == 0
    lines = terminal.shown.split(b"\r")
    assert lines[-1] == b"a?[2J: [" + b"#" * 30 + b"] 100% 1.0 MiB\n"
    assert b"\x1b" not in terminal.shown
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    terminal.shown = b""
    assert cli.main(["put", "s", str(tmp_path / "f"), "f"], runner=daemon) == 0
    assert terminal.shown == b""


def test_a_bar_without_a_total() -> None:
    """Shows what was done, and does not speak more often than one can read."""
    terminal: Any = Terminal()
    bar = _Bar(terminal, "f")
    for done in range(0, 5 * 2**20, 2**18):
        bar.take(done, None)
    bar.end()
    assert terminal.shown == b"\rf: 0.0 MiB\n"
