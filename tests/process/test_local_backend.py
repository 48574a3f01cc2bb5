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
    FileTransferError,
    LocalBackend,
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


async def gone(pid: int) -> None:
    """Wait until a process that was killed has ended, which on a busy host takes its time."""
    with anyio.fail_after(10):
        while alive(pid):  # noqa: ASYNC110  # no child of ours, so no event
            await anyio.sleep(0.01)


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
        assert process.returncode == 137
        with pytest.raises(ClosedResourceError):
            await process.stdout.receive()
        for end in ("kill", "dispose"):
            async with local.spawn(sh(script)) as process:
                if end == "kill":
                    process.kill()
                else:
                    await local.dispose()
                assert await process.wait() == 137
        with anyio.move_on_after(0.3):
            async with local.spawn(sh(script)) as process:
                await anyio.sleep_forever()
        await gone(process.pid)
        await gone(child)


async def test_files_are_placed_whole(tmp_path: Path) -> None:
    """Or not at all."""
    path = tmp_path / "a/b"
    async with LocalBackend() as local:
        async with local.spawn(sh(f"cat {path}", files={str(path): b"hi"})) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"hi"
        (tmp_path / "dir/x").mkdir(parents=True)
        for name, code in (("dir", "is-directory"), ("a/b/c", "bad-parent")):
            with pytest.raises(FileTransferError, match=name) as failed:
                await local.wrap_spawn(sh(":", files={str(tmp_path / name): b"hi"}))
            assert (failed.value.code, failed.value.path) == (code, str(tmp_path / name))
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a", "b", "dir", "x"]


async def said(local: LocalBackend, request: SpawnRequest) -> tuple[str, int]:
    """What a process has printed on standard error, and its exit code."""
    async with local.spawn(request) as process:
        assert process.stderr is not None
        code = await process.wait()
        return b"".join([data async for data in process.stderr]).decode(), code


async def test_a_program_that_does_not_run_ends_as_a_shell_says(tmp_path: Path) -> None:
    """As it does inside of a container: with a status, and words about why."""
    plain = tmp_path / "plain"
    plain.write_text("no program")
    async with LocalBackend() as local:
        words, code = await said(local, SpawnRequest("/absent", ("x y",)))
        assert ("/absent" in words, code) == (True, 127)
        words, code = await said(local, SpawnRequest("absent", (), SpawnOptions(env={})))
        assert ("absent" in words, code) == (True, 127)
        words, code = await said(local, SpawnRequest(str(plain)))
        assert ("plain" in words, code) == (True, 126)


async def test_a_directory_is_not_blamed_on_the_program(tmp_path: Path) -> None:
    """One that is missing, is none, or is the very path of the program; and none is made."""
    program = tmp_path / "program"
    program.touch()
    async with LocalBackend() as local:
        for cwd in (tmp_path / "absent", program):
            request = SpawnRequest(str(program), (), SpawnOptions(cwd=cwd))
            with pytest.raises(ValueError, match=f"{cwd.name}' cannot be entered"):
                await said(local, request)
        request = SpawnRequest(str(tmp_path), (), SpawnOptions(cwd=str(tmp_path)))
        assert (await said(local, request))[1] == 126
    assert [one.name for one in tmp_path.iterdir()] == ["program"]


async def test_a_signal_shows_as_in_a_shell() -> None:
    """128 and its number; SIGKILL takes the group along, however it is sent."""
    async with LocalBackend() as local:
        async with local.spawn(sh("exec sleep 60")) as process:
            process.terminate()
            assert await process.wait() == 143
        async with local.spawn(sh("sleep 60 & echo $!; wait")) as process:
            assert process.stdout is not None
            child = int(await process.stdout.receive())
            process.send_signal(signal.SIGKILL)
            assert await process.wait() == process.returncode == 137
    await gone(child)


async def test_a_backend_is_left_while_another_task_holds_a_process() -> None:
    """Its process ends like one that was killed, and what reads from it comes to an end."""
    told: list[tuple[bytes, int]] = []
    running = anyio.Event()

    async def hold(local: LocalBackend) -> None:
        async with local.spawn(sh("echo up; exec sleep 60")) as process:
            assert process.stdout is not None
            first = await process.stdout.receive()
            running.set()
            rest = b"".join([data async for data in process.stdout])
            told.append((first + rest, await process.wait()))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, LocalBackend() as local:
            tasks.start_soon(hold, local)
            await running.wait()
    assert told == [(b"up\n", 137)]


async def test_what_is_no_signal_is_refused() -> None:
    """In the words of the other backend, and not in the system's."""
    async with LocalBackend() as local, local.spawn(sh("exec sleep 60")) as process:
        for what in (0, -9, 65, 999, 3.5, True, None):
            with pytest.raises(ValueError, match="signal must be one of 1 to 64, not"):
                process.send_signal(what)  # type: ignore[arg-type]  # refused
        assert process.returncode is None


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
        for what in (local.wrap_spawn("true"), said(local, "true")):  # type: ignore[arg-type]  # refused
            with pytest.raises(ValueError, match="SpawnRequest, not str"):
                await what
        large = sh(":", env={f"A{n}": "x" * 100_000 for n in range(6)})
        with pytest.raises(ValueError, match="at most"):
            await local.wrap_spawn(large)
    for late in (local.dispose(), local.wrap_spawn(sh(":")), said(local, sh(":"))):
        with pytest.raises(ExecutorClosedError):
            await late
