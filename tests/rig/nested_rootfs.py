"""A newer Debian: the root file system of docker in docker, of the remote host, and where runsc is
from.
"""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
from pathlib import Path

from tests.rig.processes import RigError
from tests.rig.rootfs import Rootfs, debootstrap

VENV = "/opt/venv"
_PYTHON = "3.13"  # what the suite below brings
_SUITE = "trixie"
_PACKAGES = (
    "ca-certificates",
    "docker-cli",
    "docker.io",
    "iproute2",
    "iptables",
    "openssh-server",
    "procps",
    "python3",
    "python3-venv",
    "runsc",
    "tini",
)


def nested_rootfs(requirements: Path) -> Rootfs:
    """Say how it is made; its key changes with the requirements, while the Debian below is made
    only once.
    """

    def fill(root: Path) -> None:
        subprocess.run(["tar", "-C", str(root), "-xpf", str(NEWER_DEBIAN.build())], check=True)
        _install_tools(root, requirements)

    pins = hashlib.sha256(requirements.read_bytes()).hexdigest()
    return Rootfs(
        "nested", fill, (NEWER_DEBIAN.key, pins, inspect.getsource(_install_tools)), as_root=True
    )


def _debian_with_docker(root: Path) -> None:
    debootstrap(root, _SUITE, *_PACKAGES)


def _install_tools(root: Path, requirements: Path) -> None:
    """Make the virtual environment from wheels: the index is known out here, and never in there."""
    wheels = root / "opt/wheels"
    wheels.mkdir(parents=True)
    (wheels / "requirements.txt").write_bytes(requirements.read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    target = ["--python-version", _PYTHON, "--only-binary", ":all:", "--dest", str(wheels)]
    _run([*pip, "download", "--quiet", "--requirement", str(requirements), *target])
    _run(["chroot", str(root), "python3", "-m", "venv", VENV])
    inside = [f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--no-cache-dir"]
    source = ["--find-links", "/opt/wheels", "--requirement", "/opt/wheels/requirements.txt"]
    # env -i: pip's settings out here (an index, a constraint file) mean nothing in there.
    _run(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "chroot", str(root), *inside, *source])
    for wheel in wheels.iterdir():
        wheel.unlink()


def _run(argv: list[str]) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.decode(errors="replace").splitlines()[-8:])
        raise RigError(f"{' '.join(argv[:5])} ... failed ({done.returncode}):\n{tail}")


NEWER_DEBIAN = Rootfs(
    "nested-base",
    _debian_with_docker,
    (_SUITE, *_PACKAGES, inspect.getsource(debootstrap)),
    as_root=True,
)
