"""A client of a guest that understands everything and decides nothing."""

from collections.abc import Mapping

from attrs import frozen

from sandbox_exec._docker.interface import CliProcess
from sandbox_exec._frames import Frame, FrameScanner, hello, new_conversation, run_request


@frozen
class Heard:
    """What came of one conversation."""

    stdout: bytes = b""
    stderr: bytes = b""
    frames: tuple[str, ...] = ()
    exit_code: int | None = None


class Talk:
    """A conversation with a guest, read to the end of both streams."""

    def __init__(self, process: CliProcess) -> None:
        self.process = process
        self.conversation = new_conversation()
        self.scanners = (FrameScanner.of(self.conversation), FrameScanner.of(self.conversation))
        self.frames: tuple[list[Frame], list[Frame]] = ([], [])
        self.data = [b"", b""]

    async def greet(self) -> None:
        await self.process.send(hello(self.conversation))
        await self.until(0, "ready")
        await self.until(1, "ready")

    async def ask(
        self,
        command: str,
        *,
        limit: float = 20,
        env: Mapping[str, bytes] | None = None,
        stdin: bytes | None = None,
        cwd: bytes = b"/workspace",
    ) -> None:
        for piece in run_request(
            self.conversation, command.encode(), limit=limit, cwd=cwd, env=env or {}, stdin=stdin
        ):
            await self.process.send(piece)

    async def more(self, stream: int) -> bool:
        receive = (self.process.receive_stdout, self.process.receive_stderr)[stream]
        data = await receive()
        scanner, frames = self.scanners[stream], self.frames[stream]
        before, frame = scanner.feed(data)
        self.data[stream] += before
        while frame is not None:
            # Which start of the container it was differs from one engine to the next.
            frames.append(Frame("ready", frame.arguments[:1]) if frame.word == "ready" else frame)
            before, frame = scanner.feed(b"")
            self.data[stream] += before
        return bool(data)

    async def until(self, stream: int, word: str) -> None:
        while word not in [frame.word for frame in self.frames[stream]] and await self.more(stream):
            pass

    async def until_said(self, text: bytes) -> None:
        while text not in self.data[0] and await self.more(0):
            pass

    async def rest(self) -> Heard:
        for stream in (0, 1):
            while await self.more(stream):
                pass
        words = tuple(" ".join((frame.word, *frame.arguments)) for frame in self.frames[0])
        assert [f for f in self.frames[0] if f.word == "end"] == [
            f for f in self.frames[1] if f.word == "end"
        ]
        return Heard(self.data[0], self.data[1], words, await self.process.wait())
