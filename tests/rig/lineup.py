"""The engines that the conformance suite is run on, and how each of them is made ready."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.rig import gvisor, packages, places
from tests.rig.certificates import make_certificates
from tests.rig.daemon import PrivateDaemon
from tests.rig.engine import Engine, install_docker
from tests.rig.older_cli import debian_cli
from tests.rig.podman import PrivatePodman
from tests.rig.remote import RemoteHost
from tests.rig.rootless import RootlessPodman

_ROOM = "SANDBOX_EXEC_CONFORMANCE_ROOM"
_REMOTE = "SANDBOX_EXEC_CONFORMANCE_REMOTE"


@dataclass(frozen=True)
class Entry:
    """One engine: what it is, and how it is started.

    ``start`` is ``None`` for the one that is nested in a container, which the suite is run in.
    ``counts`` is false for one that proves less than its name says. ``alone`` is for one whose
    tests disturb each other: those of ssh cut every connection there is.
    """

    title: str
    start: Callable[[], AbstractContextManager[Engine]] | None
    counts: bool = True
    alone: bool = False


@contextlib.contextmanager
def _daemon(*words: str, settings: Mapping[str, str] | None = None) -> Iterator[Engine]:
    install_docker()
    with PrivateDaemon(extra_args=words) as daemon:
        yield Engine("docker", daemon.environment, settings=settings or {})


@contextlib.contextmanager
def _docker() -> Iterator[Engine]:
    with _daemon() as engine:
        yield engine


@contextlib.contextmanager
def _docker_debian_cli() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="sbx-cli-", dir=places.data_base()) as scratch:
        program, note = debian_cli(Path(scratch))
        with _daemon() as engine:
            path = f"{program.parent}:{engine.environment.get('PATH', os.defpath)}"
            yield Engine("docker", {**engine.environment, "PATH": path}, note=note)


@contextlib.contextmanager
def _gvisor() -> Iterator[Engine]:
    word, note = f"--add-runtime=runsc={gvisor.runtime()}", f"runsc {gvisor.version()}"
    with _daemon(word, settings={"runtime": "runsc"}) as engine:
        yield Engine("docker", engine.environment, settings=engine.settings, note=note)


@contextlib.contextmanager
def _kata() -> Iterator[Engine]:
    install_docker()
    note = "an alias of runc: shows that a runtime's name is handed on, and nothing of Kata"
    with _daemon("--add-runtime=kata=runc", settings={"runtime": "kata"}) as engine:
        yield Engine("docker", engine.environment, settings=engine.settings, note=note)


@contextlib.contextmanager
def _podman() -> Iterator[Engine]:
    with PrivatePodman() as podman:
        yield Engine("podman", podman.environment)


@contextlib.contextmanager
def _podman_rootless() -> Iterator[Engine]:
    with RootlessPodman() as podman:
        environment = {**podman.environment, _ROOM: str(podman.home)}
        yield Engine("podman", environment, note="vfs storage, runc")


@contextlib.contextmanager
def _tcp() -> Iterator[Engine]:
    """A daemon that also listens on TCP, with certificates on both sides, as root is for the taking
    otherwise; on a loopback that only its network namespace has.
    """
    install_docker()
    with tempfile.TemporaryDirectory(prefix="sbx-tls-", dir=places.data_base()) as scratch:
        made = Path(scratch) / "certificates"
        make_certificates(made)
        address = "tcp://127.0.0.1:2376"
        words = (
            *(f"--host={address}", "--tlsverify", f"--tlscacert={made}/ca.pem"),
            *(f"--tlscert={made}/server-cert.pem", f"--tlskey={made}/server-key.pem"),
        )
        with PrivateDaemon(extra_args=words) as daemon:
            environment = {
                **daemon.environment,
                "DOCKER_HOST": address,
                "DOCKER_TLS_VERIFY": "1",
                "DOCKER_CERT_PATH": str(made),
            }
            yield Engine(
                "docker", environment, prefix=_within(daemon), settings={"docker_host": address}
            )


@contextlib.contextmanager
def _ssh() -> Iterator[Engine]:
    install_docker()
    with PrivateDaemon() as daemon, RemoteHost(daemon) as remote:
        environment = {
            **daemon.environment,
            "PATH": remote.path,
            _REMOTE: str(remote.directory),
        }
        yield Engine(
            "docker",
            environment,
            prefix=_within(daemon),
            settings={"docker_host": "ssh://remote"},
            note="one multiplexed connection",
        )


def _within(daemon: PrivateDaemon) -> tuple[str, ...]:
    packages.complete_path()
    return ("nsenter", f"--net={daemon.runtime}/netns")


LINEUP: Mapping[str, Entry] = {
    "docker": Entry("the machine's dockerd under the machine's docker program", _docker),
    "docker-debian-cli": Entry("the same under Debian's own docker program", _docker_debian_cli),
    "docker-nested": Entry("Debian 13's docker, nested in a container", None),
    "podman": Entry("podman as root", _podman),
    "podman-rootless": Entry("podman as a plain user", _podman_rootless),
    "gvisor": Entry("gVisor's runsc under docker", _gvisor),
    "kata": Entry("a runtime called kata: plumbing only", _kata, counts=False),
    "tcp": Entry("docker by tcp:// with certificates", _tcp),
    "ssh": Entry("docker by ssh://", _ssh, alone=True),
}
