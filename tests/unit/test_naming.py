"""Keys are injective and safe; names built from them never meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec._naming import (
    container_name,
    is_deployment,
    is_key,
    one_off_name,
    session_key,
    workspace_path,
)

HOSTILE = [
    *("a/b", "ab", "a b", "A B", "a-b", "a_b", "..", ".", "/", "-", " ", "\n", "\0", "\ud800"),
    *(
        "x" * 60 + "1",
        "x" * 60 + "2",
        "🦊",
        "🐻",
        "🦊🐻",
        "é",
        "e\u0301",
        "AB",
        "once.1",
        "K",
        "\u212a",
    ),
]


def test_distinct_ids_never_share_a_key() -> None:
    """Whatever a readable prefix has to leave out, the digest tells them apart (S1)."""
    keys = [session_key(session) for session in HOSTILE]
    assert len(set(keys)) == len(HOSTILE)
    assert len({key.casefold() for key in keys}) == len(HOSTILE)


@given(st.text(st.characters(), min_size=1))
def test_every_key_is_a_plain_name(session: str) -> None:
    """Of a bounded length, without anything that a path or an option could be made of."""
    key = session_key(session)
    assert is_key(key)
    assert len(key) <= 49
    assert set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not key.startswith("-")
    assert workspace_path("/srv/ws/", key) == f"/srv/ws/{key}"


def test_an_empty_id_is_refused() -> None:
    """It would be everybody's."""
    with pytest.raises(ValueError, match="empty"):
        session_key("")


@pytest.mark.parametrize(
    "text",
    ["", "..", "a", "a/b", "lost+found", ".removed-1", "0" * 23, "0" * 24 + "\n", "-" + "0" * 24],
)
def test_nothing_else_is_a_key(text: str) -> None:
    """The reaper acts on exact keys only, and no path is built from anything else."""
    assert not is_key(text)
    with pytest.raises(ValueError, match="not a session key"):
        workspace_path("/srv/ws", text)


def test_names_of_different_deployments_never_meet() -> None:
    """Not even when one deployment's name begins with another's."""
    key = session_key("b-c")
    assert container_name("a", key) != container_name("a-b", session_key("c"))
    assert one_off_name("a") != one_off_name("a")
    assert not is_key(one_off_name("a").removeprefix("sbx.a."))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("default", True),
        ("a-b_1", True),
        ("", False),
        ("A", False),
        ("a.b", False),
        ("-a", False),
        ("x" * 32, True),
        ("x" * 33, False),
        ("a\n", False),
        ("ü", False),
    ],
)
def test_deployment_names(text: str, right: bool) -> None:
    """Lower case, so that no file system merges two of them; no dots, which separate."""
    assert is_deployment(text) is right
