"""A spawn backend on the engine in memory, and what is done with it in tests."""

from __future__ import annotations

from typing import Any

import anyio
from anyio.abc import Process
from attrs import Factory, define

from sandbox_exec import (
    CommandRunner,
    DockerBackend,
    DockerBackendOptions,
    EngineInfo,
    SpawnOptions,
    SpawnRequest,
    WrappedSpawn,
)
from sandbox_exec._naming import LABEL_KIND
from sandbox_exec.testing import FakeCall, FakeContainer, FakeDaemon, Handler

from .places import IMAGE


async def cats(call: FakeCall) -> int:
    while data := await call.receive():
        await call.stdout(data)
    return 0


async def stays(call: FakeCall) -> int:
    await call.stdout(b"up\n")
    await call.forever()
    return 0


async def speaks(call: FakeCall) -> int:
    await call.stdout(b"out\n")
    await call.stderr(b"err\n")
    return 7


async def shows(call: FakeCall) -> int:
    env = sorted(call.env.items())
    await call.stdout(f"{call.cwd} {call.user} {env}".encode())
    return 0


async def reads_both(call: FakeCall) -> int:
    found = [call.files.get(path, b"lost") for path in ("/tmp/a", "/tmp/b")]
    await call.stdout(b" ".join(found))
    return 0


async def leaves_a_server(call: FakeCall) -> int:
    call.background()
    return 0


COMMANDS: dict[str, Handler] = {
    "cat": cats,
    "stay": stays,
    "speak": speaks,
    "show": shows,
    "both": reads_both,
    "serve": leaves_a_server,
}


async def finds_docker(
    override: str | None = None, *, docker_host: str | None, runner: CommandRunner
) -> EngineInfo:
    return EngineInfo(
        program="docker",
        family="docker",
        server="docker",
        version="28.2.2",
        client_version="28.2.2",
    )


@define
class SpawnPlace:
    """Backends of one deployment on an engine in memory."""

    daemon: FakeDaemon = Factory(lambda: FakeDaemon(dict(COMMANDS)))

    def backend(self, **options: Any) -> DockerBackend:  # noqa: ANN401  # DockerBackendOptions'
        """Return a backend, not yet entered; its clocks are the engine's."""
        settings = {"image": IMAGE, "deployment": "test", "control_timeout": 0.5, **options}
        return DockerBackend(
            DockerBackendOptions(**settings),
            runner=self.daemon,
            detect=finds_docker,
            clock=self.daemon.clock,
            wall=self.daemon.clock.wall,
        )

    @property
    def containers(self) -> list[FakeContainer]:
        """The containers of spawn backends."""
        every = self.daemon.containers.values()
        return [one for one in every if one.labels.get(LABEL_KIND) == "spawn"]

    @property
    def container(self) -> FakeContainer:
        """The one there is."""
        (found,) = self.containers
        return found

    def ran(self, verb: str) -> list[tuple[str, ...]]:
        """Return the command lines of one engine command, in order."""
        return [argv for argv in self.daemon.calls if argv[1] == verb]

    async def started(self, wrapped: WrappedSpawn) -> tuple[bytes, int]:
        """Start a wrapped spawn as its caller would; return its output and exit code."""
        env, output = wrapped.options.env, b""
        assert env is not None
        async with self.daemon.open((wrapped.command, *wrapped.args), env=env) as program:
            while data := await program.receive_stdout():
                output += data
            return output, await program.wait()


def ask(command: str, *args: str, **options: Any) -> SpawnRequest:  # noqa: ANN401  # SpawnOptions'
    return SpawnRequest(command, args, SpawnOptions(**options))


async def everything(stream: anyio.abc.ByteReceiveStream | None) -> bytes:
    assert stream is not None
    output = b""
    async for data in stream:
        output += data
    return output


async def outcome(backend: DockerBackend, request: SpawnRequest) -> tuple[bytes, bytes, int]:
    """Spawn a process without input; return both streams and the exit code."""
    async with backend.spawn(request) as process:
        return await ending(process)


async def ending(process: Process) -> tuple[bytes, bytes, int]:
    assert process.stdin is not None
    await process.stdin.aclose()
    return await everything(process.stdout), await everything(process.stderr), await process.wait()
