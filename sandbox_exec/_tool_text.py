"""The words a language model is shown about a result, an outage or the sandbox's shape.

They are written to lead to a useful next step, and they never say more than is true: a promise
that the settings do not keep costs the model a turn.
"""

from __future__ import annotations

from typing import Final

from sandbox_exec._models import ExecResult, Gap, SandboxInfo

__all__ = [
    "BROKEN_HINT",
    "BUSY_HINT",
    "DAEMON_DOWN_HINT",
    "DISK_HINT",
    "DISPOSED_HINT",
    "START_HINT",
    "UNSETTLED_HINT",
    "describe_sandbox",
    "format_exec_result",
    "size_in_words",
]

DAEMON_DOWN_HINT: Final = (
    "The sandbox is not available: the container engine on the server cannot be reached. All "
    "sandbox tools are affected, and calling them again in this turn will not help. Tell the user "
    "that the sandbox is down, and answer without it if you can."
)
"""For an engine that is down. Source: S0's ``DAEMON_DOWN_MESSAGE``."""

BROKEN_HINT: Final = (
    "The sandbox of this conversation is broken and could not be repaired; calling it again will "
    "not help. Its files have been left alone. Tell the user that the sandbox has to be reset, and "
    "answer without it if you can."
)
"""For a container that is there and cannot serve calls (hazard S14)."""

UNSETTLED_HINT: Final = (
    "The sandbox of this conversation was being stopped or restarted from outside all the time, "
    "and the command did not run. Its files have been left alone. Calling it again later may help."
)
"""For a container that others would not leave alone."""

START_HINT: Final = (
    "The sandbox could not be started, and the command did not run. Calling it again in this turn "
    "will not help. Tell the user, and answer without the sandbox if you can."
)
"""For a container that the engine would not make or start."""

DISPOSED_HINT: Final = (
    "The sandbox of this conversation was removed while the command was waiting or running. What "
    "the command did is lost. Do not repeat it unless the user wants to go on."
)
"""For a session that was disposed under a call (hazard S10)."""

BUSY_HINT: Final = (
    "The server is running as many sandbox commands as it can, and this one was not started. Try "
    "it once more later, or answer without it."
)
"""For a call whose turn did not come in time (hazard C10)."""

DISK_HINT: Final = (
    "The server has too little free disk space to start a sandbox, and nothing was started. "
    "Calling it again in this turn will not help. Tell the user, and answer without the sandbox if "
    "you can."
)
"""For a start that was refused to protect the disk (hazard R8)."""

_TIMED_OUT: Final = (
    "[The command reached its time limit and was killed; the output below is what it had printed "
    "until then. Run something smaller, or ask for a longer timeout if it had less than "
    "the maximum.]"
)
_OOM_KILLED: Final = (
    "[The sandbox ran out of memory while the command ran, and processes in it were killed. Use "
    "less memory at once.]"
)


def _reset_note(why: str) -> str:
    return (
        f"[Before this call the sandbox changed: {why.strip().rstrip('.')}. Check what you rely on "
        "before you go on.]"
    )


def _stream(text: str, gap: Gap | None) -> str:
    """Return a stream with the words about what was left out where it is missing."""
    if gap is not None:
        missing = f"\n[... {gap.omitted_bytes:,} bytes of output left out here ...]\n"
        text = text[: gap.at] + missing + text[gap.at :]
    return text.strip()


def format_exec_result(result: ExecResult) -> str:
    """Return a result as the text that a tool hands back to the model.

    First what changed the meaning of the result, then the exit code, then both streams; an empty
    standard error is left out.

    Source: S0's ``formatExecResult``; the note about a rebuilt sandbox is hazard S16.
    """
    parts = []
    if result.reset is not None:
        parts.append(_reset_note(result.reset))
    if result.timed_out:
        parts.append(_TIMED_OUT)
    if result.oom_killed:
        parts.append(_OOM_KILLED)
    parts.append(f"exit code: {result.exit_code}")
    parts.append("stdout:\n" + (_stream(result.stdout, result.stdout_gap) or "(empty)"))
    if stderr := _stream(result.stderr, result.stderr_gap):
        parts.append("stderr:\n" + stderr)
    return "\n\n".join(parts)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _amount(value: float, unit: str) -> str:
    text = _number(value)
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"


def size_in_words(size: int) -> str:
    """Return a size in the largest unit that it has one of."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:  # noqa: PLR2004  # the factor between the units
            break
        value, unit = value / 1024, larger
    return f"{_number(value)} {unit}"


def _resources(info: SandboxInfo) -> str:
    """Return a sentence about what the sandbox has, of which only what is enforced is known."""
    amounts = {
        "memory": f"{size_in_words(info.memory)} of memory",
        "cpus": _amount(info.cpus, "CPU"),
        "pids": f"room for {info.pids_limit} processes and threads",
    }
    *first, last = [text for name, text in amounts.items() if name not in info.unbounded] or [""]
    if not last:
        return ""
    return f" The sandbox has {', '.join(first)}{' and ' if first else ''}{last}."


def describe_sandbox(info: SandboxInfo) -> str:
    """Return the description of a tool that runs commands in a session's sandbox.

    It is written from the sandbox's actual shape. It says nothing about which hosts a network
    reaches: hiding a few names is no filter.

    Source: S0's ``SandboxInfo`` and the reason it gives for it.
    """
    if info.network:
        network = "It has network access."
    else:
        network = (
            "It has no network: nothing can be downloaded, and packages cannot be installed from "
            "the internet. Use what the image contains."
        )
    if info.durable_workspace:
        files = (
            "Files in /workspace are kept even when the sandbox is rebuilt; files elsewhere and "
            "running processes are then lost."
        )
    else:
        files = (
            "Files stay there between calls, but all of them are lost when the sandbox is rebuilt."
        )
    places = (
        "Commands start in /workspace, each in a new shell: variables and the current directory do "
        f"not carry over. {files} Files given to you are in /workspace/inputs; put files meant for "
        "the user into /workspace/outputs."
    )
    limit = f"A command is killed after {_amount(info.default_timeout, 'second')}"
    if info.default_timeout < info.max_timeout:
        limit += (
            f" unless a longer timeout is asked for, at most {_amount(info.max_timeout, 'second')}"
        )
    limits = f"{limit}.{_resources(info)}"
    task = f"Run a shell command with `sh -c` in a Linux container of the image {info.image}."
    return f"{task}\n{network}\n{places}\n{limits}"
