"""The command line and the environment that run a process inside: pure functions of what is wanted.

None of the caller's variables is in either by its own name. They travel as shell text in variables
of ours, which only the wrapper inside reads: so ``PATH`` or ``DOCKER_HOST`` given for a process
does not change what the engine's program is, or which engine it speaks to (hazards B2, R7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.interface import Argv
from sandbox_exec._frames import exports
from sandbox_exec._guest import SPAWN_VARIABLE, spawn_command, spawn_script

__all__ = ["ANY_START", "ENV_BYTES", "Line", "check_environment", "spawn_line"]

ENV_BYTES: Final = 512 * 1024
"""The most that the variables of a process may take, quoted for a shell."""

ANY_START: Final = "-"
"""In place of a start of the container, for what any may run."""

_PIECE: Final = 100_000
_NO_CLIENT: Final = "-"


@frozen
class Line:
    """How to start a process inside.

    :param argv: the engine's command line, without the program itself.
    :param env: variables for that program, on top of its own.
    """

    argv: Argv
    env: Mapping[str, str] = field(repr=False)


def spawn_line(
    container: str,
    *,
    mark: str,
    cwd: str,
    env: Mapping[str, str] | None,
    command: Sequence[str],
    nonce: str = _NO_CLIENT,
    start: str = ANY_START,
) -> Line:
    """Return how to start ``command`` in a container.

    :param mark: a tag, or a number and a tag.
    :param cwd: where it starts; nothing for the image's own directory.
    :param start: the only start of the container in which it may run.
    :param nonce: of a client that listens; without one, it looks like the command itself.
    """
    pieces = _pieces(_text(env))
    variables = {f"SANDBOX_EXEC_ENV{n}": piece for n, piece in enumerate(pieces)}
    words = (mark, nonce, cwd, start, str(len(pieces)), *command)
    argv = command_line.exec_stdin(
        container,
        variables=(SPAWN_VARIABLE, *variables),
        user=None,
        command=("sh", *spawn_command(*words)),
        workdir="/" if cwd else None,
    )
    return Line(argv, {SPAWN_VARIABLE: spawn_script(), **variables})


def check_environment(env: Mapping[str, str] | None) -> None:
    """Refuse more variables than can be carried.

    :raises ValueError: for more than :data:`ENV_BYTES` of them (hazard F8).
    """
    if (size := len(_text(env).encode())) > ENV_BYTES:
        raise ValueError(f"env takes {size} bytes; at most {ENV_BYTES} are possible")


def _text(env: Mapping[str, str] | None) -> str:
    return exports({name: value.encode() for name, value in (env or {}).items()}).decode()


def _pieces(text: str) -> tuple[str, ...]:
    """Cut text into what fits into a variable each, whatever its characters take."""
    pieces, rest = [], text
    while rest:
        size = _PIECE
        while len(rest[:size].encode()) > _PIECE:
            size //= 2
        pieces.append(rest[:size])
        rest = rest[size:]
    return tuple(pieces)
