"""Detection and the doctor on real programs and a real engine: each fault has its name."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sandbox_exec import (
    DaemonUnavailableError,
    EngineInfo,
    EngineNotFoundError,
    ExecSpec,
    SandboxError,
    detect_engine,
)
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._probe import Bench
from sandbox_exec._quota import disk_quota_works
from tests.engine.executors import deployment
from tests.engine.real_engine import IMAGE, RealEngine

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

BANNER = "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg."
# Removes a flag with its value from a command line, and starts what is behind it.
DROPPING = """\
#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    count=$((count - 1))
    case $word in
    {flags}) shift; count=$((count - 1)) ;;
    *) set -- "$@" "$word" ;;
    esac
done
exec {program} "$@"
"""

Doctor = Callable[..., tuple[int, dict[str, dict[str, str]]]]


def program(path: Path, text: str) -> str:
    """A program of the test's own."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def found(name: str) -> str:
    """The path of a real program, without which there is nothing to test."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name}")
    return path


def examined(environment: Mapping[str, str], *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The doctor's exit status, and its rows by name, from a process of its own."""
    own = {name: value for name, value in os.environ.items() if name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-m", "sandbox_exec", "doctor", "--json", *words],
        env={**own, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == b""
    facts = json.loads(done.stdout)
    assert facts["ok"] == (done.returncode == 0)
    for row in facts["checks"]:
        assert bool(row["advice"]) == (row["verdict"] != "ok"), row
    return done.returncode, {row["name"]: row for row in facts["checks"]}


@pytest.fixture
def doctor(real_engine: RealEngine) -> Doctor:
    """The doctor with the engine that answers; a later option comes first."""

    def examine(*words: str) -> tuple[int, dict[str, dict[str, str]]]:
        usual = ("--image", IMAGE, "--engine", real_engine.program)
        return examined(real_engine.environment, *usual, *words)

    return examine


def failing(rows: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, row in rows.items() if row["verdict"] == "fail"}


@pytest.mark.parametrize("image", ["busybox", "minimal", "debian"])
def test_what_the_library_promises_holds(doctor: Doctor, image: str) -> None:
    """Proved in an image with all tools, with few, and with nothing but a shell."""
    status, rows = doctor("--image", f"sandbox-exec/{image}")
    assert (status, failing(rows)) == (0, set()), rows
    assert rows["network"]["seen"].startswith("off: no interface but lo, no route")
    assert rows["capabilities"]["seen"].startswith("exactly CHOWN, DAC_OVERRIDE, FOWNER")
    assert rows["memory"]["seen"].startswith("killed on the way to twice a cap of 64 MiB")
    assert rows["processes"]["seen"].startswith("refused after ")
    assert rows["time limit"]["seen"].startswith("killed after ")
    for name in ("no new privileges", "state", "kill tag", "cpus", "session"):
        assert rows[name]["verdict"] == "ok", rows[name]


def test_a_network_is_there_when_it_is_asked_for(doctor: Doctor) -> None:
    """An interface and a route lead out of the sandbox."""
    status, rows = doctor("--network")
    assert (status, rows["network"]["seen"].startswith("on, as asked: ")) == (0, True), rows


def test_a_workspace_root_is_seen_from_both_sides(
    doctor: Doctor, real_engine: RealEngine, tmp_path: Path
) -> None:
    """What a sandbox leaves in it is visible here, to root alone, and is removed (R4, R5)."""
    if not real_engine.environment.get("DOCKER_HOST", "unix://").startswith("unix://"):
        pytest.skip("the engine's host may be another one")
    root = tmp_path / "root"
    status, rows = doctor("--workspace-root", str(root))
    assert (status, rows["workspace root"]["verdict"]) == (0, "ok"), rows
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert [path.name for path in root.iterdir() if not path.name.startswith(".")] == []


def test_a_network_where_it_should_be_off(
    doctor: Doctor, real_engine: RealEngine, tmp_path: Path
) -> None:
    """Behind a program that drops the flag, say: the probe sees it, whatever was asked for."""
    text = DROPPING.format(flags="--network", program=found(real_engine.program))
    status, rows = doctor("--engine", program(tmp_path / "docker", text))
    assert (status, failing(rows)) == (1, {"network"}), rows
    assert "off, but there is interface" in rows["network"]["seen"]


def test_limits_without_effect(doctor: Doctor, real_engine: RealEngine, tmp_path: Path) -> None:
    """Each is reached for, and each is missed."""
    flags = "--memory | --memory-swap | --pids-limit | --cpus"
    text = DROPPING.format(flags=flags, program=found(real_engine.program))
    status, rows = doctor("--engine", program(tmp_path / "docker", text))
    # On a machine that is very busy, a loop may get too little to tell.
    assert (status, failing(rows) - {"cpus"}) == (1, {"memory", "processes"}), rows
    assert rows["cpus"]["verdict"] != "ok"
    assert rows["swap"]["verdict"] in {"warn", "ok"}
    assert "128 MiB fit into a sandbox of 64 MiB" in rows["memory"]["seen"]


def test_privileges_beyond_the_policy(
    doctor: Doctor, real_engine: RealEngine, tmp_path: Path
) -> None:
    """The kernel's own list is compared with the policy's."""
    flags = "--cap-drop | --security-opt"
    text = DROPPING.format(flags=flags, program=found(real_engine.program))
    status, rows = doctor("--engine", program(tmp_path / "docker", text))
    assert (status, failing(rows)) == (1, {"capabilities", "no new privileges"}), rows


def test_an_image_that_is_missing(doctor: Doctor) -> None:
    """It is named with the command that would fetch it, which is not run."""
    status, rows = doctor("--image", "sandbox-exec/absent")
    assert (status, failing(rows), rows["image"]["code"]) == (1, {"image"}, "image-missing")
    assert "pull sandbox-exec/absent" in rows["image"]["advice"]


def test_a_runtime_that_is_unknown(doctor: Doctor) -> None:
    """No sandbox can be made, for a reason that has a name."""
    status, rows = doctor("--runtime", "absent")
    assert (status, failing(rows)) == (1, {"sandbox"})
    assert rows["sandbox"]["code"] in {"bad-runtime", "container-start"}


async def test_the_engine_is_what_it_says(real_engine: RealEngine) -> None:
    """And where the environment has it; a probe agrees with what it says of its limits."""
    runner = real_engine.runner
    info = await detect_engine(real_engine.program, runner=runner)
    assert info.family == info.server == Path(real_engine.program).name
    assert info.version[0].isdigit()
    assert info.client_version[0].isdigit()
    assert info.host == real_engine.environment.get("DOCKER_HOST", info.host)
    probed = await detect_engine(real_engine.program, probe=IMAGE, runner=runner)
    assert (probed.limits.memory, probed.limits.pids, probed.limits.cpus) == (True, True, True)
    assert set(info.limits.ignored) <= {*probed.limits.ignored, "swap"}


async def test_a_quota_is_refused_or_works(real_engine: RealEngine) -> None:
    """The container that is made for it says the same as the engine does, where that is certain."""
    with deployment(real_engine) as place:
        bench = Bench(place.executor()._config, real_engine.runner)
        info = await detect_engine(real_engine.program, runner=real_engine.runner)
        works = await disk_quota_works(bench.client, None, IMAGE, deployment=place.name)
        assert works is bool(info.limits.disk) or info.limits.disk is None
        assert place.containers() == []


async def test_an_executor_says_what_is_not_bounded(real_engine: RealEngine) -> None:
    """From its first start on, also where that is an adoption."""
    info = await detect_engine(real_engine.program, runner=real_engine.runner)
    unbounded = ("disk", *(name for name in info.limits.ignored if name != "disk"))
    with deployment(real_engine) as place:
        for _ in range(2):
            async with place.executor() as executor:
                assert executor.info.unbounded == ("disk",)
                await executor.run(ExecSpec("true", "chat"))
                assert executor.info.unbounded == unbounded


def surroundings(**environ: str) -> dict[str, str]:
    """What a program needs to run, and nothing that says where an engine is."""
    return {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": "C", **environ}


async def refused(name: str, **environ: str) -> SandboxError:
    """The error that detection ends with in these surroundings; the doctor names the same."""
    environment = surroundings(**environ)
    with pytest.raises(SandboxError) as caught:
        await detect_engine(name, runner=SubprocessRunner(environment))
    status, rows = examined(environment, "--engine", name)
    (code,) = (rows[name]["code"] for name in failing(rows))
    assert (status, code) == (1, caught.value.code)
    # The row of the engine is the fault's own, or else says which program was asked.
    assert name in rows["engine"]["seen"]
    return caught.value


async def test_no_program() -> None:
    """Neither a name nor a path that leads to one."""
    for name in ("sandbox-exec-absent", "/absent/docker", "/etc/passwd", "/etc"):
        error = await refused(name)
        assert isinstance(error, EngineNotFoundError)
        assert (error.code, name in str(error)) == ("engine-not-found", True)


async def test_a_program_that_is_no_engine(tmp_path: Path) -> None:
    """It runs, fails, prints something else, or cannot even be run."""
    docker = tmp_path / "docker"
    for text in ("#!/bin/sh\n", "#!/bin/sh\necho '{}'\n", "#!/bin/sh\nexit 3\n"):
        assert (await refused(program(docker, text))).code == "not-an-engine"
    error = await refused(program(docker, "no program at all\n"))
    assert (error.code, "Exec format error" in str(error)) == ("engine-not-found", True)


async def test_no_daemon(tmp_path: Path) -> None:
    """Nothing is at its address."""
    error = await refused(found("docker"), DOCKER_HOST=f"unix://{tmp_path}/absent.sock")
    assert isinstance(error, DaemonUnavailableError)
    assert (error.code, "Cannot connect" in str(error)) == ("daemon-unavailable", True)


async def test_a_daemon_that_this_user_may_not_use(real_engine: RealEngine, tmp_path: Path) -> None:
    """The socket is there, and is not for everybody."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    host = real_engine.environment.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if Path(real_engine.program).name != "docker" or not host.startswith("unix://"):
        pytest.skip("there is no socket of a docker here")
    text = f"#!/bin/sh\nexec {found('setpriv')} --reuid 65534 --regid 65534 --clear-groups "
    tmp_path.chmod(0o755)
    error = await refused(
        program(tmp_path / "docker", f'{text}{found("docker")} "$@"\n'), DOCKER_HOST=host
    )
    assert (error.code, error.retryable) == ("daemon-denied", False)


async def test_a_context_that_points_at_nothing(tmp_path: Path) -> None:
    """It is there, and no engine where it points; then it is not there either."""
    docker, config = found("docker"), str(tmp_path)
    environment = surroundings(DOCKER_CONFIG=config)
    for words in (
        ("context", "create", "lab", "--docker", f"host=unix://{tmp_path}/absent.sock"),
        ("context", "use", "lab"),
    ):
        subprocess.run([docker, *words], env=environment, check=True, capture_output=True)
    error = await refused(docker, DOCKER_CONFIG=config)
    assert (error.code, "context 'lab' points at unix://" in str(error)) == ("bad-context", True)
    shutil.rmtree(tmp_path / "contexts")
    error = await refused(docker, DOCKER_CONFIG=config)
    assert (error.code, "lab" in str(error)) == ("bad-context", True)
    error = await refused(docker, DOCKER_CONFIG=config, DOCKER_CONTEXT="other")
    assert (error.code, "other" in str(error)) == ("bad-context", True)


def podman_environment() -> dict[str, str]:
    """Where podman finds its configuration."""
    wanted = ("HOME", "XDG_RUNTIME_DIR")
    own = {k: v for k, v in os.environ.items() if k in wanted or k.startswith("CONTAINERS_")}
    return surroundings(**own)


@pytest.mark.parametrize("banner", ["", f"echo '{BANNER}' >&2\n"])
async def test_a_docker_that_is_podman(tmp_path: Path, banner: str) -> None:
    """A shim, with a banner on standard error or without: asked what it is, it says podman (B8)."""
    podman = found("podman")
    shim = program(tmp_path / "docker", f'#!/bin/sh\n{banner}exec {podman} "$@"\n')
    link = tmp_path / "bin" / "docker"
    link.parent.mkdir()
    link.symlink_to(podman)
    for name in (shim, str(link)):
        info = await detect_engine(name, runner=SubprocessRunner(podman_environment()))
        assert isinstance(info, EngineInfo)
        assert (info.family, info.server, info.program) == ("podman", "podman", name)
        assert info.version == info.client_version


async def test_a_podman_whose_service_is_not_there(tmp_path: Path) -> None:
    """It does not run here what was meant for elsewhere."""
    found("podman")
    environment = {**podman_environment(), "CONTAINER_HOST": f"unix://{tmp_path}/absent.sock"}
    with pytest.raises(DaemonUnavailableError) as caught:
        await detect_engine("podman", runner=SubprocessRunner(environment))
    assert caught.value.code == "daemon-unavailable"


async def test_what_is_on_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A docker of this user's, before those in the usual places."""
    text = f'#!/bin/sh\nexec {found("docker")} "$@"\n'
    program(tmp_path / "docker", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DaemonUnavailableError) as caught:
        await detect_engine(docker_host=f"unix://{tmp_path}/absent.sock")
    assert caught.value.argv[0] == "docker"
