"""The lines in which docker and podman report faults, both engines in one table.

Each pattern names the command line and engine it was captured from: "20.10" and "28" are docker's
command lines 20.10.24 and 28.2.2, both with engine 20.10.24, "26" is 26.1.5 with its own engine,
which also says what 20.10 says unless there is a line for it; "podman" is 4.3.1 with runc 1.1.5.
Those marked "reported" come from public reports of other versions.
"""

from __future__ import annotations

from typing import Final

from sandbox_exec._docker.diagnose.fault import Fault
from sandbox_exec._docker.diagnose.outages import OUTAGES
from sandbox_exec._docker.diagnose.phrases import (
    CLIENT,
    DAEMON,
    END,
    ENGINE,
    OCI,
    PODMAN,
    RUNSC,
    STATE,
)

__all__ = ["WORDS"]

WORDS: Final[tuple[tuple[Fault, tuple[str, ...]], ...]] = (
    *OUTAGES,
    (
        Fault.NAME_TAKEN,
        (
            # 20.10, 28.
            DAEMON + r'Conflict\. The container name "[^"]+" is already in use by container '
            r'"?\w+"?\. You have to remove .*',
            # podman.
            r'Error: creating container storage: the container name "[^"]+" is already in use .*',
        ),
    ),
    (
        Fault.BEING_REMOVED,
        (
            # 20.10, 28.
            DAEMON + r"removal of container [^ ]+ is already in progress\.?",
            DAEMON + r"container is marked for removal and cannot be started\.?",
        ),
    ),
    (
        Fault.CONTAINER_PAUSED,
        (
            # 20.10, 28: exec, start, pause, rm.
            DAEMON + r"[Cc]ontainer [^ ]+ is paused, unpause the container before exec",
            DAEMON + r"cannot start a paused container, try unpause instead",
            DAEMON + r"[Cc]ontainer [^ ]+ is already paused",
            DAEMON + r"You cannot remove a paused container [^ ]+\. Unpause and .*",
            # 26: rm.
            DAEMON + r"container is paused and must be unpaused first",
            # podman: pause, rm.
            PODMAN + r'"\w+" is already paused: ' + STATE,
            r"Error: cannot remove container \w+ as it is paused - .*",
        ),
    ),
    (
        Fault.CONTAINER_RESTARTING,
        (
            # 20.10, 28.
            DAEMON + r"[Cc]ontainer [^ ]+ is restarting, wait until the container is running",
        ),
    ),
    (
        Fault.CONTAINER_STOPPED,
        (
            # 20.10, 28.
            DAEMON + r"[Cc]ontainer [^ ]+ is not running",
            # podman: exec, top, kill, pause.
            PODMAN + r"can only create exec sessions on running containers: " + STATE,
            r"Error: top can only be used on running containers",
            PODMAN + r"can only kill running containers\. \w+ is in state \w+: " + STATE,
            PODMAN + r"\"\w+\" is not running, can't pause: " + STATE,
        ),
    ),
    (
        Fault.RACED,
        (
            # engine 20.10, on standard output; several also by podman's runc.
            r"container is not running",
            r"container not created: not found",
            r"no such container",
            r"task \w+ not found: not found",
            r"cannot exec in a (?:stopped|deleted|paused) state: unknown",
            r"ttrpc: closed: unknown",
            DAEMON + r"No such exec instance: \w+",
            # 20.10, 28, on standard error.
            r"unable to upgrade to tcp, received (?:409|500)",
            OCI + r"cannot exec in a stopped container" + END,
            OCI + r"unable to create new parent process: namespace path: lstat /proc/\d+/ns/\w+: "
            r"no such file or directory" + END,
            OCI + r"error executing setns process: (?:exit status \d+|signal: [^:]+)" + END,
            # engine 26, on standard output.
            r"container \w+ init process is not running: failed precondition",
            OCI + r"(?:container not running|unable to signal init: .*)" + END,
            # runsc.
            RUNSC + r'cannot execute in container "\w+" in state stopped: unknown',
            r'waiting on pid \d+: waiting on PID \d+ in sandbox "\w+": .*',
            # podman.
            PODMAN + r"can only start exec sessions when their container is running: " + STATE,
            PODMAN + r"retrieving exec session \w+ exit code: .*: unable to find event",
            r"Error: container \w+ does not exist in database: no such container",
            r"Error: container has already been removed",
        ),
    ),
    # 20.10, 28, podman.
    (Fault.INIT_LOST, (OCI + r"(?:[^:]+: )?(?:read|write) init-p: [^:(]+" + END,)),
    (
        Fault.MEMORY_EXHAUSTED,
        (
            # engine 20.10 with runc 1.1.5, podman.
            OCI + r"(?:[^:]+: )?(?:read|write) init-p: [^:]+ \(possibly OOM-killed\)" + END,
        ),
    ),
    (
        Fault.PROCESSES_EXHAUSTED,
        (
            # busybox 1.35 and dash 0.5.12, started by an exec of either engine.
            r"sh: can't fork: Resource temporarily unavailable",
            r"sh: \d+: Cannot fork",
            # runc 1.1.5, at the head of a page of registers: it had not started the program.
            r"runtime/cgo: pthread_create failed: Resource temporarily unavailable",
        ),
    ),
    (
        Fault.CONTAINER_MISSING,
        (
            # 20.10, 28; kill repeats the name.
            DAEMON + r"No such container: [^ ]+",
            # 20.10: exec.
            r"Error: No such container: [^ ]+",
            # podman.
            PODMAN + r"(?:unable to look up requested container: )?"
            r'no container with name or ID "[^"]+" found: no such container',
        ),
    ),
    (
        Fault.IMAGE_MISSING,
        (
            # 20.10, 28: run, image inspect.
            DAEMON + r"(?:no such image: [^ ]+: )?No such image: [^ ]+",
            # 20.10: image inspect.
            r"Error: No such image: [^ ]+",
            # 20.10, 28: pull from a registry that is not there, or does not have it (reported).
            r'Error response from daemon: (?:Get|Head) "[^"]+/v2/[^"]*": .*',
            r"Error response from daemon: manifest for [^ ]+ not found: .*",
            r"Error response from daemon: pull access denied for [^ ]+, .*",
            # podman: run, image inspect, pull, names without a registry (reported).
            r"Error: (?:inspecting object: )?[^ ]+: image not known",
            r"Error: initializing source docker://.*",
            r'Error: short-name "[^"]+" did not resolve to an alias .*',
        ),
    ),
    (
        Fault.BAD_IMAGE,
        (
            # 20.10, 28: run, pull.
            CLIENT + r"invalid reference format.*",
            # 26: image inspect.
            DAEMON + r"no such image: .*: invalid reference format.*",
            # podman.
            r"Error: repository name must be lowercase",
        ),
    ),
    (
        Fault.BAD_CWD,
        (
            # exec on 20.10, 28, podman.
            OCI + r'chdir to cwd \("[^"]*"\) set in config\.json failed: .*',
            # exec on runsc.
            RUNSC + r'failed to find initial working directory ".*": .*',
            # run on 20.10, 28.
            DAEMON + r"Cannot mkdir: /.* is not a directory\.?",
            DAEMON + r"lstat /.*/merged/.*: not a directory\.?",
            DAEMON + r"the working directory '.*' is invalid, it needs to be an absolute path\.?",
            # run on podman.
            PODMAN + r'workdir "[^"]*" (?:does not exist|exists) on container \w+.*',
            PODMAN + r'detecting workdir "[^"]*" on container \w+: .*',
        ),
    ),
    (
        Fault.NO_SHELL,
        (
            # exec, run and start on 20.10, 28, podman.
            OCI + r'exec: "[^"]*": executable file not found in \$PATH' + END,
            OCI + r'exec: "[^"]*": (?:stat [^:]+: )?'
            r"(?:no such file or directory|(?:is|not) a directory|permission denied)" + END,
            # exec, run and start on runsc.
            RUNSC + r'error finding executable ".*" in PATH \[.*\]: .*',
            RUNSC + r"failed to load [^:]+: .*",
            # runc 1.1.5, on the exec's own standard error.
            r"exec /[^ ]+: exec format error",
        ),
    ),
    (
        Fault.BAD_USER,
        (
            # 20.10, 28, podman.
            ENGINE + r"unable to find (?:user|group) [^ ]+: no matching entries in \w+ file\.?",
            ENGINE + r"uids and gids must be in range 0-\d+\.?",
        ),
    ),
    (
        Fault.DISK_FULL,
        (
            # 20.10, 28: run, restart, tag.
            CLIENT + r"Error response from daemon: .*: no space left on device\.?",
            # podman (reported).
            r"Error: .*: no space left on device",
        ),
    ),
    # 20.10, 28, podman: overlay without quotas; other drivers put a "not" there (reported).
    (Fault.NO_QUOTA, (rf"(?:{DAEMON}--storage-opt is|Error: storage option overlay\.size) .*",)),
    (
        Fault.BAD_RUNTIME,
        (
            # 20.10, 28: unknown; known, but not on the disk.
            DAEMON + r"Unknown runtime specified [^ ]+",
            DAEMON + r"unknown or invalid runtime name: [^ ]+",  # 26
            OCI + r"unable to retrieve OCI runtime error .*",
            # podman.
            PODMAN + r'default OCI runtime "[^"]+" not found: invalid argument',
        ),
    ),
    (
        Fault.BAD_NETWORK,
        (
            # 20.10, 28: run, start.
            DAEMON + r"network [^ ]+ not found\.?",
            # podman.
            PODMAN + r"unable to find network with name or ID [^ ]+: network not found",
        ),
    ),
    (
        Fault.BAD_MOUNT,
        (
            # 20.10, 28.
            DAEMON + r"(?:invalid volume specification: .*: )?"
            r'invalid mount config for type "bind": .*',
            DAEMON + r"error while creating mount source path '.*': .*",
            DAEMON + r"Duplicate mount point: .*",
            # podman.
            r"Error: statfs /.*: (?:no such file or directory|not a directory)",
            r'Error: invalid container path ".*", must be an absolute path',
            r"Error: /.*: duplicate mount destination",
            # 20.10, 28, podman: what the runtime finds.
            OCI + r'error during container init: error mounting ".*" to rootfs at ".*": .*',
        ),
    ),
    (
        Fault.BAD_FLAG,
        (
            # 20.10, 28, podman: what the program refuses.
            r"(?:Error: )?unknown (?:shorthand )?flag: .*",
            r'(?:Error: )?invalid argument ".*" for "-.*" flag: .*',
            # 20.10, 28: what the engine refuses.
            DAEMON + r"Minimum memory(?:swap)? limit .*",
            DAEMON + r"Range of CPUs is from .*",
            DAEMON + r"invalid CapAdd: .*",
            DAEMON + r"Invalid container name \(.*\), only .* are allowed\.?",
            DAEMON + r"[Ii]nvalid signal: .*",
            DAEMON + r"error looking up logging plugin .*",
            # 20.10, 28, podman.
            ENGINE + r"invalid --security-opt .*",
            # podman.
            r"Error: (?:invalid value for memory|bad format for add-host|invalid signal): .*",
            r"Error: (?:minimum memoryswap limit|running container create option:) .*",
            r'Error: "\w+": unknown capability',
            OCI + r"error during container init: error setting cgroup config .*",
        ),
    ),
)
