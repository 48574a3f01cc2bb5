"""The beginnings and ends that many lines of one speaker share."""

from __future__ import annotations

from typing import Final

__all__ = ["CLIENT", "DAEMON", "END", "ENGINE", "OCI", "PODMAN", "RUNSC", "RUNTIME", "STATE"]

# What docker's program writes itself: on standard error, after "docker: " when it is "run".
CLIENT: Final = r"(?:docker: )?"
# What the daemon answered: on standard error after these words, or alone on the standard output of
# an exec with status 126 or 127. "cannot stop container: NAME: " may stand before the cause.
DAEMON: Final = (
    r"(?:(?:docker: )?Error response from daemon: )?"
    r"(?:[Cc]annot (?:start|stop|restart|kill|pause|remove) container:? [^ ]+: )?"
)
PODMAN: Final = r"Error: (?:unable to start container \"\w+\": )?"
STATE: Final = r"container state improper"
# What an OCI runtime answered, through docker or podman.
RUNTIME: Final = (
    r"(?:failed to create (?:shim|shim task|task for container): )*"
    r"(?:OCI runtime (?:exec|create) failed: |OCI runtime error: )?"
    r"(?:runc: |crun: )?(?:(?:exec|runc create) failed: )?(?:unable to start container process: )?"
)

# docker 20.10 CLI ends the errors of "run" with a full stop. "unknown" is the daemon's error class,
# and the question about mounts follows whatever is "not a directory".
END: Final = (
    r"(?:: unknown)?(?:: permission denied)?(?:: Are you trying to mount a directory onto .*)?"
    r"(?:: OCI (?:permission denied|runtime attempted to invoke a command that was not found))?\.?"
)

ENGINE: Final = rf"(?:{DAEMON}|{PODMAN})"
OCI: Final = ENGINE + RUNTIME
# gVisor's runsc, under docker: of an exec, and of a container.
RUNSC: Final = (
    ENGINE + r"OCI runtime (?:exec|start) failed: "
    r'(?:executing processes for container: (?:executing command ".*" in sandbox: )?'
    r"|starting container: starting root container: starting sandbox: (?:creating process: )?)"
)
