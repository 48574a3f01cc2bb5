"""What an engine is, as values: its program, its daemon, and the limits that it enforces."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from attrs import field, frozen

__all__ = ["EngineFacts", "EngineFamily", "EngineInfo", "EngineLimits"]

EngineFamily: TypeAlias = Literal["docker", "podman"]
"""Whose words and flags a program has."""


@frozen(kw_only=True)
class EngineLimits:
    """Which limits an engine enforces: ``None`` where it does not say, and only a probe can tell.

    :param memory: the memory cap.
    :param swap: the cap on memory and swap together; without it, what exceeds the memory cap is
        swapped out (hazard F9).
    :param pids: the number of processes and threads.
    :param cpus: the share of processor time.
    :param disk: a quota for a container's own files (hazard B7); it also depends on how the disk is
        mounted, which no engine says.
    """

    memory: bool | None = None
    swap: bool | None = None
    pids: bool | None = None
    cpus: bool | None = None
    disk: bool | None = None

    @property
    def ignored(self) -> tuple[str, ...]:
        """The names of those that certainly have no effect."""
        return tuple(name for name in _LIMITS if getattr(self, name) is False)


_LIMITS: Final = ("memory", "swap", "pids", "cpus", "disk")


@frozen(kw_only=True)
class EngineFacts:
    """What a daemon, or a podman that needs none, says of itself.

    :param version: its version, as it prints it.
    :param rootless: whether it runs without being root on its host.
    :param cgroup_version: 1 or 2; ``None`` where it does not say.
    :param storage_driver: what keeps containers' files, such as ``overlay2``.
    :param security: the names of the kernel's protections it uses, such as ``seccomp``.
    :param runtimes: the OCI runtimes that it knows by name.
    :param default_runtime: the one it uses when none is asked for.
    :param data_root: where it keeps its data on its host; ``None`` where it does not say.
    :param remote: a podman that does not start containers itself, but has a service do it.
    :param makes_directories: it makes a working directory that an image lacks, and the source of a
        mount, as docker does; podman refuses such a container.
    :param limits: which limits it enforces, as far as it says.
    """

    version: str
    rootless: bool = False
    cgroup_version: int | None = None
    storage_driver: str = ""
    security: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    data_root: str | None = None
    remote: bool = False
    makes_directories: bool = True
    limits: EngineLimits = field(factory=EngineLimits)


@frozen(kw_only=True)
class EngineInfo(EngineFacts):
    """An engine that answers: its program, and what that program leads to.

    :param program: the program, by name or path, as it was run.
    :param family: whose command line the program has; a ``docker`` that runs podman is ``podman``
        (hazard B8).
    :param server: who answers it: docker's program may be pointed at podman's service.
    :param client_version: the program's own version.
    :param host: the address that it talks to; empty for a podman that starts containers itself.
    :param context: docker's context, or podman's connection, that says so; empty if none does.

    Source: S1's ``RuntimeInfo``.
    """

    program: str
    family: EngineFamily
    server: EngineFamily
    client_version: str
    host: str = ""
    context: str = ""
