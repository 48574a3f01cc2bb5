"""The settings of a spawn backend, and what follows from them without asking anybody."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from typing import Final, Literal

from attrs import asdict, field, frozen

from sandbox_exec._config import SandboxConfig, parse_size
from sandbox_exec._guest import WORKSPACE
from sandbox_exec._naming import session_key
from sandbox_exec._policy import Confinement
from sandbox_exec._spawn.checks import to_path
from sandbox_exec._spawn.values import SandboxEnvHint

__all__ = [
    "DockerBackendOptions",
    "check_options",
    "confinement",
    "env_hint",
    "inner_directory",
    "spawn_key",
]

_MIN_DISK: Final = 2**20
_USER = re.compile(r"\d+:\d+\Z", re.ASCII)


def _to_size(value: int | str | None) -> int | None:
    return None if value is None else parse_size(value)


@frozen(kw_only=True)
class DockerBackendOptions:
    """Settings of a spawn backend. Keyword only, frozen, checked at construction.

    Backends with the same settings share one container, also across programs and restarts.

    Name the image: the default is S1's, a large one with Python and Node.js that a third party
    publishes, and would be fetched and run for whoever leaves it out.

    :param image: the image of the container. Nothing is needed in it but ``sh``, and ``dd``, ``mv``
        and ``mkdir`` for files to be placed.
    :param mount_workspace: whether ``workspace_root`` is ``/workspace`` inside, read and write.
    :param workspace_root: a directory on the engine's host, which is this one unless the engine is
        elsewhere. Never changed by the library itself.
    :param engine: the engine's program, a name or a path; ``None`` finds docker or podman.
    :param docker_host: which daemon, as ``DOCKER_HOST`` would say it.
    :param runtime: the OCI runtime, such as ``"runsc"``; ``None`` for the engine's.
    :param deployment: a namespace: containers of another deployment are never adopted or removed.
    :param user: ``UID:GID`` of everything inside; ``None`` for root, and for this process's own ids
        on docker with a mounted workspace, so that new files there belong to who runs this.
    :param cpus: processors' worth of time; ``None`` for no limit.
    :param memory: bytes, or text like ``"512m"``, with no swap on top; ``None`` for no limit.
    :param disk: bytes, or text like ``"10g"``, of the container's own file system; ``None`` for no
        limit. Where the storage driver cannot, it is left out, with one warning (hazard B7).
    :param no_network: whether there is no network inside; by default there is the engine's usual.
    :param allow_local: whether :func:`create_backend` may fall back to no isolation at all.
    :param start_timeout: seconds the container may take to start.
    :param pull_timeout: seconds an image may take to be fetched.
    :param control_timeout: seconds any other bookkeeping call to the engine may take.
    :param idle_after: seconds without use after which an abandoned container is stopped.
    :raises ValueError: for a setting that cannot work.

    Source: S1's ``DockerBackendOpts``; the defaults are S1's.
    """

    image: str = "nikolaik/python-nodejs:python3.11-nodejs20"
    mount_workspace: bool = False
    workspace_root: str | None = field(default=None, converter=to_path)
    engine: str | None = None
    docker_host: str | None = None
    runtime: str | None = None
    deployment: str = "default"
    user: str | None = None
    cpus: float | None = None
    memory: int | None = field(default=None, converter=_to_size)
    disk: int | None = field(default=None, converter=_to_size)
    no_network: bool = False
    allow_local: bool = False
    start_timeout: float = 60.0
    pull_timeout: float = 600.0
    control_timeout: float = 10.0
    idle_after: float = 1800.0

    def __attrs_post_init__(self) -> None:
        for name in ("mount_workspace", "no_network", "allow_local"):
            if not isinstance(getattr(self, name), bool):
                message = f"{name} must be True or False, not {getattr(self, name)!r}"
                raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always
        if self.mount_workspace and self.workspace_root is None:
            raise ValueError("mount_workspace needs a workspace_root")
        user: object = self.user
        if user is not None and not (isinstance(user, str) and _USER.match(user)):
            raise ValueError(f"user must be text of the form UID:GID, not {self.user!r}")
        if self.disk is not None and self.disk < _MIN_DISK:
            raise ValueError(f"disk must be at least {_MIN_DISK} bytes, not {self.disk}")
        checked = self.config("docker" if self.engine is None else self.engine, self.workspace_root)
        object.__setattr__(self, "workspace_root", checked.workspace_root)

    def config(self, program: str, workspace_root: str | None = None) -> SandboxConfig:
        """Return the settings that the machinery of sessions needs, checked as theirs are.

        :param workspace_root: only to be checked: no workspace is ever tidied here.
        """
        limits = {"cpus": self.cpus, "memory": self.memory}
        return SandboxConfig(
            image=self.image,
            engine=program,
            docker_host=self.docker_host,
            runtime=self.runtime,
            deployment=self.deployment,
            workspace_root=workspace_root,
            start_timeout=self.start_timeout,
            pull_timeout=self.pull_timeout,
            control_timeout=self.control_timeout,
            idle_after=self.idle_after,
            **{name: value for name, value in limits.items() if value is not None},  # type: ignore[arg-type]  # two numbers
        )

    @property
    def label(self) -> str:
        """The kind of isolation and the image, for logs and user interfaces. Source: S1."""
        return f"docker:{self.image}{'+workspace' if self.mount_workspace else ''}"


def check_options(given: object) -> None:
    """Refuse settings that were not checked.

    :raises ValueError: for anything but :class:`DockerBackendOptions`.
    """
    if not isinstance(given, DockerBackendOptions):
        message = f"options must be DockerBackendOptions, not {type(given).__name__}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always


def confinement(
    options: DockerBackendOptions, family: Literal["docker", "podman"], ids: tuple[int, int]
) -> Confinement:
    """Return what processes may do.

    :param family: podman without root maps the host's user to root by itself.
    :param ids: user and group of this process.
    """
    user = options.user
    if user is None:
        mounted = options.mount_workspace and family == "docker"
        user = "{}:{}".format(*ids) if mounted else "0:0"
    return Confinement(
        image=options.image,
        runtime=options.runtime,
        network=not options.no_network,
        cpus=options.cpus,
        memory=options.memory,
        disk=options.disk,
        mount=options.workspace_root if options.mount_workspace else None,
        user=user,
    )


def spawn_key(what: Confinement) -> str:
    """Return the key by which backends with the same settings find the same container (B4)."""
    facts = json.dumps(asdict(what), sort_keys=True, separators=(",", ":"))
    # To people the image says more than settings would.
    digest = hashlib.sha256(facts.encode()).hexdigest()
    return session_key(f"{what.image.rpartition('/')[2]} {digest}")


def inner_directory(options: DockerBackendOptions, cwd: str | None) -> str:
    """Return where a process starts inside; nothing for the image's own directory (hazard B5).

    :raises ValueError: for a directory outside of a mounted workspace, and for a relative one
        without.
    """
    root = options.workspace_root
    if not options.mount_workspace or root is None:
        if cwd is not None and not cwd.startswith("/"):
            raise ValueError(f"cwd must be an absolute path inside the container, not {cwd!r}")
        return cwd or ""
    if cwd is None:
        return WORKSPACE
    path = posixpath.normpath(posixpath.join(root, cwd))
    for base in (root, os.path.realpath(root)):
        if path == base:
            return WORKSPACE
        if path.startswith(f"{base}/"):
            return f"{WORKSPACE}{path.removeprefix(base)}"
    raise ValueError(f"cwd {cwd!r} is not inside of the workspace root {root!r}")


def env_hint(options: DockerBackendOptions) -> SandboxEnvHint:
    """Return where processes run. Source: S1's ``envHint``."""
    files = "the workspace is shared with it" if options.mount_workspace else "no file is shared"
    network = "no network" if options.no_network else "the engine's usual network"
    return SandboxEnvHint(
        mode="docker",
        label=options.label,
        inner_os="linux",
        workspace_mount=WORKSPACE if options.mount_workspace else None,
        scope=f"spawned processes run inside the container, with {network}; everything else runs "
        f"on the host, and {files}",
    )
