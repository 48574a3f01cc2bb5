"""``LocalBackend``: real processes of this host behind the spawn backend's surface."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from anyio import ClosedResourceError

from sandbox_exec import (
    ExecutorClosedError,
    LocalBackend,
    ProgramMissing,
    SandboxBackend,
    SpawnOptions,
    SpawnRequest,
)

pytestmark = pytest.mark.anyio


def sh(script: str, **options: object) -> SpawnRequest:
    return SpawnRequest("sh", ("-c", script), SpawnOptions(**options))  # type: ignore[arg-type]  # passed through


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


async def test_a_process_has_its_own_streams_and_exit_code() -> None:
    """Its variables and directory too."""
    backend: SandboxBackend = LocalBackend()
    assert (backend.mode, backend.label, backend.env_hint().workspace_mount) == (
        "none",
        "none",
        None,
    )
    async with LocalBackend() as local:
        request = sh("pwd; echo $A >&2; cat; exit 3", cwd="/usr", env={"A": "x", "PATH": "/bin"})
        async with local.spawn(request) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            await process.stdin.send(b"in")
            await process.stdin.aclose()
            assert await process.wait() == 3
            out = b"".join([data async for data in process.stdout])
            err = b"".join([data async for data in process.stderr])
            assert (out, err, process.returncode) == (b"/usr\nin", b"x\n", 3)
            process.terminate()
            process.kill()


async def test_variables_are_inherited_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for any process of this host; so wrapped."""
    monkeypatch.setenv("KEPT", "yes")
    async with LocalBackend() as local:
        async with local.spawn(sh("echo $KEPT")) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"yes\n"
        wrapped = await local.wrap_spawn(sh("echo", extra={"stderr": 1}))
        assert (wrapped.command, wrapped.options.extra) == ("sh", {"stderr": 1})


async def test_the_end_of_a_block_ends_the_group() -> None:
    """So do a kill and a disposal; a signal goes to the process alone."""
    script = "trap 'echo got' USR1; sleep 60 & echo $!; while :; do sleep 0.1; done"
    async with LocalBackend() as local:
        async with local.spawn(sh(script)) as process:
            assert process.stdout is not None
            child = int(await process.stdout.receive())
            process.send_signal(signal.SIGUSR1)
            assert await process.stdout.receive() == b"got\n"
            assert (process.returncode, process.pid != os.getpid()) == (None, True)
        assert process.returncode == -9
        with pytest.raises(ClosedResourceError):
            await process.stdout.receive()
        for end in ("kill", "dispose"):
            async with local.spawn(sh(script)) as process:
                if end == "kill":
                    process.kill()
                else:
                    await local.dispose()
                assert await process.wait() == -9
        with anyio.move_on_after(0.3):
            async with local.spawn(sh(script)) as process:
                await anyio.sleep_forever()
        assert not alive(process.pid)
        assert not alive(child)


async def test_files_are_placed_whole(tmp_path: Path) -> None:
    """Or not at all."""
    path = tmp_path / "a/b"
    async with LocalBackend() as local:
        async with local.spawn(sh(f"cat {path}", files={str(path): b"hi"})) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"hi"
        (tmp_path / "dir/x").mkdir(parents=True)
        with pytest.raises(OSError, match="dir"):
            await local.wrap_spawn(sh(":", files={str(tmp_path / "dir"): b"hi"}))
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a", "b", "dir", "x"]


async def test_a_backend_is_used_where_it_is_open() -> None:
    """And what it cannot do is refused."""
    local = LocalBackend()
    with pytest.raises(ExecutorClosedError):
        async with local.spawn(sh(":")):
            pass
    async with local:
        with pytest.raises(ExecutorClosedError):
            await local.__aenter__()
        with pytest.raises(ValueError, match="stderr"):
            async with local.spawn(sh(":", extra={"stderr": 1})):
                pass
        with pytest.raises(ProgramMissing):
            async with local.spawn(SpawnRequest("/absent")):
                pass
