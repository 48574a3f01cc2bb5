"""An engine is found, asked what it is, and told apart from whatever else has its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox_exec import (
    Completed,
    ContainerStartError,
    DaemonUnavailableError,
    EngineLimits,
    EngineNotFoundError,
    NoAnswer,
    SandboxError,
    detect_engine,
)
from sandbox_exec._detect import CANDIDATES
from sandbox_exec.testing import FakeDaemon

from .programs import Programs

pytestmark = pytest.mark.anyio

FACTS = Path(__file__).parents[1] / "fixtures" / "engine_facts"
BANNER = b"Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg.\n"
IMAGE = "sandbox-exec/busybox"


def engine(name: str, *, stderr: bytes = b"", **other: Completed) -> dict[str, Completed]:
    """What a captured engine answers, with other answers to some calls."""
    calls = {
        what: Completed(0, (FACTS / name / f"{what}.json").read_bytes(), stderr)
        for what in ("version", "info", "context")
        if (FACTS / name / f"{what}.json").exists()
    }
    return {**calls, **other}


DOCKER = engine("docker-28.2.2-20.10.24")
PODMAN = engine("podman-4.3.1")


def down(words: str, *, client: bool = True) -> Completed:
    """How docker's ``version`` ends without an engine: with its own half, and words."""
    half = b'{"Client":{"Version":"28.2.2","ApiVersion":"1.50","Context":"x"},"Server":null}'
    return Completed(1, half if client else b"", words.encode() + b"\n")


ABSENT = down(
    "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"
)


async def refused(programs: Programs, override: str | None = None) -> SandboxError:
    """The one error that detection ends with."""
    with pytest.raises(SandboxError) as caught:
        await detect_engine(override, runner=programs)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


async def test_docker_comes_before_podman() -> None:
    """On PATH before anywhere else, and each place only if the one before has nothing."""
    programs = Programs({"docker": DOCKER, "/usr/bin/podman": PODMAN})
    assert (await detect_engine(runner=programs)).program == "docker"
    assert {argv[0] for argv in programs.calls} == {"docker"}
    programs = Programs({"/usr/bin/podman": PODMAN})
    assert (await detect_engine(runner=programs)).program == "/usr/bin/podman"
    assert [argv[0] for argv in programs.calls][: len(CANDIDATES)] == list(CANDIDATES)


async def test_a_docker() -> None:
    """All that it says of itself and of its daemon, in one value."""
    info = await detect_engine(runner=Programs({"docker": DOCKER}))
    assert (info.program, info.family, info.server) == ("docker", "docker", "docker")
    assert (info.version, info.client_version) == ("20.10.24+dfsg1", "28.2.2")
    assert (info.host, info.context) == ("unix:///run/engine/docker.sock", "default")
    assert (info.rootless, info.cgroup_version, info.storage_driver) == (False, 1, "overlay2")
    assert info.limits == EngineLimits(memory=True, swap=True, pids=True, cpus=True, disk=False)


@pytest.mark.parametrize("name", ["docker", "/opt/podman-free/docker", "/usr/local/bin/engine"])
async def test_a_docker_that_is_podman(name: str) -> None:
    """By its answer, whatever its name, and in spite of the banner on standard error (B8)."""
    shim = engine("podman-4.3.1", stderr=BANNER)
    info = await detect_engine(name, runner=Programs({name: shim}))
    assert (info.program, info.family, info.server) == (name, "podman", "podman")
    assert (info.version, info.client_version) == ("4.3.1", "4.3.1")
    assert (info.host, info.context) == ("", "")


async def test_a_docker_below_a_directory_named_podman() -> None:
    """S1 took its path's text for its family."""
    path = "/home/podman/bin/docker"
    info = await detect_engine(path, runner=Programs({path: DOCKER}))
    assert info.family == "docker"


async def test_a_podman_without_root_ignores_limits() -> None:
    """Under cgroups v1, and it says so."""
    rootless = engine("podman-4.3.1-rootless")
    info = await detect_engine("podman", runner=Programs({"podman": rootless}))
    assert (info.rootless, info.limits.ignored[:2]) == (True, ("memory", "swap"))


async def test_a_podman_that_has_a_service_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is what it was told, or the connection's, whose name is all that is known."""
    remote = PODMAN["info"].stdout.replace(b'"serviceIsRemote": false', b'"serviceIsRemote": true')
    programs = Programs({"podman": {**PODMAN, "info": Completed(0, remote)}})
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.setenv("CONTAINER_CONNECTION", "far")
    info = await detect_engine("podman", runner=programs)
    assert (info.remote, info.host, info.context) == (True, "", "far")
    info = await detect_engine("podman", docker_host="unix:///a.sock", runner=programs)
    assert (info.host, info.context) == ("unix:///a.sock", "")
    monkeypatch.setenv("CONTAINER_HOST", "unix:///b.sock")
    info = await detect_engine("podman", runner=programs)
    assert (info.host, info.context) == ("unix:///b.sock", "")


async def test_nothing_is_here() -> None:
    """One error, and no traceback of the search."""
    error = await refused(Programs({}))
    assert isinstance(error, EngineNotFoundError)
    assert (error.code, "docker nor podman" in str(error)) == ("engine-not-found", True)


async def test_an_override_that_is_not_there() -> None:
    """It alone is tried, and named."""
    programs = Programs({"docker": DOCKER})
    error = await refused(programs, "/opt/absent")
    assert (error.code, "/opt/absent" in str(error)) == ("engine-not-found", True)
    assert len(programs.calls) == 1


@pytest.mark.parametrize("override", ["", "  ", "a\0b", 7])
async def test_an_override_that_can_name_nothing(override: Any) -> None:  # noqa: ANN401  # also what is no text
    """Rejected before anything is started."""
    programs = Programs({"docker": DOCKER})
    with pytest.raises(ValueError, match="name or a path"):
        await detect_engine(override, runner=programs)
    with pytest.raises(ValueError, match="docker_host must be an address"):
        await detect_engine(docker_host="/run/x.sock", runner=programs)
    assert programs.calls == []


@pytest.mark.parametrize(
    "answer",
    [
        Completed(0, b""),
        Completed(0, b"docker, or nearly\n"),
        Completed(127, b"", b"pyenv: docker: command not found\n"),
        Completed(0, b'{"Client": {"Version": 3}}'),
        Completed(2, b"", b"panic: runtime error\n"),
    ],
)
async def test_a_stranger_by_that_name(answer: Completed) -> None:
    """It is named, and never a reason to take podman: a docker may be broken just now."""
    programs = Programs({"docker": {"version": answer}, "podman": PODMAN})
    for override in (None, "docker"):
        error = await refused(programs, override)
        assert isinstance(error, EngineNotFoundError)
        assert (error.code, "'docker' does not answer" in str(error)) == ("not-an-engine", True)


DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///x.sock: "
    'Get "http://x/v1.50/version": dial unix /x.sock: connect: permission denied'
)
NO_CONTEXT = (
    'Failed to initialize: unable to resolve docker endpoint: context "x": context not found: '
    "open /x/meta.json: no such file or directory"
)
STALE = 'Current context "x" is not found on the file system, please check your config file at /x'


@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        (ABSENT, "daemon-unavailable", True),
        (down("error during connect: EOF"), "daemon-unavailable", True),
        (down("what nobody has seen yet"), "daemon-unavailable", True),
        (down(DENIED), "daemon-denied", False),
        (down(NO_CONTEXT, client=False), "bad-context", False),
        (down(STALE, client=False), "bad-context", False),
    ],
)
async def test_an_engine_that_cannot_be_used(answer: Completed, code: str, retryable: bool) -> None:
    """Each way has its code, and docker is the one all the same: podman is another engine."""
    programs = Programs({"docker": {**DOCKER, "version": answer}, "podman": PODMAN})
    error = await refused(programs)
    assert isinstance(error, DaemonUnavailableError)
    assert (error.code, error.retryable, error.started) == (code, retryable, False)
    assert {argv[0] for argv in programs.calls} == {"docker"}


async def test_an_engine_that_never_answers() -> None:
    """Bounded, and not the same as one that says that it is not there."""
    error = await refused(Programs({"docker": {}}))
    assert (error.code, error.retryable) == ("daemon-silent", True)
    assert "did not answer within 5 s" in str(error)


async def test_a_program_that_prints_without_end() -> None:
    """Is none of the two, whatever is asked."""
    error = await refused(Programs({"docker": {"version": NoAnswer(5, excess=True)}}))
    assert (type(error), error.code) == (EngineNotFoundError, "not-an-engine")
    assert "printed more than 64 MiB" in str(error)


async def test_a_context_that_points_at_nothing() -> None:
    """The program only says that nothing is there; the context is what sent it."""
    context = Completed(0, b'{"Name":"lab","Endpoints":{"docker":{"Host":"tcp://192.0.2.1:1"}}}')
    programs = Programs({"docker": {**DOCKER, "version": ABSENT, "context": context}})
    error = await refused(programs)
    assert (error.code, error.retryable) == ("bad-context", False)
    assert "context 'lab' points at tcp://192.0.2.1:1" in str(error)


@pytest.mark.parametrize("context", [None, Completed(1), Completed(0, b"[]")])
async def test_a_context_that_cannot_be_had_is_not_blamed(context: Completed | None) -> None:
    """Nor is the lack of one an error of its own, with an engine or without."""
    docker = {name: answer for name, answer in DOCKER.items() if name != "context"}
    if context is not None:
        docker["context"] = context
    error = await refused(Programs({"docker": {**docker, "version": ABSENT}}))
    assert error.code == "daemon-unavailable"
    info = await detect_engine(docker_host="tcp://a:1", runner=Programs({"docker": docker}))
    assert (info.host, info.context) == ("tcp://a:1", "default")


@pytest.mark.parametrize(
    "info",
    [
        Completed(1, b"", b"odd\n"),
        Completed(0, b"nonsense"),
        Completed(0, b'{"ServerErrors":["odd"],"ClientInfo":{}}'),
        Completed(
            0,
            b'{"ServerErrors":["Cannot connect to the Docker daemon at unix:///x. '
            b'Is the docker daemon running?"],"ClientInfo":{}}',
        ),
    ],
)
async def test_an_engine_that_goes_away_in_between(info: Completed) -> None:
    """What its ``info`` says then is an error, also where the program exits with 0."""
    error = await refused(Programs({"docker": {**DOCKER, "info": info}}))
    assert isinstance(error, DaemonUnavailableError)
    assert error.code == "daemon-unavailable"


async def test_the_fake_engine_answers_as_docker_does() -> None:
    """So that what uses this can be tested without one."""
    info = await detect_engine(runner=FakeDaemon(ignores=["swap"]))
    assert (info.program, info.family, info.version) == ("docker", "docker", "20.10.24")
    assert info.host == "unix:///var/run/docker.sock"
    assert info.limits.ignored == ("swap", "disk")
    daemon = FakeDaemon()
    daemon.down()
    with pytest.raises(DaemonUnavailableError, match="Cannot connect"):
        await detect_engine(runner=daemon)


@pytest.mark.parametrize("ignored", [(), ("memory",), ("pids", "cpus"), ("swap",)])
async def test_a_probe_sees_which_limits_hold(ignored: tuple[str, ...]) -> None:
    """Whatever the engine says of them; nothing of the probes is left."""
    daemon = FakeDaemon(ignores=ignored)
    info = await detect_engine(probe=IMAGE, runner=daemon)
    assert info.limits.ignored == (*ignored, "disk")
    assert (info.limits.memory, info.limits.disk) == ("memory" not in ignored, False)
    assert (daemon.containers, daemon.conversations) == ({}, 0)


async def test_a_probe_tries_a_quota_where_only_that_can_tell() -> None:
    """On xfs, which may be mounted with quotas or without (B7)."""
    daemon = FakeDaemon(quotas=True)
    assert (await detect_engine(runner=daemon)).limits.disk is None
    assert (await detect_engine(probe=IMAGE, runner=daemon)).limits.disk is True


async def test_a_probe_does_not_fetch_its_image() -> None:
    """That is a step of its own, with a budget of its own."""
    daemon = FakeDaemon(registry=["far/away"])
    with pytest.raises(ContainerStartError) as caught:
        await detect_engine(probe="far/away", runner=daemon)
    assert caught.value.code == "image-missing"
    assert [argv for argv in daemon.calls if argv[1] == "pull"] == []
