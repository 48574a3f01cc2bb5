"""What was seen of an engine and of probe sandboxes, held against the settings: pure decisions."""

from __future__ import annotations

from typing import Final, Literal

from attrs import evolve, frozen

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker.facts import EngineFacts, EngineInfo
from sandbox_exec._errors import EngineNotFoundError, SandboxError
from sandbox_exec._policy import CAPABILITIES
from sandbox_exec._sighting import Reached, Sighting
from sandbox_exec._tool_text import size_in_words

__all__ = [
    "Check",
    "Verdict",
    "capabilities",
    "cpus",
    "disk_quota",
    "engine",
    "host",
    "kill_tag",
    "memory",
    "network",
    "no_new_privileges",
    "processes",
    "state",
    "swap",
    "time_limit",
    "trouble",
    "unreached",
]

Verdict = Literal["ok", "warn", "fail"]
"""``warn`` is for what works and is less than one may take for granted."""


@frozen
class Check:
    """One row of the doctor's table.

    :param name: what was looked at.
    :param verdict: how it is.
    :param seen: what was seen.
    :param advice: what to do about it; empty for what is well.
    :param code: the fault's stable name, where an error has told it.
    """

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""
    code: str = ""


_NAMED: Final = 5
_UNBOUND: Final = (
    "Limits have no effect here, so one sandbox can take the whole host: use cgroups v2, or an "
    "engine that runs as root."
)


def unreached(
    error: SandboxError, tried: str, addressed: tuple[str, str], other: str, config: SandboxConfig
) -> tuple[Check, ...]:
    """Return the rows of an engine that could not be asked anything.

    :param tried: the program that could not, if there was one.
    :param addressed: what says where its engine is, and where that is, if anything does.
    :param other: another program whose engine answers here, if there is one.
    """
    missing = isinstance(error, EngineNotFoundError)
    family = "podman" if "podman" in f"{tried} {error}".lower() else ""
    check = trouble("engine" if missing else "daemon", error, family=family, config=config)
    if error.code in _PERHAPS_ELSEWHERE and all(addressed):
        check = evolve(check, advice=_ELSEWHERE.format(*addressed))
    if other:
        advice = f"{check.advice} Or use {other}, which answers: --engine {other}."
        check = evolve(check, advice=advice)
    # A missing program is named in its own row.
    return (check,) if missing else (Check("engine", "ok", f"{tried} was tried"), check)


def trouble(name: str, error: SandboxError, *, family: str, config: SandboxConfig) -> Check:
    """Return the row of what could not be done at all.

    :param family: ``docker`` or ``podman``, or empty if that is not known.
    """
    advice = _ADVICE.get(error.code, _BY_HAND)
    if error.code == "daemon-unavailable" and family == "podman":
        advice = (
            "Run `podman machine start`, start podman.socket, or point --docker-host elsewhere."
        )
    named = {"image": config.image, "engine": config.engine, "network": config.docker_network}
    return Check(name, "fail", str(error), advice.format_map(named), error.code)


_ELSEWHERE: Final = (
    "Look at the address: {} says {}. Is it spelled as docker has it (unix:///PATH, "
    "tcp://HOST:PORT, ssh://USER@HOST), can its host be reached from here, does an engine "
    "listen there, and what does its log say?"
)
_PERHAPS_ELSEWHERE: Final = frozenset({"daemon-unavailable", "daemon-silent"})
_BY_HAND: Final = "Try the same by hand: {engine} run --rm {image} sh -c true."
_ADVICE: Final = {
    "engine-not-found": "Install docker or podman, or name its program with --engine.",
    "not-an-engine": "Name docker's or podman's own program with --engine.",
    "daemon-unavailable": (
        "Start it (systemctl start docker, or Docker Desktop), or say with --docker-host where it "
        "is."
    ),
    "daemon-silent": "It takes calls and answers none: look at its log, and restart it.",
    "daemon-denied": (
        "Run this as root, or add this user to the group of the socket (mostly docker) and log in "
        "anew; whoever may use it is root on that host."
    ),
    "bad-context": (
        "Choose another one (docker context use NAME), or say with --docker-host where the engine "
        "is."
    ),
    "image-missing": "Fetch it ({engine} pull {image}), or name another one with --image.",
    "bad-image": "Correct the name: {image!r} is none (NAME, NAME:TAG or NAME@sha256:DIGEST).",
    "no-shell": "Name an image with a working sh with --image.",
    "bad-runtime": "Register the runtime with the engine, or name another one with --runtime.",
    "bad-network": "Make the network {network!r}, or name another one in docker_network.",
    "bad-mount": (
        "Name a directory with --workspace-root that holds nothing but workspaces, and an image "
        "with the tools to tidy it: chmod, date, mkdir, mv, rm, stat."
    ),
    "disk-full": "Make room on the engine's disk.",
    "start-timeout": "The engine answers, and starts nothing in time: look at its log.",
}


def engine(info: EngineInfo, default: str) -> Check:
    """Return what answers.

    :param default: the program that the library runs unless told otherwise.
    """
    seen = f"{info.program} is {info.family} {info.client_version}, "
    seen += f"engine {info.version}" if info.family == info.server else f"{info.server} answers it"
    if info.family != info.server:
        advice = f"Use {info.server}'s own program, whose words and flags are meant for it."
        return Check("engine", "warn", seen, advice)
    if info.program != default:
        advice = f"Have the library use it, too: engine={info.program!r} in its settings."
        return Check("engine", "warn", f"{seen}; there is no {default} here", advice)
    return Check("engine", "ok", seen)


def host(info: EngineInfo) -> Check:
    """Return what the engine runs on, as it says itself."""
    where = info.host or "this host"
    context = f" (context {info.context})" if info.context else ""
    cgroups = f"cgroups v{info.cgroup_version}" if info.cgroup_version else "unknown cgroups"
    who = "without root" if info.rootless else "as root"
    seen = f"{where}{context}; {who}, {cgroups}, {info.storage_driver or 'unknown storage'}"
    if ignored := [name for name in info.limits.ignored if name != "disk"]:
        advice = _UNBOUND if "memory" in ignored else "See the rows about these limits."
        return Check("host", "warn", f"{seen}; says it ignores {', '.join(ignored)}", advice)
    return Check("host", "ok", seen)


def network(config: SandboxConfig, sighting: Sighting) -> Check:
    """Return whether there is a network just if there is to be one."""
    links = ", ".join(sighting.links)
    if config.network:
        if sighting.links and sighting.routes:
            return Check("network", "ok", f"on, as asked: {links}")
        seen = f"asked for, but there is {'no route' if links else 'no interface'}"
        advice = f"Look at the engine's network {config.docker_network!r}."
        return Check("network", "fail", seen, advice)
    problems = [f"interface {name}" for name in sighting.links]
    problems += ["a route"] if sighting.routes else []
    problems += ["a connection"] if sighting.connect == "made" else []
    if problems:
        advice = (
            "The engine does not keep --network none: look for a wrapper in place of its program, "
            "or for settings of the engine that add networks."
        )
        return Check("network", "fail", f"off, but there is {', '.join(problems)}", advice)
    tried = "; a connection was refused" if sighting.connect == "refused" else ""
    return Check("network", "ok", f"off: no interface but lo, no route{tried}")


def capabilities(sighting: Sighting) -> Check:
    """Return whether commands have the capabilities of the policy, and no others."""
    name, found, wanted = "capabilities", sighting.capabilities, frozenset(CAPABILITIES)
    if found is None:
        return Check(name, "warn", "not shown inside", "This runtime has to be trusted with them.")
    if extra := sorted(found - wanted):
        advice = "Something adds capabilities: look at the engine's settings, and for a wrapper."
        more = f" and {len(extra) - _NAMED} more" if len(extra) > _NAMED else ""
        return Check(name, "fail", f"too many: {', '.join(extra[:_NAMED])}{more}", advice)
    if lacking := sorted(wanted - found):
        advice = "Package managers, or the end of other users' processes, may fail without them."
        return Check(name, "warn", f"lacking: {', '.join(lacking)}", advice)
    return Check(name, "ok", f"exactly {', '.join(CAPABILITIES)}")


def no_new_privileges(sighting: Sighting) -> Check:
    """Return whether a suid program is of no use inside."""
    name, value = "no new privileges", sighting.status.get("NoNewPrivs")
    if value is None:
        return Check(name, "warn", "not shown inside", "This runtime has to be trusted with it.")
    if value != "1":
        advice = "The engine does not keep no-new-privileges: look for a wrapper of its program."
        return Check(name, "fail", "not set: a suid program gives what it has", advice)
    return Check(name, "ok", "set")


def memory(config: SandboxConfig, sighting: Sighting, reached: Reached) -> Check:
    """Return whether the memory cap is there, and kills what goes beyond."""
    shown = sighting.memory
    seen = "no cap shown inside" if shown is None else f"{size_in_words(shown)} shown inside"
    if reached.holds and shown is not None and shown > config.memory:
        seen += f", though {size_in_words(config.memory)} was asked for"
        return Check("memory", "fail", seen, _UNBOUND)
    return _limit("memory", seen, reached)


def processes(sighting: Sighting, reached: Reached) -> Check:
    """Return whether there can be no more processes than the cap says."""
    shown = sighting.pids
    return _limit("processes", f"{'no cap' if shown is None else shown} shown inside", reached)


def cpus(config: SandboxConfig, reached: Reached | None) -> Check:
    """Return whether the share of processor time is bounded.

    :param reached: what a busy loop got, where no share is shown inside.
    """
    if reached is None:
        return Check("cpus", "ok", f"{config.cpus:g} shown inside")
    return _limit("cpus", "no share shown inside", reached)


def _limit(name: str, seen: str, reached: Reached) -> Check:
    seen = f"{reached.words}; {seen}"
    if reached.holds is None:
        return Check(name, "warn", seen, "It could not be seen whether this limit holds.")
    return Check(name, "ok", seen) if reached.holds else Check(name, "fail", seen, _UNBOUND)


def swap(sighting: Sighting, facts: EngineFacts) -> Check:
    """Return whether what exceeds the memory cap ends, and is not swapped out."""
    if sighting.swap == 0:
        return Check("swap", "ok", "none beyond the memory cap")
    if sighting.swap_on_host == "0":
        return Check("swap", "ok", "the host has none")
    seen = "not bounded" if facts.limits.swap is False or sighting.memory is None else "not shown"
    advice = (
        "A sandbox may fill the host's swap: turn swap off, or have the kernel count it "
        "(swapaccount=1, or cgroups v2)."
    )
    return Check("swap", "warn", seen, advice)


def time_limit(reached: Reached) -> Check:
    """Return whether a command that ignores signals ends at its limit, with all its children."""
    if reached.holds:
        return Check("time limit", "ok", reached.words)
    advice = "Commands cannot be ended here: do not use this engine for what is not trusted."
    return Check("time limit", "fail", reached.words, advice)


def kill_tag(sighting: Sighting) -> Check:
    """Return whether the processes of a command can be told by their tag (hazard F18)."""
    if sighting.tag.isdigit():
        return Check("kill tag", "ok", "readable in /proc/PID/limits")
    seen = f"{sighting.tag or 'nothing'} in /proc/PID/limits"
    advice = "What a command leaves behind cannot be found here: use another runtime."
    return Check("kill tag", "fail", seen, advice)


def state(sighting: Sighting) -> Check:
    """Return whether the guests' marks are kept in memory, where a restart clears them."""
    kind, _, options = sighting.state.partition(" ")
    if kind == "tmpfs":
        return Check("state", "ok", f"tmpfs {options}".strip())
    advice = "The engine does not keep --tmpfs: look for a wrapper of its program."
    return Check("state", "fail", f"{kind or 'nothing'} is mounted for it", advice)


def disk_quota(facts: EngineFacts, *, works: bool) -> Check:
    """Return whether what a sandbox writes could be bounded (hazards B7, R8)."""
    driver = facts.storage_driver or "the storage"
    if works:
        return Check("disk quota", "ok", f"works on {driver}, for who asks for one")
    advice = (
        "A sandbox can fill the engine's disk, up to min_free_bytes for new ones. overlay2 on an "
        "xfs mounted with pquota, btrfs or zfs could bound it."
    )
    return Check("disk quota", "warn", f"not bounded on {driver}", advice)
