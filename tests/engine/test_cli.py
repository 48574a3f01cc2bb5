"""The ``sandbox-exec`` command as a process of its own, on a real engine."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import frozen

from tests.engine.real_engine import IMAGE, RealEngine

pytestmark = pytest.mark.engine

PATIENCE = 60


@frozen
class Shell:
    """What a user has: the command, an environment, and sessions that are nobody else's."""

    engine: RealEngine
    deployment: str

    @property
    def environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if name.startswith("COV")}
        settings = {"SANDBOX_EXEC_IMAGE": IMAGE, "SANDBOX_EXEC_ENGINE": self.engine.program}
        return {**ours, **self.engine.environment, **settings}

    def line(self, verb: str, *words: str) -> list[str]:
        return [sys.executable, "-m", "sandbox_exec", verb, "--deployment", self.deployment, *words]

    def call(
        self, verb: str, *words: str, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.line(verb, *words),
            env=self.environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

    @contextmanager
    def begin(self, verb: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A call that runs in a process group of its own, and not longer than the block."""
        with subprocess.Popen(
            self.line(verb, *words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def ask(self, *words: str, check: bool = True) -> str:
        """What the engine itself says."""
        argv = [self.engine.program, *words]
        answer = subprocess.run(
            argv,
            env=dict(self.engine.environment),
            capture_output=True,
            timeout=PATIENCE,
            check=check,
        )
        return answer.stdout.decode()

    def containers(self) -> list[str]:
        mine = f"label=sandbox-exec.deployment={self.deployment}"
        return self.ask("ps", "--all", "--quiet", "--filter", mine).split()

    def runs_inside(self, command: str) -> bool:
        # One that is still being started, or removed by now, has no processes to show.
        return any(
            command in self.ask("top", name, "-eo", "pid,args", check=False)
            for name in self.containers()
        )


@pytest.fixture
def shell(real_engine: RealEngine) -> Iterator[Shell]:
    shell = Shell(real_engine, f"cli-{secrets.token_hex(6)}")
    yield shell
    for name in shell.containers():
        # A one-off may be on its way out by itself.
        shell.ask("rm", "--force", "--volumes", name, check=False)


def wait_until_it_runs(shell: Shell, command: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not shell.runs_inside(command):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_commands_streams_and_status_come_through(shell: Shell) -> None:
    """A one-off prints what its command prints, exits as it does, and leaves no container."""
    ended = shell.call("run", "--", "printf 'a\\377'; echo b >&2; exit 3")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "a\ufffd".encode(), b"b\n")
    assert shell.call("run", "--", "true").returncode == 0
    assert shell.containers() == []


@pytest.mark.parametrize("status", [124, 125, 130, 255])
def test_any_status_is_the_commands_own(shell: Shell, status: int) -> None:
    """A command may exit with the numbers that we use ourselves; `--json` tells them apart."""
    ended = shell.call("run", "--json", "--", f"exit {status}")
    facts = json.loads(ended.stdout)
    assert ended.returncode == status
    assert (facts["exit_code"], facts["timed_out"], ended.stderr) == (status, False, b"")


def test_a_time_out_is_124(shell: Shell) -> None:
    """A command that takes too long is killed, its output so far is there, and a line says why."""
    ended = shell.call("run", "--timeout", "1", "--", "echo begun; sleep 600")
    assert (ended.returncode, ended.stdout) == (124, b"begun\n")
    assert ended.stderr == b"sandbox-exec: the command was killed by its time limit of 1 s\n"
    facts = json.loads(shell.call("run", "--timeout", "1", "--json", "--", "sleep 600").stdout)
    assert (facts["exit_code"], facts["timed_out"]) == (-1, True)


def test_a_failing_sandbox_is_125(shell: Shell) -> None:
    """An image that is not there, and a user that is not in it, are one line each."""
    for words in (
        ("--image", "sandbox-exec/no-such-image:nowhere", "--", "true"),
        ("--user", "nobody-of-that-name", "--", "true"),
        ("--docker-host", "unix:///no/such/socket", "--", "true"),
    ):
        ended = shell.call("run", *words)
        assert (ended.returncode, ended.stdout) == (125, b""), words
        assert ended.stderr.startswith(b"sandbox-exec: ")
        assert ended.stderr.count(b"\n") == 1


def test_wrong_arguments_are_2(shell: Shell) -> None:
    """They are one line on standard error, without a usage."""
    ended = shell.call("run", "--timeout", "-1", "--", "true")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.count(b"\n") == 1


def test_options_and_input_reach_the_command(shell: Shell) -> None:
    """Variables, directory, user and standard input are as given; several words are quoted."""
    ended = shell.call(
        "run",
        *(
            "--session",
            "s",
            "--env",
            "A=$x 'y'",
            "--cwd",
            "sub",
            "--user",
            "65534:65534",
            "--stdin",
        ),
        *("--", "echo $A; pwd; id -u; cat"),
        stdin=b"given\0\xc3\xa4",
    )
    assert ended.stdout.decode() == "$x 'y'\n/workspace/sub\n65534\ngiven\0ä"
    assert shell.call("run", "--", "printf", "%s|", "$HOME", "a b").stdout == b"$HOME|a b|"


def test_files_persist_in_a_session_until_rm(shell: Shell) -> None:
    """A later call, from another process, finds the files; after `rm` there is nothing."""
    assert shell.call("run", "--session", "s", "--", "echo 42 > answer").returncode == 0
    assert shell.call("run", "--session", "s", "--", "cat answer").stdout == b"42\n"
    assert shell.call("run", "--session", "other", "--", "cat answer").returncode == 1
    assert len(shell.containers()) == 2
    for _ in range(2):
        assert shell.call("rm", "s").returncode == 0
    assert len(shell.containers()) == 1
    assert shell.call("run", "--session", "s", "--", "cat answer").returncode == 1


def test_info_needs_no_engine(shell: Shell) -> None:
    """`info` describes the sandbox that would be made."""
    ended = shell.call("info", "--json", "--docker-host", "unix:///no/such/socket")
    assert json.loads(ended.stdout)["image"] == IMAGE


@pytest.mark.parametrize("where", [(), ("--session", "s")], ids=["one-off", "session"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_no_process_inside(
    shell: Shell, where: tuple[str, ...], number: signal.Signals
) -> None:
    """A signal to the whole process group, as a terminal sends it, ends the command inside: also
    one that ignores signals and has left its group.
    """
    seconds = str(5000 + secrets.randbelow(1000))
    stubborn = f"trap '' INT TERM; setsid sleep {seconds} & sleep {seconds}"
    with shell.begin("run", *where, "--timeout", "600", "--", stubborn) as process:
        wait_until_it_runs(shell, f"sleep {seconds}", process)
        os.killpg(process.pid, number)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout, stderr) == (128 + number, b"", b"")
    assert not shell.runs_inside(f"sleep {seconds}")
    assert len(shell.containers()) == (1 if where else 0)


@pytest.mark.parametrize("closed", [1, 2])
def test_our_output_may_be_closed(shell: Shell, closed: int) -> None:
    """`>&-` and `2>&-` cost nothing but the text: the status is the command's."""
    words = shlex.join(shell.line("run", "--", "echo out; echo err >&2; exit 7"))
    ended = subprocess.run(
        ["sh", "-c", f"exec {words} {closed}>&-"],
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    streams = [ended.stdout, ended.stderr]
    assert (ended.returncode, streams.pop(closed - 1)) == (7, b"")
    assert streams == [b"err\n" if closed == 1 else b"out\n"]


def test_nobody_needs_to_read_our_output(shell: Shell) -> None:
    """A reader that left is no error, and the status stays the command's."""
    with shell.begin("run", "--", "seq 1000; exit 7") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 7
