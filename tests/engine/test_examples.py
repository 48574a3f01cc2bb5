"""The programs of the how-to pages do what their pages say, on a real engine."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import frozen

from tests.engine.real_engine import IMAGE, RealEngine

pytestmark = pytest.mark.engine

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PATIENCE = 60


def environment_of(engine: RealEngine) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name.startswith("COV")}
    settings = {"SANDBOX_EXEC_IMAGE": IMAGE, "SANDBOX_EXEC_ENGINE": engine.program}
    return {**ours, **engine.environment, **settings}


def containers(engine: RealEngine, deployment: str) -> set[str]:
    mine = f"label=sandbox-exec.deployment={deployment}"
    argv = [engine.program, "ps", "--all", "--quiet", "--no-trunc", "--filter", mine]
    answer = subprocess.run(
        argv, env=dict(engine.environment), capture_output=True, timeout=PATIENCE, check=True
    )
    return set(answer.stdout.decode().split())


def test_the_agent_loop_gives_its_model_results_to_work_with(real_engine: RealEngine) -> None:
    """Files persist from one tool call to the next, a failing command is text that the model
    reads, and the conversation's sandbox is gone at the end.
    """
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / "agent_loop.py")],
        env=environment_of(real_engine),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    printed = ended.stdout.decode()
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "No such file" in printed
    assert "exit code: 1" in printed
    assert "\n5.5\n" in printed
    assert printed.endswith("The average of the numbers from 1 to 10 is 5.5.\n")
    assert containers(real_engine, "agent-example") == set()


@frozen
class Server:
    """The example server as a process, started as often as a test wants."""

    engine: RealEngine
    deployment: str

    @contextmanager
    def running(self, end: signal.Signals = signal.SIGTERM) -> Iterator[httpx.Client]:
        """Serve for as long as the block lasts, then end in the way asked for."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        where = ["--app-dir", str(EXAMPLES), "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "server:app", *where, "--log-level", "warning"],
            env={**environment_of(self.engine), "SANDBOX_DEPLOYMENT": self.deployment},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                wait_for_port(port, process)
                address = f"http://127.0.0.1:{port}"
                with httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False) as client:
                    yield client
            finally:
                process.send_signal(end)
                _, complaints = process.communicate(timeout=PATIENCE)
        assert complaints == b""


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return


def run(client: httpx.Client, session: str, command: str, **more: float) -> dict[str, Any]:
    answer = client.post(f"/sessions/{session}/run", json={"command": command, **more})
    assert answer.status_code == 200, answer.text
    facts: dict[str, Any] = answer.json()
    return facts


@pytest.fixture
def server(real_engine: RealEngine) -> Iterator[Server]:
    server = Server(real_engine, f"server-{secrets.token_hex(6)}")
    yield server
    for name in containers(real_engine, server.deployment):
        subprocess.run(
            [real_engine.program, "rm", "--force", "--volumes", name],
            env=dict(real_engine.environment),
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )


def test_the_server_runs_requests_in_parallel(server: Server) -> None:
    """Two requests of one session run at once, each waiting for a file of the other's; those of
    other sessions see none of it.
    """
    meet = "touch {}; until [ -e {} ]; do sleep 0.05; done; echo met"
    jobs = [("a", meet.format(1, 2)), ("a", meet.format(2, 1)), ("b", "ls"), ("c", "ls")]
    with server.running() as client, ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda job: run(client, *job), jobs))
        assert [answer["stdout"] for answer in answers[:2]] == ["met\n", "met\n"]
        assert [answer["stdout"] for answer in answers[2:]] == ["inputs\noutputs\n"] * 2
        assert len(containers(server.engine, server.deployment)) == 3


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_server_adopts_its_sandboxes(server: Server, end: signal.Signals) -> None:
    """After a restart, or a crash, the same container serves: files and processes are there."""
    with server.running(end) as client:
        first = run(client, "a", "echo 42 > answer; sleep 600 & echo $! > pid")
        assert first["exit_code"] == 0
        before = containers(server.engine, server.deployment)
    with server.running() as client:
        again = run(client, "a", "cat answer; kill -0 $(cat pid)")
        assert (again["stdout"], again["exit_code"], again["reset"]) == ("42\n", 0, None)
        assert containers(server.engine, server.deployment) == before
        assert client.delete("/sessions/a").status_code == 204
        assert containers(server.engine, server.deployment) == set()


def test_the_server_answers_what_fails(server: Server) -> None:
    """A failing command and a time-out are answers; a bad request is the client's fault."""
    with server.running() as client:
        failed = run(client, "a", "echo no >&2; exit 9")
        assert (failed["exit_code"], failed["stderr"]) == (9, "no\n")
        assert run(client, "a", "sleep 60", timeout=0.5)["timed_out"]
        bad: list[object] = [{}, [], {"command": 1}, {"command": "x", "timeout": -1}]
        for body in bad:
            assert client.post("/sessions/a/run", json=body).status_code == 400
        assert client.post("/sessions/a/run", content=b"no json").status_code == 400


def test_the_server_says_when_a_sandbox_fails(server: Server, real_engine: RealEngine) -> None:
    """An engine that is not there is the server's fault, and says whether anything ran."""
    nowhere = RealEngine(
        real_engine.program,
        {
            **real_engine.environment,
            "DOCKER_HOST": "unix:///no/such/socket",
            "CONTAINER_HOST": "unix:///no/such/socket",
        },
    )
    with Server(nowhere, server.deployment).running() as client:
        answer = client.post("/sessions/a/run", json={"command": "true"})
        assert answer.status_code == 503
        facts = answer.json()
        assert (facts["retryable"], facts["started"]) == (True, False)
        assert facts["code"] == "daemon-unavailable"
