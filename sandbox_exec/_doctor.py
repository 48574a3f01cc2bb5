"""Examines a set-up from the program to what holds inside a sandbox, and never only asserts."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

from anyio import to_thread
from attrs import evolve, fields_dict

from sandbox_exec import _verdicts as verdicts
from sandbox_exec._config import SandboxConfig
from sandbox_exec._detect import CANDIDATES, detect_engine
from sandbox_exec._docker.facts import EngineInfo
from sandbox_exec._docker.interface import CommandRunner
from sandbox_exec._errors import SandboxError
from sandbox_exec._naming import session_key, workspace_path
from sandbox_exec._parts import Parts
from sandbox_exec._probe import PROBE_SECONDS, Bench, reach
from sandbox_exec._quota import disk_quota_works
from sandbox_exec._verdicts import Check

__all__ = ["examine"]

_DEFAULT_ENGINE: Final = str(fields_dict(SandboxConfig)["engine"].default)
_LEFT: Final = "seen"
_OF_THE_IMAGE: Final = frozenset({"image-missing", "bad-image"})
_PRIVATE: Final = 0o700


async def examine(
    config: SandboxConfig, *, override: str | None, runner: CommandRunner
) -> AsyncIterator[Check]:
    """Yield a row for each check, in an order in which the first that fails is the cause.

    Ends early when there is no engine, no image or no sandbox to look into. Everything that is made
    is made as the library makes it for its callers, and is gone afterwards.

    :param config: the settings that sandboxes shall have; its engine is the one that is found.
    :param override: the engine's program; ``None`` to look for one.
    """
    try:
        info = await detect_engine(override, docker_host=config.docker_host, runner=runner)
    except SandboxError as error:
        tried = error.argv[0] if error.argv else ""
        other = await _other(tried, config, runner)
        for check in verdicts.unreached(error, tried, _addressed(tried, config), other, config):
            yield check
        return
    yield verdicts.engine(info, override or _DEFAULT_ENGINE)
    yield verdicts.host(info)
    bench = Bench(evolve(config, engine=info.program), runner)
    async for check in _sandboxes(bench, info):
        yield check


async def _other(tried: str, config: SandboxConfig, runner: CommandRunner) -> str:
    """Return another program whose engine answers here; nothing if there is none."""
    for program in CANDIDATES:
        if PurePath(program).name != PurePath(tried).name:
            with suppress(SandboxError):
                info = await detect_engine(program, docker_host=config.docker_host, runner=runner)
                return info.program
    return ""


def _addressed(tried: str, config: SandboxConfig) -> tuple[str, str]:
    """Return what says where the engine is, and where that is; nothing if it is the usual place."""
    if config.docker_host is not None:
        return "--docker-host", config.docker_host
    variable = "CONTAINER_HOST" if PurePath(tried).name == "podman" else "DOCKER_HOST"
    address = os.environ.get(variable, "")
    return (variable, address) if address else ("", "")


async def _sandboxes(bench: Bench, info: EngineInfo) -> AsyncIterator[Check]:
    config = bench.config

    def trouble(name: str, error: SandboxError) -> Check:
        return verdicts.trouble(name, error, family=info.family, config=config)

    try:
        await bench.require_image()
        sighting = await bench.look()
    except SandboxError as error:
        yield trouble("image" if error.code in _OF_THE_IMAGE else "sandbox", error)
        return
    yield Check("sandbox", "ok", f"made from {config.image}, whose sh works")
    yield verdicts.network(config, sighting)
    yield verdicts.capabilities(sighting)
    yield verdicts.no_new_privileges(sighting)
    yield verdicts.state(sighting)
    yield verdicts.kill_tag(sighting)
    yield verdicts.time_limit(await bench.time_limit())
    yield verdicts.memory(config, sighting, await bench.memory())
    yield verdicts.swap(sighting, info)
    yield verdicts.processes(sighting, await bench.pids())
    shown = sighting.has_cpus(config.cpus)
    yield verdicts.cpus(config, None if shown else await bench.cpus())
    yield await _tried("disk quota", trouble, lambda: _disk_quota(bench, info))
    yield await _tried(_session_row(config), trouble, lambda: _session(bench))


async def _tried(
    name: str,
    trouble: Callable[[str, SandboxError], Check],
    check: Callable[[], Awaitable[Check]],
) -> Check:
    try:
        return await check()
    except SandboxError as error:
        return trouble(name, error)


async def _disk_quota(bench: Bench, info: EngineInfo) -> Check:
    config = bench.config
    works = await disk_quota_works(
        bench.client, info, config.image, deployment=config.deployment, timeout=config.start_timeout
    )
    return verdicts.disk_quota(info, works=works)


def _session_row(config: SandboxConfig) -> str:
    """Return what the row is called: it is about the directory, where one is given."""
    return "session" if config.workspace_root is None else "workspace root"


async def _session(bench: Bench) -> Check:
    """Make a session's sandbox, have it leave a file, look for that file, and remove it all."""
    session = f"doctor-{secrets.token_hex(8)}"
    key = session_key(session)

    async def work(parts: Parts) -> Check:
        try:
            result = await parts.run(reach("workspace", 0, PROBE_SECONDS, session))
            if not result.ok:
                seen = f"cannot write to /workspace: {result.stderr.strip()}"
                row = _session_row(bench.config)
                return Check(row, "fail", seen, "Look at the disk of the engine's host.")
            root = bench.config.workspace_root
            if root is None:
                return Check("session", "ok", "started, used and removed")
            path = Path(workspace_path(root, key), _LEFT)
            return await to_thread.run_sync(_workspace_root, root, path)
        finally:
            await parts.sessions.dispose(key)

    return await bench.use(work)


def _workspace_root(root: str, left: Path) -> Check:
    """Return whether this host shows the workspace root, and to nobody but root (hazards R4, R5).

    :param left: a file that a sandbox left in its workspace.
    """
    name = "workspace root"
    try:
        mode = stat.S_IMODE(Path(root).stat().st_mode)
        visible = left.exists()
    except FileNotFoundError:
        mode, visible = _PRIVATE, False
    except PermissionError:
        return Check(name, "ok", f"{root} works; only root may look into it from here")
    if not visible:
        advice = (
            "It is a directory of the engine's host, which is another one, or outside of this "
            "container: name one that both see at the same path if files are to be exchanged."
        )
        return Check(name, "warn", f"{root} works, and is not visible from here", advice)
    if mode != _PRIVATE:
        advice = f"chmod 0700 {root}: a file in it can be suid root."
        return Check(name, "fail", f"{root} has mode {mode:04o}", advice)
    return Check(name, "ok", f"{root} works, visible from here, mode 0700")
