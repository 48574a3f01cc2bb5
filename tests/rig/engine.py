"""An engine for one command: the one that can be reached, or a private one for as long as the
command runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.rig import packages
from tests.rig.daemon import PrivateDaemon
from tests.rig.podman import PrivatePodman
from tests.rig.processes import RigError

_ADVICE = "start docker or podman, or run this as root on Debian so that docker.io can be installed"


@dataclass(frozen=True)
class Engine:
    """A CLI and the environment in which it reaches an engine that answers.

    ``prefix`` starts a command where the engine can be reached, ``settings`` are those that an
    executor needs for it, and ``note`` is what a reader of results has to know.
    """

    command: str
    environment: Mapping[str, str]
    prefix: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@contextlib.contextmanager
def some_engine() -> Iterator[Engine]:
    """Give an engine, and stop afterwards exactly what was started for it."""
    packages.complete_path()
    wanted = os.environ.get("SANDBOX_EXEC_ENGINE") or "docker"
    if wanted == "podman":
        with _podman() as engine:
            yield engine
    elif _answers("docker", "version", "--format", "{{.Server.Version}}"):
        _say(
            f"using the docker that answers at {os.environ.get('DOCKER_HOST') or 'its usual place'}"
        )
        yield Engine("docker", dict(os.environ))
    elif packages.can_install():
        where = "at DOCKER_HOST" if os.environ.get("DOCKER_HOST") else "here"
        _say(f"no docker answers {where}; starting a private dockerd, which is stopped at the end")
        install_docker()
        with PrivateDaemon() as daemon:
            yield Engine("docker", daemon.environment)
    elif _answers("podman", "info"):
        _say("no docker answers; using podman, which does")
        yield Engine("podman", os.environ | {"SANDBOX_EXEC_ENGINE": "podman"})
    else:
        raise RigError(f"no container engine answers: {_ADVICE}")


def _say(what: str) -> None:
    print(f"rig: {what}", file=sys.stderr)


def install_docker() -> None:
    """Make sure that dockerd, what it needs and a CLI are there; later Debians have the CLI in a
    package of its own.
    """
    packages.require(
        {
            "dockerd": "docker.io",
            "containerd": "containerd",
            "runc": "runc",
            "iptables": "iptables",
            "ip": "iproute2",
        }
    )
    packages.require({"docker": "docker-cli"})


@contextlib.contextmanager
def _podman() -> Iterator[Engine]:
    """Use the podman of this environment where it can run containers at all; otherwise make one
    that can.
    """
    if "CONTAINERS_CONF" in os.environ and _answers("podman", "info"):
        yield Engine("podman", dict(os.environ))
    elif packages.can_install():
        with PrivatePodman() as podman:
            yield Engine("podman", podman.environment)
    elif _answers("podman", "info"):
        yield Engine("podman", dict(os.environ))
    else:
        raise RigError(f"podman does not answer: {_ADVICE}")


def _answers(*argv: str) -> bool:
    if shutil.which(argv[0]) is None:
        return False
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=15
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
