"""The doctor proves what holds, names what does not, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from sandbox_exec import Completed, SandboxConfig, cli, get_executor
from sandbox_exec._doctor import examine
from sandbox_exec._naming import session_key
from sandbox_exec._verdicts import Check
from sandbox_exec.testing import FakeDaemon

from .programs import Programs
from .test_detect import PODMAN

pytestmark = pytest.mark.anyio

IMAGE = "sandbox-exec/busybox"
ROWS = (
    *("engine", "host", "sandbox", "network", "capabilities", "no new privileges", "state"),
    *("kill tag", "time limit", "memory", "swap", "processes", "cpus", "disk quota", "session"),
)
DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///x.sock: "
    'Get "http://x/v1.50/version": dial unix /x.sock: connect: permission denied'
)


DOWN = "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"
NO_PODMAN = (
    b'Error: unable to connect to Podman socket: Get "http://d/_ping": dial unix /x: '
    b"connect: no such file or directory\n"
)


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves its logging behind, or depends on the machine's environment."""
    for name in ("SANDBOX_EXEC_ENGINE", "DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)
    yield
    structlog.reset_defaults()


async def rows(
    daemon: FakeDaemon | Programs,
    override: str | None = None,
    **settings: Any,  # noqa: ANN401  # SandboxConfig's
) -> dict[str, Check]:
    """Every row by its name; nothing of the examination is left on the engine or here."""
    config = SandboxConfig(**{"image": IMAGE, **settings})
    found = [check async for check in examine(config, override=override, runner=daemon)]
    assert get_executor() is None
    if isinstance(daemon, FakeDaemon):
        assert (daemon.containers, daemon.conversations) == ({}, 0)
    for check in found:
        assert bool(check.advice) == (check.verdict != "ok"), check
        assert "\n" not in check.advice
    assert len({check.name for check in found}) == len(found)
    return {check.name: check for check in found}


def verdicts(found: dict[str, Check], verdict: str) -> set[str]:
    """The names of the rows that have this verdict."""
    return {name for name, check in found.items() if check.verdict == verdict}


async def test_a_set_up_that_is_well() -> None:
    """Every row is good, but for the disk, which nothing bounds."""
    found = await rows(FakeDaemon())
    assert tuple(found) == ROWS
    assert verdicts(found, "warn") == {"disk quota"}
    assert verdicts(found, "fail") == set()
    assert found["capabilities"].seen.startswith("exactly CHOWN, DAC_OVERRIDE")
    assert "a connection was refused" in found["network"].seen


async def test_a_disk_that_can_be_bounded() -> None:
    """Then there is nothing to warn of."""
    assert verdicts(await rows(FakeDaemon(quotas=True)), "warn") == set()


async def test_it_probes_under_the_policy_of_the_settings() -> None:
    """The flags of the probe are those of every sandbox, from the same place."""
    daemon = FakeDaemon()
    found = await rows(daemon, memory="256m", pids_limit=99, cpus=0.5, runtime="runc")
    look = next(argv for argv in daemon.calls if argv[1] == "run")
    assert look[look.index("--memory") + 1] == str(256 * 2**20)
    assert look[look.index("--runtime") + 1] == "runc"
    assert "256 MiB shown inside" in found["memory"].seen
    assert "99 shown inside" in found["processes"].seen
    assert found["cpus"].seen == "0.5 shown inside"


async def test_a_network_that_is_asked_for() -> None:
    """Then it has to be there."""
    assert (await rows(FakeDaemon(), network=True))["network"].seen == "on, as asked: eth0"


@pytest.mark.parametrize(
    ("ignored", "failing", "warned"),
    [
        ("network", "network", set()),
        ("capabilities", "capabilities", set()),
        ("no-new-privileges", "no new privileges", set()),
        ("state", "state", set()),
        ("time", "time limit", set()),
        ("memory", "memory", {"host", "swap"}),
        ("pids", "processes", {"host"}),
        ("cpus", "cpus", {"host"}),
        ("swap", None, {"host", "swap"}),
    ],
)
async def test_what_an_engine_does_not_keep(
    ignored: str, failing: str | None, warned: set[str]
) -> None:
    """Each is found out by its own probe, whether or not the engine admits it."""
    found = await rows(FakeDaemon(ignores=[ignored]))
    assert verdicts(found, "fail") == ({failing} if failing else set())
    assert verdicts(found, "warn") == warned | {"disk quota"}


async def test_without_an_engine_there_is_one_row() -> None:
    """It says which of both is missing, and what to do."""
    found = await rows(Programs({}))
    assert (tuple(found), found["engine"].code) == (("engine",), "engine-not-found")
    found = await rows(Programs({"docker": {"version": Completed(0)}}), "docker")
    assert (tuple(found), found["engine"].code) == (("engine",), "not-an-engine")


@pytest.mark.parametrize(
    ("words", "code"), [(None, "daemon-unavailable"), (DENIED, "daemon-denied")]
)
async def test_without_a_daemon_there_is_its_row(words: str | None, code: str) -> None:
    """No daemon is one thing, and one that may not be used another; which program was tried?"""
    daemon = FakeDaemon()
    daemon.down(words)
    found = await rows(daemon)
    assert (tuple(found), found["daemon"].code) == (("engine", "daemon"), code)
    assert (found["engine"].verdict, found["engine"].seen) == ("ok", "docker was tried")
    assert "--engine" not in found["daemon"].advice


async def test_an_address_that_leads_nowhere_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start the service of this host would not help."""
    daemon = FakeDaemon()
    daemon.down()
    assert "systemctl start docker" in (await rows(daemon))["daemon"].advice
    monkeypatch.setenv("CONTAINER_HOST", "ssh://podmans")
    assert "systemctl start docker" in (await rows(daemon))["daemon"].advice
    monkeypatch.setenv("DOCKER_HOST", "nonsense")
    advice = (await rows(daemon))["daemon"].advice
    assert ("systemctl" in advice, "DOCKER_HOST says nonsense" in advice) == (False, True)
    advice = (await rows(daemon, docker_host="ssh://nobody"))["daemon"].advice
    assert "--docker-host says ssh://nobody" in advice
    found = await rows(Programs({"docker": {}}), docker_host="tcp://10.0.0.1:1")
    assert "--docker-host says tcp://10.0.0.1:1" in found["daemon"].advice
    found = await rows(Programs({"podman": {"version": Completed(125, b"", NO_PODMAN)}}), "podman")
    assert "CONTAINER_HOST says ssh://podmans" in found["daemon"].advice


@pytest.mark.parametrize(
    "words",
    [
        b"Failed to initialize: ssh host connection is not valid: invalid SSH URL",
        b"Failed to initialize: unable to resolve docker endpoint: invalid bind address format: a",
        b'Error: unable to create connection. "foo" is not a supported schema',
        b'Error: value of CONTAINER_HOST is not a valid url: 10.0.0.1:2375: parse "10.0.0.1:2375"',
    ],
)
async def test_an_address_that_cannot_be_read_is_not_the_programs_fault(words: bytes) -> None:
    """It is docker's or podman's own all the same."""
    found = await rows(Programs({"docker": {"version": Completed(1, b"", words)}}), "docker")
    assert found["daemon"].code == "daemon-unavailable"


async def test_another_engine_that_answers_is_named() -> None:
    """Docker is there and its engine is not; or the program that was asked for is none."""
    down = {"version": Completed(1, b"", f"{DOWN}\n".encode())}
    found = await rows(Programs({"docker": down, "podman": PODMAN}))
    assert "Or use podman, which answers: --engine podman." in found["daemon"].advice
    found = await rows(Programs({"/usr/bin/podman": PODMAN}), "/opt/absent")
    assert "Or use /usr/bin/podman" in found["engine"].advice


async def test_a_podman_that_is_down_is_started_in_its_own_way() -> None:
    """Docker's advice would be none."""
    found = await rows(Programs({"podman": {"version": Completed(125, b"", NO_PODMAN)}}), "podman")
    assert "podman machine start" in found["daemon"].advice


async def test_a_name_that_no_image_can_have() -> None:
    """To start the engine would not help."""
    daemon = FakeDaemon()
    words = "Error response from daemon: no such image: a@sha256:0: invalid reference format"
    daemon.fail_next("image inspect", stderr=words)
    found = await rows(daemon, image="a@sha256:0")
    assert (verdicts(found, "fail"), found["image"].code) == ({"image"}, "bad-image")
    assert "Correct the name" in found["image"].advice


async def test_an_image_that_is_missing_is_not_fetched() -> None:
    """To fetch one takes long, and may not be wanted."""
    daemon = FakeDaemon(registry=["far/away"])
    found = await rows(daemon, image="far/away")
    assert verdicts(found, "fail") == {"image"}
    assert (tuple(found)[-1], found["image"].code) == ("image", "image-missing")
    assert "docker pull far/away" in found["image"].advice
    assert "pull" not in {argv[1] for argv in daemon.calls}


async def test_an_image_without_a_shell() -> None:
    """Nothing can be looked into."""
    daemon = FakeDaemon()
    words = (
        "docker: Error response from daemon: failed to create shim: OCI runtime create failed: "
        'runc create failed: unable to start container process: exec: "sh": executable file not '
        "found in $PATH: unknown.\n"
    )
    daemon.fail_next("run --rm", stderr=words, exit_code=127)
    found = await rows(daemon)
    assert (tuple(found)[-1], found["sandbox"].code) == ("sandbox", "no-shell")


async def test_a_shell_that_does_not_get_through_a_short_script() -> None:
    """It starts, and is broken."""
    daemon = FakeDaemon()
    (look, *_) = (text for text in daemon._book.probes if "CapEff" in text)

    async def break_off(call: Any) -> int:  # noqa: ANN401  # a FakeCall
        await call.stdout(b"CapEff 0\n")
        await call.stderr(b"sh: read: not found\n")
        return 2

    daemon.commands[look] = break_off
    found = await rows(daemon)
    assert (tuple(found)[-1], found["sandbox"].code) == ("sandbox", "no-shell")
    assert "sh: read: not found" in found["sandbox"].seen


@pytest.mark.parametrize("limit", ["memory", "pids", "cpus", "time"])
async def test_a_probe_that_comes_to_nothing(limit: str) -> None:
    """It could not be seen whether a limit holds; for the time limit that is too little."""
    daemon = FakeDaemon(ignores=["cpus"])
    (reach, *_) = (text for text in daemon._book.probes if "SANDBOX_EXEC_FAR" in text)
    usual = daemon._book.probes[reach]

    async def fail_at(call: Any) -> int:  # noqa: ANN401  # a FakeCall
        if call.env["SANDBOX_EXEC_LIMIT"] == limit:
            return 3
        return await usual(call)

    daemon.commands[reach] = fail_at
    found = await rows(daemon)
    name = {"pids": "processes", "time": "time limit"}.get(limit, limit)
    assert found[name].verdict == ("fail" if limit == "time" else "warn")
    assert ("did not say" if limit == "cpus" else "ended with 3") in found[name].seen


@pytest.mark.parametrize(
    ("share", "control", "verdict"),
    [
        (0.1, 0.9, "ok"),
        (0.14, 0.4, "ok"),
        (0.1, 0.12, "warn"),
        (0.0, 0.0, "warn"),
        (0.18, 0.9, "warn"),
        (0.3, 0.9, "fail"),
        (1, 1, "fail"),
    ],
)
async def test_a_share_that_only_a_busy_loop_can_tell(
    share: float, control: float, verdict: str
) -> None:
    """A busy machine gives it little, cap or none: then a loop without one has to get more."""
    daemon = FakeDaemon(ignores=["cpus"])
    (reach, *_) = (text for text in daemon._book.probes if "SANDBOX_EXEC_FAR" in text)
    usual = daemon._book.probes[reach]

    async def spin(call: Any) -> int:  # noqa: ANN401  # a FakeCall
        if call.env["SANDBOX_EXEC_LIMIT"] != "cpus":
            return await usual(call)
        got = share if call.container.flags["--cpus"][-1] == "0.1" else control
        await call.stdout(b"reached 200\n0m%.2fs 0m%.2fs\n" % (got, got))
        return 0

    daemon.commands[reach] = spin
    assert (await rows(daemon))["cpus"].verdict == verdict


@pytest.mark.parametrize(
    ("limit", "name"),
    [("memory", "memory"), ("pids", "processes"), ("cpus", "cpus"), ("time", "time limit")],
)
async def test_a_probe_whose_sandbox_cannot_be_made(limit: str, name: str) -> None:
    """The engine's words are in its row, and the examination goes on."""
    daemon = FakeDaemon(ignores=["cpus"])
    for _ in range(1 + ["time", "memory", "pids", "cpus"].index(limit)):
        daemon.spare_next("run --rm")
    daemon.fail_next("run --rm", stderr="docker: odd.\n", exit_code=125)
    found = await rows(daemon)
    assert "docker: odd." in found[name].seen
    assert tuple(found) == ROWS


async def test_a_sandbox_that_dies_of_its_memory_as_a_whole() -> None:
    """The kernel chose the guest, which proves the cap all the same."""
    daemon = FakeDaemon()
    for _ in range(2):
        daemon.behave_next()
    daemon.die_after_sent_next()
    found = await rows(daemon)
    assert found["memory"].verdict == "ok"


async def test_a_session_that_cannot_be_made() -> None:
    """The engine's words, in the last row."""
    daemon = FakeDaemon()
    daemon.fail_next("run", stderr="docker: Error response from daemon: odd.\n", exit_code=125)
    found = await rows(daemon)
    assert (verdicts(found, "fail"), "odd" in found["session"].seen) == ({"session"}, True)


async def test_a_session_that_fails_is_about_its_workspace_root() -> None:
    """Its row is called as the one that is well, where there is a directory to ask about."""
    daemon = FakeDaemon()
    words = "docker: Error response from daemon: error while creating mount source path '/w': no.\n"
    daemon.fail_next("run", stderr=words, exit_code=125)
    daemon.fail_next("run", stderr=words, exit_code=125)
    found = await rows(daemon, workspace_root="/w")
    assert (verdicts(found, "fail"), "session" in found) == ({"workspace root"}, False)


async def test_a_session_that_cannot_write() -> None:
    """It is there, and of no use."""
    daemon = FakeDaemon()
    (reach, *_) = (text for text in daemon._book.probes if "SANDBOX_EXEC_FAR" in text)
    usual = daemon._book.probes[reach]

    async def refuse(call: Any) -> int:  # noqa: ANN401  # a FakeCall
        if call.env["SANDBOX_EXEC_LIMIT"] == "workspace":
            await call.stderr(b"sh: can't create seen: No space left on device\n")
            return 1
        return await usual(call)

    daemon.commands[reach] = refuse
    found = await rows(daemon)
    assert (found["session"].verdict, "No space left" in found["session"].seen) == ("fail", True)


def shown_workspaces(root: Path) -> FakeDaemon:
    """An engine whose workspaces are visible here, as they are on its own host."""
    daemon = FakeDaemon()
    (reach, *_) = (text for text in daemon._book.probes if "SANDBOX_EXEC_FAR" in text)
    usual = daemon._book.probes[reach]

    async def show(call: Any) -> int:  # noqa: ANN401  # a FakeCall
        if call.env["SANDBOX_EXEC_LIMIT"] == "workspace":
            (mounted,) = call.container.mounts.values()
            place = root / Path(mounted).name
            place.mkdir()
            (place / "seen").touch()
        return await usual(call)

    daemon.commands[reach] = show
    return daemon


@pytest.mark.parametrize(("mode", "verdict"), [(0o700, "ok"), (0o755, "fail")])
async def test_a_workspace_root_that_is_visible(tmp_path: Path, mode: int, verdict: str) -> None:
    """A file that a sandbox leaves is seen here, and nobody else may look for it (R5)."""
    tmp_path.chmod(mode)
    found = await rows(shown_workspaces(tmp_path), workspace_root=str(tmp_path))
    assert found["workspace root"].verdict == verdict
    assert "session" not in found


@pytest.mark.parametrize("there", [True, False])
async def test_a_workspace_root_that_is_elsewhere(tmp_path: Path, there: bool) -> None:
    """The daemon's directory of that name is another one, as in docker in docker (R4)."""
    root = tmp_path if there else tmp_path / "absent"
    found = await rows(FakeDaemon(), workspace_root=str(root))
    assert found["workspace root"].verdict == "warn"
    assert "not visible from here" in found["workspace root"].seen


async def test_a_workspace_root_that_only_root_may_look_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is as it should be."""

    def denied(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", denied)
        found = await rows(FakeDaemon(), workspace_root=str(tmp_path))
    assert "only root may look" in found["workspace root"].seen


async def test_a_podman_where_the_library_would_run_docker() -> None:
    """The settings have to say so, or nothing will work."""
    daemon = FakeDaemon(program="podman")
    found = await rows(daemon)
    assert found["engine"].verdict == "warn"
    assert "engine='podman'" in found["engine"].advice
    assert verdicts(await rows(daemon, "podman"), "warn") == {"disk quota"}


def test_a_session_is_removed_with_its_workspace() -> None:
    """Both by the key that its id has, so no other session is touched."""
    daemon = FakeDaemon()
    assert cli.main(["doctor", "--image", IMAGE, "--workspace-root", "/srv/w"], runner=daemon) == 0
    disposals = [argv[-1] for argv in daemon.calls if "dispose" in argv]
    assert [key.startswith("doctor-") for key in disposals] == [True]
    assert disposals[0] != session_key("doctor")


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each check, one line of advice below what is not well, and the status."""
    assert cli.main(["doctor", "--image", IMAGE], runner=FakeDaemon(ignores=["network"])) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok    engine             docker is docker 28.2.2, engine 20.10.24"
    assert lines[3] == "fail  network            off, but there is interface eth0, a route"
    assert lines[4].startswith(" " * 25 + "-> The engine does not keep --network none")
    assert len(lines) == len(ROWS) + 2
    assert cli.main(["doctor", "--image", IMAGE], runner=FakeDaemon()) == 0


def test_an_object_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """The same, and the code of a fault."""
    daemon = FakeDaemon()
    assert cli.main(["doctor", "--image", IMAGE, "--json"], runner=daemon) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], [row["name"] for row in facts["checks"]]) == (True, list(ROWS))
    assert set(facts["checks"][0]) == {"name", "verdict", "seen", "advice", "code"}
    daemon.down()
    assert cli.main(["doctor", "--image", IMAGE, "--json"], runner=daemon) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["checks"][-1]["code"]) == (False, "daemon-unavailable")


def test_the_engine_of_the_environment_is_the_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the other verbs; a flag comes first."""
    monkeypatch.setenv("SANDBOX_EXEC_ENGINE", "/opt/absent")
    assert cli.main(["doctor", "--image", IMAGE], runner=FakeDaemon()) == 1
    assert "'/opt/absent'" in capsys.readouterr().out
    assert cli.main(["doctor", "--image", IMAGE, "--engine", "docker"], runner=FakeDaemon()) == 0


def test_settings_that_cannot_work_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is started."""
    daemon = FakeDaemon()
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--image", "a b"], runner=daemon)
    assert (ended.value.code, daemon.calls) == (2, [])
    assert capsys.readouterr().err.startswith("sandbox-exec: image must be")


def test_without_a_runner_it_starts_real_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """One that is no engine is told apart from docker by its answer."""
    assert cli.main(["doctor", "--image", IMAGE, "--engine", "true"]) == 1
    assert "'true' does not answer as docker or podman do" in capsys.readouterr().out
