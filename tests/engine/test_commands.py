"""What a caller of `run` may rely on, on a real engine."""

from __future__ import annotations

import os
import time

import pytest
from anyio import create_task_group, move_on_after, sleep

from sandbox_exec import ContainerStartError, ExecResult, ExecSpec

from .executors import Box, Deployment, deployment
from .real_engine import RealEngine

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


CODES = [0, 1, 2, 77, 124, 125, 126, 127, 128, 130, 137, 143, 255]


async def test_exit_codes_come_through(box: Box) -> None:
    """Those included that others read as time-outs or as the engine's own."""
    assert [(await box.run(f"exit {code}")).exit_code for code in CODES] == CODES


async def test_one_offs_behave_alike(box: Box) -> None:
    """Codes, streams, input, directory and user; and the container is gone afterwards."""
    result = await box.run("cat; echo err >&2; pwd; ls; exit 137", None, stdin=b"in\n", cwd="sub")
    assert (result.stdout, result.stderr) == ("in\n/workspace/sub\n", "err\n")
    assert (result.exit_code, result.timed_out) == (137, False)
    other = await box.run("id -un; touch mine; ls", None, user="nobody")
    assert other.stdout.split() == ["nobody", "inputs", "mine", "outputs"]
    limited = await box.run("trap '' TERM; echo begun; sleep 60", None, timeout=0.5)
    assert (limited.stdout, limited.exit_code, limited.timed_out) == ("begun\n", -1, True)
    assert box.place.containers() == []


ENGINE_WORDS = [
    "Error: No such container: sbx",
    "Error response from daemon: Container x is not running",
    "Error response from daemon: Container x is paused, unpause the container before exec",
    "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?",
    "OCI runtime exec failed: exec failed: unable to start container process",
    "error during connect: this error may indicate that the docker daemon is not running",
]


@pytest.mark.parametrize("stream", [1, 2])
async def test_what_a_command_says_never_makes_it_run_twice(box: Box, stream: int) -> None:
    """Whatever engine error it prints, on whichever stream, with whichever code (S2)."""
    for number, words in enumerate(ENGINE_WORDS):
        code = (1, 126, 127, 137, 255, 125)[number]
        result = await box.run(f"echo x >> count; echo '{words}' >&{stream}; exit {code}")
        assert result.exit_code == code
        assert words in (result.stdout if stream == 1 else result.stderr)
    assert (await box.run("wc -l < count")).stdout.strip() == str(len(ENGINE_WORDS))


TREE = """
trap '' TERM INT HUP
setsid sh -c 'trap "" TERM; exec sleep 4711' &
env -i /bin/sh -c 'sleep 4711' &
(sh -c 'sleep 4711 & exec sleep 4711' &)
other=': > /tmp/other; sleep 4711'
{ setpriv --reuid 1000 --clear-groups /bin/sh -c "$other" || su app -s /bin/sh -c "$other"; } &
echo started
sleep 4711
"""


async def test_at_its_limit_the_whole_tree_is_gone(box: Box) -> None:
    """While an earlier background server and a parallel command live on (C1)."""
    await box.run("sleep 815 & echo up")
    results: dict[str, ExecResult] = {}

    async def neighbour() -> None:
        results["neighbour"] = await box.run("sleep 4; echo done")

    async with create_task_group() as group:
        group.start_soon(neighbour)
        await sleep(0.3)
        began = time.monotonic()
        result = await box.run(TREE, timeout=2)
        assert time.monotonic() - began < 4
        assert (result.stdout, result.exit_code, result.timed_out) == ("started\n", -1, True)
        left = box.place.processes("chat")
        assert not [line for line in left if "4711" in line]
        assert [line for line in left if "815" in line]
    assert results["neighbour"].stdout == "done\n"
    assert (await box.run("stat -c %u /tmp/other")).stdout == "1000\n"


async def test_a_cancelled_call_leaves_nothing_inside(box: Box) -> None:
    """The tree is dead by the time the cancellation comes out."""
    await box.run("true")
    with move_on_after(0.5) as scope:
        await box.run(TREE)
    assert scope.cancelled_caught
    assert not [line for line in box.place.processes("chat") if "4711" in line]
    with move_on_after(1.5) as scope:
        await box.run(TREE, None)
    assert scope.cancelled_caught
    assert box.place.containers() == [box.place.container("chat")]


HOSTILE_IDS = ["a/b", "ab", "..", " ", "x" * 60 + "1", "x" * 60 + "2", "🦊", "🐻"]


async def test_sessions_never_share_anything(place: Deployment) -> None:
    """Whatever their ids look like (S1)."""
    async with place.executor(max_parallel=4) as executor:

        async def write(session: str) -> None:
            await executor.run(ExecSpec(f"echo '{session}' >> who", session))

        async with create_task_group() as group:
            for session in HOSTILE_IDS:
                group.start_soon(write, session)
        for session in HOSTILE_IDS:
            result = await executor.run(ExecSpec("cat who", session))
            assert result.stdout == f"{session}\n"
        assert len(place.containers()) == len(HOSTILE_IDS)


async def test_values_of_variables_are_seen_by_the_command_only(box: Box) -> None:
    """Not in any argument list, not by the next command, not in the container's settings."""
    value = "v4lue-\n'$x"
    result = await box.run('printf %s "$TOKEN"; cat /proc/[0-9]*/cmdline', env={"TOKEN": value})
    assert result.stdout.startswith(value)
    assert "v4lue" not in result.stdout[len(value) :]
    assert (await box.run("echo ${TOKEN-unset}")).stdout == "unset\n"
    assert "v4lue" not in box.place.cli("inspect", box.place.container("chat"))


async def test_the_limits_are_in_force(box: Box) -> None:
    """Seen from inside: no network, few capabilities, no new privileges, no swap, few processes."""
    status = (await box.run("cat /proc/self/status")).stdout
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t00000000000000fb" in status
    assert (await box.run("cat /proc/net/dev")).stdout.count(":") == 1
    assert "127.0.0.1\thost.docker.internal" in (await box.run("cat /etc/hosts")).stdout
    facts = box.place.cli(
        "inspect",
        "--format",
        "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}} "
        "{{.HostConfig.NanoCpus}} {{.HostConfig.LogConfig.Type}}",
        box.place.container("chat"),
    )
    assert facts == f"{2**29} {2**29} 512 1000000000 none"


async def test_memory_is_capped_and_the_kill_is_told(box: Box) -> None:
    """The command dies alone, and the result says of what (F9)."""
    result = await box.run("dd bs=700M count=1 if=/dev/zero of=/dev/null", timeout=30)
    assert result.exit_code != 0
    assert result.oom_killed
    assert not (await box.run("echo fine")).oom_killed


async def test_a_long_command_and_long_input(box: Box) -> None:
    """Far beyond what one argument can hold (C6)."""
    text = "é" * 1_500_000
    assert (await box.run(f"x={text}; echo ${{#x}}")).stdout.strip() in {"1500000", "3000000"}
    result = await box.run("wc -c; cat", stdin=os.urandom(1 << 20))
    assert result.stdout.startswith(f"{1 << 20}\n")


async def test_limits_are_clamped(place: Deployment) -> None:
    """Longer than the maximum means the maximum; none means the default (C8)."""
    async with place.executor(default_timeout=0.4, max_timeout=0.8) as executor:
        for timeout, seconds in ((None, 0.4), (float("inf"), 0.8), (1e300, 0.8)):
            result = await executor.run(ExecSpec("sleep 9", "chat", timeout))
            assert result.timed_out
            assert seconds <= result.duration < seconds + 1.5


@pytest.mark.parametrize("image", ["busybox-entrypoint", "busybox-user", "busybox-bare", "minimal"])
async def test_nothing_is_needed_in_the_image_but_sh(place: Deployment, image: str) -> None:
    """Entry points, users, and missing tools are no hindrance (F17)."""
    async with place.executor(image) as executor:
        for session in ("chat", None):
            result = await executor.run(ExecSpec("echo $0 $((6 * 7)); exit 5", session))
            assert (result.stdout.split()[1], result.exit_code) == ("42", 5)
            limited = await executor.run(ExecSpec("while :; do :; done", session, timeout=0.5))
            assert limited.timed_out
        assert (await executor.run(ExecSpec("pwd", "chat"))).stdout == "/workspace\n"
        assert (await executor.run(ExecSpec("echo ok", "chat"))).stdout == "ok\n"


async def test_input_that_only_the_sandbox_can_reject(box: Box) -> None:
    """One ValueError, and nothing ran."""
    with pytest.raises(ValueError, match="no user 'nosuchuser'"):
        await box.run("touch ran", user="nosuchuser")
    with pytest.raises(ValueError, match="working directory '/etc/passwd'"):
        await box.run("touch /workspace/ran", cwd="/etc/passwd")
    assert (await box.run("ls")).stdout.split() == ["inputs", "outputs"]


async def test_the_proxy_of_the_command_line_stays_outside(
    place: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its configuration may hold credentials, and is not for untrusted code (F14)."""
    config = tmp_path_factory.mktemp("docker")
    (config / "config.json").write_text(
        '{"proxies": {"default": {"httpProxy": "http://me:pw@proxy:1", "noProxy": "x"}}}'
    )
    environment = {**place.engine.environment, "DOCKER_CONFIG": str(config)}
    with deployment(RealEngine(place.engine.program, environment)) as other:
        async with other.executor() as executor:
            for session in ("chat", None):
                result = await executor.run(ExecSpec("env", session))
                assert "proxy" not in result.stdout.lower()


async def test_a_missing_image_is_one_clear_error(place: Deployment) -> None:
    """For sessions and one-offs alike."""
    async with place.executor(image="sandbox-exec/no-such-image", pull_timeout=20) as executor:
        for session in ("chat", None):
            with pytest.raises(ContainerStartError) as caught:
                await executor.run(ExecSpec("true", session))
            assert caught.value.code == "image-missing"
            assert caught.value.started is False
    assert place.containers() == []
