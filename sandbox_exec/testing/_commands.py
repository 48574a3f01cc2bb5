"""The command lines the fake understands: exactly those that the library builds.

Anything else is a failure of the test that runs into it, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from attrs import field, frozen

from sandbox_exec._docker.interface import Argv

__all__ = ["Command", "Create", "Exec", "UnknownArgv", "parse"]

_SWITCHES: Final = frozenset({"--init", "--no-healthcheck", "--read-only", "--oom-kill-disable"})
_VALUED: Final = frozenset(
    {
        *("--runtime", "--network", "--add-host", "--dns", "--hostname", "--ipc", "--pid"),
        *("--user", "--group-add", "--cap-add", "--cap-drop", "--security-opt", "--userns"),
        *("--cpus", "--memory", "--memory-swap", "--pids-limit", "--ulimit", "--shm-size"),
        *("--volume", "--mount", "--tmpfs", "--storage-opt", "--workdir", "--device"),
        *("--log-driver", "--log-opt", "--stop-signal", "--stop-timeout", "--restart"),
        *("--env", "--label", "--entrypoint", "--name", "--pull"),
    }
)


class UnknownArgv(AssertionError):  # noqa: N818  # a test's own failure, named as what was met
    """A command line, or a request to a guest, that the fake does not know."""


@frozen
class Command:
    """One engine command.

    :param verb: what it is called in scripted faults.
    :param names: the containers or images it is about.
    :param force: whether it was told to insist.
    """

    verb: str
    names: tuple[str, ...] = ()
    force: bool = False


@frozen
class Create(Command):
    """``run``: makes a container.

    :param kind: ``detached``, ``attached`` (a guest's conversation) or ``tool``.
    :param flags: each flag with its values, in order.
    """

    kind: str = "detached"
    flags: Mapping[str, Sequence[str]] = field(factory=dict)
    image: str = ""
    command: tuple[str, ...] = ()

    def flag(self, name: str) -> str | None:
        """Return the last value of a flag."""
        values = self.flags.get(name)
        return values[-1] if values else None


@frozen
class Exec(Command):
    """``exec``: starts a guest, or a spawned process, in a container."""

    variables: tuple[str, ...] = ()
    user: str | None = None
    command: tuple[str, ...] = ()


class _Words:
    """A command line that is read from the left."""

    def __init__(self, argv: Argv) -> None:
        self._argv = argv
        self._rest = list(argv[1:])

    def unknown(self, why: str) -> UnknownArgv:
        return UnknownArgv(f"the fake engine does not know this command line ({why}): {self._argv}")

    def take(self, what: str = "a word") -> str:
        if not self._rest:
            raise self.unknown(f"{what} is missing")
        return self._rest.pop(0)

    def expect(self, *words: str) -> None:
        for word in words:
            if (found := self.take(word)) != word:
                raise self.unknown(f"{found!r} where {word!r} belongs")

    def accept(self, *words: str) -> bool:
        if tuple(self._rest[: len(words)]) != words:
            return False
        del self._rest[: len(words)]
        return True

    def next_is_flag(self) -> bool:
        return bool(self._rest) and self._rest[0].startswith("-")

    def rest(self, *, least: int = 0) -> tuple[str, ...]:
        rest, self._rest = tuple(self._rest), []
        if len(rest) < least:
            raise self.unknown("too short")
        return rest

    def names(self) -> tuple[str, ...]:
        names = self.rest(least=1)
        if flags := [name for name in names if name.startswith("-") or not name]:
            raise self.unknown(f"{flags[0]!r} where a name belongs")
        return names

    def name(self) -> str:
        (name, *more) = self.names()
        if more:
            raise self.unknown("more than one name")
        return name


def _inspect(words: _Words) -> Command:
    return Command("inspect", words.names())


def _image(words: _Words) -> Command:
    words.expect("inspect")
    return Command("image inspect", (words.name(),))


def _version(words: _Words) -> Command:
    words.expect("--format", "{{json .}}")
    return _finished(words, Command("version"))


def _context(words: _Words) -> Command:
    words.expect("inspect", "--format", "{{json .}}")
    return _finished(words, Command("context inspect"))


def _info(words: _Words) -> Command:
    words.expect("--format", "{{json .}}")
    return _finished(words, Command("info"))


def _pull(words: _Words) -> Command:
    words.expect("--quiet")
    return Command("pull", (words.name(),))


def _simple(verb: str, *flags: str) -> Callable[[_Words], Command]:
    def parse_simple(words: _Words) -> Command:
        words.expect(*flags)
        return Command(verb, (words.name(),))

    return parse_simple


def _stop(words: _Words) -> Command:
    words.expect("-t", "0")
    return Command("stop", words.names())


def _remove(words: _Words) -> Command:
    force = words.accept("--force")
    words.expect("--volumes")
    return Command("rm", words.names(), force)


def _top(words: _Words) -> Command:
    name = words.take("a name")
    words.expect("-eo", "pid")
    return _finished(words, Command("top", (name,)))


def _list(words: _Words) -> Command:
    words.expect("--all", "--no-trunc")
    filters = []
    while words.accept("--filter"):
        text = words.take("a filter")
        if not text.startswith(("label=", "name=", "status=", "id=")):
            raise words.unknown(f"filter {text!r}")
        filters.append(text)
    words.expect("--format", "{{json .}}")
    return _finished(words, Command("ps", tuple(filters)))


def _exec(words: _Words) -> Command:
    words.expect("--interactive")
    words.accept("--workdir", "/")
    user = words.take("a user") if words.accept("--user") else None
    variables = []
    while words.accept("--env"):
        variables.append(words.take("a variable"))
    if words.next_is_flag() or not variables:
        raise words.unknown("a variable belongs there")
    name, taken = words.take("a name"), tuple(variables)
    return Exec("exec", (name,), variables=taken, user=user, command=words.rest(least=1))


def _run(words: _Words) -> Command:
    if words.accept("--detach", "--interactive"):
        kind = "detached"
    elif words.accept("--rm", "--interactive"):
        kind = "attached"
    else:
        words.expect("--rm")
        kind = "tool"
    flags: dict[str, list[str]] = {}
    while words.next_is_flag():
        flag = words.take()
        if flag in _SWITCHES:
            flags.setdefault(flag, []).append("true")
        elif flag in _VALUED:
            flags.setdefault(flag, []).append(words.take(f"the value of {flag}"))
        else:
            raise words.unknown(f"flag {flag!r}")
    for needed, value in (("--name", None), ("--pull", "never"), ("--entrypoint", None)):
        if len(flags.get(needed, ())) != 1 or value not in (None, flags[needed][0]):
            raise words.unknown(f"{needed} belongs there once")
    image, *arguments = words.rest(least=1)
    return Create(
        "run" if kind == "detached" else "run --rm",
        (flags["--name"][0],),
        kind=kind,
        flags=flags,
        image=image,
        command=(flags["--entrypoint"][0], *arguments),
    )


_C = TypeVar("_C", bound=Command)


def _finished(words: _Words, command: _C) -> _C:
    if rest := words.rest():
        raise words.unknown(f"{rest[0]!r} at the end")
    return command


_PARSERS: Final[Mapping[str, Callable[[_Words], Command]]] = {
    "context": _context,
    "exec": _exec,
    "image": _image,
    "info": _info,
    "inspect": _inspect,
    "ps": _list,
    "pull": _pull,
    "restart": _simple("restart", "-t", "0"),
    "rm": _remove,
    "run": _run,
    "start": _simple("start"),
    "stop": _stop,
    "top": _top,
    "unpause": _simple("unpause"),
    "version": _version,
}


def parse(argv: Argv) -> Command:
    """Return what a command line, program first, asks for.

    :raises UnknownArgv: for any that the library does not build.
    """
    words = _Words(argv)
    verb = words.take("a command")
    if verb not in _PARSERS:
        raise words.unknown(f"command {verb!r}")
    return _PARSERS[verb](words)
