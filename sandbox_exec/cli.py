"""The ``sandbox-exec`` command: sandboxes from a shell."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO, TypeVar

import anyio
import structlog
from anyio import CancelScope, create_task_group, open_signal_receiver

from sandbox_exec._cli_arguments import Parser, config_of, engine_of, make_parser, spec_of
from sandbox_exec._cli_doctor import checks, report
from sandbox_exec._cli_files import VERBS, check, work
from sandbox_exec._cli_output import FAILED, Printout, failed, finished, line, shape
from sandbox_exec._docker.engine import cli_environment
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._errors import SandboxError
from sandbox_exec._executor import LocalDockerExecutor
from sandbox_exec._naming import session_key

__all__ = ["main"]

T = TypeVar("T")


class _Signalled(Exception):  # noqa: N818  # not an error of anybody's
    """A signal asked this process to end; everything it had begun has been ended."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(argv: Sequence[str] | None = None, *, runner: CommandRunner | None = None) -> int:
    """Run the command line and return its exit status.

    :param argv: the arguments; ``None`` for this process's own.
    :param runner: what starts the engine's program; for tests.
    :raises SystemExit: for wrong arguments, as argparse does.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        printout = _answer(make_parser(), words, runner)
    except _Signalled as signalled:
        return 128 + signalled.number
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    try:
        _write(sys.stdout, printout.stdout)
    except OSError as error:
        printout = Printout(stderr=line(f"standard output: {error.strerror}"), status=FAILED)
    with suppress(OSError):
        _write(sys.stderr, printout.stderr)
    return printout.status


def _answer(parser: Parser, words: Sequence[str], runner: CommandRunner | None) -> Printout:
    # argparse has its own ideas about what follows "--", which differ from version to version.
    flags, command = list(words), []
    if words[:1] == ["run"] and "--" in words:
        cut = flags.index("--")
        flags, command = flags[:cut], flags[cut + 1 :]
    options = parser.parse_args(flags)
    if options.verb == "doctor":
        return _doctor(parser, options, runner)
    try:
        executor = LocalDockerExecutor(config_of(options), runner=runner, reaps=False)
        spec = spec_of(options, command) if options.verb == "run" else None
        if options.verb == "rm":
            session_key(options.session)  # for its opinion on the id
        elif options.verb in VERBS:
            check(options)
    except ValueError as error:
        parser.error(str(error))
    if options.verb == "info":
        return shape(executor.kind, executor.info, as_json=options.json)
    _log_to_stderr(verbose=options.verbose)
    as_json = options.verb == "run" and options.json
    try:
        if options.verb in VERBS:
            return Printout(anyio.run(_within, executor, work(executor, options)))
        if spec is None:
            anyio.run(_within, executor, partial(executor.dispose_session, options.session))
            return Printout()
        result = anyio.run(_within, executor, partial(executor.run, spec))
    except (SandboxError, ValueError) as error:
        return failed(error, as_json=as_json)
    # The time limit, if one is given, is the default of this executor.
    return finished(result, limit=executor.info.default_timeout, as_json=as_json)


def _doctor(parser: Parser, options: argparse.Namespace, runner: CommandRunner | None) -> Printout:
    try:
        config = config_of(options)
    except ValueError as error:
        parser.error(str(error))
    _log_to_stderr(verbose=options.verbose)
    if runner is None:
        environment = cli_environment(os.environ, docker_host=config.docker_host)
        runner = SubprocessRunner(environment)
    work = partial(checks, config, override=engine_of(options), runner=runner)
    return report(anyio.run(_unless_signalled, work), as_json=options.json)


async def _within(executor: LocalDockerExecutor, work: Callable[[], Awaitable[T]]) -> T:
    """Open the executor and await ``work``."""

    async def opened() -> T:
        async with executor:
            return await work()

    return await _unless_signalled(opened)


async def _unless_signalled(work: Callable[[], Awaitable[T]]) -> T:
    """Await ``work``; a signal cancels it, which ends the command inside."""
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
                results.append(await work())
            except (SandboxError, ValueError) as error:
                failures.append(error)  # raised below, outside of the group
            group.cancel_scope.cancel()
    if results:
        return results[0]
    if received:
        raise _Signalled(received[0])
    raise failures[0]


def _write(stream: TextIO | None, text: str) -> None:
    """Write UTF-8 whatever the locale; whoever stopped reading, or never began, is not told.

    :raises OSError: for a full disk and its like.
    """
    if stream is None:  # closed by whoever started us
        return
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
    level = logging.DEBUG if verbose else logging.WARNING
    # structlog takes no stream for standard output.
    nowhere = structlog.ReturnLoggerFactory()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr) if sys.stderr else nowhere,
    )
