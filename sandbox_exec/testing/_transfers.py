"""What ``_guest/files.sh`` and ``_guest/harvest.sh`` do, verb for verb, to a container's files."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from math import inf
from typing import Final

from anyio import sleep
from attrs import define, field

from sandbox_exec.testing._commands import UnknownArgv
from sandbox_exec.testing._containers import FakeContainer
from sandbox_exec.testing._execution import Execution
from sandbox_exec.testing._faults import GuestPlan
from sandbox_exec.testing._pipes import LineReader, Pipe

__all__ = ["Transfers"]

_DIRECTORIES: Final = ("/workspace", "/workspace/inputs", "/workspace/outputs")
_CLAIMS: Final = ".sandbox-exec"
_WORD = re.compile(rb"((?:'[^']*'|\\')+)[ \n]")
_NUMBER = re.compile(rb"[0-9]+(\.[0-9]+)?\Z")
_KILLED: Final = 137


class _Left(Exception):  # noqa: N818  # how a guest ends early
    """The guest ends here, with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@define(eq=False)
class Transfers:
    """One guest's dealings with files.

    :param running: what goes on in all containers, by container and tag.
    :param say: prints a frame on standard output.
    :param end: prints the end frames.
    """

    container: FakeContainer
    plan: GuestPlan
    stdin: LineReader
    stdout: Pipe
    nonce: bytes
    tag: bytes
    running: dict[tuple[str, bytes], Execution]
    say: Callable[[str], Awaitable[None]]
    end: Callable[[int, str], Awaitable[None]]
    _path: str = field(default="", init=False)

    async def serve(self, verb: bytes, words: list[bytes], execution: Execution) -> int | None:
        """Serve one request; return an exit status if it is the guest's last.

        :param execution: what shows that the container is in use.
        """
        lines, count = {b"put": (0, 1), b"read": (2, 3), b"harvest": (1, 3)}[verb]
        if len(words) != count or not all(_NUMBER.match(word) for word in words):
            raise UnknownArgv(f"the fake guest does not know this request to {verb!r}: {words}")
        numbers = [float(word) for word in words]
        path = await self.stdin.lines(int(words[lines]))
        if path is None or await self.stdin.line() != self.nonce:
            return 0
        self._path = _text(path)
        reason = "retiring" if self.container.retiring else self.plan.refuses
        if reason is not None:
            await self.say(f"refused {reason}")
            return 0
        execution.command = f"{_text(verb)} {self._path}"
        execution.limit = numbers[0] if verb == b"read" else inf
        key = (self.container.id, self.tag)
        self.running[key] = execution

        async def perform() -> int:
            match verb:
                case b"put":
                    await self._put()
                case b"read":
                    await self._read(int(numbers[1]))
                case _:
                    await self._harvest(int(numbers[0]), sizes=numbers[2] == 1)
            return 0

        try:
            await execution.perform(perform)
        except _Left as left:
            return left.status
        finally:
            execution.over = True
            self.running.pop(key, None)
        return None if execution.why is None else _KILLED

    async def _refuse(self, reason: str) -> None:
        await self.say(f"refused {reason}")
        raise _Left(0)

    def _die(self, moment: str) -> None:
        if self.plan.dies == moment:
            raise _Left(self.plan.exit_code)

    async def _put(self) -> None:
        if self._is_directory():
            await self._refuse("directory")
        above = self._path.split("/")[:-1]
        if any("/".join(above[:n]) in self.container.files for n in range(2, len(above) + 1)):
            await self._refuse("parent")
        content = b""
        while (line := await self.stdin.line()) != b"end":
            data = await self.stdin.exactly(int(line)) if line and line.isdigit() else None
            if data is None:
                raise _Left(0)
            content += data
            self._die("midway")
        if self.plan.runs or self.plan.dies is None:
            self.container.files[self._path] = content
        self._die("after-sent")
        await self.end(0, "-")

    async def _read(self, most: int) -> None:
        self._die("after-sent")
        data = self.container.files.get(self._path)
        if data is not None and self._path not in self.container.odd:
            await self.say(f"kind file {len(data)}")
            if len(data) <= most:
                await self.stdout.write(data)
        else:
            missing = "directory" if self._is_directory() else "missing"
            await self.say(f"kind {self.container.odd.get(self._path, missing)} 0")
        await self.end(0, "-")

    def _is_directory(self) -> bool:
        below = f"{self._path.rstrip('/')}/"
        return self._path in _DIRECTORIES or any(p.startswith(below) for p in self.container.files)

    async def _harvest(self, most: int, *, sizes: bool) -> None:
        self._die("after-sent")
        if self._path in self.container.files:
            await self._refuse("outbox")
        await self._turn()
        if not self._is_directory():
            await self.say("listed 0")
            await self.end(0, "-")
            return
        self._adopt()
        listed = [path for path, data in self._candidates() if len(data) <= most]
        await self.say("list")
        await self.stdout.write(b"".join(b"./%b\0" % _bytes(path) for path in listed))
        if sizes:
            await self.say("sizes")
            for path in listed:
                await self.stdout.write(b"%d ./%b\n" % (len(self._files[path]), _bytes(path)))
        await self.say("listed 1")
        claimed = await self._claim()
        self._die("midway")
        if claimed:
            await self.say("tar")
            await self.stdout.write(_archive((p, self._files[self._new(p)]) for p in claimed))
            await self.say("packed 0")
            for _, kept in await self._answer(b"received"):
                if self._new(_text(kept)) in self._files:
                    self._move(self._new(_text(kept)), self._old(_text(kept)))
        await self.end(0, "-")
        await self._answer(b"done")
        for path in claimed:
            self._remove(self._new(path))

    async def _turn(self) -> None:
        """Wait for other harvests in this container."""
        mine = (self.container.id, self.tag)
        while next(key for key in self.running if self._harvests(key)) != mine:  # noqa: ASYNC110  # as the text does
            await sleep(0.001)

    def _harvests(self, key: tuple[str, bytes]) -> bool:
        here = key[0] == self.container.id
        return here and self.running[key].command.startswith("harvest ")

    @property
    def _files(self) -> dict[str, bytes]:
        """The files below the outbox, by path relative to it; a copy."""
        above = f"{self._path.rstrip('/')}/"
        files = self.container.files
        return {p.removeprefix(above): data for p, data in files.items() if p.startswith(above)}

    def _new(self, path: str) -> str:
        return f"{_CLAIMS}/{self.tag.decode()}/new/{path}"

    def _old(self, path: str) -> str:
        return f"{_CLAIMS}/{self.tag.decode()}/old-{self.tag.decode()}/new/{path}"

    def _move(self, old: str, new: str) -> None:
        base = self._path.rstrip("/")
        self.container.files[f"{base}/{new}"] = self.container.files.pop(f"{base}/{old}")

    def _remove(self, path: str) -> None:
        self.container.files.pop(f"{self._path.rstrip('/')}/{path}", None)

    def _adopt(self) -> None:
        """Take over what was claimed by others: they had their turn, so they are no more."""
        mine = self.tag.decode()
        for path in self._files:
            head, _, rest = path.partition("/")
            tag, _, rest = rest.partition("/")
            if head == _CLAIMS and tag != mine:
                name = rest.removeprefix("new/") if rest.startswith("new/") else None
                below = f"old-{tag}/new/{name}" if name is not None else rest
                self._move(path, f"{_CLAIMS}/{mine}/{below}")

    def _candidates(self) -> Iterator[tuple[str, bytes]]:
        for path, data in self._files.items():
            if not path.rpartition("/")[2].startswith(".sandbox-exec-put-"):
                yield path, data

    async def _claim(self) -> list[str]:
        claimed = []
        for word, base, directory, *names in await self._answer(b"claim"):
            if word != b"sbx_pick":
                raise UnknownArgv(f"the fake guest does not know how to {word!r}")
            for name in names:
                path = _text(b"/".join((directory, name)).replace(b"/./", b"/")).removeprefix("./")
                source = path if base == b"." else f"{_text(base)}/{path}"
                if source in self._files:
                    self._move(source, self._new(path))
                    claimed.append(path)
        return claimed

    async def _answer(self, word: bytes) -> list[list[bytes]]:
        """Return what the client's answer says, word by word; it has left without one."""
        line = await self.stdin.line()
        found, _, size = (line or b"").partition(b" ")
        if found != word:
            raise _Left(0)
        if size in {b"", b"0"}:
            return []
        script = await self.stdin.exactly(int(size))
        if script is None or await self.stdin.line() != self.nonce:
            raise _Left(0)
        return list(_commands(script))


def _commands(script: bytes) -> Iterator[list[bytes]]:
    while script:
        word, _, rest = script.partition(b" ")
        words = [word]
        while (match := _WORD.match(rest)) is not None:
            pieces = re.findall(rb"'([^']*)'|\\(')", match[1])
            words.append(b"".join(plain + quote for plain, quote in pieces))
            rest = rest[match.end() :]
            if match[0].endswith(b"\n"):
                break
        else:
            raise UnknownArgv(f"the fake guest does not know this script: {script[:80]!r}")
        yield words
        script = rest


def _archive(files: Iterable[tuple[str, bytes]]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(
        fileobj=target,
        mode="w",
        format=tarfile.GNU_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
    ) as archive:
        for path, data in files:
            member = tarfile.TarInfo(f"./{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
