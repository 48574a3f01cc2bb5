"""What a sandbox may do, as engine flags, and its fingerprint.

Two presets side by side: that of sessions and one-offs, and that of spawn backends. Everything that
decides what the sandbox may do, or where its files live, is in the fingerprint (hazard S8), so a
container never outlives a change to its own security posture.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.argv import existing_mount
from sandbox_exec._docker.engine import without_proxies
from sandbox_exec._guest import PROTOCOL, STATE_DIR, WORKSPACE, keepalive_command
from sandbox_exec._naming import (
    LABEL_DEPLOYMENT,
    LABEL_FORMAT,
    LABEL_KEY,
    LABEL_KIND,
    LABEL_POLICY,
    LABEL_POLICY_PARTS,
    LABEL_PROTOCOL,
    Kind,
    workspace_path,
)

__all__ = [
    "CAPABILITIES",
    "Confinement",
    "Policy",
    "Preset",
    "changed_parts",
    "container_flags",
    "make_policy",
    "one_off_flags",
    "session_preset",
    "spawn_preset",
]

LABEL_VERSION: Final = "1"

# Root inside, but a root that can do very little: enough for package managers to unpack files, and
# KILL because a limit that cannot end another user's process is none (hazards F5, C1).
CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What a sandbox may do that only root may."""

# Still less for spawned processes, whose user never changes. Source: S1's HARDENING_ARGS, with KILL
# as above.
_SPAWN_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL")
_SPAWN_PIDS: Final = 256

# Memory in the places of temporary files. Only /tmp may hold programs to run, which engines forbid
# unless told otherwise. Source: S1.
_SCRATCH: Final = (
    *("--tmpfs", "/tmp:rw,exec,nosuid,mode=1777,size=512m"),  # noqa: S108  # inside
    *("--tmpfs", "/var/tmp:rw,noexec,nosuid,mode=1777,size=256m"),  # noqa: S108  # inside
    *("--tmpfs", "/run:rw,noexec,nosuid,size=64m"),
)

# The names by which engines hand the host to a container. This is not egress filtering: the host
# can still be reached by address, and so can everything else. Source: S0's HOST_BLACKHOLE.
_HOST_ALIASES: Final = (
    "host.docker.internal",
    "host.internal",
    "gateway.docker.internal",
    "host.containers.internal",
)

# docker makes this directory itself, also for images that have no mkdir.
_WORKDIR: Final = ("--workdir", WORKSPACE)

_QUIET: Final = (
    # Nothing inside may fill the host's disk through the log (hazard F10).
    *("--log-driver", "none"),
    # The image's own check would be one more program to run unasked.
    "--no-healthcheck",
    *without_proxies(),
)

_STATE_BYTES: Final = 160 * 2**20
"""Room for the largest command and standard input; counted against the memory cap as it is used."""


@frozen
class Policy:
    """A policy's fingerprint, whole and part by part.

    :param fingerprint: the label by which a container is adopted or replaced.
    :param parts: a short digest for each part, so that a rebuilt sandbox can say what changed.
    """

    fingerprint: str
    parts: Mapping[str, str]

    def labels(self, *, deployment: str, kind: Kind, key: str | None = None) -> dict[str, str]:
        """Return the labels of a container made under this policy."""
        labels = {
            LABEL_FORMAT: LABEL_VERSION,
            LABEL_DEPLOYMENT: deployment,
            LABEL_KIND: kind,
            LABEL_PROTOCOL: str(PROTOCOL),
            LABEL_POLICY: self.fingerprint,
            LABEL_POLICY_PARTS: ",".join(f"{name}:{part}" for name, part in self.parts.items()),
        }
        return labels if key is None else {**labels, LABEL_KEY: key}


def _digest(value: object, length: int) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@frozen
class Preset:
    """What the containers of one kind may do.

    :param image: the image's name.
    :param parts: what decides what they may do, by the part's name.
    :param flags: returns the engine flags of the container with a given key, on an engine that does
        or does not make working directories.
    :param wishes: flags that are left out, with a warning, where the engine cannot follow them.
    :param command: PID 1, program first.
    :param durable: what is in ``/workspace`` outlives the container.
    """

    kind: Kind
    image: str
    parts: Mapping[str, object]
    flags: Callable[[str, bool], tuple[str, ...]]
    command: tuple[str, ...]
    wishes: tuple[str, ...] = ()
    durable: bool = False


def session_preset(config: SandboxConfig) -> Preset:
    """Return the preset of sessions: root with the capabilities that package managers need.

    Source: S0.
    """
    return Preset(
        kind="session",
        image=config.image,
        parts={
            "runtime": config.runtime,
            "network": _network(config),
            "limits": _limits(config),
            "privileges": _privileges("0:0", CAPABILITIES),
            "workspace": config.workspace_root,
        },
        flags=lambda key, makes_workdir: container_flags(config, key, makes_workdir=makes_workdir),
        command=("sh", *keepalive_command()),
        durable=config.workspace_root is not None,
    )


@frozen(kw_only=True)
class Confinement:
    """What the options of a spawn backend decide; ``None`` is no limit of its own.

    :param mount: the host's directory that is ``/workspace`` inside, if any.
    :param user: ``UID:GID`` of everything inside.
    :param disk: bytes of the container's own file system.
    """

    image: str
    runtime: str | None = None
    network: bool = True
    cpus: float | None = None
    memory: int | None = None
    disk: int | None = None
    mount: str | None = None
    user: str = "0:0"


def spawn_preset(what: Confinement) -> Preset:
    """Return the preset of a spawn backend: four capabilities, and temporary files in memory.

    Unlike S1's it has neither ``--init`` nor ``--rm``, and never mounts the host's temporary
    directory: PID 1 is ours, the container is adopted after a crash (hazards B4, F6, B1).

    Source: S1's ``HARDENING_ARGS`` and ``startContainer``.
    """
    limits = (
        *(() if what.cpus is None else ("--cpus", f"{what.cpus:g}")),
        *(() if what.memory is None else _memory_cap(what.memory)),
        *("--pids-limit", str(_SPAWN_PIDS)),
    )
    network = () if what.network else ("--network", "none")
    mount = () if what.mount is None else (*existing_mount(what.mount, WORKSPACE), *_WORKDIR)
    privileges = _privileges(what.user, _SPAWN_CAPABILITIES)
    wishes = () if what.disk is None else ("--storage-opt", f"size={what.disk}")
    runtime = () if what.runtime is None else ("--runtime", what.runtime)
    flags = (*runtime, *network, *privileges, *limits, *_SCRATCH, *_state_mount(), *_QUIET, *mount)
    return Preset(
        kind="spawn",
        image=what.image,
        parts={
            "runtime": what.runtime,
            "network": network,
            "limits": [*limits, *wishes],
            "privileges": privileges,
            "workspace": [mount, _SCRATCH],
        },
        flags=lambda _key, _makes_workdir: (*flags, "--stop-signal", "KILL"),
        wishes=wishes,
        command=("sh", *keepalive_command("")),
        durable=what.mount is not None,
    )


def make_policy(preset: Preset, image_id: str) -> Policy:
    """Return the policy of containers made from this very image under a preset.

    Source: S0's ``policyHash``.
    """
    facts: dict[str, object] = {
        "image": [preset.image, image_id],
        **preset.parts,
        "guest": [PROTOCOL, LABEL_VERSION, _state_mount(), preset.command],
    }
    parts = {name: _digest(value, 8) for name, value in facts.items()}
    return Policy(_digest(facts, 32), parts)


def changed_parts(policy: Policy, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return which parts of the policy differ from those a container was made under."""
    pairs = (item.partition(":") for item in labels.get(LABEL_POLICY_PARTS, "").split(","))
    old = {name: part for name, _, part in pairs}
    return tuple(name for name, part in policy.parts.items() if old.get(name) != part)


def _network(config: SandboxConfig) -> tuple[str, ...]:
    hosts = (("--add-host", f"{name}:127.0.0.1") for name in _HOST_ALIASES)
    return ("--network", config.docker_network if config.network else "none", *_flat(hosts))


def _limits(config: SandboxConfig) -> tuple[str, ...]:
    return (
        *("--cpus", f"{config.cpus:g}"),
        *_memory_cap(config.memory),
        *("--pids-limit", str(config.pids_limit)),
    )


def _memory_cap(size: int) -> tuple[str, ...]:
    # Memory and swap together: without it, docker allows as much swap again.
    return ("--memory", str(size), "--memory-swap", str(size))


def _privileges(user: str, capabilities: Iterable[str]) -> tuple[str, ...]:
    added = (("--cap-add", name) for name in capabilities)
    return (
        *("--user", user, "--cap-drop", "ALL", *_flat(added)),
        *("--security-opt", "no-new-privileges"),
    )


def _state_mount() -> tuple[str, ...]:
    options = f"rw,nosuid,nodev,noexec,mode=1777,size={_STATE_BYTES}"
    return ("--tmpfs", f"{STATE_DIR}:{options}")


def _flat(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(part for pair in pairs for part in pair)


def _shared_flags(config: SandboxConfig) -> tuple[str, ...]:
    return (
        *(() if config.runtime is None else ("--runtime", config.runtime)),
        *_network(config),
        *_privileges("0:0", CAPABILITIES),
        *_limits(config),
        *_state_mount(),
        *_QUIET,
    )


def container_flags(
    config: SandboxConfig, key: str, *, makes_workdir: bool = True
) -> tuple[str, ...]:
    """Return the flags of a session's container.

    :param makes_workdir: whether the engine makes a working directory; it is left to PID 1 where
        the engine would refuse one that is not there.

    The stop signal is KILL because PID 1 has no trap to answer a softer one with (hazard F6).
    """
    mount = (
        ()
        if config.workspace_root is None
        else ("--volume", f"{workspace_path(config.workspace_root, key)}:{WORKSPACE}")
    )
    workdir = _WORKDIR if makes_workdir else ()
    return (*_shared_flags(config), *workdir, *mount, "--stop-signal", "KILL")


def one_off_flags(
    config: SandboxConfig, user: str | None, *, makes_workdir: bool = True
) -> tuple[str, ...]:
    """Return the flags of a one-off container, in which the guest itself is PID 1.

    A guest that is not root cannot make the workspace, so it gets one in memory.
    """
    if user is None:
        return (*_shared_flags(config), *(_WORKDIR if makes_workdir else ()))
    # Without a workdir, since the engine would make it first, and the mount take on its mode.
    scratch = ("--tmpfs", f"{WORKSPACE}:rw,exec,nosuid,nodev,mode=1777")
    return (*_shared_flags(config), *scratch, "--user", user)
