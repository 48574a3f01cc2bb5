"""What engines say of themselves, captured from each, is read as what it is; nonsense is named."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec import EngineFacts, EngineLimits
from sandbox_exec._docker.answers import UnreadableAnswer
from sandbox_exec._docker.describe import (
    Versions,
    parse_context,
    parse_info,
    parse_version,
    server_errors,
)

CAPTURED = Path(__file__).parents[1] / "fixtures" / "engine_facts"
BOUND = EngineLimits(memory=True, swap=True, pids=True, cpus=True, disk=False)
RUNTIMES = ("io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc")


def captured(engine: str, what: str) -> bytes:
    return (CAPTURED / engine / f"{what}.json").read_bytes()


def docker(**facts: object) -> bytes:
    """A docker's ``info`` with these facts besides its version."""
    return json.dumps({"ServerVersion": "29.0.0", **facts}).encode()


def podman(**facts: object) -> bytes:
    """A podman's ``info`` with these facts about its host."""
    return json.dumps({"host": facts, "store": {}, "version": {"Version": "5.4.0"}}).encode()


@pytest.mark.parametrize(
    ("engine", "versions"),
    [
        ("docker-28.2.2-20.10.24", ("docker", "28.2.2", "docker", "20.10.24+dfsg1", "default")),
        (
            "docker-20.10.24-20.10.24",
            ("docker", "20.10.24+dfsg1", "docker", "20.10.24+dfsg1", "default"),
        ),
        (
            "docker-26.1.5-26.1.5",
            ("docker", "26.1.5+dfsg1", "docker", "26.1.5+dfsg1", "default"),
        ),
        ("podman-4.3.1", ("podman", "4.3.1", "podman", "4.3.1", "")),
        ("podman-4.3.1-rootless", ("podman", "4.3.1", "podman", "4.3.1", "")),
    ],
)
def test_each_program_says_which_family_it_is_of(engine: str, versions: tuple[str, ...]) -> None:
    """Told by its answer, since its name and its path may be the other one's (B8)."""
    assert parse_version(captured(engine, "version")) == Versions(*versions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "version", "runtimes"),
    [
        ("docker-28.2.2-20.10.24", "20.10.24+dfsg1", RUNTIMES),
        ("docker-20.10.24-20.10.24", "20.10.24+dfsg1", RUNTIMES),
        ("docker-26.1.5-26.1.5", "26.1.5+dfsg1", ("io.containerd.runc.v2", "runc")),
    ],
)
def test_a_docker_that_enforces_limits(
    engine: str, version: str, runtimes: tuple[str, ...]
) -> None:
    """Each version says the same in the same words."""
    assert parse_info(captured(engine, "info")) == EngineFacts(
        version=version,
        cgroup_version=1,
        storage_driver="overlay2",
        security=("seccomp",),
        runtimes=runtimes,
        default_runtime="runc",
        data_root="/var/lib/docker",
        limits=BOUND,
    )


def test_a_podman_with_root_enforces_limits_too() -> None:
    """It says so by its list of controllers, and nothing of swap."""
    assert parse_info(captured("podman-4.3.1", "info")) == EngineFacts(
        version="4.3.1",
        cgroup_version=1,
        storage_driver="overlay",
        security=("seccomp",),
        runtimes=("runc",),
        default_runtime="runc",
        makes_directories=False,
        data_root="/var/lib/containers/storage",
        limits=EngineLimits(memory=True, pids=True, cpus=True, disk=False),
    )


def test_a_podman_without_root_under_cgroups_v1_ignores_every_limit() -> None:
    """Captured from one: it starts the container all the same."""
    facts = parse_info(captured("podman-4.3.1-rootless", "info"))
    assert (facts.rootless, facts.cgroup_version, facts.storage_driver) == (True, 1, "vfs")
    assert facts.limits.ignored == ("memory", "swap", "pids", "cpus", "disk")


@pytest.mark.parametrize("engine", sorted(path.name for path in CAPTURED.glob("docker-*")))
def test_a_context_says_where_the_engine_is(engine: str) -> None:
    """Its name and its address, which ``DOCKER_HOST`` has overruled here."""
    assert parse_context(captured(engine, "context")) == (
        "default",
        "unix:///run/engine/docker.sock",
    )


def test_a_podman_has_no_context() -> None:
    """It knows the words all the same, exits with 0 and prints an empty list."""
    with pytest.raises(UnreadableAnswer):
        parse_context(captured("podman-4.3.1", "context"))


def test_a_docker_that_is_pointed_at_podmans_service() -> None:
    """The words are docker's, and what they lead to is not."""
    engine = {"Name": "Podman Engine", "Version": "4.3.1"}
    answer = {
        "Client": {"Version": "28.2.2", "ApiVersion": "1.41"},
        "Server": {"Version": "4.3.1", "Components": [engine, {"Name": 3}, "junk"]},
    }
    versions = parse_version(json.dumps(answer).encode())
    assert (versions.family, versions.server, versions.server_version) == (
        "docker",
        "podman",
        "4.3.1",
    )


@pytest.mark.parametrize(
    "answer",
    [
        {"Client": {"Version": "1", "ApiVersion": "1"}, "Server": None},
        {"Client": {"Version": "1", "ApiVersion": "1"}, "Server": {"Components": None}},
    ],
)
def test_a_client_without_a_server(answer: dict[str, Any]) -> None:
    """Docker's half comes without an engine, and says nothing of one."""
    versions = parse_version(json.dumps(answer).encode())
    assert (versions.family, versions.server_version) == ("docker", "")


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b"[]", b"null", b'{"Client": {"Version": "1"}}', b"Docker version 1", b"\xff"],
)
def test_what_is_no_engine_is_not_taken_for_one(answer: bytes) -> None:
    """A program that prints something else, a version even, is neither docker nor podman."""
    with pytest.raises(UnreadableAnswer):
        parse_version(answer)


def test_a_docker_without_cgroups_enforces_nothing() -> None:
    """Without root and without delegation, its driver is called none."""
    claims = {"MemoryLimit": True, "SwapLimit": True, "PidsLimit": True, "CpuCfsQuota": True}
    answer = docker(CgroupDriver="none", SecurityOptions=["name=rootless"], **claims)
    facts = parse_info(answer)
    assert (facts.rootless, facts.security) == (True, ("rootless",))
    assert facts.limits.ignored[:4] == ("memory", "swap", "pids", "cpus")


def test_what_a_docker_does_not_say_is_not_known() -> None:
    """An old one, or podman's service, leaves things out: neither enforced nor ignored."""
    facts = parse_info(docker())
    assert facts.limits == EngineLimits(disk=False)
    assert (facts.cgroup_version, facts.data_root) == (None, None)


@pytest.mark.parametrize(
    ("driver", "backing", "works"),
    [
        ("overlay2", "extfs", False),
        ("overlay2", "xfs", None),
        ("vfs", "xfs", None),
        ("overlayfs", "xfs", False),
        ("btrfs", "", True),
        ("zfs", "", True),
    ],
)
def test_whether_a_disk_can_be_bounded(driver: str, backing: str, works: bool | None) -> None:
    """On xfs it is for a probe to say, since no engine says how the disk is mounted (B7)."""
    status = [["Backing Filesystem", backing], ["Supports d_type", "true"], "junk", []]
    assert parse_info(docker(Driver=driver, DriverStatus=status)).limits.disk is works


@pytest.mark.parametrize(
    ("host", "limits"),
    [
        (
            {"cgroupVersion": "v2", "cgroupControllers": ["memory", "pids"]},
            (True, None, True, False),
        ),
        ({"cgroupVersion": "v2"}, (None, None, None, None)),
        ({"cgroupVersion": "v2", "cgroupControllers": []}, (False, False, False, False)),
    ],
)
def test_a_podman_enforces_what_it_has_controllers_for(
    host: dict[str, Any], limits: tuple[bool | None, ...]
) -> None:
    """Under cgroups v2 without root, that is what systemd has handed over."""
    found = parse_info(podman(security={"rootless": True}, **host)).limits
    assert (found.memory, found.swap, found.pids, found.cpus) == limits


def test_a_podman_on_xfs_is_asked_by_a_probe() -> None:
    """It takes quotas for overlay on an xfs with project quotas, and does not say if it has any."""
    store = {"graphDriverName": "overlay", "graphStatus": {"Backing Filesystem": "xfs"}}
    assert parse_info(json.dumps({"host": {"a": 1}, "store": store}).encode()).limits.disk is None


def test_an_engine_that_is_down_says_so_in_its_info() -> None:
    """Docker 20.10 exits with 0 then; nothing else on its standard output is such a statement."""
    assert server_errors(b'{"ServerErrors":["no","really"],"ClientInfo":{}}') == ("no", "really")
    for answer in (b"", b"[]", b"{}", b'{"ServerErrors": 3}', b'{"ServerErrors": null}'):
        assert server_errors(answer) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
KEYS = st.sampled_from(
    [
        *("Client", "Server", "Version", "ApiVersion", "APIVersion", "Components", "Name"),
        *(
            "ServerVersion",
            "SecurityOptions",
            "Driver",
            "DriverStatus",
            "Runtimes",
            "CgroupVersion",
        ),
        *(
            "MemoryLimit",
            "host",
            "store",
            "security",
            "cgroupControllers",
            "graphStatus",
            "version",
        ),
        *("Endpoints", "docker", "Host", "ServerErrors", "Context", "CgroupDriver", "rootless"),
    ]
)
LIKE_AN_ENGINES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=8),
)


@given(answer=st.binary() | (JSON | LIKE_AN_ENGINES).map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("parse", [parse_version, parse_info, parse_context, server_errors])
def test_nonsense_is_one_clear_error(parse: Callable[[bytes], object], answer: bytes) -> None:
    """Whatever a program prints: a fact, or an answer that cannot be read."""
    with suppress(UnreadableAnswer):
        parse(answer)


@given(answer=LIKE_AN_ENGINES)
def test_nonsense_in_an_info_is_one_clear_error(answer: object) -> None:
    """Also where the rest of the answer is an engine's."""
    for whole in ({"ServerVersion": "1"}, {"host": {"a": 1}, "store": {"b": 1}}):
        facts = {**whole, **(answer if isinstance(answer, dict) else {"Driver": answer})}
        with suppress(UnreadableAnswer):
            parse_info(json.dumps(facts).encode())
