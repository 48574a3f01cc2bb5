"""What a sandbox may do, seen from inside, and which limits really bite."""

from __future__ import annotations

import pytest

from sandbox_exec import ExecSpec, SandboxError
from tests.engine.executors import Box, Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.conformance]


async def status(box: Box) -> dict[str, str]:
    """Return what the kernel says of a process inside."""
    text = (await box.run("cat /proc/self/status")).stdout
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


async def test_no_network(box: Box) -> None:
    """But for the loopback, in a session and without; the host's names lead nowhere."""
    for session in (Box.session, None):
        found = await box.executor.run(ExecSpec("cat /proc/net/dev; cat /etc/hosts", session))
        devices = [line for line in found.stdout.splitlines() if ": " in line]
        assert [line.split(":")[0].strip() for line in devices] == ["lo"]
        assert "127.0.0.1\thost.docker.internal" in found.stdout.replace(" ", "\t")


async def test_capabilities(box: Box) -> None:
    """Seven, for root, and none for anybody else; none can be had beyond them."""
    found = await status(box)
    assert {found[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {"00000000000000fb"}
    other = await box.run("grep CapEff /proc/self/status", user="app")
    assert other.stdout.split()[1] == "0000000000000000"
    tried = await box.run("chroot / true; mount -t tmpfs x /mnt; echo end")
    assert tried.stdout == "end\n"
    assert len(tried.stderr.splitlines()) == 2


async def test_a_device_gives_nothing(box: Box) -> None:
    """Neither can a node be made and read, nor is there one of the host's disks."""
    made = await box.run("mknod /tmp/disk b 8 0 && head -c 1 /tmp/disk | wc -c || echo refused")
    assert made.stdout in {"refused\n", "0\n"}
    assert (await box.run("ls /dev | grep -E '^(sd|vd|nvme|mem|kmem|port)'")).stdout == ""


async def test_no_new_privileges(box: Box) -> None:
    """Is set on what runs inside."""
    assert (await status(box))["NoNewPrivs"] == "1"


async def test_a_suid_program_lends_nothing(here: Deployment) -> None:
    """To whoever is not root already."""
    # Not busybox, which gives such rights up by itself.
    async with here.executor("debian") as executor:
        box = Box(executor, here)
        await box.run("cp /usr/bin/id /bin/lent; chmod 4755 /bin/lent")
        assert (await box.run("/bin/lent -u", user="app")).stdout == "1000\n"


async def test_memory_beyond_the_cap_kills_the_command(box: Box) -> None:
    """And only the command, and the result says of what it died (F9)."""
    await box.run("sleep 816 >/dev/null 2>&1 &")
    result = await box.run("dd bs=700M count=1 if=/dev/zero of=/dev/null", timeout=30)
    assert result.exit_code != 0
    assert result.oom_killed
    after = await box.run("echo fine")
    assert (after.stdout, after.reset, after.oom_killed) == ("fine\n", None, False)


async def test_memory_beyond_the_cap_is_not_to_be_had(box: Box) -> None:
    """However the engine ends who takes it; the next call is served (R6: not in swap, either)."""
    with_success = "dd bs=700M count=1 if=/dev/zero of=/dev/null && echo had"
    try:
        told = (await box.run(with_success, timeout=30)).stdout
    except SandboxError as error:
        told = error.partial_stdout
    assert "had" not in told
    assert (await box.run("echo fine")).stdout == "fine\n"


FORKS = "i=0; while [ $i -lt 150 ]; do sleep 20 & i=$((i+1)); done; echo $i"


async def test_processes_beyond_the_cap_are_refused(here: Deployment) -> None:
    """By the kernel, to the command; the sandbox serves on."""
    async with here.executor(pids_limit=64) as executor:
        box = Box(executor, here)
        result = await box.run(FORKS, timeout=30)
        assert "150" not in result.stdout
        assert result.exit_code != 0
        assert (await box.run("echo fine")).stdout == "fine\n"


async def test_processes_beyond_the_cap_are_not_to_be_had(here: Deployment) -> None:
    """However the engine refuses them; the next call is served (S15)."""
    async with here.executor(pids_limit=64) as executor:
        box = Box(executor, here)
        try:
            told = (await box.run(FORKS, timeout=30)).stdout
        except SandboxError as error:
            told = error.partial_stdout
        assert "150" not in told
        assert (await box.run("echo fine")).stdout == "fine\n"


async def test_processor_time_is_capped(here: Deployment) -> None:
    """The same work takes a twentieth of a processor much longer than a whole one."""
    work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    took: dict[float, float] = {}
    for cpus in (1.0, 0.05):
        async with here.executor(cpus=cpus) as executor:
            box = Box(executor, here)
            took[cpus] = min([(await box.run(work, timeout=60)).duration for _ in range(2)])
    # Twenty times as long on an idle machine; on a busy one, the whole one is shared as well.
    assert took[0.05] > 2.5 * took[1.0]


async def test_shape_in_the_engines_own_words(box: Box) -> None:
    """No log on the host, no swap beyond the memory, and the limits as they were asked for."""
    await box.run("true")
    facts = box.place.cli(
        *("inspect", "--format"),
        "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}} "
        "{{.HostConfig.NanoCpus}} {{.HostConfig.LogConfig.Type}}",
        box.place.container(Box.session),
    )
    assert facts == f"{2**29} {2**29} 512 1000000000 none"


async def test_the_proxy_stays_outside(here: Deployment) -> None:
    """What the engine's program would add to each container may hold credentials (F14)."""
    async with here.executor() as executor:
        for session in (Box.session, None):
            result = await executor.run(ExecSpec("env", session))
            assert "proxy" not in result.stdout.lower()
