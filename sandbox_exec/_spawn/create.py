"""``create_backend``: a container where there is an engine, and no isolation only where allowed."""

from __future__ import annotations

import os

from sandbox_exec._detect import detect_engine
from sandbox_exec._docker.engine import cli_environment
from sandbox_exec._docker.facts import EngineInfo
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._docker.runner import SubprocessRunner
from sandbox_exec._errors import DaemonUnavailableError, EngineNotFoundError
from sandbox_exec._log import Log
from sandbox_exec._spawn.docker import DockerBackend
from sandbox_exec._spawn.engine import Detect
from sandbox_exec._spawn.local import LocalBackend
from sandbox_exec._spawn.options import DockerBackendOptions, check_options

__all__ = ["create_backend"]

log = Log(__name__)


async def create_backend(
    options: DockerBackendOptions,
    *,
    runner: CommandRunner | None = None,
    detect: Detect = detect_engine,
) -> DockerBackend | LocalBackend:
    """Return the backend for this host, not yet entered.

    One in a container if there is docker or podman, whether or not its engine answers now. If there
    is neither, one without isolation, with a warning, where ``options.allow_local`` says that this
    is acceptable.

    :param runner: what starts the engine's program; for tests.
    :param detect: finds the engine; for tests.
    :raises EngineNotFoundError: when there is neither, and ``options.allow_local`` is not set; also
        with it, with code ``not-an-engine``, for a program that is there and cannot be used.

    Source: S1's factory, which always fell back.
    """
    check_options(options)
    host = options.docker_host
    asking = runner or SubprocessRunner(cli_environment(os.environ, docker_host=host))
    try:
        found = await detect(options.engine, docker_host=host, runner=asking)
    except EngineNotFoundError as error:
        # What is there and does not answer as an engine's program would is broken, and not absent.
        if not options.allow_local or error.code != EngineNotFoundError.default_code:
            raise
        log.warning(
            "backend.not_isolated",
            why=str(error),
            consequence="processes run on this host, with the rights of this user",
        )
        return LocalBackend()
    except DaemonUnavailableError:
        # No reason to go without isolation: the first spawn says what is wrong, if it still is.
        return DockerBackend(options, runner=runner, detect=detect)

    async def known(
        override: str | None = None,  # noqa: ARG001  # asked once is enough
        *,
        docker_host: str | None,  # noqa: ARG001  # as above
        runner: CommandRunner,  # noqa: ARG001  # as above
    ) -> EngineInfo:
        return found

    return DockerBackend(options, runner=runner, detect=known)
