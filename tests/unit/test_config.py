"""Settings are checked at construction, and clamped against each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_exec import LocalDockerExecutor, SandboxConfig, create_executor
from sandbox_exec._config import parse_size


def test_the_defaults_are_those_of_the_seed() -> None:
    """S0's settings and constants."""
    config = SandboxConfig(image="busybox")
    assert (config.default_timeout, config.max_timeout, config.grace) == (30, 300, 2)
    assert (config.idle_after, config.ttl, config.max_dormant) == (1800, 30 * 86400, 50)
    assert (config.memory, config.cpus, config.pids_limit) == (512 * 2**20, 1, 512)
    assert (config.network, config.docker_network, config.enabled) == (False, "bridge", True)
    assert (config.control_timeout, config.sweep_every, config.workspace_sweep_every) == (
        10,
        60,
        3600,
    )
    assert (config.max_read_bytes, config.max_output_bytes) == (256 * 1024, 100_000)


def test_clamps() -> None:
    """A maximum is never below the default, a TTL never below the idle window."""
    config = SandboxConfig(image="x", default_timeout=500, ttl=10, idle_after=60)
    assert (config.max_timeout, config.ttl) == (500, 60)


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {name: value}
            for name in ("default_timeout", "ttl", "grace")
            for value in (0, -1, math.nan, 10**400, 1e11)
        ),
        *({"control_timeout": value} for value in (math.inf, "3", True, None)),
        *({"image": value} for value in ("", "-x", "a b", None, "a\n")),
        *({"docker_host": value} for value in ("-H", "a b", 5, "a\tb", "http://a", "foo://a")),
        *({"docker_host": value} for value in ("/run/docker.sock", "fd://", "ssh://")),
        *(
            {"workspace_root": value}
            for value in ("relative", "/", "//", "/a:b", "/a,b", "/a\nb", "/..", 5, b"/a")
        ),
        *({"deployment": value} for value in ("", "A", "a.b", None)),
        *({"memory": value} for value in ("512q", "", None, 1024, -1, 1.5)),
        *({"cpus": value} for value in (0, -1, math.nan, "1", 10**400)),
        *({"pids_limit": value} for value in (0, 15, 1.5, True)),
        *({"max_output_bytes": 0}, {"max_read_bytes": -1}, {"network": 1}, {"enabled": None}),
        *({"runtime": "a/b"}, {"docker_network": "--privileged"}, {"engine": ""}, {"backend": ""}),
        *({"max_dormant": "50"}, {"max_parallel": 0}, {"queue_timeout": 0}, {"min_free_bytes": -1}),
    ],
    ids=repr,
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    """With one ValueError."""
    with pytest.raises(ValueError, match=r"must be|not a size"):
        SandboxConfig(**{"image": "busybox", **wrong})  # type: ignore[arg-type]  # wrong on purpose


def test_blank_means_none() -> None:
    """As in S0, where settings come from a file."""
    config = SandboxConfig(image="x", workspace_root="  ", runtime="", docker_host=" ")
    assert (config.workspace_root, config.runtime, config.docker_host) == (None, None, None)
    assert SandboxConfig(image="x", workspace_root="/srv//ws/").workspace_root == "/srv/ws"


def test_a_workspace_root_may_be_a_path() -> None:
    """It is a str afterwards, as it goes into a command line and a label."""
    config = SandboxConfig(image="x", workspace_root=Path("/srv/ws"))
    assert config.workspace_root == "/srv/ws"


@pytest.mark.parametrize(
    ("name", "annotation"),
    [
        ("workspace_root", "str | os.PathLike[str] | None"),
        ("runtime", "str | None"),
        ("docker_host", "str | None"),
    ],
)
def test_the_constructor_says_what_it_takes(name: str, annotation: str) -> None:
    """A converter's annotation is the constructor's, and `object` would help nobody."""
    assert SandboxConfig.__init__.__annotations__[name] == annotation


@pytest.mark.parametrize(
    ("text", "size"),
    [("512m", 2**29), ("1G", 2**30), ("2 KiB", 2048), ("7", 7), ("1t", 2**40), (5, 5)],
)
def test_sizes(text: str | int, size: int) -> None:
    """As docker reads them."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "address",
    [
        *(
            "unix:///run/docker.sock",
            "tcp://10.0.0.1:2376",
            "ssh://me@far:22",
            "npipe:////./pipe/d",
        ),
        # docker's own short forms of tcp://.
        *("10.0.0.1:2375", "far:2375", "[::1]:2375", ":2375", "far"),
    ],
)
def test_an_address_that_docker_can_read_is_taken(address: str) -> None:
    """Whether anybody is there is another question, and the doctor's."""
    assert SandboxConfig(image="x", docker_host=address).docker_host == address


def test_a_refusal_says_what_would_do() -> None:
    """In the words and units in which one writes it."""
    with pytest.raises(ValueError, match=r"at least 16 MiB \(16777216 bytes\), not 1048576 bytes"):
        SandboxConfig(image="x", memory="1m")
    with pytest.raises(ValueError, match=r"docker_host must be an address .* not 'foo://a'"):
        SandboxConfig(image="x", docker_host="foo://a")


@pytest.mark.parametrize("make", [LocalDockerExecutor, create_executor])
def test_settings_are_not_guessed_from_something_else(make: Callable[[object], object]) -> None:
    """A dict has not been checked."""
    with pytest.raises(ValueError, match="config must be a SandboxConfig, not dict"):
        make({"image": "x"})
