"""Command lines of the engine's program, as pure functions of what is wanted.

None of them contains the program itself. No value of a variable ever appears in one (hazard F14).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sandbox_exec._docker.interface import Argv

__all__ = [
    "context",
    "exec_stdin",
    "existing_mount",
    "image_inspect",
    "info",
    "inspect",
    "list_containers",
    "pull",
    "remove",
    "restart",
    "run_attached",
    "run_detached",
    "run_tool",
    "start",
    "stop",
    "top",
    "unpause",
    "version",
]

# Pulling is a step of its own with its own budget, so creating a container never does it.
_NO_PULL: Final = ("--pull", "never")


def inspect(*names: str) -> Argv:
    """Describe containers or images in one call; missing ones only set the status (hazard F22)."""
    return ("inspect", *names)


def image_inspect(image: str) -> Argv:
    """Describe an image, even where a container has the same name."""
    return ("image", "inspect", image)


def version() -> Argv:
    """Say what the program and its engine are; the program's half comes without an engine."""
    return ("version", "--format", "{{json .}}")


def context() -> Argv:
    """Say where docker's program would look for its engine, without looking; podman has no such."""
    return ("context", "inspect", "--format", "{{json .}}")


def info() -> Argv:
    """Describe the engine."""
    return ("info", "--format", "{{json .}}")


def pull(image: str) -> Argv:
    """Fetch an image."""
    return ("pull", "--quiet", image)


def _labels(labels: Mapping[str, str]) -> list[str]:
    return [part for name, value in labels.items() for part in ("--label", f"{name}={value}")]


def run_detached(
    name: str,
    *,
    labels: Mapping[str, str],
    flags: Sequence[str],
    image: str,
    command: Sequence[str],
) -> Argv:
    """Make and start a container that stays; standard input is held open for its PID 1.

    ``command`` starts with the program, which replaces the image's entry point (hazard F17).
    """
    return (
        *("run", "--detach", "--interactive", "--name", name),
        *_NO_PULL,
        *_labels(labels),
        *flags,
        *("--entrypoint", command[0], image, *command[1:]),
    )


def run_attached(
    name: str,
    *,
    labels: Mapping[str, str],
    flags: Sequence[str],
    variable: str,
    image: str,
    command: Sequence[str],
) -> Argv:
    """Make a container that lives for one conversation and is removed at its end."""
    return (
        *("run", "--rm", "--interactive", "--name", name),
        *_NO_PULL,
        *_labels(labels),
        *flags,
        *("--env", variable),
        *("--entrypoint", command[0], image, *command[1:]),
    )


def run_tool(
    name: str,
    *,
    labels: Mapping[str, str],
    flags: Sequence[str],
    image: str,
    command: Sequence[str],
) -> Argv:
    """Run a short program of ours to its end in a container of its own."""
    return (
        *("run", "--rm", "--name", name),
        *_NO_PULL,
        *_labels(labels),
        *flags,
        *("--entrypoint", command[0], image, *command[1:]),
    )


def exec_stdin(
    name: str,
    *,
    variables: Iterable[str],
    user: str | None,
    command: Sequence[str],
    workdir: str | None = "/",
) -> Argv:
    """Run a program in a container, with standard input.

    :param variables: names of those that it gets from the environment of the engine's program.
    :param workdir: ``/`` because the image's own directory may have been removed inside; ``None``
        for the image's own all the same.
    """
    where = () if workdir is None else ("--workdir", workdir)
    who = () if user is None else ("--user", user)
    env = (part for variable in variables for part in ("--env", variable))
    return ("exec", "--interactive", *where, *who, *env, name, *command)


def start(name: str) -> Argv:
    """Start a stopped container."""
    return ("start", name)


def stop(*names: str) -> Argv:
    """Stop containers now: their stop signal is KILL, so waiting would only waste time."""
    return ("stop", "-t", "0", *names)


def restart(name: str) -> Argv:
    """Stop a container now and start it again: its files stay, its processes do not."""
    return ("restart", "-t", "0", name)


def unpause(name: str) -> Argv:
    """Let a paused container go on."""
    return ("unpause", name)


def remove(*names: str, force: bool) -> Argv:
    """Remove containers together with their anonymous volumes (hazard F11)."""
    return ("rm", *(("--force",) if force else ()), "--volumes", *names)


def top(name: str) -> Argv:
    """List a container's processes as the host sees them."""
    return ("top", name, "-eo", "pid")


def list_containers(*filters: str) -> Argv:
    """List containers, stopped ones too, one JSON object a line."""
    wanted = [part for text in filters for part in ("--filter", text)]
    return ("ps", "--all", "--no-trunc", *wanted, "--format", "{{json .}}")


def existing_mount(source: str, target: str) -> Argv:
    """Return the flags that mount a directory of the engine's host, which must be there.

    For ``--volume`` docker makes what is not there, and a mistyped path is an empty directory.
    """
    # A line of CSV, in which a quote is doubled and its field quoted.
    named = f"source={source}"
    if '"' in named:
        named = '"' + named.replace('"', '""') + '"'
    return ("--mount", f"type=bind,{named},target={target}")
