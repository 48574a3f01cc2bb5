"""Asks the guests of running containers to retire them, each no sooner than it is worth it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from anyio import Semaphore, create_task_group
from attrs import define, field

from sandbox_exec._frames import Frame
from sandbox_exec._log import Log

__all__ = ["Answers", "Asker"]

_AT_ONCE: Final = 10

log = Log(__name__)


@define
class Answers:
    """What became of those that were asked: ids by answer."""

    retired: set[str] = field(factory=set)
    kept: set[str] = field(factory=set)
    silent: set[str] = field(factory=set)


def _seconds(frame: Frame, idle_after: float) -> float:
    """Return for how long there is no need to ask again; what is inside may say anything."""
    text = frame.arguments[0] if frame.arguments else ""
    told = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0  # noqa: PLR2004
    return min(max(told, 1.0), idle_after + 1)


@define
class Asker:
    """Asks guests to stop their containers, and remembers when they may be asked again.

    :param retire: puts the question to the guest of a container.
    """

    _retire: Callable[[str], Awaitable[Frame | None]]
    _clock: Callable[[], float]
    _idle_after: float
    _not_before: dict[str, float] = field(factory=dict)
    _slots: Semaphore = field(factory=lambda: Semaphore(_AT_ONCE))

    def is_due(self, container: str) -> bool:
        """Return whether a container may have become idle since it was last asked."""
        return self._clock() >= self._not_before.get(container, 0.0)

    def keep_only(self, containers: Iterable[str]) -> None:
        """Forget those that are not there any more."""
        there = set(containers)
        self._not_before = {id_: t for id_, t in self._not_before.items() if id_ in there}

    async def ask(self, keys: Mapping[str, str], unless: Callable[[str], bool]) -> Answers:
        """Ask containers, given with their keys, unless their key is in use when it comes to it."""
        answers = Answers()
        async with create_task_group() as group:
            for container, key in keys.items():
                group.start_soon(self._ask, container, key, unless, answers)
        return answers

    async def _ask(
        self, container: str, key: str, unless: Callable[[str], bool], answers: Answers
    ) -> None:
        async with self._slots:
            if unless(key):
                return
            frame = await self._retire(container)
        if frame is None:
            answers.silent.add(container)
        elif frame.word == "retired":
            log.info("sandbox.retired", container=container, key=key)
            # Should it be woken, it is used, and so not idle for as long again.
            self._not_before[container] = self._clock() + self._idle_after
            answers.retired.add(container)
        else:
            wait = _seconds(frame, self._idle_after)
            self._not_before[container] = self._clock() + wait
            answers.kept.add(container)
