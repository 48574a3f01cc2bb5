"""The containers and images of the fake engine, and what may be done to them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from attrs import define, field

from sandbox_exec.testing._clock import FakeClock
from sandbox_exec.testing._commands import Create, Exec
from sandbox_exec.testing._containers import FakeContainer, FakeDisk, FakeImage

__all__ = ["DAEMON", "Refused", "Store", "with_tag"]

DAEMON: Final = "Error response from daemon: "


class Refused(Exception):  # noqa: N818  # an answer of the engine's
    """The engine does not do it, and says why."""


def with_tag(name: str) -> str:
    """Return a reference with its tag."""
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"


@define
class Store:
    """The containers and images there are, and what commands do to them."""

    clock: FakeClock
    containers: dict[str, FakeContainer] = field(factory=dict)
    images: dict[str, FakeImage] = field(factory=dict)
    tags: dict[str, str] = field(factory=dict)
    registry: set[str] = field(factory=set)
    disks: dict[str, FakeDisk] = field(factory=dict)
    ignored: set[str] = field(factory=set)
    quotas: bool = False
    host: str = ""
    # Not on any disk that a process here could look at.
    data_root: str = "/dev/null/docker"
    made: int = 0

    def add_image(
        self,
        name: str,
        *,
        user: str = "",
        entrypoint: tuple[str, ...] = (),
        labels: Mapping[str, str] | None = None,
    ) -> FakeImage:
        """Make an image; one that has the name already loses it."""
        image = FakeImage(
            f"sha256:{self._new_id()}",
            with_tag(name),
            self.clock.stamp(),
            user,
            tuple(entrypoint),
            dict(labels or {}),
        )
        self.images[image.id] = image
        self.tags[image.name] = image.id
        return image

    def untag(self, name: str) -> None:
        """Take an image's name away; the image stays for the containers made from it."""
        del self.tags[with_tag(name)]

    def image(self, name: str) -> FakeImage | None:
        """Return an image by name or identity."""
        found = self.tags.get(with_tag(name), name)
        return self.images.get(found) or self.images.get(f"sha256:{name}")

    def container(self, name: str) -> FakeContainer | None:
        """Return a container by name, identity or its beginning."""
        if name in self.containers:
            return self.containers[name]
        short = re.fullmatch(r"[0-9a-f]{12,64}", name)
        found = [one for one in self.containers.values() if short and one.id.startswith(name)]
        return found[0] if len(found) == 1 else None

    def create(self, command: Create) -> FakeContainer:
        """Make a container without starting it.

        :raises Refused: for a missing image or a name that is taken.
        """
        name = command.names[0]
        image = self.image(command.image)
        if image is None:
            raise Refused(f"{DAEMON}No such image: {with_tag(command.image)}")
        if name in self.containers:
            raise Refused(
                f'{DAEMON}Conflict. The container name "/{name}" is already in use by container '
                f'"{self.containers[name].id}". You have to remove (or rename) that container to '
                "be able to reuse that name."
            )
        if command.flags.get("--storage-opt") and not self.quotas:
            raise Refused(
                f"{DAEMON}--storage-opt is supported only for overlay over xfs with 'pquota' "
                "mount option"
            )
        labels = dict(text.partition("=")[::2] for text in command.flags.get("--label", ()))
        container = FakeContainer(
            self._new_id(),
            name,
            image,
            command.image,
            labels,
            command.command,
            command.flags,
            self.clock.stamp(),
            self.clock,
        )
        for target, source in container.mounts.items():
            disk = self.disks.setdefault(source, FakeDisk(self.clock.wall()))
            container.disks[target] = disk
            container.files.update({f"{target}/{path}": data for path, data in disk.files.items()})
        self.containers[name] = container
        return container

    def discard(self, container: FakeContainer) -> None:
        """Remove a container, whatever it does; what it mounted from the host stays there."""
        if container.running:
            container.stop()
        container.evacuate()
        for target, disk in container.disks.items():
            below = f"{target.rstrip('/')}/"
            disk.files = {
                path.removeprefix(below): data
                for path, data in container.files.items()
                if path.startswith(below)
            }
        del self.containers[container.name]

    def exec_target(self, command: Exec) -> FakeContainer:
        """Return the container that a conversation may go on in.

        :raises Refused: if it cannot.
        """
        name = command.names[0]
        container = self.existing(name)
        if container.state == "paused":
            raise Refused(f"{DAEMON}Container {name} is paused, unpause the container before exec")
        if container.state == "restarting":
            raise Refused(
                f"{DAEMON}Container {container.id} is restarting, "
                "wait until the container is running"
            )
        self.must_run(container)
        return container

    def _new_id(self) -> str:
        self.made += 1
        return hashlib.sha256(f"fake {self.made}".encode()).hexdigest()

    def existing(self, name: str) -> FakeContainer:
        """Return a container.

        :raises Refused: if there is none.
        """
        container = self.container(name)
        if container is None:
            raise Refused(f"{DAEMON}No such container: {name}")
        return container

    def must_run(self, container: FakeContainer) -> None:
        """Insist on a container that lives.

        :raises Refused: if it does not.
        """
        if not container.running:
            raise Refused(f"{DAEMON}Container {container.id} is not running")
