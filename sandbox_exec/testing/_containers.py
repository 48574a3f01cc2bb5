"""A container and an image as the fake engine keeps them, and as ``inspect`` shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

from attrs import define, field, frozen

from sandbox_exec.testing._clock import NEVER, FakeClock

__all__ = ["Ended", "FakeContainer", "FakeDisk", "FakeImage", "Json"]

Json = dict[str, object]

_RUNNING: Final = frozenset({"running", "paused", "restarting"})


class Ended(Protocol):
    """Something that runs in a container and ends with it."""

    def cut(self, exit_code: int) -> None:
        """End now, without a word."""


@frozen
class FakeImage:
    """An image of a :class:`FakeDaemon`.

    :param name: repository and tag.
    :param user: the user its containers run as unless told otherwise.
    :param entrypoint: the program that would swallow a command line.
    """

    id: str
    name: str
    created: str
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(factory=dict)

    def inspect(self, *, tagged: bool) -> Json:
        """Return what ``inspect`` shows of it."""
        config = {
            "User": self.user,
            "Env": None,
            "Cmd": ["/bin/sh"],
            "Entrypoint": list(self.entrypoint) or None,
            "Labels": dict(self.labels) or None,
        }
        return {
            "Id": self.id,
            "RepoTags": [self.name] if tagged else [],
            "RepoDigests": [],
            "Created": self.created,
            "Config": config,
            "Architecture": "amd64",
            "Os": "linux",
            "Size": 1985617,
            "RootFS": {"Type": "layers", "Layers": [self.id]},
        }


@define(eq=False)
class FakeDisk:
    """A directory on the daemon's host that containers mount.

    :ivar changed: when its inode last changed, in epoch seconds; each start of a container does.
    """

    changed: float
    files: dict[str, bytes] = field(factory=dict)


@define(eq=False)
class FakeContainer:
    """A container of a :class:`FakeDaemon`. Look, but let the daemon's methods change it.

    :ivar state: the engine's word for it, e.g. ``running`` or ``exited``.
    :ivar flags: the flags it was made with, each with its values.
    :ivar files: the contents of its files by path; they outlive a stop, but those on a tmpfs.
    :ivar odd: what paths are that are no files to be read: ``special`` or ``denied``.
    :ivar background: commands that left a process running.
    :ivar starts: how often it was started.
    :ivar disks: what is mounted in it, by where.
    :ivar last_use: what its guests have noted, in the clock's seconds.
    :ivar retiring: its guest has decided to stop it.
    """

    id: str
    name: str
    image: FakeImage
    image_name: str
    labels: Mapping[str, str]
    command: tuple[str, ...]
    flags: Mapping[str, Sequence[str]]
    created: str
    clock: FakeClock = field(repr=False)
    state: str = "created"
    started: str = NEVER
    finished: str = NEVER
    exit_code: int = 0
    starts: int = 0
    files: dict[str, bytes] = field(factory=dict, repr=False)
    odd: dict[str, Literal["special", "denied"]] = field(factory=dict, repr=False)
    background: list[str] = field(factory=list)
    inhabitants: list[Ended] = field(factory=list, repr=False)
    disks: dict[str, FakeDisk] = field(factory=dict, repr=False)
    last_use: float = 0.0
    retiring: bool = False

    @property
    def running(self) -> bool:
        """Whether its PID 1 lives."""
        return self.state in _RUNNING

    @property
    def mounts(self) -> Mapping[str, str]:
        """Directories of the host by where they are inside."""
        found = {}
        for text in self.flags.get("--volume", ()):
            source, target, *_ = text.split(":")
            found[target] = source
        for text in self.flags.get("--mount", ()):
            parts = dict(part.partition("=")[::2] for part in text.split(","))
            at = parts.get("target") or parts.get("destination") or parts.get("dst")
            place = parts.get("source") or parts.get("src")
            if parts.get("type") == "bind" and at and place:
                found[at] = place
        return found

    @property
    def user(self) -> str:
        """The user it runs as, in the words of whoever made it."""
        return self._flag("--user", self.image.user)

    def start(self) -> None:
        """Bring it to life."""
        self.state = "running"
        self.started, self.exit_code = self.clock.stamp(), 0
        self.starts += 1
        self.last_use, self.retiring = self.clock(), False
        for disk in self.disks.values():
            disk.changed = self.clock.wall()

    def pause(self) -> None:
        """Freeze it."""
        self.state = "paused"

    def stop(self, exit_code: int = 137) -> None:
        """End everything in it."""
        self.state, self.exit_code = "exited", exit_code
        self.finished = self.clock.stamp()
        self.background.clear()
        for path in [path for path in self.files if self._on_tmpfs(path)]:
            del self.files[path]
        self.evacuate()

    def evacuate(self, exit_code: int = 137) -> None:
        """Cut the conversations that go on in it."""
        inhabitants, self.inhabitants = self.inhabitants, []
        for inhabitant in inhabitants:
            inhabitant.cut(exit_code)

    @property
    def workdir(self) -> str:
        """Where its processes start unless told otherwise."""
        return self._flag("--workdir", "/")

    def _on_tmpfs(self, path: str) -> bool:
        places = (text.partition(":")[0] for text in self.flags.get("--tmpfs", ()))
        return any(path.startswith(f"{place.rstrip('/')}/") for place in places)

    def _flag(self, name: str, default: str = "") -> str:
        values = self.flags.get(name)
        return values[-1] if values else default

    def _flags(self, name: str) -> list[str] | None:
        return list(self.flags.get(name, ())) or None

    def inspect(self) -> Json:
        """Return what ``inspect`` shows of it."""
        return {
            "Id": self.id,
            "Created": self.created,
            "Path": self.command[0],
            "Args": list(self.command[1:]),
            "State": self._state(),
            "Image": self.image.id,
            "Name": f"/{self.name}",
            "RestartCount": 0,
            "Driver": "overlay2",
            "Platform": "linux",
            "ExecIDs": self._exec_ids() or None,
            "HostConfig": self._host_config(),
            "Mounts": [
                {"Type": "bind", "Source": source, "Destination": target, "Mode": "", "RW": True}
                for target, source in self.mounts.items()
            ],
            "Config": {
                "User": self.user,
                "OpenStdin": True,
                "StdinOnce": False,
                "Env": self._flags("--env"),
                "Cmd": list(self.command[1:]),
                "Image": self.image_name,
                "WorkingDir": self._flag("--workdir"),
                "Entrypoint": [self.command[0]],
                "Labels": {**self.image.labels, **self.labels},
                "StopSignal": self._flag("--stop-signal"),
            },
        }

    def _exec_ids(self) -> list[str]:
        ids = (f"{self.id} {id(one)}".encode() for one in self.inhabitants)
        return [hashlib.sha256(text).hexdigest() for text in ids]

    def _state(self) -> Json:
        return {
            "Status": self.state,
            "Running": self.running,
            "Paused": self.state == "paused",
            "Restarting": self.state == "restarting",
            "OOMKilled": False,
            "Dead": self.state == "dead",
            "Pid": 4000 + int(self.id[:3], 16) if self.running else 0,
            "ExitCode": self.exit_code,
            "Error": "",
            "StartedAt": self.started,
            "FinishedAt": self.finished,
        }

    def _host_config(self) -> Json:
        memory, cpus = self._flag("--memory", "0"), self._flag("--cpus", "0")
        pids = self._flag("--pids-limit")
        return {
            "Binds": self._flags("--volume"),
            "LogConfig": {"Type": self._flag("--log-driver", "json-file"), "Config": {}},
            "NetworkMode": self._flag("--network", "default"),
            "AutoRemove": False,
            "CapAdd": self._flags("--cap-add"),
            "CapDrop": self._flags("--cap-drop"),
            "ExtraHosts": self._flags("--add-host"),
            "SecurityOpt": self._flags("--security-opt"),
            "Tmpfs": dict(text.partition(":")[::2] for text in self.flags.get("--tmpfs", ())),
            "Runtime": self._flag("--runtime", "runc"),
            "Memory": int(memory) if memory.isdigit() else memory,
            "MemorySwap": int(self._flag("--memory-swap", "0") or 0),
            "NanoCpus": round(float(cpus) * 1e9),
            "PidsLimit": int(pids) if pids else None,
        }

    def listing(self) -> Json:
        """Return what ``ps`` shows of it."""
        labels = {**self.image.labels, **self.labels}
        moment = self.created[:19].replace("T", " ")
        words = {"running": "Up 1 second", "paused": "Up 1 second (Paused)", "created": "Created"}
        return {
            "Command": f'"{" ".join(self.command)}"',
            "CreatedAt": f"{moment} +0000 UTC",
            "ID": self.id,
            "Image": self.image_name,
            "Labels": ",".join(f"{name}={value}" for name, value in labels.items()),
            "LocalVolumes": "0",
            "Mounts": ",".join(self.mounts.values()),
            "Names": self.name,
            "Networks": self._flag("--network", "bridge"),
            "Ports": "",
            "RunningFor": "1 second ago",
            "Size": "0B",
            "State": self.state,
            "Status": words.get(self.state, f"Exited ({self.exit_code}) 1 second ago"),
        }
