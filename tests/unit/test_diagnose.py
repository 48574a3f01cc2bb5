"""Captured words of real engines mean what provoked them, and words that look alike do not."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec._docker.diagnose import Diagnosis, Fault, absent, diagnose

CAPTURED = Path(__file__).parents[1] / "fixtures" / "engine_output"
CASES = sorted(CAPTURED.glob("*/*.json"))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


# Which faults an exec may find that meets the end of its container: each says so in its own words.
ENDINGS = {
    Fault.RACED,
    Fault.INIT_LOST,
    Fault.CONTAINER_STOPPED,
    Fault.CONTAINER_MISSING,
    Fault.BEING_REMOVED,
}


def expected(path: Path, words: str) -> set[Fault]:
    """What the file's name says, but for where an engine has one text for two faults."""
    fault = Fault[path.stem.partition("--")[0].upper()]
    if not words.strip():
        return {Fault.UNKNOWN}
    if fault is Fault.RACED:
        return ENDINGS
    if fault is Fault.PROCESSES_EXHAUSTED and "init-p" in words:
        return {Fault.INIT_LOST}
    if fault is Fault.CONTAINER_PAUSED and path.parent.name.startswith("podman"):
        return {fault, Fault.CONTAINER_STOPPED, Fault.UNKNOWN}
    return {fault}


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_captured_words_mean_what_provoked_them(path: Path) -> None:
    """The file's name says what was done to the engine."""
    case = json.loads(path.read_text())
    words = case["stdout"] + case["stderr"]
    found = diagnose(case["exit_code"], case["stdout"].encode(), case["stderr"].encode())
    assert found.fault in expected(path, words), found


@pytest.mark.parametrize("fault", sorted(set(Fault) - {Fault.UNKNOWN, Fault.INIT_LOST}, key=str))
def test_every_fault_was_provoked_on_every_kind_of_engine_that_has_it(fault: Fault) -> None:
    """A pattern nobody has seen is a guess."""
    families = {
        path.parent.name.partition("-")[0]
        for path in CASES
        if path.stem.startswith(f"{fault.name.lower()}--")
    }
    # podman has no such answers, and its disk is the machine's.
    only_docker = {Fault.CONTAINER_RESTARTING, Fault.BEING_REMOVED, Fault.DISK_FULL}
    assert families >= ({"docker"} if fault in only_docker else {"docker", "podman"})


@pytest.mark.parametrize(
    "line",
    [
        # Names and messages that hold another fault's words.
        "Error response from daemon: Container docker.sock is not paused",
        "Error: No such object: docker.sock",
        "cat: /var/run/docker.sock: No such file or directory",
        "cat: /etc/app.conf: no such file or directory",
        "curl: (7) Failed to connect to localhost port 80: Connection refused",
        "dial tcp 127.0.0.1:5432: connect: connection refused",
        "ssh: connect to host db port 22: Connection refused",
        # A command that talks about an engine.
        "app: Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?",
        "2026-11-29 Error response from daemon: No such container: web",
        "retrying: Error response from daemon: Container web is not running",
        "> Error: No such container: web",
        "the container is not running",
        "unable to find user interface",
        "sh: 1: cannot fork a repository",
        "git: unknown flag: --absent",
        # Near misses of the engine's own.
        "Error response from daemon: Container box is not paused",
        "Error response from daemon: You cannot remove a running container abc. Stop the container",
        "Error: failed to start containers: box",
        "exec /: exec format error",
        "error: exec /bin/sh: exec format error",
        "no space left on device",
        "tar: write error: No space left on device",
        "",
    ],
)
@pytest.mark.parametrize("exit_code", [0, 1, 125, 126, 127, 137, 255])
def test_look_alikes_mean_nothing(line: str, exit_code: int) -> None:
    """Only a whole line of an engine's is its verdict."""
    found = diagnose(exit_code, b"", line.encode() + b"\n")
    assert found == Diagnosis(Fault.UNKNOWN, line)


@pytest.mark.parametrize("exit_code", [0, 1, 2, 125, 128, 137])
def test_standard_output_is_read_only_where_exec_reports_on_it(exit_code: int) -> None:
    """With every other status it is a command's."""
    line = b"container is not running\n"
    assert diagnose(exit_code, line, b"").fault is Fault.UNKNOWN
    assert diagnose(126, line, b"").fault is Fault.RACED


def test_a_registry_that_refuses_is_no_engine_that_is_down() -> None:
    """The daemon's prefix tells who could not be reached by whom."""
    line = b'Get "https://registry.invalid/v2/": dial tcp: connect: connection refused\n'
    assert diagnose(1, b"", b"Error response from daemon: " + line).fault is Fault.IMAGE_MISSING
    assert diagnose(1, b"", line).fault is Fault.DAEMON_DOWN


def test_of_many_lines_of_ssh_the_last_one_counts() -> None:
    """What docker's program adds below is not ssh's."""
    head = 'error during connect: Get "http://x/y": command [ssh -- host docker] has exited with '
    said = "stderr=@@@@\n@ WARNING @\n\nIt failed.\n\nRun 'docker run --help' for more\n"
    found = diagnose(1, b"", f"{head}exit status 255, make sure: {said}".encode())
    assert found.fault is Fault.DAEMON_DOWN
    assert found.line == f"{head}exit status 255, make sure: stderr=It failed."


def test_the_weightier_of_two_verdicts_counts() -> None:
    """An engine that went away between two answers is away."""
    gone = b"Error response from daemon: No such container: box\n"
    down = b"Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\n"
    assert diagnose(1, b"", gone + down).fault is Fault.DAEMON_DOWN


def test_an_unknown_fault_keeps_the_words() -> None:
    """Somebody has to read them; what the program always adds is left out."""
    stderr = b"time=\"now\" level=error msg=x\n\nnew words\n\nRun 'docker run --help' for more\n"
    assert diagnose(125, b"", stderr) == Diagnosis(Fault.UNKNOWN, "new words")
    assert diagnose(126, b"on the other stream\n", b"").line == "on the other stream"
    assert diagnose(1, b"output\n", b"") == Diagnosis(Fault.UNKNOWN)


def test_what_podman_says_without_root_is_no_reason() -> None:
    """It says so at every start, and first."""
    ignored = b"Resource limits are not supported and ignored on cgroups V1 rootless systems\n"
    assert diagnose(126, b"", ignored + b"Error: tap failed\n").line == "Error: tap failed"


def test_an_endless_line_is_not_looked_at() -> None:
    """What runs inside may have written it."""
    line = b"Error response from daemon: No such container: " + b"x" * 5000
    assert diagnose(1, b"", line) == Diagnosis(Fault.UNKNOWN)


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_only_inspect_says_that_a_name_is_absent(path: Path) -> None:
    """An engine that is down prints the same empty answer with the same status."""
    case = json.loads(path.read_text())
    names = {
        "unknown--inspect-nothing": {"sbx-capture", "sandbox-exec/absent"},
        "unknown--inspect-no-image": {"sandbox-exec/absent"},
    }
    assert absent(case["stderr"].encode()) == names.get(path.stem, set())


def test_any_number_of_names_can_be_absent() -> None:
    """One inspect asks for every container there is."""
    names = {f"sbx.default.{number}" for number in range(1000)}
    lines = "".join(f"Error: No such object: {name}\n" for name in names)
    assert absent(lines.encode()) == names


@given(st.integers(-255, 255), st.binary(), st.binary())
def test_any_words_are_diagnosed(exit_code: int, stdout: bytes, stderr: bytes) -> None:
    """Words that nobody knows are no error of their own."""
    assert isinstance(diagnose(exit_code, stdout, stderr).fault, Fault)
    assert isinstance(absent(stderr), frozenset)


@given(st.sampled_from(["box", "docker.sock", "is.not.running", "a" * 64]))
def test_a_name_decides_nothing(name: str) -> None:
    """Whatever a container is called, the fault is the same."""
    line = f"Error response from daemon: No such container: {name}\n"
    assert diagnose(1, b"", line.encode()).fault is Fault.CONTAINER_MISSING
