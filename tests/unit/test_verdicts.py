"""Each thing that is seen has its verdict, and whatever is not well has a line of advice."""

from typing import Any

import pytest

from sandbox_exec import (
    ContainerStartError,
    DaemonUnavailableError,
    EngineInfo,
    EngineLimits,
    SandboxConfig,
    SandboxError,
)
from sandbox_exec import _verdicts as verdicts
from sandbox_exec._sighting import Reached, Sighting
from sandbox_exec._verdicts import Check

CONFIG = SandboxConfig(image="busybox")
HOLDS = Reached("killed", holds=True)
FAILS = Reached("went on", holds=False)
UNSEEN = Reached("no answer", holds=None)
FULL_MASK = "000001ffffffffff"


def info(**facts: Any) -> EngineInfo:  # noqa: ANN401  # EngineInfo's own
    base: dict[str, Any] = {
        "program": "docker",
        "family": "docker",
        "server": "docker",
        "client_version": "28.2.2",
        "version": "20.10.24",
        "storage_driver": "overlay2",
    }
    return EngineInfo(**{**base, **facts})


def told(check: Check) -> str:
    """The verdict of a row; there is advice just if it is not well."""
    assert bool(check.advice) == (check.verdict != "ok"), check
    return check.verdict


@pytest.mark.parametrize(
    ("facts", "default", "verdict"),
    [
        ({}, "docker", "ok"),
        ({"program": "podman", "family": "podman", "server": "podman"}, "podman", "ok"),
        ({"program": "podman", "family": "podman", "server": "podman"}, "docker", "warn"),
        ({"server": "podman"}, "docker", "warn"),
    ],
)
def test_the_engine(facts: dict[str, Any], default: str, verdict: str) -> None:
    """One that the library would not run by itself, or that is behind another's program."""
    assert told(verdicts.engine(info(**facts), default)) == verdict


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        (EngineLimits(), "ok"),
        (EngineLimits(disk=False), "ok"),
        (EngineLimits(swap=False), "warn"),
        (EngineLimits(memory=False, pids=False), "warn"),
    ],
)
def test_the_host(limits: EngineLimits, verdict: str) -> None:
    """What an engine admits to ignore is named."""
    check = verdicts.host(info(limits=limits, rootless=True, cgroup_version=1, context="x"))
    assert told(check) == verdict
    assert "(context x); without root, cgroups v1, overlay2" in check.seen
    for name in limits.ignored:
        assert (name in check.seen) == (name != "disk")


@pytest.mark.parametrize(
    ("sighting", "off", "on"),
    [
        (Sighting(interfaces=("lo",)), "ok", "fail"),
        (Sighting(interfaces=("lo", "sit0"), connect="refused"), "ok", "fail"),
        (Sighting(interfaces=("lo", "eth0")), "fail", "fail"),
        (Sighting(interfaces=("lo", "eth0"), routes=("eth0 0",)), "fail", "ok"),
        (Sighting(interfaces=("lo",), routes=("x 0",)), "fail", "fail"),
        (Sighting(interfaces=("lo",), connect="made"), "fail", "fail"),
    ],
)
def test_the_network(sighting: Sighting, off: str, on: str) -> None:
    """An interface, a route or a connection is one too many when there shall be no network."""
    assert told(verdicts.network(CONFIG, sighting)) == off
    config = SandboxConfig(image="busybox", network=True)
    assert told(verdicts.network(config, sighting)) == on


@pytest.mark.parametrize(
    ("mask", "verdict", "words"),
    [
        ("fb", "ok", "exactly CHOWN"),
        ("2000fb", "fail", "too many: SYS_ADMIN"),
        (FULL_MASK, "fail", "and 29 more"),
        ("f3", "warn", "lacking: FOWNER"),
        ("", "warn", "not shown"),
    ],
)
def test_capabilities(mask: str, verdict: str, words: str) -> None:
    """Exactly the policy's: more is a hole, fewer breaks what relies on them."""
    check = verdicts.capabilities(Sighting({"CapEff": mask}))
    assert (told(check), words in check.seen) == (verdict, True)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [({"NoNewPrivs": "1"}, "ok"), ({"NoNewPrivs": "0"}, "fail"), ({}, "warn")],
)
def test_no_new_privileges(status: dict[str, str], verdict: str) -> None:
    """Set, as the kernel says."""
    assert told(verdicts.no_new_privileges(Sighting(status))) == verdict


@pytest.mark.parametrize(("reached", "verdict"), [(HOLDS, "ok"), (FAILS, "fail"), (UNSEEN, "warn")])
@pytest.mark.parametrize("shown", ["", "64"])
def test_limits(reached: Reached, verdict: str, shown: str) -> None:
    """What a probe has met counts, whether or not the sandbox shows its limit inside."""
    names = ("memory.max", "pids.max")
    sighting = Sighting(cgroup=dict.fromkeys(names, shown) if shown else {})
    assert told(verdicts.memory(CONFIG, sighting, reached)) == verdict
    assert told(verdicts.processes(sighting, reached)) == verdict
    assert told(verdicts.cpus(CONFIG, reached)) == verdict


def test_a_share_that_is_shown_needs_no_probe() -> None:
    """It is the kernel's own word."""
    assert told(verdicts.cpus(CONFIG, None)) == "ok"


def test_a_memory_cap_beyond_what_was_asked_for() -> None:
    """Something else bounds the probe, and not the sandbox that was meant."""
    sighting = Sighting(cgroup={"memory.max": str(2 * CONFIG.memory)})
    assert told(verdicts.memory(CONFIG, sighting, HOLDS)) == "fail"


@pytest.mark.parametrize(
    ("sighting", "limits", "verdict", "seen"),
    [
        (Sighting(cgroup={"memory.swap.max": "0"}), EngineLimits(), "ok", "none beyond"),
        (Sighting(swap_on_host="0"), EngineLimits(), "ok", "host has none"),
        (Sighting(cgroup={"memory.max": "9"}), EngineLimits(), "warn", "not shown"),
        (Sighting(cgroup={"memory.max": "9"}), EngineLimits(swap=False), "warn", "not bounded"),
        (Sighting(), EngineLimits(), "warn", "not bounded"),
    ],
)
def test_swap(sighting: Sighting, limits: EngineLimits, verdict: str, seen: str) -> None:
    """A cap of zero, or a host without any."""
    check = verdicts.swap(sighting, info(limits=limits))
    assert (told(check), seen in check.seen) == (verdict, True)


def test_commands_that_cannot_be_ended() -> None:
    """No limit, no tag, no memory for the marks: this is no sandbox."""
    assert told(verdicts.time_limit(HOLDS)) == "ok"
    assert told(verdicts.time_limit(FAILS)) == told(verdicts.time_limit(UNSEEN)) == "fail"
    assert told(verdicts.kill_tag(Sighting(tag="1024"))) == "ok"
    assert told(verdicts.kill_tag(Sighting(tag="unlimited"))) == "fail"
    assert told(verdicts.kill_tag(Sighting())) == "fail"
    assert told(verdicts.state(Sighting(state="tmpfs rw"))) == "ok"
    assert told(verdicts.state(Sighting(state="overlay rw"))) == "fail"
    assert told(verdicts.state(Sighting())) == "fail"


def test_a_disk_that_is_not_bounded_is_a_warning() -> None:
    """The library works without, and says so."""
    assert told(verdicts.disk_quota(info(), works=True)) == "ok"
    assert told(verdicts.disk_quota(info(storage_driver=""), works=False)) == "warn"


@pytest.mark.parametrize(
    ("error", "family", "advice"),
    [
        (DaemonUnavailableError("down"), "docker", "systemctl start docker"),
        (DaemonUnavailableError("down"), "podman", "podman machine start"),
        (DaemonUnavailableError("no", code="daemon-denied"), "", "group of the socket"),
        (DaemonUnavailableError("no", code="bad-context"), "", "docker context use"),
        (ContainerStartError("no", code="image-missing"), "", "docker pull busybox"),
        (ContainerStartError("no", code="bad-network"), "", "network 'bridge'"),
    ],
)
def test_a_fault_has_its_own_advice(error: SandboxError, family: str, advice: str) -> None:
    """Told by its code, which is there for machines too."""
    check = verdicts.trouble("daemon", error, family=family, config=CONFIG)
    assert (check.verdict, check.code, check.seen) == ("fail", error.code, str(error))
    assert advice in check.advice


def test_a_fault_that_nobody_has_seen_yet() -> None:
    """It has the engine's words, and a way to see more of them."""
    check = verdicts.trouble("sandbox", ContainerStartError("odd"), family="", config=CONFIG)
    assert (check.seen, "docker run --rm busybox" in check.advice) == ("odd", True)
