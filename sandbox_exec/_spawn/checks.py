"""What a spawn request may hold, checked before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, Final

from attrs import Attribute

from sandbox_exec._models import check_env, check_text
from sandbox_exec._paths import file_path

__all__ = [
    "arguments",
    "command",
    "directory",
    "environment",
    "keywords",
    "of",
    "placed",
    "refuse_extra",
    "signal_number",
    "to_extra",
    "to_files",
    "to_path",
    "to_tuple",
    "to_variables",
]

_LONGEST_WORD: Final = 131_071
"""Bytes of one argument: what Linux allows, less the NUL at its end (hazard F8)."""

_ALL_WORDS: Final = 2**20
"""Bytes of a command with its arguments, half of what Linux usually allows for everything."""

_EACH_WORD: Final = 9
"""Bytes that each argument takes besides its own: the NUL at its end, and a pointer to it."""

_SIGNALS: Final = range(1, 65)
"""The signals that Linux knows, real-time ones included."""


def _check_text(text: object, what: str) -> int:
    """Return the size in bytes of what can travel in a command line.

    The engine's API is JSON, in which bytes that are no UTF-8 cannot be said (hazard F8).
    """
    try:
        size = len(check_text(text, what).encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} contains a surrogate at index {error.start}") from None
    if size > _LONGEST_WORD:
        raise ValueError(f"{what} is {size} bytes long; at most {_LONGEST_WORD} are possible")
    return size


def command(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    """Refuse what names no program."""
    _check_text(value, "command")
    if not value or str(value).startswith("-"):
        raise ValueError(f"command must be the name of a program, not {value!r}")


def arguments(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    """Refuse what is no list of arguments, or does not fit into a command line."""
    if not isinstance(value, tuple):
        message = f"args must be a sequence of str, not {value!r}"
        raise ValueError(message)  # noqa: TRY004  # as above
    total = sum(_check_text(text, f"argument {number}") for number, text in enumerate(value, 1))
    total += _EACH_WORD * len(value)
    if total > _ALL_WORDS:
        raise ValueError(
            f"args take {total} bytes, {_EACH_WORD} besides its own for each of {len(value)}; at "
            f"most {_ALL_WORDS} are possible"
        )


def environment(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    """Refuse variables that cannot be handed on."""
    if value is None:
        return
    check_env(value)
    for name, text in dict(value).items():  # type: ignore[call-overload]  # a mapping by now
        _check_text(f"{name}={text}", f"env variable {name}")


def directory(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    """Refuse what cannot name a directory."""
    if value is not None:
        _check_text(value, "cwd")
        if not value:
            raise ValueError("cwd must not be empty")


def placed(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    """Refuse what is no map of absolute paths to bytes."""
    if not isinstance(value, Mapping):
        message = f"files must map absolute paths to bytes, not {value!r}"
        raise ValueError(message)  # noqa: TRY004  # as above
    for path, data in value.items():
        file_path(path)
        if not path.startswith("/") or not isinstance(data, bytes):
            raise ValueError(f"files must map absolute paths to bytes, unlike {path!r}")


def keywords(_instance: object, _attribute: Attribute[Any], value: object) -> None:
    """Refuse what is no map of keyword arguments."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        message = f"extra must map names to values, not {value!r}"
        raise ValueError(message)  # as above


def of(kind: type) -> Callable[[object, Attribute[Any], object], None]:
    """Return what refuses everything but values of one type."""

    def check(_instance: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            message = f"{attribute.name} must be {kind.__name__}, not {type(value).__name__}"
            raise ValueError(message)  # noqa: TRY004  # as above

    return check


# What is of another type is handed on by these, for the validators to refuse.
def to_tuple(value: Sequence[str]) -> tuple[str, ...]:
    """Return a list as a tuple."""
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]  # as above


def to_variables(value: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return variables, if there are any, as a copy that nobody can change."""
    return MappingProxyType(dict(value)) if isinstance(value, Mapping) else value


def to_files(value: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return contents by path as a copy that nobody can change."""
    given: object = value
    return MappingProxyType(dict(value)) if isinstance(given, Mapping) else value


def to_extra(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return keyword arguments as a copy that nobody can change."""
    given: object = value
    return MappingProxyType(dict(value)) if isinstance(given, Mapping) else value


def to_path(value: str | PathLike[str] | None) -> str | None:
    """Return a path object as text."""
    return fspath(value) if isinstance(value, PathLike) else value


def signal_number(given: object) -> int:
    """Return a signal as the number that it has on Linux, which is what runs inside.

    :raises ValueError: for what is none.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given not in _SIGNALS:
        raise ValueError(f"signal must be one of 1 to {_SIGNALS[-1]}, not {given!r}")
    return int(given)


def refuse_extra(extra: Mapping[str, object]) -> None:
    """Refuse keyword arguments for whoever starts the process, where that is the library.

    :raises ValueError: for any.
    """
    if extra:
        raise ValueError(f"spawn starts the process itself and takes no {', '.join(sorted(extra))}")
