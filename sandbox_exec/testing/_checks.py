"""What the fake engine insists on before it opens a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sandbox_exec._docker.interface import Argv
from sandbox_exec._guest import (
    GUEST_VARIABLE,
    SPAWN_VARIABLE,
    WORKSPACE,
    bootstrap,
    guest_script,
    spawn_command,
    spawn_script,
)
from sandbox_exec.testing._commands import Command, Create, Exec, UnknownArgv

__all__ = ["SPAWN_WORDS", "check_conversation"]

SPAWN_WORDS: Final = 1 + len(spawn_command())
"""Words of a spawned process's command line before the wrapper's own arguments."""

_LEAST: Final = 4  # mark, nonce, directory and pieces, before the command


def check_conversation(argv: Argv, command: Command, env: Mapping[str, str]) -> None:
    """Refuse to open anything but a guest or a spawned process, each with its own text.

    :raises UnknownArgv: for anything else.
    """
    if isinstance(command, Exec) and SPAWN_VARIABLE in command.variables:
        _check_spawned(argv, command, env)
        return
    if isinstance(command, Exec):
        variables: Iterable[str] = command.variables
    elif isinstance(command, Create) and command.kind == "attached":
        variables = command.flags.get("--env", ())
    else:
        raise UnknownArgv(f"this is no conversation: {argv}")
    guests = {("sh", *bootstrap(home)) for home in (WORKSPACE, "")}
    if command.command not in guests or GUEST_VARIABLE not in variables:
        raise UnknownArgv(f"this does not start a guest: {argv}")
    if env.get(GUEST_VARIABLE) != guest_script():
        raise UnknownArgv(f"the variable {GUEST_VARIABLE} does not hold the guest")


def _check_spawned(argv: Argv, command: Exec, env: Mapping[str, str]) -> None:
    words = command.command[SPAWN_WORDS:]
    known = command.command[:SPAWN_WORDS] == ("sh", *spawn_command()) and len(words) > _LEAST
    if not known or env.get(SPAWN_VARIABLE) != spawn_script():
        raise UnknownArgv(f"this does not spawn a process: {argv}")
    if missing := [name for name in command.variables if name not in env]:
        raise UnknownArgv(f"the variables {missing} are not there to be handed on")
