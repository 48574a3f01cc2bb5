"""What a spawn request may hold, and what follows from a backend's options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from sandbox_exec import DockerBackend, DockerBackendOptions, SpawnOptions, SpawnRequest
from sandbox_exec._guest import SPAWN_VARIABLE
from sandbox_exec._naming import container_name, is_key, session_key
from sandbox_exec._policy import make_policy, spawn_preset
from sandbox_exec._spawn.line import ENV_BYTES, check_environment, spawn_line
from sandbox_exec._spawn.options import confinement, env_hint, inner_directory, spawn_key

LONGEST = 131_071


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda: SpawnRequest(""), "command"),
        (lambda: SpawnRequest("-x"), "command"),
        (lambda: SpawnRequest(b"sh"), "command must be a str"),  # type: ignore[arg-type]  # refused
        (lambda: SpawnRequest("a\0b"), "NUL"),
        (lambda: SpawnRequest("sh", ("a\0b",)), "argument 1 must not contain a NUL"),
        (lambda: SpawnRequest("sh", ("ok", "\udcff")), "argument 2 contains a surrogate"),
        (lambda: SpawnRequest("sh", ("x" * (LONGEST + 1),)), f"at most {LONGEST}"),
        (lambda: SpawnRequest("sh", ("x" * LONGEST,) * 9), "args take"),
        (lambda: SpawnRequest("sh", ("x",) * 110_000), "9 besides its own for each of 110000"),
        (lambda: SpawnRequest("sh", "abc"), "sequence"),
        (lambda: SpawnRequest("sh", (1,)), "argument 1 must be a str"),  # type: ignore[arg-type]  # refused
        (lambda: SpawnOptions(env={"A B": "x"}), "no shell name"),
        (lambda: SpawnOptions(env={"A": "a\0"}), "NUL"),
        (lambda: SpawnOptions(env={"A": "\udcff"}), "surrogate"),
        (lambda: SpawnOptions(env={"A": "x" * LONGEST}), "at most"),
        (lambda: SpawnOptions(env=[("A", "b")]), "mapping"),  # type: ignore[arg-type]  # refused
        (lambda: SpawnOptions(cwd=""), "empty"),
        (lambda: SpawnOptions(cwd=7), "str"),  # type: ignore[arg-type]  # refused
        (lambda: SpawnOptions(files={"x": b""}), "absolute"),
        (lambda: SpawnOptions(files={"/x": "text"}), "bytes"),  # type: ignore[dict-item]  # refused
        (lambda: SpawnOptions(files={"/x/": b""}), "directory"),
        (lambda: SpawnOptions(files=["/x"]), "map"),  # type: ignore[arg-type]  # refused
        (lambda: SpawnOptions(extra=3), "extra must map"),  # type: ignore[arg-type]  # refused
        (lambda: SpawnOptions(extra={1: 2}), "extra must map"),  # type: ignore[dict-item]  # refused
        (lambda: SpawnRequest("ls", (), {"cwd": "/"}), "must be SpawnOptions, not dict"),  # type: ignore[arg-type]  # refused
        (lambda: DockerBackend({"image": "x"}), "must be DockerBackendOptions"),  # type: ignore[arg-type]  # refused
    ],
)
def test_what_no_command_line_can_hold_is_refused(
    request_of: Callable[[], object], words: str
) -> None:
    """Before anything is started, and in words that say what it was (F8)."""
    with pytest.raises(ValueError, match=words):
        request_of()


def test_what_is_given_is_kept_and_cannot_be_changed() -> None:
    """Lists and paths are taken as well; no value shows in a representation."""
    env = {"TOKEN": "s3cret"}
    options = SpawnOptions(cwd=Path("/srv"), env=env, files={"/x": b"s3cret"}, extra={"a": 1})
    request = SpawnRequest("sh", ["-c", "é"], options)
    env.clear()
    assert (request.args, options.cwd, options.env) == (("-c", "é"), "/srv", {"TOKEN": "s3cret"})
    assert "s3cret" not in repr(request)
    assert SpawnRequest("x", ("y" * LONGEST,)).args[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mount_workspace": True}, "workspace_root"),
        ({"mount_workspace": 1, "workspace_root": "/x"}, "mount_workspace"),
        ({"workspace_root": "relative"}, "workspace_root"),
        ({"workspace_root": "/a:b"}, "workspace_root"),
        ({"user": "root"}, "UID:GID"),
        ({"user": 1000}, "text of the form UID:GID"),
        ({"docker_host": "/run/x.sock"}, "docker_host"),
        ({"disk": "1k"}, "disk"),
        ({"disk": "much"}, "size"),
        ({"memory": "1k"}, "memory"),
        ({"cpus": 0}, "cpus"),
        ({"image": "-x"}, "image"),
        ({"engine": "a b"}, "engine"),
        ({"deployment": "A"}, "deployment"),
        ({"start_timeout": 0}, "start_timeout"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    """At construction, like those of sessions."""
    with pytest.raises(ValueError, match=words):
        DockerBackendOptions(**options)


def test_defaults_are_those_of_the_seed() -> None:
    """No limit of its own, a network, nothing mounted."""
    options = DockerBackendOptions()
    assert options.label == "docker:nikolaik/python-nodejs:python3.11-nodejs20"
    what = confinement(options, "docker", (1000, 1000))
    assert (what.user, what.mount, what.network, what.cpus, what.memory, what.disk) == (
        *("0:0", None, True),
        *(None, None, None),
    )
    hint = env_hint(options)
    assert (hint.mode, hint.label, hint.inner_os) == ("docker", options.label, "linux")


@pytest.mark.parametrize(
    ("options", "family", "user"),
    [
        ({}, "docker", "0:0"),
        ({"mount_workspace": True}, "docker", "12:34"),
        ({"mount_workspace": True}, "podman", "0:0"),
        ({"mount_workspace": True, "user": "5:6"}, "podman", "5:6"),
        ({"user": "5:6"}, "docker", "5:6"),
    ],
)
def test_files_in_a_mounted_workspace_belong_to_who_runs_this(
    options: dict[str, Any], family: Literal["docker", "podman"], user: str
) -> None:
    """Podman maps users by itself. Source: S1."""
    made = DockerBackendOptions(workspace_root="/srv/ws", **options)
    assert confinement(made, family, (12, 34)).user == user


def test_every_setting_that_matters_has_a_container_of_its_own() -> None:
    """And the same settings have the same one, whoever asks (B4)."""
    base: dict[str, Any] = {"image": "busybox", "workspace_root": "/srv/ws"}
    changes: list[dict[str, Any]] = [
        {},
        {"image": "debian"},
        {"mount_workspace": True},
        {"runtime": "runsc"},
        {"user": "5:6"},
        {"cpus": 1.5},
        {"memory": "1g"},
        {"disk": "1g"},
        {"no_network": True},
    ]
    made = [DockerBackendOptions(**{**base, **change}) for change in changes]
    whats = [confinement(options, "docker", (0, 0)) for options in made]
    keys = [spawn_key(what) for what in whats]
    assert len(set(keys)) == len(keys)
    assert all(is_key(key) for key in keys)
    policies = {make_policy(spawn_preset(what), "sha256:1").fingerprint for what in whats}
    assert len(policies) == len(keys)
    again = confinement(DockerBackendOptions(**base, start_timeout=5), "docker", (0, 0))
    assert spawn_key(again) == keys[0]
    assert keys[0].startswith("busybox-")


def test_a_backends_container_is_never_a_sessions() -> None:
    """Whatever the session calls itself."""
    key = session_key("x")
    assert container_name("d", key, "spawn") != container_name("d", key)
    assert container_name("d", key, "spawn") not in {container_name("d", "spawn"), "sbx.d.spawn"}


def test_the_spawn_preset_is_the_seeds_hardening() -> None:
    """Without --init, --rm and the host's temporary directory (B1, B4, F6)."""
    options = DockerBackendOptions(
        image="busybox", memory="64m", cpus=0.5, disk="1g", no_network=True
    )
    preset = spawn_preset(confinement(options, "docker", (1, 1)))
    flags = " ".join(preset.flags("key", True))
    for wanted in (
        "--cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER --cap-add KILL",
        "--security-opt no-new-privileges",
        "--pids-limit 256",
        "--network none",
        "--cpus 0.5",
        f"--memory {64 * 2**20} --memory-swap {64 * 2**20}",
        "--tmpfs /tmp:rw,exec,nosuid,mode=1777,size=512m",
        "--tmpfs /var/tmp:rw,noexec,nosuid,mode=1777,size=256m",
        "--tmpfs /run:rw,noexec,nosuid,size=64m",
        "--tmpfs /run/sandbox-exec:",
        "--log-driver none",
        "--stop-signal KILL",
        "--user 0:0",
    ):
        assert wanted in flags, wanted
    assert preset.wishes == ("--storage-opt", f"size={2**30}")
    for unwanted in ("--init", "--rm", "--privileged", "--volume", "--storage-opt", "--workdir"):
        assert unwanted not in flags.split()


def test_unset_limits_are_no_flags() -> None:
    """Unlimited, as in the seed; only the number of processes is always bounded."""
    preset = spawn_preset(confinement(DockerBackendOptions(), "docker", (1, 1)))
    flags = preset.flags("key", True)
    assert not {"--cpus", "--memory", "--memory-swap", "--network", "--runtime"} & set(flags)
    assert preset.wishes == ()
    runtime = spawn_preset(confinement(DockerBackendOptions(runtime="runsc"), "docker", (1, 1)))
    assert runtime.flags("key", True)[:2] == ("--runtime", "runsc")


def test_a_link_to_the_workspace_is_the_workspace(tmp_path: Path) -> None:
    """A program knows its own directory by its real path, whatever it was told."""
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "sub").mkdir(parents=True)
    link.symlink_to(real)
    options = DockerBackendOptions(mount_workspace=True, workspace_root=link)
    assert inner_directory(options, str(link / "sub")) == "/workspace/sub"
    assert inner_directory(options, str(real / "sub")) == "/workspace/sub"
    assert inner_directory(options, str(real)) == "/workspace"


def test_variables_travel_in_ours_only() -> None:
    """No name and no value of the caller's is in the line; what is too much is refused (B2)."""
    env = {"SECRET_NAME": "s3cret", "BIG": "é" * 60_000, "BIGGER": "x" * 120_000}
    line = spawn_line("box", mark="7", cwd="/srv", env=env, command=("sh", "-c", "x"))
    assert not any("s3cret" in word or "SECRET_NAME" in word for word in line.argv)
    assert line.argv[:4] == ("exec", "--interactive", "--workdir", "/")
    assert line.argv[-3:] == ("sh", "-c", "x")
    names = [name for name in line.env if name != SPAWN_VARIABLE]
    assert names == [f"SANDBOX_EXEC_ENV{n}" for n in range(len(names))]
    assert len(names) > 2
    assert all(len(value.encode()) <= 100_000 for value in line.env.values())
    text = "".join(line.env[name] for name in names)
    assert text.startswith("export SECRET_NAME='s3cret'\n")
    bare = spawn_line("box", mark="7", cwd="", env=None, command=("sh",))
    assert ("--workdir" in bare.argv, set(bare.env)) == (False, {SPAWN_VARIABLE})
    assert "s3cret" not in repr(line)
    with pytest.raises(ValueError, match=f"at most {ENV_BYTES}"):
        check_environment({f"V{n}": "x" * 100_000 for n in range(6)})
