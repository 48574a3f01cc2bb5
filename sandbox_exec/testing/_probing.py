"""What the library's own probes find in a fake container: the policy, but for what is ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sandbox_exec._guest import STATE_DIR, look_script, reach_script
from sandbox_exec.testing._call import FakeCall, Handler
from sandbox_exec.testing._containers import FakeContainer

__all__ = ["IGNORABLE", "checked", "probes"]

IGNORABLE: Final = frozenset(
    {
        *("memory", "swap", "pids", "cpus", "network", "capabilities", "no-new-privileges"),
        *("state", "time"),
    }
)
"""What a fake engine can be told not to enforce."""

_NAMES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
_BITS: Final = dict(zip(_NAMES, (0, 1, 3, 4, 5, 6, 7), strict=True))
_EVERYTHING: Final = 2**41 - 1
_NO_LIMIT: Final = 9223372036854771712
_PERIOD: Final = 100_000
_KILLED: Final = 137


def checked(ignores: Iterable[str]) -> set[str]:
    """Return what is to be ignored.

    :raises ValueError: for anything that is not in :data:`IGNORABLE`.
    """
    ignored = set(ignores)
    if unknown := ignored - IGNORABLE:
        message = f"there is no {min(unknown)!r} to ignore; there are {sorted(IGNORABLE)}"
        raise ValueError(message)
    return ignored


def probes(ignored: Collection[str]) -> Mapping[str, Handler]:
    """Return what the probes do, by their text.

    :param ignored: of :data:`IGNORABLE`; what the engine does not enforce, looked at again by each.
    """

    async def look(call: FakeCall) -> int:
        facts = (*_privileges(call.container, ignored), *_network(call.container, ignored))
        lines = (*facts, *_cgroup(call.container, ignored), *_state(call.container, ignored))
        text = "\n".join((*lines, "tag 1000000", "swap-on-host 1048572", "end"))
        await call.stdout(text.encode() + b"\n")
        return 0

    async def reach(call: FakeCall) -> int:
        limit, far = call.env["SANDBOX_EXEC_LIMIT"], int(call.env["SANDBOX_EXEC_FAR"])
        bound = limit not in ignored
        if limit == "workspace":
            call.files[f"{call.cwd}/seen"] = b"reached 0\n"
        if limit == "time" and bound:
            await call.stdout(b"reached 0\n")
            await call.sleep(call.limit)
        elif limit == "memory" and bound:
            call.oom_killed()
            return _KILLED
        elif limit == "pids" and bound:
            far = int(call.container.flags["--pids-limit"][-1]) - 4
            await call.stderr(b"sh: can't fork: Resource temporarily unavailable\n")
        await call.stdout(b"reached %d\n" % far)
        if limit == "cpus":
            share = float(call.container.flags["--cpus"][-1]) if bound else 1.0
            await call.stdout(b"0m%.3fs 0m0.000s\n0m0.000s 0m0.000s\n" % (share * far / 100))
        return 0

    return {look_script(): look, reach_script(): reach}


def _privileges(container: FakeContainer, ignored: Collection[str]) -> list[str]:
    added = container.flags.get("--cap-add", ())
    mask = sum(1 << _BITS[name] for name in added)
    if "capabilities" in ignored:
        mask = _EVERYTHING
    limited = "no-new-privileges" in container.flags.get("--security-opt", ())
    no_new = limited and "no-new-privileges" not in ignored
    return [f"CapEff {mask:016x}", f"CapBnd {mask:016x}", f"NoNewPrivs {int(no_new)}"]


def _network(container: FakeContainer, ignored: Collection[str]) -> list[str]:
    if container.flags.get("--network", ("",))[-1] == "none" and "network" not in ignored:
        return ["interface lo", "connect refused"]
    return ["interface lo", "interface eth0", "route eth0 00000000", "route eth0 0000FEA9"]


def _cgroup(container: FakeContainer, ignored: Collection[str]) -> list[str]:
    """Return the limits as cgroups v1 shows them."""

    def limit(name: str, flag: str, unlimited: object) -> object:
        return unlimited if name in ignored else container.flags[flag][-1]

    memory = limit("memory", "--memory", _NO_LIMIT)
    swap = limit("memory", "--memory-swap", _NO_LIMIT)
    quota = -1 if "cpus" in ignored else round(float(container.flags["--cpus"][-1]) * _PERIOD)
    return [
        f"cgroup memory/memory.limit_in_bytes {memory}",
        f"cgroup memory/memory.memsw.limit_in_bytes {_NO_LIMIT if 'swap' in ignored else swap}",
        f"cgroup pids/pids.max {limit('pids', '--pids-limit', 'max')}",
        f"cgroup cpu/cpu.cfs_quota_us {quota}",
        f"cgroup cpu/cpu.cfs_period_us {_PERIOD}",
    ]


def _state(container: FakeContainer, ignored: Collection[str]) -> list[str]:
    mounted = [text.partition(":")[::2] for text in container.flags.get("--tmpfs", ())]
    kind = "overlay" if "state" in ignored else "tmpfs"
    return [f"state {kind} {options}" for place, options in mounted if place == STATE_DIR]
