"""Runs the spawn wrapper's text under a real shell, in a process namespace of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from attrs import define

from sandbox_exec._frames import Conversation, Frame, FrameScanner, new_conversation
from sandbox_exec._guest import SPAWN_VARIABLE, spawn_command, spawn_script
from sandbox_exec._spawn.line import spawn_line

from .guest_host import SHELLS


@define
class Wrapper:
    """One spawned process, as the engine's program would carry it."""

    process: subprocess.Popen[bytes]
    talk: Conversation
    state: Path

    def until_end(self, stdin: bytes = b"", *, announced: bool = True) -> tuple[bytes, bytes, int]:
        """Let it begin, feed it, and return what it printed, frames and all, and its exit code."""
        opening = f"{self.talk.nonce}\n".encode() if announced else b""
        stdout, stderr = self.process.communicate(opening + stdin, timeout=20)
        return stdout, stderr, self.process.returncode

    def mark(self) -> str:
        """Return what its mark says, nothing if there is none."""
        path = self.state / f"run-{self.talk.tag}"
        return path.read_text() if path.exists() else ""

    @property
    def stdin(self) -> IO[bytes]:
        """Its standard input."""
        return cast("IO[bytes]", self.process.stdin)

    def frames(self, data: bytes) -> tuple[bytes, list[Frame]]:
        """Return what was printed without the frames, and these."""
        scanner, seen = FrameScanner.of(self.talk), b""
        frames: list[Frame] = []
        while True:
            before, frame = scanner.feed(data)
            seen, data = seen + before, b""
            if frame is None:
                return seen + scanner.flush(), frames
            frames.append(frame)


def wrap(
    shell: str,
    state: Path,
    *command: str,
    announced: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: str = "",
    placed_in: str = "-",
    number: int | None = None,
    inherited: Mapping[str, str] | None = None,
    talk: Conversation | None = None,
    prefix: tuple[str, ...] = (),
) -> Wrapper:
    """Start a command under the wrapper."""
    talk = talk or new_conversation()
    line = spawn_line(
        "box",
        mark=str(talk.tag) if number is None else f"{number}-{talk.tag}",
        cwd=cwd,
        env=env,
        command=command,
        nonce=talk.nonce if announced else "-",
        start=placed_in,
    )
    words = list(line.argv[line.argv.index("sandbox-exec-spawn") + 2 :])
    program, unshare = shutil.which(SHELLS[shell][0]), shutil.which("unshare")
    assert program is not None
    assert unshare is not None
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(inherited or {}), **line.env}
    process = subprocess.Popen(
        [
            *(unshare, "--pid", "--fork", "--mount-proc", "--kill-child"),
            *("/bin/sh", "-c", '"$@"; exit $?', "init", *prefix, program, *SHELLS[shell][1:]),
            *(*spawn_command()[:3], str(state), *words),
        ],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert line.env[SPAWN_VARIABLE] == spawn_script()
    return Wrapper(process, talk, state)
