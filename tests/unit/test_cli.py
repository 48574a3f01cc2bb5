"""The command line on the fake engine: what it asks for, prints and exits with."""

import errno
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from attrs import Factory, frozen

from sandbox_exec import __main__, cli
from sandbox_exec._cli_arguments import make_parser
from sandbox_exec.testing import FakeCall, FakeDaemon

IMAGE = "sandbox-exec/busybox"


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves its logging behind, or depends on the machine's environment."""
    monkeypatch.setenv("SANDBOX_EXEC_IMAGE", IMAGE)
    monkeypatch.delenv("SANDBOX_EXEC_ENGINE", raising=False)
    yield
    structlog.reset_defaults()


async def talk(call: FakeCall) -> int:
    await call.stdout(b"out\xff")
    await call.stderr(b"err")
    return 3


async def forget_time(call: FakeCall) -> int:
    await call.stdout(b"so far")
    await call.sleep(3600)
    return 0


async def succeed(call: FakeCall) -> int:
    return 0


def rejected(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that wrong arguments are answered with."""
    with pytest.raises(SystemExit) as ended:
        cli.main(argv, runner=FakeDaemon())
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    return one_line(printed.err)


def one_line(text: str) -> str:
    assert text.startswith("sandbox-exec: ")
    assert text.count("\n") == 1
    return text.removeprefix("sandbox-exec: ").rstrip("\n")


def test_the_streams_and_the_status_are_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output, standard error and the exit status come through; UTF-8, broken bytes
    replaced.
    """
    assert cli.main(["run", "--", "talk"], runner=FakeDaemon({"talk": talk})) == 3
    assert capsys.readouterr() == ("out\ufffd", "err")


def test_json_holds_every_field_of_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints one object with the result's fields and its two properties."""
    assert cli.main(["run", "--json", "--", "talk"], runner=FakeDaemon({"talk": talk})) == 3
    facts = json.loads(capsys.readouterr().out)
    assert facts.pop("duration") >= 0
    assert facts == {
        "stdout": "out\ufffd",
        "stderr": "err",
        "exit_code": 3,
        "timed_out": False,
        "stdout_gap": None,
        "stderr_gap": None,
        "oom_killed": False,
        "reset": None,
        "ok": False,
        "truncated": [],
    }


def test_a_time_out_is_124_with_the_output_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    """A command killed by its limit keeps its output, and a line of ours says what happened."""
    daemon = FakeDaemon({"slow": forget_time})
    assert cli.main(["run", "--timeout", "0.5", "--", "slow"], runner=daemon) == 124
    printed = capsys.readouterr()
    assert printed.out == "so far"
    assert one_line(printed.err) == "the command was killed by its time limit of 0.5 s"
    assert cli.main(["run", "--", "slow"], runner=daemon) == 124
    assert one_line(capsys.readouterr().err).endswith("of 30 s")


def test_a_long_time_limit_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """The library's maximum is there for models; who types an hour gets it."""
    limits = []

    async def look(call: FakeCall) -> int:
        limits.append(call.limit)
        return 0

    assert (
        cli.main(["run", "--timeout", "3600", "--", "look"], runner=FakeDaemon({"look": look})) == 0
    )
    assert limits == [3600]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["echo $HOME; exit 3"], "echo $HOME; exit 3"),
        (["echo", "$HOME", "a b"], "echo '$HOME' 'a b'"),
        (["git", "log", "--", "a"], "git log -- a"),
        (["--", "a"], "-- a"),
        ([""], ""),
    ],
)
def test_one_word_is_shell_text_and_several_are_a_command(words: list[str], command: str) -> None:
    """One word is for the shell; several are quoted, so that they arrive as they are."""
    daemon = FakeDaemon(default=succeed)
    assert cli.main(["run", "--", *words], runner=daemon) == 0
    assert [text for _, text in daemon.executed] == [command]


def test_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables (ours, where no value is given), directory and user are the call's."""
    monkeypatch.setenv("OURS", "from here")
    seen: list[FakeCall] = []

    async def look(call: FakeCall) -> int:
        seen.append(call)
        return 0

    argv = ["run", "--env", "OURS", "--env", "A=b=c", "--cwd", "sub", "--user", "1000:1000"]
    assert cli.main([*argv, "--session", "s", "--", "look"], runner=FakeDaemon({"look": look})) == 0
    assert dict(seen[0].env) == {"OURS": "from here", "A": "b=c"}
    assert (seen[0].cwd, seen[0].user) == ("/workspace/sub", "1000:1000")


def test_standard_input_is_passed_on_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--stdin` the command reads what we would have read."""
    seen: list[bytes | None] = []

    async def look(call: FakeCall) -> int:
        seen.append(call.stdin)
        return 0

    reading, writing = os.pipe()
    os.write(writing, b"data\xff")
    os.close(writing)
    monkeypatch.setattr("builtins.open", lambda *_args, **_options: os.fdopen(reading, "rb"))
    assert cli.main(["run", "--stdin", "--", "look"], runner=FakeDaemon({"look": look})) == 0
    assert cli.main(["run", "--", "look"], runner=FakeDaemon({"look": look})) == 0
    assert seen == [b"data\xff", None]


def test_unreadable_standard_input_is_a_wrong_argument(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for standard input and has none is told so."""

    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("builtins.open", refuse)
    assert rejected(capsys, "run", "--stdin", "--", "x") == "--stdin: Bad file descriptor"


def test_settings_reach_the_engine() -> None:
    """The settings' options decide how the container is made."""
    daemon = FakeDaemon(default=succeed, program="other")
    argv = ["run", "--network", "--memory", "64m", "--deployment", "mine", "--engine", "other"]
    assert cli.main([*argv, "--session", "s", "--", "x"], runner=daemon) == 0
    made = next(call for call in daemon.calls if call[1:3] == ("run", "--detach"))
    assert made[made.index("--network") + 1] == "bridge"
    assert made[made.index("--memory") + 1] == str(64 * 2**20)
    assert next(iter(daemon.containers)).startswith("sbx.mine.s-")


def test_engine_and_image_have_defaults_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`$SANDBOX_EXEC_ENGINE` and `$SANDBOX_EXEC_IMAGE` save typing."""
    monkeypatch.setenv("SANDBOX_EXEC_ENGINE", "podman")
    daemon = FakeDaemon(default=succeed, program="podman")
    assert cli.main(["run", "--", "x"], runner=daemon) == 0
    assert any(IMAGE in call for call in daemon.calls)


def test_a_session_stays_until_it_is_removed() -> None:
    """Two calls of a session share a container; `rm` removes it, and may be repeated."""
    daemon = FakeDaemon(default=succeed)
    for _ in range(2):
        assert cli.main(["run", "--session", "s", "--", "x"], runner=daemon) == 0
    assert len(daemon.containers) == 1
    assert len({container for container, _ in daemon.executed}) == 1
    for _ in range(2):
        assert cli.main(["rm", "s"], runner=daemon) == 0
        assert not daemon.containers


def test_a_sandbox_that_was_woken_is_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    """Who works in a session learns that its processes are gone."""
    daemon = FakeDaemon(default=succeed)
    assert cli.main(["run", "--session", "s", "--", "x"], runner=daemon) == 0
    daemon.stop(next(iter(daemon.containers)))
    assert cli.main(["run", "--session", "s", "--", "x"], runner=daemon) == 0
    assert "had been stopped" in one_line(capsys.readouterr().err)


def test_what_was_left_out_is_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    """Output beyond the cap, and want of memory, are each said in a line on standard error."""

    async def flood(call: FakeCall) -> int:
        await call.stdout(b"a" * 100)
        call.oom_killed()
        return 0

    argv = ["run", "--max-output-bytes", "64", "--", "flood"]
    assert cli.main(argv, runner=FakeDaemon({"flood": flood})) == 0
    printed = capsys.readouterr()
    assert printed.out == "a" * 64
    lines = printed.err.splitlines()
    assert "memory" in lines[0]
    assert lines[1] == "sandbox-exec: 36 bytes in the middle of stdout were left out"


def test_a_failing_sandbox_is_125_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that is down is a line on standard error, never a traceback or an output."""
    daemon = FakeDaemon(default=succeed)
    daemon.down()
    for argv in (["run", "--", "x"], ["run", "--session", "s", "--", "x"], ["rm", "s"]):
        assert cli.main(argv, runner=daemon) == 125
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "docker daemon" in one_line(printed.err)


def test_a_line_of_ours_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the command's last line lacks, what we say is found at the beginning of one."""

    async def mutter(call: FakeCall) -> int:
        await call.stderr(b"no newline")
        await call.sleep(3600)
        return 0

    assert cli.main(["run", "--", "mutter"], runner=FakeDaemon({"mutter": mutter})) == 124
    first, second = capsys.readouterr().err.splitlines()
    assert (first, second.partition(" ")[0]) == ("no newline", "sandbox-exec:")


@pytest.mark.parametrize("where", [[], ["--session", "s"]], ids=["one-off", "session"])
def test_output_before_a_failure_is_not_lost(
    capsys: pytest.CaptureFixture[str], where: list[str]
) -> None:
    """What the command had printed when its sandbox failed comes before our line, or with it."""
    daemon = FakeDaemon()

    async def vanish(call: FakeCall) -> int:
        await call.stdout(b"half an answer")
        await call.stderr(b"and a warning")
        daemon.down()
        await call.forever()
        return 0

    daemon.commands["vanish"] = vanish
    assert cli.main(["run", *where, "--", "vanish"], runner=daemon) == 125
    printed = capsys.readouterr()
    warning, ours = printed.err.splitlines()
    assert (printed.out, warning) == ("half an answer", "and a warning")
    assert "docker daemon" in one_line(ours + "\n")

    daemon.up()
    assert cli.main(["run", *where, "--json", "--", "vanish"], runner=daemon) == 125
    printed = capsys.readouterr()
    facts = json.loads(printed.out)
    assert facts.pop("error") == one_line(printed.err)
    assert "sandbox is down" in facts.pop("hint")
    assert facts == {
        "code": "daemon-unavailable",
        "started": True,
        "retryable": True,
        "partial_stdout": "half an answer",
        "partial_stderr": "and a warning",
    }


def test_a_rejected_command_is_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    """What only the sandbox could reject has not started, and names the value."""
    daemon = FakeDaemon(default=succeed)
    daemon.refuse_next("cwd")
    argv = ["run", "--json", "--cwd", "/etc/passwd", "--", "x"]
    assert cli.main(argv, runner=daemon) == 125
    facts = json.loads(capsys.readouterr().out)
    assert (facts["code"], facts["started"], facts["retryable"]) == ("rejected", False, False)
    assert "'/etc/passwd'" in facts["error"]


def test_a_missing_program_is_125(capsys: pytest.CaptureFixture[str]) -> None:
    """So is an engine that is not installed."""
    assert cli.main(["run", "--engine", "nope", "--", "x"], runner=FakeDaemon()) == 125
    said = one_line(capsys.readouterr().err)
    assert "cannot run 'nope'" in said
    assert said.count("run") == 1


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ([], "required"),
        (["bogus"], "bogus"),
        (["run"], "after --"),
        (["run", "echo"], "after --"),
        (["run", "--"], "after --"),
        (["run", "--sess", "s", "--", "x"], "--sess"),
        (["run", "--session", "", "--", "x"], "session"),
        (["run", "--session", "--", "x"], "--session"),
        (["run", "--timeout", "0", "--", "x"], "seconds"),
        (["run", "--timeout", "nan", "--", "x"], "seconds"),
        (["run", "--timeout", "inf", "--", "x"], "seconds"),
        (["run", "--timeout", "soon", "--", "x"], "seconds"),
        (["run", "--memory", "lots", "--", "x"], "size"),
        (["run", "--image", "a b", "--", "x"], "image"),
        (["run", "--workspace-root", "here", "--", "x"], "workspace_root"),
        (["run", "--env", "NOT_SET_ANYWHERE", "--", "x"], "NOT_SET_ANYWHERE"),
        (["run", "--env", "a b=c", "--", "x"], "a b"),
        (["run", "--user", "-x;", "--", "x"], "--user"),
        (["rm"], "SESSION"),
        (["rm", ""], "session"),
        (["info", "x\ny"], "x y"),
    ],
)
def test_wrong_arguments_are_2_and_one_line(
    capsys: pytest.CaptureFixture[str], argv: list[str], why: str
) -> None:
    """What cannot be meant is refused before anything starts, in one line that names it."""
    assert why in rejected(capsys, *argv)


def test_info_is_what_the_executor_says(capsys: pytest.CaptureFixture[str]) -> None:
    """`info` asks no engine: it shows the settings that would be used."""
    daemon = FakeDaemon()
    assert cli.main(["info", "--json", "--memory", "64m"], runner=daemon) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["image"], facts["memory"]) == ("docker", IMAGE, 64 * 2**20)
    assert facts["unbounded"] == ["disk"]
    assert cli.main(["info"], runner=daemon) == 0
    text = capsys.readouterr().out
    assert f"image: {IMAGE}\n" in text
    assert "memory: 512 MiB\n" in text
    assert "max_timeout: 300 s\n" in text
    assert daemon.calls == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_first(
    capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    """A signal to end kills the command's tree inside; the status says which signal it was."""

    async def wait(call: FakeCall) -> int:
        os.kill(os.getpid(), number)
        await call.forever()
        return 0

    daemon = FakeDaemon({"wait": wait})
    assert cli.main(["run", "--session", "s", "--", "wait"], runner=daemon) == 128 + number
    assert [kill.command for kill in daemon.killed] == ["wait"]
    assert daemon.conversations == 0
    assert capsys.readouterr() == ("", "")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """Under nohup a hang-up ends nothing."""

    async def hang_up(call: FakeCall) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        return 5

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert cli.main(["run", "--", "x"], runner=FakeDaemon({"x": hang_up})) == 5
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_outside_of_the_loop_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while standard input is being read is no traceback either."""

    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.open", interrupt)
    assert cli.main(["run", "--stdin", "--", "x"], runner=FakeDaemon()) == 130


@frozen
class Full:
    """A standard output that cannot be written, over a real descriptor."""

    number: int
    descriptor: int
    buffer: io.BytesIO = Factory(io.BytesIO)

    def flush(self) -> None:
        raise OSError(self.number, os.strerror(self.number))

    def fileno(self) -> int:
        return self.descriptor


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(errno.EPIPE, 3, "err"), (errno.ENOSPC, 125, "sandbox-exec: standard output: No space left")],
)
def test_output_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    status: int,
    said: str,
) -> None:
    """Somebody who stopped reading is fine, and the status stays the command's; a full disk is
    not.
    """
    with tempfile.TemporaryFile() as target:
        monkeypatch.setattr(sys, "stdout", Full(number, target.fileno()))
        assert cli.main(["run", "--", "talk"], runner=FakeDaemon({"talk": talk})) == status
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_costs_nothing_but_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], closed: str
) -> None:
    """`>&-` and `2>&-`: the status stays the command's, and the other stream is there."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, closed, None)
        assert cli.main(["run", "--verbose", "--", "talk"], runner=FakeDaemon({"talk": talk})) == 3
        assert cli.main(["run", "--engine", "nope", "--", "x"], runner=FakeDaemon()) == 125
    printed = capsys.readouterr()
    if closed == "stderr":
        assert printed == ("out\ufffd", "")
    else:
        assert printed.out == ""
        assert "err" in printed.err


def test_an_interrupt_while_modules_are_loaded_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Impatience at the very start is no traceback either."""

    class Impatient:
        def find_spec(self, name: str, *_more: object) -> None:
            if name == "sandbox_exec.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "sandbox_exec.cli")
    monkeypatch.delattr("sandbox_exec.cli")
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    assert __main__.main() == 130


def test_the_entry_point_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sandbox-exec` and `python -m sandbox_exec` are the same."""
    monkeypatch.setattr(cli, "main", lambda: 7)
    assert __main__.main() == 7


def test_the_log_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output is the command's alone; below a warning nothing is logged unless asked."""
    daemon = FakeDaemon(default=succeed)
    for argv in (["run", "--session", "a"], ["run", "--session", "b", "--verbose"]):
        assert cli.main([*argv, "--", "x"], runner=daemon) == 0
        printed = capsys.readouterr()
        assert printed.out == ""
        assert ("sandbox.created" in printed.err) == ("--verbose" in argv)


def test_help_says_what_the_statuses_mean(capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody who writes a script finds the statuses in `--help`."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--help"])
    assert ended.value.code == 0
    text: Any = capsys.readouterr().out
    assert all(status in text for status in ("124", "125", "128+N"))


VERBS = ("run", "put", "get", "harvest", "rm", "info", "doctor")


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_the_options_that_do_something(
    capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """And says of each what it does."""
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    text = capsys.readouterr().out
    assert ("--max-output-bytes" in text) == (verb == "run")
    if verb != "run":
        with pytest.raises(SystemExit):
            cli.main([verb, "--max-output-bytes", "64"])
    (verbs,) = (one for one in make_parser()._actions if isinstance(one.choices, dict))
    assert isinstance(verbs.choices, dict)
    assert all(action.help for action in verbs.choices[verb]._actions)


@pytest.mark.parametrize("verb", ["run", "rm", "info"])
def test_help_is_plain_text_with_defaults(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """What holds if an option is left out, without the marks of the documentation."""
    for argv in ([verb, "--help"], ["--help"]):
        with pytest.raises(SystemExit):
            cli.main(argv)
    text = capsys.readouterr().out
    assert "``" not in text
    assert "default: default" in " ".join(text.split())
    assert ("--memory" in text) == (verb != "rm")
    assert ("512 MiB" in text) == (verb != "rm")
    assert ("(default: 30)" in text) == (verb == "run")
