"""What follows from an engine's own way with directories."""

from __future__ import annotations

from sandbox_exec import SandboxConfig
from sandbox_exec._policy import container_flags, one_off_flags


def test_a_working_directory_is_asked_for_where_it_is_made() -> None:
    """Another user's one-off never has it: its workspace is mounted."""
    config = SandboxConfig(image="x")
    for flags in (container_flags(config, "k"), one_off_flags(config, None)):
        assert "--workdir" in flags
    for flags in (
        container_flags(config, "k", makes_workdir=False),
        one_off_flags(config, None, makes_workdir=False),
        one_off_flags(config, "app"),
    ):
        assert "--workdir" not in flags
