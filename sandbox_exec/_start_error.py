"""The error of a container that could not be started, from the engine's own words."""

from __future__ import annotations

from typing import Final

from sandbox_exec._docker.diagnose import Diagnosis, Fault, diagnose
from sandbox_exec._docker.interface import Argv, Completed
from sandbox_exec._errors import ContainerStartError
from sandbox_exec._tool_text import DISK_HINT, START_HINT

__all__ = ["start_error", "start_error_from"]

_CODES: Final = {
    Fault.IMAGE_MISSING: "image-missing",
    Fault.BAD_IMAGE: "bad-image",
    Fault.NO_SHELL: "no-shell",
    Fault.BAD_RUNTIME: "bad-runtime",
    Fault.BAD_NETWORK: "bad-network",
    Fault.BAD_MOUNT: "bad-mount",
    Fault.DISK_FULL: "disk-full",
}


def start_error(
    what: str, line: Argv, diagnosis: Diagnosis, *, words: str = "", retryable: bool = False
) -> ContainerStartError:
    """Return the error for what was tried, with one line of why and all the words as data.

    :param what: the sentence that the reason is added to.
    :param line: the engine's whole command line.
    :param words: everything that the engine said.
    """
    disk_full = diagnosis.fault is Fault.DISK_FULL
    return ContainerStartError(
        f"{what}: {diagnosis.line or 'the engine does not say why'}",
        code=_CODES.get(diagnosis.fault),
        argv=line,
        stderr=words or diagnosis.line,
        retryable=retryable or disk_full,
        hint=DISK_HINT if disk_full else START_HINT,
    )


def start_error_from(what: str, line: Argv, answer: Completed) -> ContainerStartError:
    """Return the error for a control call that failed."""
    diagnosis = diagnose(answer.exit_code, answer.stdout, answer.stderr)
    return start_error(what, line, diagnosis, words=answer.error_text)
