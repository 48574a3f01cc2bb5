"""What a sandbox shows from inside, under both kinds of cgroups, is read as the kernel means it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec._sighting import Sighting, capability_names, parse_sighting

V1 = """\
CapEff 00000000000000fb
CapBnd 00000000000000fb
NoNewPrivs 1
tag 1041792
swap-on-host 0
interface lo
interface tunl0
connect refused
cgroup memory/memory.limit_in_bytes 536870912
cgroup memory/memory.memsw.limit_in_bytes 536870912
cgroup pids/pids.max 512
cgroup cpu/cpu.cfs_quota_us 150000
cgroup cpu/cpu.cfs_period_us 100000
state tmpfs rw,nosuid,size=163840k
end
"""
V2 = """\
interface lo
interface eth0
route eth0 00000000
cgroup memory.max 67108864
cgroup memory.swap.max 1048576
cgroup pids.max 64
cgroup cpu.max 20000 100000
"""
UNBOUND = """\
cgroup memory.max max
cgroup memory.swap.max max
cgroup pids.max max
cgroup cpu.max max 100000
cgroup memory/memory.limit_in_bytes 9223372036854771712
cgroup cpu/cpu.cfs_quota_us -1
cgroup cpu/cpu.cfs_period_us 100000
"""


def test_a_sandbox_under_cgroups_v1() -> None:
    """Each limit, and no swap where the cap on both is the cap on memory."""
    seen = parse_sighting(V1)
    assert (seen.memory, seen.swap, seen.pids, seen.cpus) == (512 * 2**20, 0, 512, 1.5)
    assert (seen.tag, seen.state, seen.whole) == ("1041792", "tmpfs rw,nosuid,size=163840k", True)
    assert seen.status["NoNewPrivs"] == "1"
    assert (seen.has_cpus(1.5), seen.has_cpus(1.0)) == (True, False)


def test_a_sandbox_under_cgroups_v2() -> None:
    """The same, by other names; swap has a cap of its own."""
    seen = parse_sighting(V2)
    assert (seen.memory, seen.swap, seen.pids, seen.cpus) == (64 * 2**20, 2**20, 64, 0.2)
    assert (seen.routes, seen.links) == (("eth0 00000000",), ("eth0",))


def test_no_limit_is_none() -> None:
    """Neither the word nor the largest number that there is counts as one."""
    seen = parse_sighting(UNBOUND)
    assert (seen.memory, seen.swap, seen.pids, seen.cpus) == (None, None, None, None)
    assert not seen.has_cpus(1.0)


def test_the_kernels_own_tunnels_lead_nowhere() -> None:
    """They are in each network namespace once their modules are loaded."""
    assert parse_sighting(V1).links == ()


def test_the_names_of_capabilities() -> None:
    """By the bits of the kernel; those of a later one have no name, and are not overlooked."""
    policy = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
    assert capability_names("00000000000000fb") == frozenset(policy)
    assert capability_names("0000000000200000") == frozenset({"SYS_ADMIN"})
    assert capability_names("0000010000000000") == frozenset({"CHECKPOINT_RESTORE"})
    assert capability_names("0000020000000000") == frozenset({"others"})
    assert capability_names("0000000000000000") == frozenset()
    assert capability_names("") is None
    assert parse_sighting("").capabilities is None


@pytest.mark.parametrize("text", ["", "end of it\n", "interface lo\nen", " end\n"])
def test_what_is_not_whole_is_known_as_such(text: str) -> None:
    """Its last word tells, alone on its line."""
    assert parse_sighting(text).whole is (text == "end of it\n")


@given(st.text() | st.lists(st.sampled_from([*V1.splitlines(), *V2.splitlines()])).map("\n".join))
def test_anything_may_be_printed(text: str) -> None:
    """A command's output is never more than facts that may be wrong."""
    seen = parse_sighting(text)
    assert isinstance(seen, Sighting)
    for limit in (seen.memory, seen.swap, seen.pids, seen.cpus):
        assert limit is None or limit >= 0
    assert set(seen.links) <= set(seen.interfaces)
