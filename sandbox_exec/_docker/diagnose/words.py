"""The lines in which docker and podman report faults, both engines in one table.

Each pattern names the command line and engine it was captured from: "20.10" and "28" are docker's
command lines 20.10.24 and 28.2.2, both with engine 20.10.24, "26" is 26.1.5 with its own engine,
which also says what 20.10 says unless there is a line for it; "podman" is 4.3.1 with runc 1.1.5.
Those marked "reported" come from public reports of other versions.
"""

from __future__ import annotations

from typing import Final

from sandbox_exec._docker.diagnose.fault import Fault

__all__ = ["WORDS"]

# What docker's program writes itself: on standard error, after "docker: " when it is "run".
_CLIENT: Final = r"(?:docker: )?"
# What the daemon answered: on standard error after these words, or alone on the standard output of
# an exec with status 126 or 127. "cannot stop container: NAME: " may stand before the cause.
_DAEMON: Final = (
    r"(?:(?:docker: )?Error response from daemon: )?"
    r"(?:[Cc]annot (?:start|stop|restart|kill|pause|remove) container:? [^ ]+: )?"
)
_PODMAN: Final = r"Error: (?:unable to start container \"\w+\": )?"
_STATE: Final = r"container state improper"
# What an OCI runtime answered, through docker or podman.
_RUNTIME: Final = (
    r"(?:failed to create (?:shim|shim task|task for container): )*"
    r"(?:OCI runtime (?:exec|create) failed: |OCI runtime error: )?"
    r"(?:runc: |crun: )?(?:(?:exec|runc create) failed: )?(?:unable to start container process: )?"
)

# docker 20.10 CLI ends the errors of "run" with a full stop. "unknown" is the daemon's error class,
# and the question about mounts follows whatever is "not a directory".
_END: Final = (
    r"(?:: unknown)?(?:: permission denied)?(?:: Are you trying to mount a directory onto .*)?"
    r"(?:: OCI (?:permission denied|runtime attempted to invoke a command that was not found))?\.?"
)

_ENGINE: Final = rf"(?:{_DAEMON}|{_PODMAN})"
_OCI: Final = _ENGINE + _RUNTIME

WORDS: Final[tuple[tuple[Fault, tuple[str, ...]], ...]] = (
    (
        Fault.DAEMON_DENIED,
        (
            # 28; 20.10 says "Got permission denied"; 29 says "the docker API" (reported).
            _CLIENT + r"(?:Got )?permission denied while trying to connect to the "
            r"(?:Docker daemon socket|docker API) at .*",
            # podman, remote.
            r"Error: unable to connect to Podman socket: .*: connect: permission denied",
        ),
    ),
    (
        Fault.DAEMON_DOWN,
        (
            # 20.10, 28: socket absent, nobody listening, port closed.
            _CLIENT + r"Cannot connect to the Docker daemon at [^ ]+\. "
            r"Is the docker daemon running\?\.?",
            # 29 (reported): the same.
            _CLIENT + r"failed to connect to the docker API at [^ ]+; check if .*",
            # 20.10, 28: unknown host, ssh, end of stream, reset, TLS.
            _CLIENT + r"error during connect: .*",
            # 20.10, 28: what answers does not speak HTTP. Without the daemon's prefix, with which
            # the same words are about a registry.
            _CLIENT + r'(?:Get|Head|Post) "[^"]+": .*',
            # 20.10, 28: what answers speaks HTTP and is no engine.
            _CLIENT + r"Error reading JSON: .*",
            _CLIENT + r"request returned .* for API route and version [^ ]+, check if .*",
            # 20.10, 28: unknown context, certificates or scheme.
            r"(?:Failed to initialize: )?unable to resolve docker endpoint: .*",
            r"unable to parse docker host `.*",
            r'Current context "[^"]*" is not found on the file system.*',
            # 20.10, 28: the two cannot talk to each other.
            _DAEMON + r'(?:\{"message":")?client version [^ ]+ is too (?:new|old)\. .*',
            # engine 20.10: its containerd is gone.
            _DAEMON + r"connection closed: unavailable\.?",
            _DAEMON + r'connection error: desc = "transport: .*": unavailable\.?',
            # podman, remote, the last one by ssh.
            r"Cannot connect to Podman\. Please verify your connection .*",
            r"Error: unable to connect to Podman socket: .*",
            r"Error: failed to connect: (?:dial |ssh: ).*",
        ),
    ),
    (
        Fault.NAME_TAKEN,
        (
            # 20.10, 28.
            _DAEMON + r'Conflict\. The container name "[^"]+" is already in use by container '
            r'"?\w+"?\. You have to remove .*',
            # podman.
            r'Error: creating container storage: the container name "[^"]+" is already in use .*',
        ),
    ),
    (
        Fault.BEING_REMOVED,
        (
            # 20.10, 28.
            _DAEMON + r"removal of container [^ ]+ is already in progress\.?",
            _DAEMON + r"container is marked for removal and cannot be started\.?",
        ),
    ),
    (
        Fault.CONTAINER_PAUSED,
        (
            # 20.10, 28: exec, start, pause, rm.
            _DAEMON + r"[Cc]ontainer [^ ]+ is paused, unpause the container before exec",
            _DAEMON + r"cannot start a paused container, try unpause instead",
            _DAEMON + r"[Cc]ontainer [^ ]+ is already paused",
            _DAEMON + r"You cannot remove a paused container [^ ]+\. Unpause and .*",
            # 26: rm.
            _DAEMON + r"container is paused and must be unpaused first",
            # podman: pause, rm.
            _PODMAN + r'"\w+" is already paused: ' + _STATE,
            r"Error: cannot remove container \w+ as it is paused - .*",
        ),
    ),
    (
        Fault.CONTAINER_RESTARTING,
        (
            # 20.10, 28.
            _DAEMON + r"[Cc]ontainer [^ ]+ is restarting, wait until the container is running",
        ),
    ),
    (
        Fault.CONTAINER_STOPPED,
        (
            # 20.10, 28.
            _DAEMON + r"[Cc]ontainer [^ ]+ is not running",
            # podman: exec, top, kill, pause.
            _PODMAN + r"can only create exec sessions on running containers: " + _STATE,
            r"Error: top can only be used on running containers",
            _PODMAN + r"can only kill running containers\. \w+ is in state \w+: " + _STATE,
            _PODMAN + r"\"\w+\" is not running, can't pause: " + _STATE,
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
            _DAEMON + r"No such exec instance: \w+",
            # 20.10, 28, on standard error.
            r"unable to upgrade to tcp, received \d+",
            _OCI + r"cannot exec in a stopped container" + _END,
            _OCI + r"unable to create new parent process: namespace path: lstat /proc/\d+/ns/\w+: "
            r"no such file or directory" + _END,
            _OCI + r"error executing setns process: (?:exit status \d+|signal: [^:]+)" + _END,
            _OCI + r"(?:[^:]+: )?(?:read|write) init-p: [^:(]+" + _END,
            # engine 26, on standard output.
            r"container \w+ init process is not running: failed precondition",
            _OCI + r"(?:container not running|unable to signal init: .*)" + _END,
            # podman.
            _PODMAN + r"can only start exec sessions when their container is running: " + _STATE,
            _PODMAN + r"retrieving exec session \w+ exit code: .*: unable to find event",
            r"Error: container \w+ does not exist in database: no such container",
            r"Error: container has already been removed",
        ),
    ),
    (
        Fault.MEMORY_EXHAUSTED,
        (
            # engine 20.10 with runc 1.1.5, podman.
            _OCI + r"(?:[^:]+: )?(?:read|write) init-p: [^:]+ \(possibly OOM-killed\)" + _END,
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
            _DAEMON + r"No such container: [^ ]+",
            # 20.10: exec.
            r"Error: No such container: [^ ]+",
            # podman.
            _PODMAN + r"(?:unable to look up requested container: )?"
            r'no container with name or ID "[^"]+" found: no such container',
        ),
    ),
    (
        Fault.IMAGE_MISSING,
        (
            # 20.10, 28: run, image inspect.
            _DAEMON + r"(?:no such image: [^ ]+: )?No such image: [^ ]+",
            # 20.10: image inspect.
            r"Error: No such image: [^ ]+",
            # 20.10, 28: a name that cannot be one.
            _CLIENT + r"invalid reference format.*",
            # 20.10, 28: pull from a registry that is not there, or does not have it (reported).
            r'Error response from daemon: (?:Get|Head) "[^"]+/v2/[^"]*": .*',
            r"Error response from daemon: manifest for [^ ]+ not found: .*",
            r"Error response from daemon: pull access denied for [^ ]+, .*",
            # podman: run, image inspect, names, pull, names without a registry (reported).
            r"Error: (?:inspecting object: )?[^ ]+: image not known",
            r"Error: repository name must be lowercase",
            r"Error: initializing source docker://.*",
            r'Error: short-name "[^"]+" did not resolve to an alias .*',
        ),
    ),
    (
        Fault.BAD_CWD,
        (
            # exec on 20.10, 28, podman.
            _OCI + r'chdir to cwd \("[^"]*"\) set in config\.json failed: .*',
            # run on 20.10, 28.
            _DAEMON + r"Cannot mkdir: /.* is not a directory\.?",
            _DAEMON + r"lstat /.*/merged/.*: not a directory\.?",
            _DAEMON + r"the working directory '.*' is invalid, it needs to be an absolute path\.?",
            # run on podman.
            _PODMAN + r'workdir "[^"]*" (?:does not exist|exists) on container \w+.*',
            _PODMAN + r'detecting workdir "[^"]*" on container \w+: .*',
        ),
    ),
    (
        Fault.NO_SHELL,
        (
            # exec, run and start on 20.10, 28, podman.
            _OCI + r'exec: "[^"]*": executable file not found in \$PATH' + _END,
            _OCI + r'exec: "[^"]*": (?:stat [^:]+: )?'
            r"(?:no such file or directory|(?:is|not) a directory|permission denied)" + _END,
            # runc 1.1.5, on the exec's own standard error.
            r"exec /[^ ]+: exec format error",
        ),
    ),
    (
        Fault.BAD_USER,
        (
            # 20.10, 28, podman.
            _ENGINE + r"unable to find (?:user|group) [^ ]+: no matching entries in \w+ file\.?",
            _ENGINE + r"uids and gids must be in range 0-\d+\.?",
        ),
    ),
    (
        Fault.DISK_FULL,
        (
            # 20.10, 28: run, restart, tag.
            _CLIENT + r"Error response from daemon: .*: no space left on device\.?",
            # podman (reported).
            r"Error: .*: no space left on device",
        ),
    ),
    # 20.10, 28, podman: overlay without quotas; other drivers put a "not" there (reported).
    (Fault.NO_QUOTA, (rf"(?:{_DAEMON}--storage-opt is|Error: storage option overlay\.size) .*",)),
    (
        Fault.BAD_RUNTIME,
        (
            # 20.10, 28: unknown; known, but not on the disk.
            _DAEMON + r"Unknown runtime specified [^ ]+",
            _DAEMON + r"unknown or invalid runtime name: [^ ]+",  # 26
            _OCI + r"unable to retrieve OCI runtime error .*",
            # podman.
            _PODMAN + r'default OCI runtime "[^"]+" not found: invalid argument',
        ),
    ),
    (
        Fault.BAD_NETWORK,
        (
            # 20.10, 28: run, start.
            _DAEMON + r"network [^ ]+ not found\.?",
            # podman.
            _PODMAN + r"unable to find network with name or ID [^ ]+: network not found",
        ),
    ),
    (
        Fault.BAD_MOUNT,
        (
            # 20.10, 28.
            _DAEMON + r"(?:invalid volume specification: .*: )?"
            r'invalid mount config for type "bind": .*',
            _DAEMON + r"error while creating mount source path '.*': .*",
            _DAEMON + r"Duplicate mount point: .*",
            # podman.
            r"Error: statfs /.*: (?:no such file or directory|not a directory)",
            r'Error: invalid container path ".*", must be an absolute path',
            r"Error: /.*: duplicate mount destination",
            # 20.10, 28, podman: what the runtime finds.
            _OCI + r'error during container init: error mounting ".*" to rootfs at ".*": .*',
        ),
    ),
    (
        Fault.BAD_FLAG,
        (
            # 20.10, 28, podman: what the program refuses.
            r"(?:Error: )?unknown (?:shorthand )?flag: .*",
            r'(?:Error: )?invalid argument ".*" for "-.*" flag: .*',
            # 20.10, 28: what the engine refuses.
            _DAEMON + r"Minimum memory(?:swap)? limit .*",
            _DAEMON + r"Range of CPUs is from .*",
            _DAEMON + r"invalid CapAdd: .*",
            _DAEMON + r"Invalid container name \(.*\), only .* are allowed\.?",
            _DAEMON + r"[Ii]nvalid signal: .*",
            _DAEMON + r"error looking up logging plugin .*",
            # 20.10, 28, podman.
            _ENGINE + r"invalid --security-opt .*",
            # podman.
            r"Error: (?:invalid value for memory|bad format for add-host|invalid signal): .*",
            r"Error: (?:minimum memoryswap limit|running container create option:) .*",
            r'Error: "\w+": unknown capability',
            _OCI + r"error during container init: error setting cgroup config .*",
        ),
    ),
)
