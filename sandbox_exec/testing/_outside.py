"""What somebody else does to the fake engine's containers behind our back."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_exec.testing._commands import Create
from sandbox_exec.testing._containers import FakeContainer
from sandbox_exec.testing._store import Store

__all__ = ["Outside"]


class Outside:
    """The methods of a fake engine for everybody but the library."""

    _store: Store

    def remove(self, name: str) -> None:
        """Remove a container behind our back."""
        self._store.discard(self._store.containers[name])

    def stop(self, name: str) -> None:
        """Stop a container behind our back."""
        self._store.containers[name].stop()

    def start(self, name: str) -> None:
        """Start a container behind our back."""
        self._store.containers[name].start()

    def restart(self, name: str) -> None:
        """Stop and start a container behind our back."""
        self.stop(name)
        self.start(name)

    def pause(self, name: str) -> None:
        """Freeze a container behind our back."""
        self.set_state(name, "paused")

    def set_state(self, name: str, state: str) -> None:
        """Let a container be in any of the engine's states, e.g. ``restarting`` or ``dead``."""
        self._store.containers[name].state = state

    def take_name(
        self, name: str, *, labels: Mapping[str, str] | None = None, state: str = "running"
    ) -> FakeContainer:
        """Make a container as somebody else would, from any image there is."""
        image = next(iter(self._store.images.values()))
        pairs = [f"{key}={value}" for key, value in (labels or {}).items()]
        flags = {"--label": pairs}
        wanted = Create("run", (name,), flags=flags, image=image.id, command=("sleep", "inf"))
        container = self._store.create(wanted)
        if state != "created":
            container.start()
            if state == "exited":
                container.stop()
            container.state = state
        return container
