"""What is remembered about a container, and when it is asked for again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_exec._docker.breaker import Breaker
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._spawn.liveness import PROBE_EVERY, Liveness, birth
from sandbox_exec._startup import Started
from sandbox_exec.testing import FakeDaemon


def test_a_process_is_known_by_its_beginning(tmp_path: Path) -> None:
    """Only one that looks like a PID 1 of ours: elsewhere the same number is another's."""
    assert birth(os.getpid()) is None
    assert birth(0) is None
    process = tmp_path / "7"
    process.mkdir()
    (process / "cmdline").write_bytes(b"sh\0-c\0x\0sandbox-exec-init\0\0/run\0")
    assert birth(7, str(tmp_path)) is None
    fields = " ".join(str(number) for number in range(3, 53))
    (process / "stat").write_text(f"7 (s) h (x) {fields}\n")
    assert birth(7, str(tmp_path)) == "22"
    (process / "stat").write_text("nonsense")
    assert birth(7, str(tmp_path)) is None


@pytest.mark.anyio
async def test_a_container_whose_first_process_ended_is_asked_about_at_once() -> None:
    """Not after half a minute, where that process can be seen (B3)."""
    daemon = FakeDaemon()
    container = daemon.take_name("box")
    client = EngineClient(daemon, "docker", 1.0, Breaker(daemon.clock))
    began: str | None = "100"
    liveness = Liveness(client, daemon.clock, lambda pid: began)
    started = Started(container.id)
    for _ in range(3):
        assert not await liveness.is_gone(started)
    assert len(daemon.calls) == 1
    began = "200"
    assert not await liveness.is_gone(started)
    assert len(daemon.calls) == 2
    daemon.clock.advance(PROBE_EVERY)
    assert not await liveness.is_gone(started)
    assert len(daemon.calls) == 3
    began = None
    daemon.remove("box")
    assert await liveness.is_gone(started)
    assert await liveness.is_gone(started)
