"""Head and tail are kept, cut between characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec._collect import Collector
from sandbox_exec._models import Gap


def collect(cap: int, *chunks: bytes) -> tuple[str, Gap | None]:
    """Feed chunks to a collector and return what it kept."""
    collector = Collector(cap)
    for chunk in chunks:
        collector.feed(chunk)
    return collector.text()


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(2, 200))
def test_what_is_kept_is_the_beginning_and_the_end(chunks: list[bytes], cap: int) -> None:
    """However it arrives, and whatever it is."""
    whole = b"".join(chunks)
    text, gap = collect(cap, *chunks)
    if len(whole) <= cap:
        assert (text, gap) == (whole.decode("utf-8", "replace"), None)
    else:
        assert gap is not None
        kept = len(whole) - gap.omitted_bytes
        assert cap - 6 <= kept <= cap
        assert whole.decode("utf-8", "replace").startswith(text[: gap.at].rstrip("\ufffd"))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=50), st.integers(8, 60))
def test_characters_are_never_cut(text: str, cap: int) -> None:
    """Valid text stays valid on both sides of the gap."""
    kept, gap = collect(cap, text.encode())
    if gap is None:
        assert kept == text
    else:
        assert text.startswith(kept[: gap.at])
        assert text.endswith(kept[gap.at :])
        assert len(kept.encode()) + gap.omitted_bytes == len(text.encode())


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1_000_000])
def test_sizes_around_the_cap(size: int) -> None:
    """The cap itself is not too much."""
    text, gap = collect(100, b"x" * size)
    assert len(text) == min(size, 100)
    assert gap == (None if size <= 100 else Gap(50, size - 100))


def test_what_is_not_utf8_is_replaced() -> None:
    """And never raises."""
    assert collect(100, b"a\xff\xc3") == ("a\ufffd\ufffd", None)
    assert collect(4, b"\x80" * 50)[1] is not None
