"""Frames are found wherever the stream is cut, and forged ones do no harm."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec._frames import (
    Conversation,
    End,
    Frame,
    FrameScanner,
    hello,
    new_conversation,
    parse_end,
    parse_ready,
    run_request,
)

TALK = Conversation("0123456789abcdef" * 2, 4711)
MARK = b"\x1e" + TALK.nonce.encode() + b" "


def scan(*chunks: bytes) -> tuple[bytes, list[Frame]]:
    """Feed chunks; return all that was no frame, and the frames."""
    scanner, seen, frames = FrameScanner.of(TALK), b"", []
    for chunk in chunks:
        data = chunk
        while True:
            before, frame = scanner.feed(data)
            seen += before
            if frame is None:
                break
            frames.append(frame)
            data = b""
    return seen + scanner.flush(), frames


ALMOST = (
    st.lists(
        st.sampled_from([b"\x1e", MARK[:9], MARK[:-1], MARK[1:], b"\n", b"\x1e\x1e", b"end 0 -\n"])
        | st.binary(max_size=40),
        max_size=8,
    )
    .map(b"".join)
    .filter(lambda text: MARK not in text)
)


@given(ALMOST, ALMOST, st.lists(st.integers(0, 300), max_size=6))
def test_a_frame_is_found_wherever_the_stream_is_cut(
    before: bytes, after: bytes, cuts: list[int]
) -> None:
    """And every other byte comes through, whatever looks like a frame but is none."""
    stream = before + MARK + b"end 3 -\n" + after
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert scan(*chunks) == (before + after, [Frame("end", ("3", "-"))])


@given(st.binary(max_size=300))
def test_without_a_frame_nothing_is_lost(data: bytes) -> None:
    """Not a byte, however it is cut."""
    assert scan(*(data[i : i + 1] for i in range(len(data)))) == (data, [])


def test_a_forged_mark_does_not_hide_the_frame_behind_it() -> None:
    """A command may print one just before it ends."""
    assert scan(MARK + MARK + b"end 3 -\n") == (MARK, [Frame("end", ("3", "-"))])


def test_a_frame_without_an_end_is_output() -> None:
    """Nobody makes the host hold more than a frame's length."""
    endless = MARK + b"x" * 10_000
    assert scan(endless[:100], endless[100:]) == (endless, [])
    assert scan(endless + MARK + b"end 1 -\n") == (endless, [Frame("end", ("1", "-"))])


def test_marks_without_an_end_are_output() -> None:
    """However many there are in one piece."""
    marks = MARK * 4000
    assert scan(marks) == (marks, [])
    assert scan(marks + b"end 2 -\n") == (marks[: -len(MARK)], [Frame("end", ("2", "-"))])


@given(st.binary(max_size=120).filter(lambda text: b"\n" not in text))
def test_forged_frames_never_raise(text: bytes) -> None:
    """They say nonsense, and nonsense is no end and no READY."""
    _, frames = scan(MARK + text + b"\n")
    for frame in frames:
        end = parse_end(frame)
        assert end is None or 0 <= end.exit_code <= 255
        parse_ready(frame)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("end 0 -", End(0)),
        ("end 255 -t", End(255, timed_out=True)),
        ("end 137 -tuoks", End(137, True, True, True, True, True)),
        ("end 256 -", None),
        ("end -1 -", None),
        ("end 1", None),
        ("end 1 -x", None),
        ("end ² -", None),
        ("end 1 - more", None),
        ("ready 1", None),
    ],
)
def test_end_frames(text: str, end: End | None) -> None:
    """Only what the guest itself would say is an end."""
    word, *arguments = text.split(" ")
    assert parse_end(Frame(word, tuple(arguments))) == end


def test_a_request_says_how_long_it_is() -> None:
    """Lines and bytes, then the nonce, without which nothing runs."""
    pieces = run_request(TALK, b"a\nb", limit=1.231, cwd=b"/w", env={"A": b"it's"}, stdin=b"\0data")
    assert pieces == (
        b"run 1.24 1 1 2 23 5\n/w\nexport A='it'\\''s'\na\nb\n",
        b"\0data",
        b"%b\n" % TALK.nonce.encode(),
    )
    assert run_request(TALK, b"", limit=1e-9, cwd=b"/", env={}, stdin=None)[0].startswith(
        b"run 0.01 1 0 1 1 -\n"
    )


def test_conversations_are_told_apart() -> None:
    """By nonce and by tag; the tag fits a limit in KiB on every kernel."""
    first, second = new_conversation(), new_conversation()
    assert first.nonce != second.nonce
    assert first.tag != second.tag
    assert 2**20 < first.tag < 2**53
    assert first.nonce not in repr(first)
    assert hello(first) == f"{first.nonce} {first.tag}\n".encode()
