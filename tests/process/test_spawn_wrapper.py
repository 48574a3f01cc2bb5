"""The spawn wrapper under dash, bash and busybox: it ends as its command does, and is marked."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from sandbox_exec._frames import Frame, new_conversation, reap_request, signal_request
from sandbox_exec._guest import spawn_command

from .guest_host import SHELLS, Guest, eventually, missing
from .spawn_host import Wrapper, wrap

Start: TypeAlias = Callable[..., Wrapper]


@pytest.fixture(params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest) -> str:
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    (made / "boot").write_text("12.34\n")
    return made


@pytest.fixture
def start(shell: str, state: Path) -> Iterator[Start]:
    """Starts commands under one shell that share a state directory."""
    begun: list[Wrapper] = []

    def begin(*command: str, **how: object) -> Wrapper:
        begun.append(wrap(shell, state, *command, **how))  # type: ignore[arg-type]  # passed through
        return begun[-1]

    yield begin
    for one in begun:
        one.process.kill()
        one.process.communicate(timeout=10)


READY = Frame("ready", ("1", "12.34"))
STARTED = Frame("started")


def ended(code: int, flags: str = "-") -> Frame:
    return Frame("end", (str(code), flags))


@pytest.mark.parametrize("code", [0, 1, 2, 7, 124, 125, 126, 127, 128, 130, 137, 143, 254, 255])
def test_exit_codes_come_through(start: Start, code: int) -> None:
    """On both streams' frames and as the wrapper's own, whatever others use them for."""
    wrapper = start("sh", "-c", f"echo out; echo err >&2; exit {code}")
    stdout, stderr, status = wrapper.until_end()
    assert wrapper.frames(stdout) == (b"out\n", [READY, STARTED, ended(code)])
    assert wrapper.frames(stderr) == (b"err\n", [READY, ended(code)])
    assert (status, wrapper.mark()) == (code, "")
    plain = start("sh", "-c", f"echo out; exit {code}", announced=False)
    assert plain.until_end(announced=False) == (b"out\n", b"", code)
    assert sorted(path.name for path in wrapper.state.iterdir()) == ["boot", "last"]


@pytest.mark.parametrize("name", ["KILL", "TERM", "INT", "QUIT", "PIPE"])
def test_a_signal_ends_a_command_as_anywhere(start: Start, name: str) -> None:
    """Without a word from the shell about it."""
    wrapper = start("/bin/sh", "-c", f"kill -{name} $$; sleep 5")
    stdout, stderr, status = wrapper.until_end()
    code = 128 + getattr(signal, f"SIG{name}")
    assert wrapper.frames(stdout)[1][-1] == ended(code)
    assert (wrapper.frames(stderr)[0], status) == (b"", code)


def test_input_and_output_are_the_commands_own(start: Start) -> None:
    """Every byte of them, and nothing of what the two sides say to each other."""
    data = bytes(range(256)) * 4000
    wrapper = start("cat")
    stdout, _, _ = wrapper.until_end(data)
    assert wrapper.frames(stdout)[0] == data
    assert start("cat", announced=False).until_end(data, announced=False) == (data, b"", 0)


@pytest.mark.parametrize("word", [b"", b"\n", b"0000\n", b"no newline"])
def test_without_the_word_to_begin_nothing_runs(start: Start, tmp_path: Path, word: bytes) -> None:
    """The client has gone, or is none."""
    wrapper = start("touch", str(tmp_path / "ran"))
    stdout, _, status = wrapper.until_end(word, announced=False)
    assert (wrapper.frames(stdout), status) == ((b"", [READY]), 0)
    assert not (tmp_path / "ran").exists()
    assert wrapper.mark() == ""


def test_variables_reach_the_command_alone(start: Start) -> None:
    """Of any shell name and any value, none of them read by the wrapper's own shell."""
    env = {
        "PATH": "/usr/bin:/bin",
        "IFS": "x",
        "ENV": "/nope",
        "BASH_ENV": "/nope",
        "sbx_code": "5",
        "sbx_nonce": "mine",
        "LD_BIND_NOW": "1",
        "A": 'it\'s\n$HOME `x` \\ "q" é end\n\n',
        "EMPTY": "",
        "_x1": "é" * 60_000,
    }
    show = "import os,sys; sys.stdout.write(repr(dict(os.environ)))"
    wrapper = start("python3", "-c", show, env=env, inherited={"sbx_mark": "mine", "KEPT": "yes"})
    stdout, stderr, status = wrapper.until_end()
    assert status == 0, stderr
    found = eval(wrapper.frames(stdout)[0])  # noqa: S307  # printed by the line above
    assert {name: found.get(name) for name in env} == env
    assert found["KEPT"] == "yes"
    assert {name for name in found if name.startswith(("sbx_", "SANDBOX"))} == {
        "sbx_code",
        "sbx_nonce",
    }


@pytest.mark.parametrize("announced", [True, False])
def test_a_directory_that_cannot_be_entered_runs_nothing(start: Start, *, announced: bool) -> None:
    """Said in a frame, or in words where there is no client."""
    assert start("pwd", cwd="/usr", announced=False).until_end(announced=False)[0] == b"/usr\n"
    wrapper = start("pwd", cwd="/no/such place", announced=announced)
    stdout, stderr, status = wrapper.until_end(announced=announced)
    if announced:
        assert wrapper.frames(stdout) == (b"", [READY, Frame("refused", ("cwd",))])
    else:
        assert (stdout, b"/no/such place" in stderr) == (b"", True)
    assert (status, wrapper.mark()) == (126, "")


def test_what_is_no_program_shows_as_in_a_shell(start: Start, tmp_path: Path) -> None:
    """127 for one that is not there, 126 for one that cannot be run, and words about it."""
    (tmp_path / "plain").write_text("x")
    for command, code in (("absent-program", 127), (str(tmp_path / "plain"), 126)):
        wrapper = start(command, "-x", "--", "a b")
        stdout, stderr, status = wrapper.until_end()
        assert wrapper.frames(stdout)[1][-1] == ended(code)
        assert command.encode() in wrapper.frames(stderr)[0]
        assert status == code


def test_a_command_carries_its_tag_and_leaves_its_mark(start: Start) -> None:
    """The mark names the wrapper and the command, for as long as it runs."""
    wrapper = start("sh", "-c", "grep resident /proc/self/limits; echo $$; read x; echo $x")
    wrapper.stdin.write(f"{wrapper.talk.nonce}\n".encode())
    wrapper.stdin.flush()
    assert eventually(lambda: len(wrapper.mark().split()) == 3)
    own, busy, command = wrapper.mark().split()
    stdout, _, _ = wrapper.until_end(b"go\n", announced=False)
    lines = wrapper.frames(stdout)[0].decode().splitlines()
    assert lines[0].split()[3] == str(wrapper.talk.tag * 1024)
    assert (lines[1:], busy, own != command) == ([command, "go"], "busy", True)


def test_processes_that_share_a_tag_have_marks_of_their_own(start: Start) -> None:
    """So that one pass ends them all, and each one counts as long as it runs."""
    talk = new_conversation()
    both = [start("sleep", "30", announced=False, number=number, talk=talk) for number in (1, 2)]
    marks = [both[0].state / f"run-{number}-{talk.tag}" for number in (1, 2)]
    assert eventually(lambda: all(path.exists() for path in marks))


def test_what_outlives_its_command_keeps_the_container_in_use(start: Start) -> None:
    """A client is told at once and gets the rest of the output; without one the mark passes on."""
    wrapper = start("sh", "-c", "(sleep 0.7; echo late) & exit 3")
    begun = time.monotonic()
    stdout, _, status = wrapper.until_end()
    assert wrapper.frames(stdout) == (b"late\n", [READY, STARTED, ended(3, "-s")])
    assert (status, wrapper.mark(), time.monotonic() - begun < 5) == (3, "", True)
    plain = start("sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!", announced=False)
    stdout, _, status = plain.until_end(announced=False)
    assert (status, plain.mark().splitlines()[0]) == (0, f"{int(stdout)} busy")


@pytest.mark.parametrize("announced", [True, False])
def test_a_retired_container_takes_nothing_in(
    start: Start, state: Path, *, announced: bool
) -> None:
    """Nobody runs what is about to be stopped; a retirement that died at it stops nobody (S11)."""
    (state / "retired").write_text("")
    wrapper = start("echo", "ran", announced=announced)
    stdout, stderr, status = wrapper.until_end(announced=announced)
    assert status == 126
    if announced:
        assert wrapper.frames(stdout) == (b"", [Frame("refused", ("retiring",))])
    else:
        assert (stdout, b"being stopped" in stderr) == (b"", True)
    (state / "retired").unlink()
    (state / "retiring").write_text("1\n")
    stdout, _, _ = start("echo", "ran", announced=False).until_end(announced=False)
    assert (stdout, (state / "retiring").exists()) == (b"ran\n", False)
    now = int(float(Path("/proc/uptime").read_text().split()[0]))
    (state / "retiring").write_text(f"{now}\n")
    if announced:
        assert start("echo", "ran").until_end()[2] == 126
    else:
        waiting = start("echo", "ran", announced=False)
        time.sleep(0.3)
        (state / "retiring").unlink()
        assert waiting.until_end(announced=False)[0] == b"ran\n"


def test_one_that_was_reaped_before_it_began_does_not_begin(start: Start, state: Path) -> None:
    """The flag is written before the hunt, and looked for after the tag was taken."""
    talk = new_conversation()
    (state / f"gone-{talk.tag}").write_text("")
    wrapper = start("echo", "ran", talk=talk)
    stdout, _, status = wrapper.until_end()
    assert (wrapper.frames(stdout)[0], status) == (b"", 137)


def test_where_nothing_can_be_tagged_nothing_runs(start: Start) -> None:
    """No kill would hold there."""
    talk = new_conversation()
    limited = 'ulimit -m 1000; exec setpriv --bounding-set=-sys_resource "$@"'
    wrapper = start("echo", "ran", talk=talk, prefix=("sh", "-c", limited, "limited"))
    stdout, _, status = wrapper.until_end()
    assert wrapper.frames(stdout)[1][-1] == Frame("refused", ("tag",))
    assert (wrapper.frames(stdout)[0], status) == (b"", 126)


def test_a_guest_signals_and_reaps_a_spawned_process(shell: str, tmp_path: Path) -> None:
    """Found by its mark, and proven to be it by its tag; its detached children with it."""
    # Below every guest's: the command that starts it has the guest's own, and none can be raised.
    tag, got = 2**23, tmp_path / "got"
    trap = f'trap "echo >{got}" USR1; setsid sleep 60 & while :; do sleep 0.1; done'
    with Guest(shell, tmp_path) as guest:
        guest.greet()
        stdout, _, _ = guest.run(
            f"(ulimit -m {tag}; exec setsid sh -c '{trap}' >/dev/null 2>&1) & echo $!; sleep 0.5"
        )
        mark = guest.state / f"run-{tag}"
        mark.write_text(f"{int(stdout)} busy 1\n")
        guest.say(signal_request(tag, signal.SIGUSR1))
        assert guest.until_frame(0)[1] == Frame("signalled", ("1",))
        mark.write_text(f"{int(stdout)} busy {int(stdout)}\n")
        time.sleep(0.3)
        guest.say(signal_request(tag, signal.SIGUSR1))
        assert guest.until_frame(0)[1] == Frame("signalled", ("0",))
        assert eventually(got.exists)
        guest.say(reap_request(tag))
        assert guest.until_frame(0)[1] == Frame("reaped", ("0",))
        left = guest.run(f"pgrep -fx 'sleep 60'; kill -0 {int(stdout)} && echo alive")[0]
        assert left == b""
        assert not mark.exists()


def test_files_that_are_lost_are_a_refusal(start: Start, state: Path) -> None:
    """It runs in the start of the container that has them, and in no other."""
    one = start("true", placed_in="12.34")
    assert one.frames(one.until_end()[0])[1] == [READY, STARTED, ended(0)]
    one = start("true", placed_in="9.1")
    stdout, _, code = one.until_end()
    assert (one.frames(stdout)[1], code) == ([READY, Frame("refused", ("moved",))], 126)
    assert one.mark() == ""
    stdout, stderr, code = start("true", placed_in="9.1", announced=False).until_end(
        announced=False
    )
    assert (stdout, b"wrap it anew" in stderr, code) == (b"", True, 126)
    (state / "boot").unlink()
    assert start("true", placed_in="12.34", announced=False).until_end(announced=False)[2] == 0


def test_without_its_environment_it_fails(shell: str) -> None:
    """An environment that was forgotten must not look like success."""
    bare = subprocess.run(
        [*SHELLS[shell], *spawn_command("1", "-", "", "-", "0", "true")],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
    )
    assert bare.returncode in {1, 2, 127}
    assert b"start this with options.env as its environment" in bare.stderr
