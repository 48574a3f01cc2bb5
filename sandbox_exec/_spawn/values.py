"""What goes into a spawn backend and what comes out: requests, wrapped spawns and hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from sandbox_exec._spawn import checks

__all__ = [
    "Mode",
    "SandboxEnvHint",
    "SpawnOptions",
    "SpawnRequest",
    "WrappedSpawn",
    "check_request",
]

Mode: TypeAlias = Literal["none", "os", "docker"]
"""How strongly a backend isolates: not at all, by the host's own means, or in a container."""


@frozen
class SpawnOptions:
    """How a process is to be started.

    :param cwd: its directory. With a mounted workspace, one on this host, inside of
        ``workspace_root``, to which a relative one belongs; without, an absolute path inside the
        container. ``None`` for the workspace, or the image's own directory.
    :param env: variables on top of those of the container; ``None`` for none. Their names are those
        a shell can export. :class:`LocalBackend` takes them as the whole environment, and ``None``
        for this process's own. In a :class:`WrappedSpawn`, the whole environment of the engine's
        program.
    :param files: contents by absolute path inside, placed before the process starts, each whole or
        not at all: what a host's temporary file would be for, were it visible inside (hazard B1).
    :param extra: keyword arguments for whoever starts the wrapped spawn, such as ``stderr`` or
        ``start_new_session``, handed on untouched. ``spawn`` starts it itself, and takes none.
    :raises ValueError: for what cannot be.

    Source: S1's ``SpawnOptions``.
    """

    cwd: str | None = field(default=None, converter=checks.to_path, validator=checks.directory)
    env: Mapping[str, str] | None = field(
        default=None, converter=checks.to_variables, validator=checks.environment, repr=False
    )
    files: Mapping[str, bytes] = field(
        factory=dict, converter=checks.to_files, validator=checks.placed, repr=False
    )
    extra: Mapping[str, Any] = field(
        factory=dict, converter=checks.to_extra, validator=checks.keywords
    )


@frozen
class SpawnRequest:
    """A process to be started.

    :param command: a program's name or path, as it is called inside.
    :param args: its arguments, 131,071 bytes each at most and a mebibyte together, in
        which each takes 9 more than its own.
    :raises ValueError: for what no command line can hold: NUL, surrogates, too much (hazard F8);
        and for options that are none.

    Source: S1's ``SandboxSpawnRequest``.
    """

    command: str = field(validator=checks.command)
    args: tuple[str, ...] = field(default=(), converter=checks.to_tuple, validator=checks.arguments)
    options: SpawnOptions = field(factory=SpawnOptions, validator=checks.of(SpawnOptions))


def check_request(given: object) -> None:
    """Refuse what is no request.

    :raises ValueError: for anything else.
    """
    if not isinstance(given, SpawnRequest):
        message = f"what is spawned must be a SpawnRequest, not {type(given).__name__}"
        raise ValueError(message)  # noqa: TRY004  # rejected input is a ValueError, always


@frozen
class WrappedSpawn:
    """What to start in place of what was asked for.

    :param options: ``env`` is the whole environment to start it with; the values of the caller's
        variables are in there, and in no argument (hazard B2). ``extra`` is as it was given.

    Source: S1's ``WrappedSpawn``.
    """

    command: str
    args: tuple[str, ...]
    options: SpawnOptions


@frozen
class SandboxEnvHint:
    """Where processes run, for a prompt or a user interface.

    :param label: ``docker:IMAGE``, with ``+workspace`` when one is mounted; ``none`` locally.
    :param inner_os: the operating system that processes find, as ``sys.platform`` names it.
    :param workspace_mount: where the workspace is inside; ``None`` when it is not.
    :param scope: in words, what runs inside and what does not.

    Source: S1's ``SandboxEnvHint``.
    """

    mode: Mode
    label: str
    inner_os: str
    workspace_mount: str | None
    scope: str
