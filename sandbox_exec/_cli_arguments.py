"""The words after ``sandbox-exec``: what they may be, and the settings and the call they mean."""

from __future__ import annotations

import argparse
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final, NoReturn

from attrs import fields_dict

from sandbox_exec._cli_doctor import add_doctor
from sandbox_exec._cli_files import add_verbs
from sandbox_exec._cli_output import FAILED, PROGRAM, TIMED_OUT, line
from sandbox_exec._config import SandboxConfig
from sandbox_exec._models import MAX_STDIN_BYTES, ExecSpec
from sandbox_exec._tool_text import size_in_words

__all__ = ["Parser", "config_of", "engine_of", "make_parser", "spec_of"]

DEFAULT_IMAGE: Final = "debian:stable-slim"

_DESCRIPTION: Final = "Run commands in sandboxes: docker containers with limits."

_VARIABLE: Final = "a variable for the command, any number of times; without =VALUE, our own value"
_EPILOG: Final = f"""\
One word after -- is a shell command line; several words are one command and its arguments, quoted.
Exit status: the command's own; 2 wrong arguments; {TIMED_OUT} killed by its time limit;
{FAILED} the sandbox failed, or refused; 128+N ended by signal N. --json tells these from a command
that exits with the same number.
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and a line."""
        self.exit(2, line(message))


def engine_of(options: argparse.Namespace) -> str | None:
    """Return the engine's program that the options or the environment name, if either does."""
    return getattr(options, "engine", None) or os.environ.get("SANDBOX_EXEC_ENGINE") or None


def config_of(options: argparse.Namespace) -> SandboxConfig:
    """Return the settings that the options and the environment mean.

    :raises ValueError: for a setting that cannot work.
    """
    given = vars(options)
    settings = {name: given[name] for name in fields_dict(SandboxConfig) if name in given}
    settings.setdefault("image", os.environ.get("SANDBOX_EXEC_IMAGE") or DEFAULT_IMAGE)
    if engine := engine_of(options):
        settings["engine"] = engine
    if (timeout := given.get("timeout")) is not None:
        # Whoever asks for an hour gets it: the maximum is there for models.
        settings.update(default_timeout=timeout, max_timeout=timeout)
    return SandboxConfig(**settings)


def spec_of(options: argparse.Namespace, words: Sequence[str]) -> ExecSpec:
    """Return the call that the options of ``run`` and the words after ``--`` mean.

    :raises ValueError: for one that cannot be made.
    """
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


def make_parser() -> Parser:
    """Return the parser of all that stands before ``--``."""
    parser = Parser(prog=PROGRAM, description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=version(PROGRAM))
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="run|put|get|harvest|rm|info|doctor"
    )
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
    add(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help=f"the command's time limit, of any length (default: {_default('default_timeout'):g})",
    )
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help=_VARIABLE)
    add(
        "--cwd",
        metavar="DIR",
        help="where to run; relative to /workspace; made if missing (default: /workspace)",
    )
    add("--user", metavar="NAME|UID[:GROUP]", help="whom to run as (default: root)")
    add("--stdin", action="store_true", help="read our standard input, pass it on")
    add("--json", action="store_true", help="print one JSON object with all that is known")
    files = add_verbs(verbs.add_parser)
    remove = verbs.add_parser("rm", help="remove a session's sandbox and files", allow_abbrev=False)
    remove.add_argument("session", metavar="SESSION", help="whose sandbox")
    info = verbs.add_parser("info", help="say what a sandbox is given", allow_abbrev=False)
    info.add_argument("--json", action="store_true", help="print one JSON object")
    doctor = add_doctor(verbs.add_parser)
    for verb in (run, *files, remove, info, doctor):
        _add_settings(verb, of_a_sandbox=verb is not remove, of_output=verb is run)
    return parser


def _default(name: str) -> Any:  # noqa: ANN401  # each setting's own type
    return fields_dict(SandboxConfig)[name].default


def _add_settings(parser: argparse.ArgumentParser, *, of_a_sandbox: bool, of_output: bool) -> None:
    """Add the options that are settings; those left out stay out, for the defaults to hold.

    :param of_a_sandbox: also those that only matter where one is made.
    :param of_output: also those that only matter where a command prints.
    """
    group = parser.add_argument_group("settings", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    image = f"default: $SANDBOX_EXEC_IMAGE, else {DEFAULT_IMAGE}"
    purpose = "what it is made from" if of_a_sandbox else "whose rm clears a --workspace-root"
    add("--image", help=f"{purpose} ({image})")
    if of_a_sandbox:
        add("--network", action="store_true", help="give it a network (default: none)")
        memory = size_in_words(_default("memory"))
        add("--memory", metavar="SIZE", help=f"such as 64m; no swap beyond it (default: {memory})")
        add("--runtime", metavar="NAME", help="the OCI runtime, such as runsc (default: engine's)")
    if of_output:
        add(
            "--max-output-bytes",
            type=int,
            metavar="BYTES",
            help=f"kept of each stream (default: {_default('max_output_bytes')})",
        )
    add(
        "--workspace-root",
        metavar="DIR",
        help="keep /workspace here, on the engine's host (default: in the container)",
    )
    add(
        "--engine",
        metavar="PROGRAM",
        help=f"its command line (default: $SANDBOX_EXEC_ENGINE, else {_default('engine')})",
    )
    add(
        "--docker-host",
        metavar="URL",
        help="which daemon, as DOCKER_HOST would say it (default: the environment's)",
    )
    add(
        "--deployment",
        metavar="NAME",
        help=f"the namespace that sessions belong to (default: {_default('deployment')})",
    )
    parser.add_argument("--verbose", action="store_true", help="log more than warnings, to stderr")
