"""The guest under dash, bash and busybox: the same answers from each."""

from __future__ import annotations

import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from sandbox_exec._frames import (
    DONE,
    KILL,
    End,
    Frame,
    hello,
    new_conversation,
    reap_request,
    run_request,
)

from .guest_host import SHELLS, Guest, eventually, missing

Start: TypeAlias = Callable[..., Guest]


@pytest.fixture(params=sorted(SHELLS))
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts guests under one shell that share a state directory; READY has been seen."""
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    guests: list[Guest] = []

    def begin(**how: object) -> Guest:
        guest = Guest(request.param, tmp_path, **how)  # type: ignore[arg-type]  # passed through
        guests.append(guest)
        return guest.greet()

    yield begin
    for guest in guests:
        guest.__exit__(None, None, None)


def path_without(tmp_path: Path, *left_out: str) -> str:
    """Return a PATH on which only some of the guest's tools are to be found."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in {"mkdir", "chmod", "rm", "mv", "sleep", "dd", "cat", "sh"} - set(left_out):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    return str(tools)


def test_every_exit_code_comes_through(start: Start) -> None:
    """All 256, in one guest, those included that others use as signs of a time-out."""
    guest = start()
    for code in range(256):
        assert guest.run(f"exit {code}")[2] == End(code)


@pytest.mark.parametrize(
    ("signal", "code"), [("INT", 130), ("QUIT", 131), ("KILL", 137), ("TERM", 143)]
)
def test_a_command_dies_of_the_signals_it_would_die_of_anywhere(
    start: Start, signal: str, code: int
) -> None:
    """In particular SIGINT and SIGQUIT, which background children of a shell ignore for good."""
    assert start().run(f"kill -{signal} $$; echo lived")[2] == End(code)


def test_streams_are_separate_and_every_byte_of_a_command_arrives(start: Start) -> None:
    """A command may hold any byte but NUL."""
    text = bytes(range(1, 256)).replace(b"'", b"")
    guest = start()
    assert guest.run(b"printf %s '" + text + b"'; echo oops >&2")[:2] == (text, b"oops\n")


@pytest.mark.parametrize("repeats", [20, 12_000])
def test_a_long_command_runs_whole(start: Start, repeats: int) -> None:
    """Beyond what one argument can hold, and beyond what is worth reading byte by byte."""
    text = bytes(range(1, 256)).replace(b"'", b"") * repeats
    stdout, _, end = start().run(b"x='" + text + b'\'; printf %s "$x"; exit 3')
    assert (zlib.crc32(stdout), end) == (zlib.crc32(text), End(3))


@pytest.mark.parametrize("command", ["-e", "--", "-", " -x", "", "\n\n", "# nothing"])
def test_no_command_is_taken_for_an_option(start: Start, command: str) -> None:
    """A command may begin with anything, and be nothing."""
    stdout, stderr, end = start().run(command)
    wanted = 127 if command.strip().startswith("-") else 0
    assert (stdout, end) == (b"", End(wanted)), stderr


def test_variables_are_set_for_one_command_only(start: Start) -> None:
    """Whatever their names and values; the guest's own never show."""
    guest = start(env={"sbx_nonce": "mine", "sbx_cmd": "mine"})
    value = b"it's\n$HOME `x` \\ \xff end\n"
    env = {"A": value, "sbx_sh": b"/nope", "IFS": b"x"}
    assert guest.run('printf %s "$A"', env=env)[0] == value
    assert guest.run('printf %s "$A"; env', env={"PATH": b"/usr/bin:/bin"})[0].count(b"sbx_") == 0
    assert guest.run('printf %s "${A-unset}"')[0] == b"unset"
    assert guest.talk.nonce.encode() not in guest.run("env; set; cat /proc/$$/environ")[0]


def test_a_variable_that_the_shell_keeps_to_itself_does_no_harm(start: Start) -> None:
    """What it cannot be set to is left out, and the command runs all the same (C9)."""
    names = ["BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "LINENO"]
    for name in names:
        assert start().run('echo "ran $A"', env={name: b"abc", "A": b"on"}) == (
            b"ran on\n",
            b"",
            End(0),
        ), name


def test_many_variables_travel_as_well_as_a_few(start: Start) -> None:
    """More of them than are read line by line."""
    env = {f"V{n}": b"x" * 100 for n in range(100)}
    assert start().run('echo "$V0$V99$#"', env=env)[0] == b"x" * 200 + b"0\n"


@pytest.mark.parametrize("data", [b"", b"plain\n", b"\0\xff\n" * 70_000, b"x" * 65_536])
def test_standard_input_arrives_whole(start: Start, data: bytes) -> None:
    """Of any content; the requests that follow on the same stream are not eaten by it."""
    guest = start()
    assert guest.run("cat", stdin=data)[0] == data
    assert guest.run("cat; echo after")[0] == b"after\n"


def test_a_command_that_ignores_its_input_does_no_harm(start: Start) -> None:
    """What was not read is not taken for a request."""
    guest = start()
    assert guest.run("exit 4", stdin=b"run rm -rf\n" * 50_000)[2] == End(4)
    assert guest.run("echo fine")[0] == b"fine\n"


def test_the_directory_is_made_and_entered(start: Start, tmp_path: Path) -> None:
    """Also one with a newline in its name."""
    where = tmp_path / "workspace" / "a\nb c"
    assert start().run("pwd", cwd=str(where))[0] == f"{where}\n".encode()


def test_an_impossible_directory_is_refused_before_anything_runs(
    start: Start, tmp_path: Path
) -> None:
    """A file where a directory would have to be."""
    (tmp_path / "file").touch()
    guest = start()
    guest.ask("touch ran", cwd=str(tmp_path / "file"))
    assert guest.until_frame(0)[1] == Frame("refused", ("cwd",))
    assert not list(tmp_path.rglob("ran"))


def test_a_workspace_that_became_a_file_is_moved_aside(start: Start, tmp_path: Path) -> None:
    """It is healed on the next call, and its bytes are not lost (hazard S14)."""
    guest = start()
    guest.run("true")
    shutil.rmtree(guest.workspace)
    guest.workspace.write_text("kept")
    assert guest.run("ls")[0] == b"inputs\noutputs\n"
    (moved,) = tmp_path.glob("workspace.displaced-*")
    assert moved.read_text() == "kept"


def test_a_workspace_that_was_deleted_elsewhere_is_refused(start: Start, tmp_path: Path) -> None:
    """It is still mounted, and nothing can be made in it."""
    guest, source = start(), tmp_path / "source"
    guest.run("true")
    mount = f"mkdir {source}; mount --bind {source} {guest.workspace} && echo mounted"
    if guest.run(mount, cwd="/")[0] != b"mounted\n":
        pytest.skip("nothing can be mounted here")
    assert guest.run("ls")[0] == b"inputs\noutputs\n"
    shutil.rmtree(source)
    guest.ask("echo ran")
    assert guest.until_frame(0) == (b"", Frame("refused", ("workspace-gone",)))


STUBBORN = """
trap '' TERM INT HUP
setsid sh -c 'trap "" TERM; sleep 60' &
env -i sh -c 'sleep 60' &
(sh -c 'sleep 60 & sleep 60' &)
echo started
sleep 60
"""


def tagged(guest: Guest) -> bool:
    """Whether any process on the machine carries the guest's tag."""
    wanted = str(guest.talk.tag * 1024)
    for limits in Path("/proc").glob("[0-9]*/limits"):
        try:
            found = re.search(r"^Max resident set +(\S+)", limits.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found and found[1] == wanted:
            return True
    return False


def test_at_its_limit_the_whole_tree_dies(start: Start) -> None:
    """Ignored signals, new sessions, cleared environments and orphans do not help it (C1)."""
    guest = start()
    began = time.monotonic()
    stdout, _, end = guest.run(STUBBORN, limit=0.7)
    assert (stdout, end) == (b"started\n", End(137, timed_out=True))
    assert 0.6 < time.monotonic() - began < 2.7
    assert not tagged(guest)
    assert guest.run("echo next")[0] == b"next\n"


def test_a_command_that_lowers_its_tag_is_found_all_the_same(start: Start, tmp_path: Path) -> None:
    """A limit that belongs to no call gives it away (F18)."""
    guest = start()
    hide = f"(ulimit -m 777; setsid sh -c 'sleep 2; touch {tmp_path}/escaped' &); sleep 60"
    assert guest.run(hide, limit=0.5)[2].timed_out
    time.sleep(2.2)
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("mark", ["", "$PPID busy", "$$ busy"])
@pytest.mark.parametrize("soft", ["", "-S"])
def test_a_mark_of_a_commands_own_hides_nothing(
    start: Start, tmp_path: Path, soft: str, mark: str
) -> None:
    """A tag belongs to somebody only if a guest, a wrapper or its bearer is behind it (F18)."""
    guest = start()
    hide = (
        f"echo {mark} >{guest.state}/run-777; "
        f"(ulimit {soft} -m 777; setsid sh -c 'sleep 2; touch {tmp_path}/escaped' &); sleep 60"
    )
    assert guest.run(hide, limit=0.5)[2] == End(137, timed_out=True)
    time.sleep(2.2)
    assert not (tmp_path / "escaped").exists()


def test_what_a_wrapper_left_behind_survives_a_limit(start: Start) -> None:
    """Its mark names it, and it has the whole of the mark's tag."""
    guest, tag = start(), 2**23
    stdout = guest.run(
        f"(ulimit -m {tag}; exec setsid sleep 60 >/dev/null 2>&1) & echo $!; sleep 0.3"
    )[0]
    (guest.state / f"run-{tag}").write_text(f"{int(stdout)} busy\n")
    assert guest.run("sleep 60", limit=0.3)[2].timed_out
    assert guest.run(f"kill -0 {int(stdout)} && echo alive")[0] == b"alive\n"
    (guest.state / f"run-{tag}").unlink()
    assert guest.run("sleep 60", limit=0.3)[2].timed_out
    assert guest.run(f"kill -0 {int(stdout)} || echo dead")[0] == b"dead\n"


@pytest.mark.parametrize("how", ["limit", "kill"])
def test_a_command_that_stops_its_guest_ends_as_any_other(start: Start, how: str) -> None:
    """Whoever ends the command wakes the guest, which then says how it ended (C1)."""
    guest = start()
    began = time.monotonic()
    guest.ask("kill -STOP $PPID; sleep 60", limit=0.7 if how == "limit" else 20)
    if how == "kill":
        assert eventually(lambda: tagged(guest))
        time.sleep(0.3)
        guest.say(KILL)
    stdout, _, end = guest.answer()
    expected = End(137, timed_out=True) if how == "limit" else End(137, killed=True)
    assert (stdout, end) == (b"", expected)
    assert time.monotonic() - began < 3
    guest.say(DONE)
    assert guest.run("echo next")[0] == b"next\n"


@pytest.mark.parametrize(
    "name", ["last", "boot", "retiring", "sleep", "run-5", "gone-5", "harvest-1", "harvest-9" * 9]
)
@pytest.mark.parametrize("kind", ["mkfifo", "mkdir"])
def test_what_a_command_puts_among_the_notes_holds_nobody_up(
    start: Start, name: str, kind: str
) -> None:
    """A fifo would hold up whoever opens it, for ever (C1)."""
    guest = start()
    planted = guest.state / name
    stdout, _, end = guest.run(f"rm -f {planted}; {kind} {planted}; echo done", limit=5)
    assert (stdout, end) == (b"done\n", End(0))
    assert guest.run("echo next; sleep 20", limit=0.4)[:2] == (b"next\n", b"")
    assert start().run("echo another", limit=5)[0] == b"another\n"
    guest.say(reap_request(5))
    assert guest.until_frame(0)[1] == Frame("reaped", ("0",))
    assert (guest.state / "last").is_file()
    assert name != "retiring" or not planted.exists()


@pytest.mark.parametrize("how", ["eof", "kill"])
def test_a_client_that_leaves_or_says_so_ends_the_tree(start: Start, how: str) -> None:
    """The end of standard input means that nobody waits any more (C2)."""
    guest = start()
    guest.ask(STUBBORN)
    assert eventually(lambda: tagged(guest))
    if how == "kill":
        guest.say(KILL)
        assert guest.answer()[2] == End(137, killed=True)
        guest.say(DONE)
        assert guest.run("echo next")[0] == b"next\n"
    else:
        guest.stdin.close()
        assert guest.process.wait(5) == 0
    assert not tagged(guest)


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.004, 0.008])
def test_a_client_that_leaves_at_once_leaves_nothing(start: Start, delay: float) -> None:
    """Wherever between the request and the command's first step it leaves."""
    guest = start()
    guest.ask("sleep 60")
    time.sleep(delay)
    guest.stdin.close()
    assert guest.process.wait(5) == 0
    assert not tagged(guest)


def test_half_a_request_runs_nothing(start: Start, tmp_path: Path) -> None:
    """However much of it arrived, down to the last byte (S2)."""
    marker = tmp_path / "ran"
    for missing_bytes in (1, 2, 20, 60):
        guest = start()
        (whole,) = run_request(
            guest.talk,
            f"touch {marker}".encode(),
            limit=20,
            cwd=bytes(tmp_path),
            env={},
            stdin=None,
        )
        guest.say(whole[:-missing_bytes])
        guest.stdin.close()
        guest.process.wait(5)
        assert not marker.exists()


def test_background_processes_live_on_and_are_announced(start: Start) -> None:
    """The call ends with its command; the guest stays with what it left (C5, F20)."""
    guest = start()
    began = time.monotonic()
    guest.ask("(sleep 1; echo late > late) & echo now")
    stdout, _, end = guest.answer()
    assert time.monotonic() - began < 0.5
    assert (stdout, end) == (b"now\n", End(0, survivors=True))
    guest.say(DONE)
    frame = guest.until_frame(0)[1]
    assert frame is not None
    assert frame.word == "lingering"
    guest.stdin.close()
    assert eventually((guest.workspace / "late").exists)
    assert guest.process.wait(20) == 0


def test_another_guests_servers_survive_a_limit(start: Start) -> None:
    """A limit ends its own command's processes only."""
    first, second = start(), start()
    first.ask("sleep 60 & echo up")
    assert first.answer()[2].survivors
    first.say(DONE)
    # Both guests have namespaces of their own here, so the sweep can only be told to spare it.
    assert second.run("sleep 60", limit=0.3)[2].timed_out
    assert tagged(first)


def test_a_lost_command_can_be_reaped_through_another_guest(start: Start) -> None:
    """The way out when a conversation broke (C2)."""
    guest = start()
    guest.ask("true")
    guest.answer()
    guest.say(DONE, reap_request(new_conversation().tag))
    frame = guest.until_frame(0)[1]
    assert frame == Frame("reaped", ("0",))


def test_a_command_may_signal_everybody(start: Start) -> None:
    """`kill -TERM -1` and the like end neither the guest nor the call."""
    for signal in ("TERM", "HUP", "INT"):
        assert start().run(f"trap '' {signal}; kill -{signal} -1; echo lived")[0] == b"lived\n"


def test_a_retiring_sandbox_starts_nothing(start: Start, tmp_path: Path) -> None:
    """The mark is written first, then the retirement is looked for (S11)."""
    guest = start()
    (guest.state / "retiring").write_text(f"{time.clock_gettime(time.CLOCK_BOOTTIME):.0f}\n")
    guest.ask(f"touch {tmp_path}/ran")
    assert guest.until_frame(0)[1] == Frame("refused", ("retiring",))
    assert not (tmp_path / "ran").exists()
    assert eventually(lambda: not list(guest.state.glob("run-*")))


def test_a_running_command_has_its_mark(start: Start) -> None:
    """And none is left when the guest has gone."""
    guest = start()
    guest.ask("cat $OLDPWD/dev/null; sleep 0.5")
    mark = guest.state / f"run-{guest.talk.tag}"
    assert eventually(lambda: mark.read_text().split()[1] == "busy")
    guest.answer()
    guest.say(DONE)
    guest.stdin.close()
    guest.process.wait(5)
    assert not mark.exists()
    assert float((guest.state / "last").read_text()) > 0


def test_an_image_without_tools_still_runs_commands(start: Start, tmp_path: Path) -> None:
    """Without dd, long commands are read slowly, and standard input is refused."""
    (tmp_path / "workspace" / "inputs").mkdir(parents=True)
    (tmp_path / "workspace" / "outputs").mkdir()
    bare = path_without(tmp_path, "dd", "mkdir", "chmod", "rm", "mv", "sleep")
    guest = start(path=bare)
    assert guest.run("echo " + "x" * 9000)[0] == b"x" * 9000 + b"\n"
    assert guest.run("echo again; exit 5")[2] == End(5)
    guest.ask("cat", stdin=b"data")
    # busybox carries its own.
    refusal = Frame("refused", ("dd",))
    assert guest.until_frame(0) in ((b"", refusal), (b"data", Frame("end", ("0", "-"))))


@pytest.mark.parametrize("fake", ["exit 0", "exit 1"])
def test_a_sleep_that_lies_ends_nothing_early(start: Start, tmp_path: Path, fake: str) -> None:
    """The watcher trusts the clock only; then it is the host's timer that asks for the kill.

    busybox has a sleep of its own, which cannot be replaced.
    """
    path = path_without(tmp_path, "sleep")
    liar = tmp_path / "tools" / "sleep"
    liar.write_text(f"#!/bin/sh\n{fake}\n")
    liar.chmod(0o755)
    guest = start(path=path)
    assert guest.run("read x </proc/uptime; echo done", limit=5.0)[2] == End(0)
    guest.ask("while :; do :; done", limit=0.5)
    time.sleep(0.9)
    guest.say(KILL)
    end = guest.answer()[2]
    assert end.killed or end.timed_out


def test_a_state_directory_that_cannot_be_written_refuses(start: Start) -> None:
    """Without its mark a command could be stopped under the caller's feet."""
    guest = start()
    shutil.rmtree(guest.state)
    guest.ask("echo ran")
    assert guest.until_frame(0)[1] == Frame("refused", ("state",))


def test_nothing_is_said_before_the_nonce(start: Start) -> None:
    """READY proves that whoever answers has read what only standard input carried."""
    guest = start()
    other = new_conversation()
    guest.say(hello(other))
    assert guest.run("echo fine")[0] == b"fine\n"
