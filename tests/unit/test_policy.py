"""Everything that decides what a sandbox may do is in its flags and its fingerprint."""

from __future__ import annotations

import itertools

import pytest

from sandbox_exec import SandboxConfig
from sandbox_exec._naming import LABEL_KEY, LABEL_POLICY, session_key
from sandbox_exec._policy import (
    changed_parts,
    container_flags,
    make_policy,
    one_off_flags,
    session_preset,
)

KEY = session_key("chat")
BASE = SandboxConfig(image="busybox")


def pairs(flags: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return each flag with the word after it."""
    return set(itertools.pairwise(flags))


@pytest.mark.parametrize("flags", [container_flags(BASE, KEY), one_off_flags(BASE, None)])
def test_the_promises_of_the_policy_are_flags(flags: tuple[str, ...]) -> None:
    """S0's hardening, plus what the hazards add (R6, F9, F10)."""
    found = pairs(flags)
    assert {
        ("--network", "none"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--memory", str(512 * 2**20)),
        ("--memory-swap", str(512 * 2**20)),
        ("--pids-limit", "512"),
        ("--cpus", "1"),
        ("--log-driver", "none"),
        ("--add-host", "host.docker.internal:127.0.0.1"),
        ("--workdir", "/workspace"),
    } <= found
    added = {value for flag, value in found if flag == "--cap-add"}
    assert added == {"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"}
    assert "--privileged" not in flags


def test_a_network_only_when_asked_for() -> None:
    """And then the named one."""
    config = SandboxConfig(image="busybox", network=True, docker_network="walled")
    assert ("--network", "walled") in pairs(container_flags(config, KEY))


def test_a_workspace_is_mounted_for_sessions_only() -> None:
    """A direct child of the root, named by the key."""
    config = SandboxConfig(image="busybox", workspace_root="/srv/ws")
    assert ("--volume", f"/srv/ws/{KEY}:/workspace") in pairs(container_flags(config, KEY))
    assert "--volume" not in one_off_flags(config, None)
    assert "--volume" not in container_flags(BASE, KEY)


def test_a_one_off_for_another_user_can_write_its_workspace() -> None:
    """It cannot make the directory itself, so it gets one in memory."""
    flags = one_off_flags(BASE, "app")
    assert flags[-2:] == ("--user", "app")
    assert any(value.startswith("/workspace:") for flag, value in pairs(flags) if flag == "--tmpfs")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"image": "debian"}, "image"),
        ({"runtime": "runsc"}, "runtime"),
        ({"network": True}, "network"),
        ({"memory": "1g"}, "limits"),
        ({"cpus": 2}, "limits"),
        ({"pids_limit": 99}, "limits"),
        ({"workspace_root": "/srv/ws"}, "workspace"),
    ],
)
def test_every_change_of_policy_changes_the_fingerprint(
    change: dict[str, object], part: str
) -> None:
    """And the label says which part it was (S8, S16)."""
    old = make_policy(session_preset(BASE), "sha256:1")
    new = make_policy(session_preset(SandboxConfig(**{"image": "busybox", **change})), "sha256:1")  # type: ignore[arg-type]  # as given
    assert new.fingerprint != old.fingerprint
    labels = old.labels(deployment="default", kind="session", key=KEY)
    assert labels[LABEL_POLICY] == old.fingerprint
    assert labels[LABEL_KEY] == KEY
    assert changed_parts(new, labels) == (part,)


def test_the_image_is_known_by_identity() -> None:
    """A tag that was moved is another image."""
    assert (
        make_policy(session_preset(BASE), "sha256:1").fingerprint
        != make_policy(session_preset(BASE), "sha256:2").fingerprint
    )


@pytest.mark.parametrize(
    "change",
    [{"default_timeout": 5}, {"ttl": 9e9}, {"max_output_bytes": 99}, {"docker_host": "tcp://x"}],
)
def test_what_is_no_policy_replaces_nothing(change: dict[str, object]) -> None:
    """A longer time-out is no reason to lose packages."""
    other = SandboxConfig(**{"image": "busybox", **change})  # type: ignore[arg-type]  # as given
    assert (
        make_policy(session_preset(other), "i").fingerprint
        == make_policy(session_preset(BASE), "i").fingerprint
    )


def test_labels_of_an_unknown_format_differ_in_everything() -> None:
    """A container of a version that wrote none of our parts."""
    policy = make_policy(session_preset(BASE), "i")
    assert changed_parts(policy, {}) == tuple(policy.parts)
