"""The ``sandbox-exec`` command: sandboxes from a shell."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO, TypeVar

import anyio
import structlog
from anyio import CancelScope, create_task_group, open_signal_receiver
from attrs import asdict, fields_dict, frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._errors import SandboxError
from sandbox_exec._executor import LocalDockerExecutor
from sandbox_exec._models import MAX_STDIN_BYTES, ExecResult, ExecSpec
from sandbox_exec._naming import session_key

__all__ = ["main"]

T = TypeVar("T")

PROGRAM: Final = "sandbox-exec"
DEFAULT_IMAGE: Final = "debian:stable-slim"

TIMED_OUT: Final = 124
FAILED: Final = 125

_EPILOG: Final = f"""\
One word after -- is a shell command line; several words are one command and its arguments, quoted.
Exit status: the command's own; 2 wrong arguments; {TIMED_OUT} killed by its time limit;
{FAILED} the sandbox failed, or refused; 128+N ended by signal N. --json tells these from a command
that exits with the same number.
"""


@frozen
class Printout:
    """What is to be written, and the status to exit with."""

    stdout: str = ""
    stderr: str = ""
    status: int = 0


class _Signalled(Exception):  # noqa: N818  # not an error of anybody's
    """A signal asked this process to end; everything it had begun has been ended."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, _line(message))


def main(argv: Sequence[str] | None = None, *, runner: CommandRunner | None = None) -> int:
    """Run the command line and return its exit status.

    :param argv: the arguments; ``None`` for this process's own.
    :param runner: what starts the engine's program; for tests.
    :raises SystemExit: for wrong arguments, as argparse does.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    try:
        printout = _answer(parser, words, runner)
    except (SandboxError, ValueError) as error:
        printout = Printout(stderr=_line(str(error)), status=FAILED)
    except _Signalled as signalled:
        return 128 + signalled.number
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    try:
        _write(sys.stdout, printout.stdout)
    except OSError as error:
        printout = Printout(stderr=_line(f"standard output: {error.strerror}"), status=FAILED)
    with suppress(OSError):
        _write(sys.stderr, printout.stderr)
    return printout.status


def _answer(
    parser: argparse.ArgumentParser, words: Sequence[str], runner: CommandRunner | None
) -> Printout:
    # argparse has its own ideas about what follows "--", which differ from version to version.
    flags, command = list(words), []
    if words[:1] == ["run"] and "--" in words:
        cut = flags.index("--")
        flags, command = flags[:cut], flags[cut + 1 :]
    options = parser.parse_args(flags)
    try:
        executor = LocalDockerExecutor(_config(options), runner=runner)
        spec = _spec(options, command) if options.verb == "run" else None
        if options.verb == "rm":
            session_key(options.session)  # for its opinion on the id
    except ValueError as error:
        parser.error(str(error))
    if options.verb == "info":
        return _described(executor, as_json=options.json)
    _log_to_stderr(verbose=options.verbose)
    if spec is None:
        anyio.run(_within, executor, partial(executor.dispose_session, options.session))
        return Printout()
    result = anyio.run(_within, executor, partial(executor.run, spec))
    return _printout(result, as_json=options.json)


async def _within(executor: LocalDockerExecutor, work: Callable[[], Awaitable[T]]) -> T:
    """Open the executor and await ``work``; a signal cancels it, which ends the command inside."""
    results: list[T] = []
    failures: list[Exception] = []
    received: list[int] = []

    async def watch(signals: AsyncIterator[signal.Signals], scope: CancelScope) -> None:
        received.append(await anext(signals))
        scope.cancel()

    # What is ignored (nohup, a background job of a script) stays ignored.
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    watched = [one for one in ends if signal.getsignal(one) is not signal.SIG_IGN]
    with open_signal_receiver(*watched) as signals:
        async with create_task_group() as group:
            group.start_soon(watch, signals, group.cancel_scope)
            try:
                async with executor:
                    results.append(await work())
            except (SandboxError, ValueError) as error:
                failures.append(error)  # raised below, outside of the group
            group.cancel_scope.cancel()
    if results:
        return results[0]
    if received:
        raise _Signalled(received[0])
    raise failures[0]


def _printout(result: ExecResult, *, as_json: bool) -> Printout:
    status = TIMED_OUT if result.timed_out else result.exit_code
    if as_json:
        facts = {**asdict(result), "ok": result.ok, "truncated": sorted(result.truncated)}
        return Printout(json.dumps(facts) + "\n", status=status)
    notes = []
    if result.reset is not None:
        notes.append(f"the sandbox is not as it was: {result.reset}")
    if result.timed_out:
        notes.append("the command was killed by its time limit")
    if result.oom_killed:
        notes.append("the kernel killed something in the sandbox for want of memory")
    for name, gap in (("stdout", result.stdout_gap), ("stderr", result.stderr_gap)):
        if gap is not None:
            notes.append(f"{gap.omitted_bytes} bytes in the middle of {name} were left out")
    return Printout(result.stdout, result.stderr + "".join(map(_line, notes)), status)


def _described(executor: LocalDockerExecutor, *, as_json: bool) -> Printout:
    facts: dict[str, Any] = {"kind": executor.kind, **asdict(executor.info)}
    if as_json:
        return Printout(json.dumps(facts) + "\n")
    facts["unbounded"] = ", ".join(facts["unbounded"])
    return Printout("".join(f"{name}: {value}\n" for name, value in facts.items()))


def _line(text: str) -> str:
    """Return a message of ours as one line, whatever it quotes."""
    return f"{PROGRAM}: {' '.join(text.split())}\n"


def _write(stream: TextIO, text: str) -> None:
    """Write UTF-8 whatever the locale; whoever stopped reading is not told.

    :raises OSError: for a full disk and its like.
    """
    try:
        stream.flush()
        stream.buffer.write(text.encode("utf-8", "surrogateescape"))
        stream.flush()
    except OSError as error:
        # What is left in the buffer would fail again when the interpreter ends.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise


def _log_to_stderr(*, verbose: bool) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbose else logging.WARNING
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _config(options: argparse.Namespace) -> SandboxConfig:
    given = vars(options)
    settings = {name: given[name] for name in fields_dict(SandboxConfig) if name in given}
    settings.setdefault("image", os.environ.get("SANDBOX_EXEC_IMAGE") or DEFAULT_IMAGE)
    if engine := os.environ.get("SANDBOX_EXEC_ENGINE"):
        settings.setdefault("engine", engine)
    if (timeout := given.get("timeout")) is not None:
        # Whoever asks for an hour gets it: the maximum is there for models.
        settings.update(default_timeout=timeout, max_timeout=timeout)
    return SandboxConfig(**settings)


def _spec(options: argparse.Namespace, words: Sequence[str]) -> ExecSpec:
    if options.misplaced or not words:
        raise ValueError("write the command after --")
    return ExecSpec(
        words[0] if len(words) == 1 else shlex.join(words),
        options.session,
        options.timeout,
        env=dict(_variable(text, os.environ) for text in options.env),
        cwd=options.cwd,
        user=options.user,
        stdin=_own_stdin() if options.stdin else None,
    )


def _variable(text: str, own: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals:
        return name, value
    if name not in own:
        raise ValueError(f"--env {name}: there is no such variable here; give it a value: {name}=")
    return name, own[name]


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")


def _own_stdin() -> bytes:
    try:
        with open(0, "rb", closefd=False) as stream:
            return stream.read(MAX_STDIN_BYTES + 1)
    except OSError as error:
        raise ValueError(f"--stdin: {error.strerror}") from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=version(PROGRAM))
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="run|rm|info")
    run = verbs.add_parser(
        "run",
        usage=f"{PROGRAM} run [OPTIONS] -- COMMAND...",
        help="run a command to its end, in a sandbox of its own or a session's",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = run.add_argument
    add("misplaced", nargs="*", help=argparse.SUPPRESS)
    add("--session", metavar="ID", help="run in this session's sandbox, which stays")
    add("--timeout", type=_seconds, metavar="SECONDS", help="the command's time limit")
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help="without VALUE: ours")
    add("--cwd", metavar="DIR", help="where to run; relative to /workspace; made if missing")
    add("--user", metavar="NAME|UID[:GROUP]", help="root if left out")
    add("--stdin", action="store_true", help="read our standard input, pass it on")
    add("--json", action="store_true", help="print one JSON object with all that is known")
    remove = verbs.add_parser("rm", help="remove a session's sandbox and files", allow_abbrev=False)
    remove.add_argument("session", metavar="SESSION")
    info = verbs.add_parser("info", help="say what a sandbox is given", allow_abbrev=False)
    info.add_argument("--json", action="store_true", help="print one JSON object")
    for verb in (run, remove, info):
        _add_settings(verb)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that are settings; those left out stay out, for the defaults to hold."""
    group = parser.add_argument_group("settings", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add("--image", help=f"$SANDBOX_EXEC_IMAGE if left out, else {DEFAULT_IMAGE}")
    add("--network", action="store_true", help="give the sandbox a network")
    add("--memory", metavar="SIZE", help="such as 512m; no swap beyond it")
    add("--workspace-root", metavar="DIR", help="keep /workspace here, on the engine's host")
    add("--runtime", metavar="NAME", help="the OCI runtime, such as runsc")
    add("--max-output-bytes", type=int, metavar="BYTES", help="kept of each stream")
    add("--engine", metavar="PROGRAM", help="$SANDBOX_EXEC_ENGINE if left out, else docker")
    add("--docker-host", metavar="URL", help="which daemon, as DOCKER_HOST would say it")
    add("--deployment", metavar="NAME", help="the namespace that sessions belong to")
    parser.add_argument("--verbose", action="store_true", help="log more than warnings, to stderr")
