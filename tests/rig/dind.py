"""Docker in docker: a command inside a container whose own dockerd is newer than the one that runs
the container.

Everything is copied in and nothing is mounted from here, so that it also works where the engine is
on another machine or is itself nested.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.rig.child import run_child
from tests.rig.engine import Engine
from tests.rig.images import IMAGES, Image, import_tarball, is_current
from tests.rig.nested_rootfs import VENV, nested_rootfs
from tests.rig.processes import RigError

_REPO = Path(__file__).resolve().parents[2]
_REFERENCE = "sandbox-exec/nested"
_WORK = "work"
_CACHE = "var/cache/sandbox-exec-rig"
_DATA = "/var/lib/docker"

# Not --privileged: it asks for every capability, and a machine that lacks one of them then refuses
# the container.
_FLAGS = (
    "--cap-add=ALL",
    "--cap-drop=SYS_RESOURCE",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--security-opt=systempaths=unconfined",
    "--cgroupns=host",
    "--volume=/sys/fs/cgroup:/sys/fs/cgroup",
    # A volume is on the disk of the engine: overlay file systems do not stack.
    f"--volume={_DATA}",
    "--network=none",
    f"--workdir=/{_WORK}",
)

_START = """\
pip install --quiet --no-index --no-build-isolation --no-deps --editable . &&
exec python3 -m tests.rig run --images all -- "$@"
"""

_PASSED_ON = ("CI", "PYTEST_ADDOPTS")
_SKIPPED = frozenset({"__pycache__", "_build", "build", "dist", "htmlcov", "node_modules"})
_HIDDEN_BUT_OURS = frozenset({".ci", ".github"})


def run_inside(
    argv: Sequence[str],
    engine: Engine,
    *,
    variables: Mapping[str, str] | None = None,
    fetch: Mapping[str, Path] | None = None,
) -> int:
    """Run the command in the nested container and return its exit status; the container is gone
    afterwards, but for the files of its working tree that ``fetch`` copies out.
    """
    if engine.command != "docker":
        raise RigError("docker in docker needs docker")
    image = Image(nested_rootfs(_REPO / "requirements-dev.txt"))
    if not is_current(_REFERENCE, image, environment=engine.environment):
        import_tarball(image, _REFERENCE, environment=engine.environment)
    tarballs = sorted({known.base.build() for known in IMAGES.values()})
    start = ["tini", "--", "sh", "-c", _START, "sh", *argv]
    container = _docker(
        engine,
        ["create", "--pull=never", *_FLAGS, *_environment(variables or {}), _REFERENCE, *start],
    )
    try:
        _copy_in(engine, container, tarballs)
        status = run_child(["docker", "start", "--attach", container], engine.environment)
        for name, target in (fetch or {}).items():
            _docker(engine, ["cp", f"{container}:/{_WORK}/{name}", str(target)])
        return status
    finally:
        _docker(engine, ["rm", "--force", "--volumes", container])


def _environment(variables: Mapping[str, str]) -> list[str]:
    own = {
        "PATH": f"{VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "SANDBOX_EXEC_REQUIRE_ENGINE": "docker",
        "SANDBOX_EXEC_RIG_CACHE": f"/{_CACHE}",
        "SANDBOX_EXEC_RIG_DATA": _DATA,
        "SANDBOX_EXEC_IN_DIND": "1",
    }
    own |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    own |= variables
    return [f"--env={name}={value}" for name, value in own.items()]


def _docker(engine: Engine, words: Sequence[str]) -> str:
    done = subprocess.run(
        ["docker", *words],
        env=dict(engine.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise RigError(f"docker {words[0]} failed: {reason}")
    return done.stdout.decode().strip()


def _copy_in(engine: Engine, container: str, tarballs: Sequence[Path]) -> None:
    """Stream the working tree and the images' tarballs into the container, which has not started
    yet.
    """
    copying = subprocess.Popen(
        ["docker", "cp", "-", f"{container}:/"],
        env=dict(engine.environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    with copying:
        if copying.stdin is None:
            raise RigError("docker cp has no input")
        try:
            _pack(copying.stdin, tarballs)
            copying.stdin.close()
        except BrokenPipeError:
            pass  # its status and its own words say why
    if copying.returncode:
        raise RigError("copying the working tree into the nested container failed")


def _pack(stream: IO[bytes], tarballs: Sequence[Path]) -> None:
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in working_tree(_REPO):
            name = f"{_WORK}/{path.relative_to(_REPO)}"
            archive.add(path, name, recursive=False, filter=_as_root)
        for tarball in tarballs:
            archive.add(tarball, f"{_CACHE}/{tarball.name}", filter=_as_root)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def working_tree(top: Path) -> Iterator[Path]:
    """Yield the project's files as they are now, committed or not, without what tools left among
    them.
    """
    for directory, names, files in os.walk(top):
        names[:] = sorted(
            name
            for name in names
            if name not in _SKIPPED and (name[0] != "." or name in _HIDDEN_BUT_OURS)
        )
        for name in sorted(files):
            path = Path(directory) / name
            if path.is_file():
                yield path
