"""What ``_guest/tidy.sh`` does, verb for verb, to the directories of the fake engine's host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import frozen

from sandbox_exec._docker.interface import Completed
from sandbox_exec._guest import tidy_command
from sandbox_exec._naming import is_key
from sandbox_exec.testing._containers import FakeContainer, FakeDisk
from sandbox_exec.testing._store import Store

__all__ = ["tidy"]

_TEXT: Final = tidy_command("", 0, "")[1]
_STAMPS: Final = ".last-use"
_LEFTOVER: Final = 600


@frozen
class _Root:
    """One directory of the host that holds workspaces."""

    store: Store
    path: str

    @property
    def now(self) -> int:
        return int(self.store.clock.wall())

    def at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def names(self) -> list[str]:
        above = f"{self.path}/"
        return sorted(
            path.removeprefix(above) for path in self.store.disks if path.startswith(above)
        )

    def disk(self, name: str) -> FakeDisk | None:
        return self.store.disks.get(self.at(name))

    def move(self, old: str, new: str) -> None:
        disk = self.store.disks.pop(self.at(old))
        disk.changed = self.store.clock.wall()
        self.store.disks[self.at(new)] = disk

    def drop(self, name: str) -> None:
        self.store.disks.pop(self.at(name), None)

    def drop_old(self, name: str, disk: FakeDisk) -> None:
        if self.now - int(disk.changed) >= _LEFTOVER:
            self.drop(name)

    @property
    def stamps(self) -> dict[str, bytes]:
        disk = self.store.disks.setdefault(self.at(_STAMPS), FakeDisk(self.store.clock.wall()))
        return disk.files

    def used(self, key: str, disk: FakeDisk) -> int:
        stamp = int(self.stamps.setdefault(key, str(self.now).encode()))
        return max(int(disk.changed), stamp)

    def aside(self, key: str) -> list[str]:
        return [name for name in self.names() if name.startswith(f".aside-{key}.")]


def _close(_root: _Root, _arguments: Iterable[str]) -> str:
    return ""


def _pairs(arguments: Iterable[str]) -> Iterable[tuple[str, int]]:
    for pair in arguments:
        key, _, seconds = pair.partition("=")
        yield key, int(seconds)


def _stamp(root: _Root, arguments: Iterable[str]) -> str:
    stamps = root.stamps
    for key, seconds in _pairs(arguments):
        if int(stamps.get(key, b"0")) < seconds:
            stamps[key] = str(seconds).encode()
    return ""


def _look(root: _Root, _arguments: Iterable[str]) -> str:
    lines = [f"now {root.now}"]
    names = root.names()
    for name in names:
        disk = root.disk(name)
        if disk is not None and is_key(name):
            lines.append(f"{name} {root.used(name, disk)}")
        elif name.startswith(".aside-"):
            lines.append("aside " + " ".join(name.removeprefix(".aside-").split(".")))
        elif disk is not None and name.startswith(".removed-"):
            root.drop_old(name, disk)
    for key in [key for key in root.stamps if key not in names]:
        del root.stamps[key]
    return "".join(f"{line}\n" for line in lines)


def _aside(root: _Root, arguments: Iterable[str]) -> str:
    suffix, *pairs = arguments
    moved = []
    for key, seconds in _pairs(pairs):
        disk = root.disk(key)
        if disk is not None and root.used(key, disk) <= seconds:
            root.move(key, f".aside-{key}.{suffix}")
            moved.append(key)
    return "".join(f"{key}\n" for key in moved)


def _back(root: _Root, arguments: Iterable[str]) -> str:
    suffix, *keys = arguments
    for key in keys:
        name = f".aside-{key}.{suffix}"
        if root.disk(key) is None and root.disk(name) is not None:
            root.move(name, key)
    return ""


def _delete(root: _Root, arguments: Iterable[str]) -> str:
    suffix, *keys = arguments
    for key in keys:
        root.drop(f".aside-{key}.{suffix}")
        if root.disk(key) is None:
            root.stamps.pop(key, None)
    return ""


def _dispose(root: _Root, arguments: Iterable[str]) -> str:
    _, key = arguments
    for name in (key, *root.aside(key)):
        root.drop(name)
    root.stamps.pop(key, None)
    return ""


_VERBS: Final[Mapping[str, Callable[[_Root, Iterable[str]], str]]] = {
    "aside": _aside,
    "back": _back,
    "close": _close,
    "delete": _delete,
    "dispose": _dispose,
    "look": _look,
    "stamp": _stamp,
}


def tidy(store: Store, container: FakeContainer) -> Completed:
    """Do what a tool's container was made for; any other tool is taken to have done its work."""
    shell, *words = container.command
    if shell != "sh" or words[:2] != ["-c", _TEXT]:
        return Completed(0)
    mounted, _, verb, *arguments = words[3:]
    root = _Root(store, container.mounts[mounted])
    return Completed(0, _VERBS[verb](root, arguments).encode())
