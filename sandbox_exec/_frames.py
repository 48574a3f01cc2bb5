"""The host side of the guest protocol: requests out, frames in, hostile input assumed.

What comes back was written inside the sandbox, where a command can read its guest's memory and
forge anything. So every frame is bounded, checked and allowed to be nonsense; the worst a forger
gets is a wrong result for its own call.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from typing import Final

from attrs import define, field, frozen

__all__ = [
    "DONE",
    "KILL",
    "Conversation",
    "End",
    "Frame",
    "FrameScanner",
    "Ready",
    "exports",
    "harvest_request",
    "hello",
    "new_conversation",
    "parse_end",
    "parse_ready",
    "put_request",
    "quote",
    "read_request",
    "reap_request",
    "retire_request",
    "run_request",
    "signal_request",
]

KILL: Final = b"kill\n"
DONE: Final = b"done\n"

_MARK: Final = b"\x1e"
_MAX_FRAME: Final = 200
_TAG_LOW: Final = 2**24
_TAG_SPAN: Final = 2**40
_FLAGS = re.compile(r"-[tukos]*\Z")


@frozen
class Conversation:
    """What makes one guest's frames and processes recognisable.

    :param nonce: 32 hexadecimal digits; travels on standard input only.
    :param tag: the RLIMIT_RSS, in KiB, that the command's processes carry (hazard F18).
    """

    nonce: str = field(repr=False)
    tag: int


def new_conversation() -> Conversation:
    """Return a conversation that no other one can be taken for."""
    return Conversation(secrets.token_hex(16), _TAG_LOW + secrets.randbelow(_TAG_SPAN))


def hello(conversation: Conversation) -> bytes:
    """Return the first line to a guest; it answers ``ready`` and has still been asked nothing."""
    return f"{conversation.nonce} {conversation.tag}\n".encode()


def quote(text: bytes) -> bytes:
    """Return ``text`` as one word for a shell, whatever its bytes."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


_SHELLS_OWN: Final = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
"""Variables that bash lets nobody set: it ends where one tries to."""


def exports(env: Mapping[str, bytes]) -> bytes:
    """Return shell text that exports variables, whatever their values, one after the other."""
    return b"".join(_export(name, value) for name, value in env.items())


def _export(name: str, value: bytes) -> bytes:
    assignment = name.encode() + b"=" + quote(value)
    if name in _SHELLS_OWN:
        # A shell goes on after the failure of a special built-in only below "command".
        return b"command export " + assignment + b" 2>/dev/null\n"
    return b"export " + assignment + b"\n"


def _lines(text: bytes) -> int:
    return text.count(b"\n") + 1


def run_request(
    conversation: Conversation,
    command: bytes,
    *,
    limit: float,
    cwd: bytes,
    env: Mapping[str, bytes],
    stdin: bytes | None,
) -> tuple[bytes, ...]:
    """Return a request to run ``command``, in pieces to be sent in order.

    The last piece ends with the nonce: a guest that has not read it runs nothing.

    :param limit: seconds, handed to ``sleep`` inside.
    """
    variables = exports(env)
    body = variables + command + b"\n"
    words = (
        "run",
        f"{max(math.ceil(limit * 100), 1) / 100:.2f}",
        _lines(cwd),
        variables.count(b"\n"),
        _lines(command),
        len(body),
        len(stdin) if stdin else "-",
    )
    header = " ".join(map(str, words)).encode() + b"\n" + cwd + b"\n"
    ending = f"{conversation.nonce}\n".encode()
    return (header + body, stdin, ending) if stdin else (header + body + ending,)


def reap_request(tag: int) -> bytes:
    """Return a request to kill whatever carries the tag of another, lost conversation."""
    return f"reap {tag}\n".encode()


def signal_request(tag: int, number: int) -> bytes:
    """Return a request to send a signal to the process that was spawned with ``tag``."""
    return f"signal {tag} {number}\n".encode()


def put_request(conversation: Conversation, path: bytes) -> bytes:
    """Return the head of a request to write a file; chunks follow, each behind its length."""
    return b"put %d\n%b\n%b\n" % (_lines(path), path, conversation.nonce.encode())


def read_request(conversation: Conversation, path: bytes, limit: float, max_bytes: int) -> bytes:
    """Return a request for what a path is, and for its bytes if it is a file of at most so many."""
    words = f"read {limit:.2f} {max_bytes} {_lines(path)}\n".encode()
    return b"%b%b\n%b\n" % (words, path, conversation.nonce.encode())


def harvest_request(
    conversation: Conversation, directory: bytes, max_bytes: int, *, sizes: bool
) -> bytes:
    """Return a request for the list of an outbox's files of at most ``max_bytes`` each."""
    words = f"harvest {max_bytes} {_lines(directory)} {sizes:d}\n".encode()
    return b"%b%b\n%b\n" % (words, directory, conversation.nonce.encode())


def retire_request(idle_after: float) -> bytes:
    """Return a request to stop the container if nobody used it for so many seconds, rounded up."""
    return f"retire {math.ceil(idle_after)}\n".encode()


@frozen
class Frame:
    """A word from the guest, with its arguments."""

    word: str
    arguments: tuple[str, ...] = ()


@frozen
class End:
    """The end of a command, in the guest's words.

    :param exit_code: 0 to 255.
    :param timed_out: the limit inside was reached.
    :param unkillable: something outlived the kill.
    :param killed: the tree was killed on request, or because the client seemed gone.
    :param oom_killed: the kernel's out-of-memory killer was at work meanwhile.
    :param survivors: background processes of the command live on.
    """

    exit_code: int
    timed_out: bool = False
    unkillable: bool = False
    killed: bool = False
    oom_killed: bool = False
    survivors: bool = False


def parse_end(frame: Frame) -> End | None:
    """Return what an ``end`` frame says, or ``None`` if it is none or says nonsense."""
    if frame.word != "end" or len(frame.arguments) != 2:  # noqa: PLR2004
        return None
    code, flags = frame.arguments
    if not code.isascii() or not code.isdigit() or len(code) > 3 or not _FLAGS.match(flags):  # noqa: PLR2004
        return None
    if (exit_code := int(code)) > 255:  # noqa: PLR2004
        return None
    return End(exit_code, *(letter in flags for letter in "tukos"))


@frozen
class Ready:
    """A guest's first words.

    :param protocol: the version it speaks.
    :param boot: differs between two starts of one container; ``-`` where there is nothing to tell.
    """

    protocol: int
    boot: str


def parse_ready(frame: Frame) -> Ready | None:
    """Return what a ``ready`` frame says, or ``None`` if it is none or says nonsense."""
    if frame.word != "ready" or len(frame.arguments) != 2:  # noqa: PLR2004
        return None
    text, boot = frame.arguments
    if not text.isascii() or not text.isdigit() or len(text) > 5 or len(boot) > 40:  # noqa: PLR2004
        return None
    return Ready(int(text), boot)


@define
class FrameScanner:
    """Splits one stream of a conversation into a command's bytes and the guest's frames."""

    _mark: bytes
    _rest: bytes = b""

    @classmethod
    def of(cls, conversation: Conversation) -> FrameScanner:
        """Return a scanner for one of the conversation's streams."""
        return cls(_MARK + conversation.nonce.encode() + b" ")

    def feed(self, data: bytes) -> tuple[bytes, Frame | None]:
        """Take the next bytes; return those that are no frame, and the first frame after them.

        What follows a frame is kept: feed ``b""`` for more until no frame comes. A frame longer
        than any of the guest's is ordinary output.
        """
        data = self._rest + data if self._rest else data
        at = 0
        while (start := data.find(self._mark, at)) >= 0:
            body = start + len(self._mark)
            stop = data.find(b"\n", body, body + _MAX_FRAME)
            if stop >= 0:
                # A command may have printed a mark just before the guest did: the last one counts.
                start = data.rfind(self._mark, start, stop)
                body = start + len(self._mark)
                self._rest = data[stop + 1 :]
                word, *arguments = data[body:stop].decode("ascii", "replace").split(" ")
                return data[:start], Frame(word, tuple(arguments))
            if len(data) - body < _MAX_FRAME:
                self._rest = data[start:]
                return data[:start], None
            at = body
        keep = self._begun(data)
        self._rest = data[len(data) - keep :]
        return data[: len(data) - keep], None

    def flush(self) -> bytes:
        """Return what was held back in the hope of a frame: the stream has ended."""
        rest, self._rest = self._rest, b""
        return rest

    def _begun(self, data: bytes) -> int:
        """Return how many bytes at the end of ``data`` could be the beginning of a mark."""
        start = data.find(_MARK, max(0, len(data) - len(self._mark) + 1))
        while start >= 0:
            if self._mark.startswith(data[start:]):
                return len(data) - start
            start = data.find(_MARK, start + 1)
        return 0
