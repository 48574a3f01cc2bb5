"""A real engine, as tests are given it: its program, its environment, and whether it answers."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from attrs import Factory, frozen

from sandbox_exec._docker.runner import SubprocessRunner

IMAGE = "sandbox-exec/busybox"


@frozen
class RealEngine:
    """An engine that answers, and the environment in which its program reaches it.

    :param settings: what an executor must be told to use it, beyond its program.
    :param plain: executors are made as a caller makes them, who hands in nothing but settings.
    """

    program: str
    environment: Mapping[str, str]
    settings: Mapping[str, Any] = Factory(dict)
    plain: bool = False

    @property
    def runner(self) -> SubprocessRunner:
        return SubprocessRunner(self.environment)


def engine_environment() -> dict[str, str]:
    """Return what of this process's environment decides which engine is spoken to."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "HOME", "XDG_RUNTIME_DIR"} or name.startswith(("DOCKER_", "CONTAINER"))
    }


def answers(program: str, environment: Mapping[str, str]) -> bool:
    if shutil.which(program, path=environment.get("PATH")) is None:
        return False
    argv = [program, "image", "inspect", IMAGE]
    try:
        ended = subprocess.run(argv, env=environment, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0
