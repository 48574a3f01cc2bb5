"""What an engine's ``info`` tells of its habits, and what follows for the flags."""

from __future__ import annotations

import json

import pytest

from sandbox_exec import SandboxConfig
from sandbox_exec._policy import container_flags, one_off_flags
from sandbox_exec._storage import Habits, habits

PODMAN = {"host": {"serviceIsRemote": False}, "store": {"graphRoot": "/var/lib/containers"}}


def test_docker_makes_directories() -> None:
    """And may be on another host."""
    assert habits(b'{"DockerRootDir": "/var/lib/docker"}') == Habits("/var/lib/docker")


def test_podman_makes_none() -> None:
    """It is here, unless it says that it is not."""
    assert habits(json.dumps(PODMAN).encode()) == Habits(
        "/var/lib/containers", makes_directories=False, here=True
    )
    remote = {**PODMAN, "host": {"serviceIsRemote": True}}
    assert habits(json.dumps(remote).encode()).here is False
    assert habits(json.dumps({**PODMAN, "host": {}}).encode()).here is False


@pytest.mark.parametrize("answer", [b"", b"[]", b"null", b'{"DockerRootDir": 7}', b'{"store": 1}'])
def test_an_answer_in_other_words(answer: bytes) -> None:
    """Is taken for docker's, whose flags do no harm but an error."""
    assert habits(answer) == Habits()


def test_a_working_directory_is_asked_for_where_it_is_made() -> None:
    """Another user's one-off never has it: its workspace is mounted."""
    config = SandboxConfig(image="x")
    for flags in (container_flags(config, "k"), one_off_flags(config, None)):
        assert "--workdir" in flags
    for flags in (
        container_flags(config, "k", makes_workdir=False),
        one_off_flags(config, None, makes_workdir=False),
        one_off_flags(config, "app"),
    ):
        assert "--workdir" not in flags
