"""What is an ssh connection's own: its limits, its end, and whom it leads to."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from anyio import create_task_group, sleep, to_thread

from sandbox_exec import DaemonUnavailableError, ExecSpec, SandboxError
from tests.engine.executors import Box, Deployment
from tests.rig.processes import kill_all
from tests.rig.remote import connections

pytestmark = [pytest.mark.anyio, pytest.mark.conformance, pytest.mark.only("ssh")]


@pytest.fixture
def remote() -> Path:
    """The client's directory, from which the server's processes are found."""
    return Path(os.environ["SANDBOX_EXEC_CONFORMANCE_REMOTE"])


@pytest.mark.parametrize("host", ["remote", "plain"])
async def test_more_calls_than_the_server_takes_connections(here: Deployment, host: str) -> None:
    """Multiplexed (MaxSessions 10) or not (MaxStartups 10), all succeed and each runs once."""
    done: Counter[str] = Counter()
    async with here.executor(docker_host=f"ssh://{host}") as executor:
        await executor.run(ExecSpec("sleep 817 >/dev/null 2>&1 & echo up", Box.session))

        async def call() -> None:
            spec = ExecSpec("sleep 1; echo x >> log; echo done", Box.session)
            try:
                done[(await executor.run(spec)).stdout] += 1
            except SandboxError as error:
                done[repr(error)] += 1

        async with create_task_group() as group:
            for _ in range(30):
                group.start_soon(call)
        assert done == {"done\n": 30}
        result = await executor.run(ExecSpec("wc -l < log", Box.session))
        assert (result.stdout.strip(), result.reset) == ("30", None)


@pytest.mark.parametrize("host", ["remote", "plain"])
@pytest.mark.parametrize("session", [Box.session, None], ids=["session", "one-off"])
async def test_a_cut_connection(
    here: Deployment, remote: Path, host: str, session: str | None
) -> None:
    """The call had started, and says so; it is not run again, nothing of it is left, and the next
    call has a connection of its own.
    """
    async with here.executor(docker_host=f"ssh://{host}") as executor:
        await executor.run(ExecSpec("true", Box.session))

        async def cut() -> None:
            await sleep(3)
            await to_thread.run_sync(lambda: kill_all(connections(remote)))

        async with create_task_group() as group:
            group.start_soon(cut)
            command = "echo begun; echo own >&2; echo x >> log; sleep 20; echo y >> log"
            with pytest.raises(DaemonUnavailableError) as caught:
                await executor.run(ExecSpec(command, session))
        assert caught.value.started is True
        assert caught.value.partial_stdout == "begun\n"
        assert caught.value.partial_stderr == "own\n"
        began = time.monotonic()
        told = await executor.run(
            ExecSpec("cat log 2>/dev/null; ps | grep -c '[s]leep 20'", "chat")
        )
        assert told.stdout == ("x\n0\n" if session else "0\n")
        assert time.monotonic() - began < 10
        assert here.containers() == [here.container(Box.session)]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("impostor", "Host key verification failed"),
        ("stranger", "Host key verification failed"),
        ("nowhere.invalid", "Could not resolve hostname"),
    ],
)
async def test_a_host_that_is_not_to_be_trusted(here: Deployment, host: str, words: str) -> None:
    """Or not there: one clear error, at once, in a session and without."""
    began = time.monotonic()
    async with here.executor(docker_host=f"ssh://{host}") as executor:
        for session in (Box.session, None):
            with pytest.raises(DaemonUnavailableError, match=words) as caught:
                await executor.run(ExecSpec("true", session))
            assert caught.value.started is False
    assert time.monotonic() - began < 15
