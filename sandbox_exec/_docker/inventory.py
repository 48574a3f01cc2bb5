"""What the engine says is there: the answers of ``inspect`` and ``ps`` as values.

An answer that cannot be read is an error of its own and never "missing": what is missing may be
made anew, and making it anew on top of a misunderstanding destroys files (hazard S3). Nor is an
empty answer "missing" by itself, as ``inspect`` prints one for a daemon that is down, too: see
:func:`sandbox_exec._docker.diagnose.absent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, cast

from attrs import field, frozen

from sandbox_exec._docker.answers import (
    Json,
    is_object,
    load,
    object_in,
    text_in,
    texts_in,
    unexpected,
)
from sandbox_exec._docker.moments import moment, rough_moment

__all__ = [
    "ContainerFacts",
    "EngineState",
    "ImageFacts",
    "Inventory",
    "ListedContainer",
    "parse_inspect",
    "parse_ps",
]


class EngineState(Enum):
    """The states a container can be in (hazard S7); podman's other words are folded into them."""

    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    CREATED = "created"
    RESTARTING = "restarting"
    REMOVING = "removing"
    DEAD = "dead"
    UNKNOWN = "unknown"


# podman 4.3: "stopped" is an exited container that was not cleaned up yet, "initialized" a created
# one that was prepared; "stopping" stays unknown, as it may be either side of the end.
_PODMAN_STATES: Final = {
    "stopped": EngineState.EXITED,
    "initialized": EngineState.CREATED,
    "configured": EngineState.CREATED,
}
_STATES: Final = {state.value: state for state in EngineState} | _PODMAN_STATES


@frozen
class ContainerFacts:
    """One container, as ``inspect`` describes it.

    :param image_id: the identity of the image it was made from, in the engine's spelling.
    :param created: when it was made, in epoch seconds of the daemon's clock, as all times here.
    :param started: when it last started; ``None`` if it never did.
    :param finished: when it last ended; ``None`` if it never did. It stays set in a container that
        runs again, and is ``None`` in a paused one (hazard F7): read it with ``state``.
    :param exec_ids: what runs in it by ``exec``.
    :param pid: PID 1 as the host sees it, 0 if there is none.
    :param user: the user it runs as; empty for the image's or root.
    """

    id: str
    name: str
    state: EngineState
    labels: Mapping[str, str]
    image_id: str
    created: float
    started: float | None
    finished: float | None
    exec_ids: tuple[str, ...] = ()
    pid: int = 0
    user: str = ""


@frozen
class ImageFacts:
    """One image, as ``inspect`` describes it.

    :param tags: the names it has; empty for one that lost its own.
    :param user: the user its containers run as unless told otherwise; empty for root.
    :param entrypoint: the program that swallows a command line, if it has one (hazard F17).
    """

    id: str
    tags: tuple[str, ...] = ()
    user: str = ""
    entrypoint: tuple[str, ...] = ()


@frozen
class Inventory:
    """What of the things asked for was found, in the order asked."""

    containers: tuple[ContainerFacts, ...] = ()
    images: tuple[ImageFacts, ...] = ()

    def container(self, name: str) -> ContainerFacts | None:
        """Return the container that has exactly this name or id, if it was found."""
        found = (facts for facts in self.containers if name in (facts.name, facts.id))
        return next(found, None)


@frozen
class ListedContainer:
    """One container, as ``ps`` lists it: enough to decide what to inspect.

    :param labels: docker prints them as one text, in which a comma inside a value cannot be told
        from one between two labels: decide by what ``inspect`` says.
    :param created: when it was made, to the second; ``None`` where the engine does not say.
    :param mounts: what is mounted in it: docker names what is outside, podman what is inside.
    """

    id: str
    name: str
    state: EngineState
    labels: Mapping[str, str] = field(factory=dict)
    created: float | None = None
    mounts: frozenset[str] = frozenset()


def _identity(of: Json, name: str) -> str:
    if not (value := text_in(of, name)):
        raise unexpected(name, value)
    return value


def _labels(value: object) -> Mapping[str, str]:
    """Return labels from a map, or from docker's ``a=b,c=d``."""
    if value is None:
        return {}
    if is_object(value) and all(isinstance(text, str) for text in value.values()):
        return cast("Mapping[str, str]", dict(value))
    if not isinstance(value, str):
        raise unexpected("Labels", value)
    labels: dict[str, str] = {}
    last = ""
    for part in value.split(",") if value else ():
        name, equals, text = part.partition("=")
        if equals or not last:
            last, labels[name] = name, text
        else:
            # A label always has its "=", so this is the rest of a value with a comma in it.
            labels[last] += f",{part}"
    return labels


def _state(value: object) -> EngineState:
    if not isinstance(value, str):
        raise unexpected("state", value)
    return _STATES.get(value.lower(), EngineState.UNKNOWN)


def _time(of: Json, name: str) -> float | None:
    """Return an RFC 3339 time in epoch seconds, and the year 1, Go's "never", as ``None``."""
    text = text_in(of, name, "")
    try:
        return moment(text) if text else None
    except ValueError:
        raise unexpected(name, text) from None


def _container(of: Json) -> ContainerFacts:
    state, config = object_in(of, "State"), object_in(of, "Config")
    created, pid = _time(of, "Created"), state.get("Pid", 0)
    if created is None:
        raise unexpected("Created", of.get("Created"))
    if not isinstance(pid, int) or isinstance(pid, bool):
        raise unexpected("Pid", pid)
    return ContainerFacts(
        id=_identity(of, "Id"),
        name=_identity(of, "Name").removeprefix("/"),
        state=_state(state.get("Status")),
        labels=_labels(config.get("Labels")),
        image_id=text_in(of, "Image"),
        created=created,
        started=_time(state, "StartedAt"),
        finished=_time(state, "FinishedAt"),
        exec_ids=texts_in(of, "ExecIDs"),
        pid=pid,
        user=text_in(config, "User", ""),
    )


def _image(of: Json) -> ImageFacts:
    config = object_in(of, "Config")
    return ImageFacts(
        id=_identity(of, "Id"),
        tags=texts_in(of, "RepoTags"),
        user=text_in(config, "User", ""),
        entrypoint=texts_in(config, "Entrypoint"),
    )


def parse_inspect(stdout: bytes) -> Inventory:
    """Read what ``inspect NAME IMAGE`` printed: those of the things named that exist (hazard F22).

    Each one says by its own fields what it is. ``inspect`` also finds networks, volumes, pods and
    more, and takes the first kind that has the name, so that none of them is the image just because
    it has the image's name; these are left out.

    :raises UnreadableAnswer: for anything that the command does not print.
    """
    answer = load(stdout)
    if not isinstance(answer, list):
        raise unexpected("form", answer)
    containers: list[ContainerFacts] = []
    images: list[ImageFacts] = []
    for item in answer:
        if not is_object(item):
            raise unexpected("element", item)
        if is_object(item.get("State")) and "Image" in item:
            containers.append(_container(item))
        elif "RepoTags" in item or "RootFS" in item:
            images.append(_image(item))
        elif not any(isinstance(item.get(key), str) for key in ("Id", "ID", "id", "Name", "name")):
            raise unexpected("element", item)
    return Inventory(tuple(containers), tuple(images))


def _listed(of: object) -> ListedContainer:
    if not is_object(of):
        raise unexpected("line", of)
    names = texts_in(of, "Names")
    return ListedContainer(
        id=_identity(of, "ID" if "ID" in of else "Id"),
        # docker prints the names of links to a container before its own, joined by commas.
        name=min(",".join(names).split(","), key=lambda name: name.count("/")),
        state=_state(of.get("State")),
        labels=_labels(of.get("Labels")),
        created=rough_moment(of.get("Created") or of.get("CreatedAt")),
        mounts=frozenset(",".join(texts_in(of, "Mounts")).split(",")) - {""},
    )


def parse_ps(stdout: bytes) -> tuple[ListedContainer, ...]:
    """Read what ``ps --format '{{json .}}'`` printed: docker's object a line, or podman's array.

    :raises UnreadableAnswer: for anything that the command does not print.
    """
    if stdout.lstrip().startswith(b"["):
        # podman 4.3 takes this very format for its own "json".
        items = cast("list[object]", load(stdout))
    else:
        items = [load(line) for line in stdout.splitlines() if line.strip()]
    return tuple(_listed(item) for item in items)
