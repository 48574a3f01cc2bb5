"""Runs the guest's text under a real shell, in a process namespace of its own, without an engine.

The namespace matters: a guest that enforces a limit looks at every process it can see.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from sandbox_exec._frames import (
    DONE,
    Conversation,
    End,
    Frame,
    FrameScanner,
    Ready,
    hello,
    new_conversation,
    parse_end,
    parse_ready,
    run_request,
)
from sandbox_exec._guest import GUEST_VARIABLE, guest_script

SHELLS: Mapping[str, tuple[str, ...]] = {
    "dash": ("dash",),
    "busybox": ("busybox", "sh"),
    "bash": ("bash", "--posix"),
}


def missing(shell: str) -> str | None:
    """Return what this machine lacks to run a guest under ``shell``, if anything."""
    if os.geteuid() != 0:
        return "a process namespace needs root"
    return next(
        (f"no {tool}" for tool in ("unshare", SHELLS[shell][0]) if not shutil.which(tool)), None
    )


class Guest:
    """One guest and the client's side of its conversation."""

    def __init__(
        self,
        shell: str,
        root: Path,
        *,
        path: str | None = None,
        conversation: Conversation | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.state, self.workspace = root / "state", root / "workspace"
        self.state.mkdir(exist_ok=True)
        self.talk = conversation or new_conversation()
        self._scanners = (FrameScanner.of(self.talk), FrameScanner.of(self.talk))
        self._kept = [b"", b""]
        environment = {
            "PATH": path or os.environ["PATH"],
            GUEST_VARIABLE: guest_script(),
            **(env or {}),
        }
        program, unshare = (shutil.which(tool) for tool in (SHELLS[shell][0], "unshare"))
        assert program is not None
        assert unshare is not None
        self.process = subprocess.Popen(
            [
                *(unshare, "--pid", "--fork", "--mount-proc", "--kill-child"),
                # Not PID 1 itself, whom signals from inside do not reach.
                *("/bin/sh", "-c", '"$@"; exit $?', "init"),
                program,
                *SHELLS[shell][1:],
                *("-c", f'eval "${GUEST_VARIABLE}"', "guest", str(self.state), str(self.workspace)),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        for stream in (self.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue
        self.process.wait(10)

    @property
    def stdin(self) -> IO[bytes]:
        """The guest's standard input."""
        return cast("IO[bytes]", self.process.stdin)

    def say(self, *pieces: bytes) -> None:
        """Write to the guest."""
        for piece in pieces:
            self.stdin.write(piece)
        self.stdin.flush()

    def greet(self) -> Self:
        """Say hello and wait for READY on both streams."""
        self.say(hello(self.talk))
        for stream in (0, 1):
            before, frame = self.until_frame(stream)
            assert (before, frame and parse_ready(frame)) == (b"", Ready(1, "-"))
        return self

    def ask(
        self,
        command: str | bytes,
        *,
        limit: float = 20.0,
        cwd: str | None = None,
        env: Mapping[str, bytes] | None = None,
        stdin: bytes | None = None,
    ) -> None:
        """Send a request to run ``command``."""
        text = command if isinstance(command, bytes) else command.encode()
        where = str(self.workspace) if cwd is None else cwd
        self.say(
            *run_request(
                self.talk, text, limit=limit, cwd=os.fsencode(where), env=env or {}, stdin=stdin
            )
        )

    def answer(self) -> tuple[bytes, bytes, End]:
        """Return both streams and the end frame, which must be the same on both."""
        stdout, stdout_frame = self.until_frame(0)
        stderr, stderr_frame = self.until_frame(1)
        assert stdout_frame is not None, f"no end frame after {stdout!r}"
        assert stdout_frame == stderr_frame, (stdout, stdout_frame, stderr, stderr_frame)
        end = parse_end(stdout_frame)
        assert end is not None
        return stdout, stderr, end

    def run(self, command: str | bytes, **how: object) -> tuple[bytes, bytes, End]:
        """Run a command to its end, as a client would."""
        self.ask(command, **how)  # type: ignore[arg-type]  # passed through
        result = self.answer()
        self.say(DONE)
        return result

    def until_frame(self, stream: int) -> tuple[bytes, Frame | None]:
        """Read a stream up to its next frame, or to its end."""
        pipe = cast("IO[bytes]", (self.process.stdout, self.process.stderr)[stream])
        scanner, seen, data = self._scanners[stream], b"", b""
        while True:
            before, frame = scanner.feed(data)
            seen += before
            if frame is not None:
                return seen, frame
            if not (data := os.read(pipe.fileno(), 65536)):
                return seen + scanner.flush(), None


def eventually(condition: Callable[[], object], seconds: float = 5.0) -> bool:
    """Wait until ``condition()`` is true; return whether it came to be."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
