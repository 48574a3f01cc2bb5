"""What an engine says of itself: the answers of ``version``, ``info`` and ``context`` as facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sandbox_exec._docker.answers import (
    Json,
    flag_in,
    is_object,
    load,
    object_in,
    text_in,
    texts_in,
    unexpected,
)
from sandbox_exec._docker.facts import EngineFacts, EngineFamily, EngineLimits

__all__ = ["Versions", "parse_context", "parse_info", "parse_version", "server_errors"]


class Versions(NamedTuple):
    """What ``version`` says.

    :ivar server_version: empty when no server answered.
    :ivar context: docker's context; empty where the program has none.
    """

    family: EngineFamily
    client_version: str
    server: EngineFamily
    server_version: str
    context: str


def _loaded(stdout: bytes) -> Json:
    answer = load(stdout)
    if not is_object(answer):
        raise unexpected("form", answer)
    return answer


def parse_version(stdout: bytes) -> Versions:
    """Read what ``version --format '{{json .}}'`` printed, which is on standard output alone.

    The two are told apart by how they spell one field, since both may have any name, and a podman
    that is called ``docker`` puts that name even before its ``--version`` (hazard B8). Docker
    prints its client's half when no server answers.

    :raises UnreadableAnswer: for anything that neither of them prints.
    """
    answer = _loaded(stdout)
    client, server = object_in(answer, "Client"), object_in(answer, "Server")
    version = text_in(client, "Version")
    if "ApiVersion" in client:
        family: EngineFamily = "docker"
        served = "podman" if _is_podman_service(server) else family
        return Versions(
            family, version, served, text_in(server, "Version", ""), text_in(client, "Context", "")
        )
    if "APIVersion" not in client:
        raise unexpected("client", client)
    # A podman that needs no service is its own server, and leaves that half out.
    return Versions("podman", version, "podman", text_in(server, "Version", version), "")


def _is_podman_service(server: Json) -> bool:
    components = server.get("Components")
    names = (
        part.get("Name")
        for part in (components if isinstance(components, list) else ())
        if is_object(part)
    )
    return any(isinstance(name, str) and name.lower().startswith("podman") for name in names)


def server_errors(stdout: bytes) -> tuple[str, ...]:
    """Return what ``info`` printed of an engine that did not answer; docker 20.10 exits 0 then."""
    try:
        return texts_in(_loaded(stdout), "ServerErrors")
    except ValueError:
        return ()


def parse_info(stdout: bytes) -> EngineFacts:
    """Read what ``info --format '{{json .}}'`` printed, by docker or by podman.

    :raises UnreadableAnswer: for anything that neither of them prints.
    """
    answer = _loaded(stdout)
    if is_object(answer.get("host")) and is_object(answer.get("store")):
        return _podman(answer)
    if not text_in(answer, "ServerVersion", ""):
        raise unexpected("form", answer)
    return _docker(answer)


def _cgroup_version(text: str) -> int | None:
    return {"1": 1, "v1": 1, "2": 2, "v2": 2}.get(text)


def _docker(answer: Json) -> EngineFacts:
    # "name=seccomp,profile=default"; before 17.06 the bare name.
    options = (text.split(",")[0] for text in texts_in(answer, "SecurityOptions"))
    security = tuple(option.removeprefix("name=") for option in options)
    driver = text_in(answer, "Driver", "")
    # Without root, and without cgroups that root has handed over, there is none to set limits in.
    bound = text_in(answer, "CgroupDriver", "") != "none"

    def enforced(name: str) -> bool | None:
        return flag_in(answer, name) if bound else False

    return EngineFacts(
        version=text_in(answer, "ServerVersion"),
        rootless="rootless" in security,
        cgroup_version=_cgroup_version(text_in(answer, "CgroupVersion", "")),
        storage_driver=driver,
        security=security,
        runtimes=tuple(sorted(object_in(answer, "Runtimes"))),
        default_runtime=text_in(answer, "DefaultRuntime", ""),
        data_root=text_in(answer, "DockerRootDir", "") or None,
        limits=EngineLimits(
            memory=enforced("MemoryLimit"),
            swap=enforced("SwapLimit"),
            pids=enforced("PidsLimit"),
            cpus=enforced("CpuCfsQuota"),
            disk=_docker_quota(driver, _backing(answer.get("DriverStatus"))),
        ),
    )


def _backing(status: object) -> str:
    """Return the file system below docker's storage driver, from its list of pairs."""
    for pair in status if isinstance(status, list) else ():
        if isinstance(pair, list) and pair[:1] == ["Backing Filesystem"] and len(pair) > 1:
            return str(pair[1])
    return ""


def _docker_quota(driver: str, backing: str) -> bool | None:
    if driver in {"btrfs", "zfs", "devicemapper"}:
        return True
    # Only xfs has project quotas that docker uses, and only if it was mounted with them.
    return None if driver in {"overlay2", "vfs"} and backing == "xfs" else False


def _podman(answer: Json) -> EngineFacts:
    host, store = object_in(answer, "host"), object_in(answer, "store")
    protections = object_in(host, "security")
    rootless = bool(flag_in(protections, "rootless"))
    cgroups = _cgroup_version(text_in(host, "cgroupVersion", ""))
    runtime = text_in(object_in(host, "ociRuntime"), "name", "")
    driver = text_in(store, "graphDriverName", "")
    backing = text_in(object_in(store, "graphStatus"), "Backing Filesystem", "")
    named = ("apparmor", "seccomp", "selinux")
    return EngineFacts(
        version=text_in(object_in(answer, "version"), "Version", "") or "unknown",
        rootless=rootless,
        cgroup_version=cgroups,
        storage_driver=driver,
        security=tuple(name for name in named if flag_in(protections, f"{name}Enabled")),
        runtimes=(runtime,) if runtime else (),
        default_runtime=runtime,
        data_root=text_in(store, "graphRoot", "") or None,
        remote=bool(flag_in(host, "serviceIsRemote")),
        makes_directories=False,
        limits=_podman_limits(
            None if "cgroupControllers" not in host else texts_in(host, "cgroupControllers"),
            powerless=rootless and cgroups == 1,
            quota=None if driver == "overlay" and backing == "xfs" else False,
        ),
    )


def _podman_limits(
    controllers: Iterable[str] | None, *, powerless: bool, quota: bool | None
) -> EngineLimits:
    """Return what podman enforces.

    :param controllers: those of the kernel that it may use; ``None`` where it does not say.
    :param powerless: it runs without root under cgroups v1, where it then sets no limit at all.
    """

    def enforced(controller: str) -> bool | None:
        if powerless:
            return False
        return None if controllers is None else controller in controllers

    memory = enforced("memory")
    # It does not say whether the kernel counts swap, only that nothing is counted.
    return EngineLimits(
        memory=memory,
        swap=None if memory is not False else False,
        pids=enforced("pids"),
        cpus=enforced("cpu"),
        disk=quota,
    )


def parse_context(stdout: bytes) -> tuple[str, str]:
    """Read what docker's ``context inspect --format '{{json .}}'`` printed: its name and address.

    :raises UnreadableAnswer: for anything that it does not print.
    """
    answer = _loaded(stdout)
    endpoint = object_in(object_in(answer, "Endpoints"), "docker")
    return text_in(answer, "Name", ""), text_in(endpoint, "Host", "")
