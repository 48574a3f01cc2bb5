"""A restart that nobody here saw is told all the same (hazard S16)."""

from __future__ import annotations

import pytest

from sandbox_exec import ExecSpec

from .executors import deployment
from .real_engine import RealEngine

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


async def test_a_restart_between_two_calls_is_told_once(real_engine: RealEngine) -> None:
    """No call failed, but the server that an earlier one had started is gone."""
    with deployment(real_engine) as place:
        async with place.executor() as executor:
            first = await executor.run(ExecSpec("sleep 4711 & echo x > kept", "chat"))
            assert first.reset is None
            place.cli("restart", "-t", "0", place.container("chat"))
            second = await executor.run(ExecSpec("cat kept", "chat"))
            assert second.stdout == "x\n"
            assert second.reset is not None
            assert "restarted" in second.reset
            assert (await executor.run(ExecSpec("true", "chat"))).reset is None
