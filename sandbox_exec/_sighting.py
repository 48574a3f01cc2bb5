"""What a sandbox looks like from inside, read from what ``_guest/look.sh`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

__all__ = ["Reached", "Sighting", "capability_names", "parse_sighting"]

# In the order of their bits.
_CAPABILITIES: Final = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    *("SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW"),
    *("IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT"),
    *("SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD"),
    *("LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG"),
    *("WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE"),
)

# Made by the kernel in each network namespace once their modules are loaded; down, and of no use.
_FALLBACK_TUNNELS: Final = frozenset(
    {
        *("erspan0", "gre0", "gretap0", "ip6_vti0", "ip6gre0", "ip6tnl0", "ip_vti0", "sit0"),
        "tunl0",
    }
)

_QUOTA_STEP: Final = 0.005

# What cgroups v1 prints for no limit, give or take the size of a page.
_NO_LIMIT: Final = 2**62


@frozen
class Sighting:
    """The facts, each as the kernel prints it; what it does not print is not there.

    :param status: ``CapEff``, ``CapBnd`` and ``NoNewPrivs`` of a user's command.
    :param tag: the resource limit by which its processes are found and ended (hazard F18).
    :param swap_on_host: kilobytes of swap that the host has.
    :param interfaces: names of network interfaces.
    :param routes: interface and destination of each route, but for those to itself.
    :param connect: how an attempt to connect ended, ``made`` or ``refused``; empty without one.
    :param cgroup: the cgroup's limits, by the names of their files.
    :param state: kind and options of the mount that holds the guests' marks.
    :param whole: it was printed to its end.
    """

    status: Mapping[str, str] = field(factory=dict)
    tag: str = ""
    swap_on_host: str = ""
    interfaces: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    connect: str = ""
    cgroup: Mapping[str, str] = field(factory=dict)
    state: str = ""
    whole: bool = False

    @property
    def capabilities(self) -> frozenset[str] | None:
        """What a user's command may do that only root may; ``None`` if that is not shown."""
        return capability_names(self.status.get("CapEff", ""))

    @property
    def links(self) -> tuple[str, ...]:
        """The interfaces that lead somewhere."""
        return tuple(name for name in self.interfaces if name not in _FALLBACK_TUNNELS | {"lo"})

    @property
    def memory(self) -> int | None:
        """The memory cap in bytes; ``None`` if none is shown."""
        return self._limit("memory.max", "memory/memory.limit_in_bytes")

    @property
    def swap(self) -> int | None:
        """Bytes that may be swapped out; ``None`` if no cap is shown."""
        both, memory = self._limit("memory/memory.memsw.limit_in_bytes"), self.memory
        if both is not None and memory is not None:
            return max(both - memory, 0)
        return self._limit("memory.swap.max")

    @property
    def pids(self) -> int | None:
        """The cap on processes and threads; ``None`` if none is shown."""
        return self._limit("pids.max", "pids/pids.max")

    @property
    def cpus(self) -> float | None:
        """The share of processor time, in processors; ``None`` if none is shown."""
        quota, _, period = self.cgroup.get("cpu.max", "").partition(" ")
        if not period:
            quota = self.cgroup.get("cpu/cpu.cfs_quota_us", "")
            period = self.cgroup.get("cpu/cpu.cfs_period_us", "")
        try:
            share = int(quota) / int(period)
        except (ValueError, ZeroDivisionError):
            return None
        return share if share > 0 else None

    def has_cpus(self, cpus: float) -> bool:
        """Return whether this very share is shown, as exactly as the kernel keeps it."""
        return self.cpus is not None and abs(self.cpus - cpus) < _QUOTA_STEP

    def _limit(self, *names: str) -> int | None:
        for name in names:
            text = self.cgroup.get(name, "")
            if text.isascii() and text.isdigit() and int(text[:20]) < _NO_LIMIT:
                return int(text)
        return None


@frozen
class Reached:
    """What came of reaching for a limit.

    :param words: what was seen.
    :param holds: whether it holds; ``None`` when that could not be seen.
    """

    words: str
    holds: bool | None = field(kw_only=True)


def capability_names(mask: str) -> frozenset[str] | None:
    """Return the capabilities that a mask of ``/proc/PID/status`` stands for, ``None`` for none."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return None
    known = {name for bit, name in enumerate(_CAPABILITIES) if bits >> bit & 1}
    # Those of a later kernel have no name here yet.
    return frozenset(known | ({"others"} if bits >> len(_CAPABILITIES) else set()))


def parse_sighting(text: str) -> Sighting:
    """Read what the script printed; what is no fact is left out, as anything may print."""
    status: dict[str, str] = {}
    cgroup: dict[str, str] = {}
    lists: dict[str, list[str]] = {"interface": [], "route": []}
    single: dict[str, str] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word in {"CapEff", "CapBnd", "NoNewPrivs"}:
            status[word] = rest
        elif word == "cgroup":
            name, _, value = rest.partition(" ")
            cgroup[name] = value
        elif word in lists:
            lists[word].append(rest)
        else:
            single[word] = rest
    return Sighting(
        status,
        single.get("tag", ""),
        single.get("swap-on-host", ""),
        tuple(lists["interface"]),
        tuple(lists["route"]),
        single.get("connect", ""),
        cgroup,
        single.get("state", ""),
        "end" in single,
    )
