"""JSON that an engine printed, read with suspicion: what none prints is an error of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeGuard, cast

__all__ = [
    "Json",
    "UnreadableAnswer",
    "flag_in",
    "is_object",
    "load",
    "object_in",
    "text_in",
    "texts_in",
    "unexpected",
]

Json = Mapping[str, object]


class UnreadableAnswer(ValueError):  # noqa: N818  # an answer of its own, named as one
    """The engine's answer is not what it prints: nothing is known, least of all that it is gone."""


def is_object(value: object) -> TypeGuard[Json]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def load(text: bytes) -> object:
    """Return what a text is as JSON.

    :raises UnreadableAnswer: for any that is not, also one that is nested without end.
    """
    try:
        return cast("object", json.loads(text.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"the engine's answer is not JSON: {error}") from None


def unexpected(name: str, value: object) -> UnreadableAnswer:
    """Return the error for a value that an engine does not print there."""
    return UnreadableAnswer(f"the engine's answer has an unexpected {name}: {str(value)[:80]!r}")


def object_in(of: Json, name: str) -> Json:
    """Return a nested object; newer engines leave empty ones out."""
    value = of.get(name)
    if value is None:
        return {}
    if not is_object(value):
        raise unexpected(name, value)
    return value


def text_in(of: Json, name: str, default: str | None = None) -> str:
    """Return a text; with a ``default``, it may be absent."""
    value = of.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise unexpected(name, value)
    return value


def texts_in(of: Json, name: str) -> tuple[str, ...]:
    """Return a list of texts; podman 4.3 prints a list of one as that one."""
    value = of.get(name)
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(cast("list[str]", value))
    raise unexpected(name, value)


def flag_in(of: Json, name: str) -> bool | None:
    """Return a flag, ``None`` for one that is not there."""
    value = of.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise unexpected(name, value)
