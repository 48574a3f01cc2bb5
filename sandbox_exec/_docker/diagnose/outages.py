"""The lines in which docker and podman report that no engine can be reached; see words.py."""

from __future__ import annotations

from typing import Final

from sandbox_exec._docker.diagnose.fault import Fault
from sandbox_exec._docker.diagnose.phrases import CLIENT, DAEMON

__all__ = ["OUTAGES"]

OUTAGES: Final[tuple[tuple[Fault, tuple[str, ...]], ...]] = (
    (
        Fault.DAEMON_DENIED,
        (
            # 28; 20.10 says "Got permission denied"; 29 says "the docker API" (reported).
            CLIENT + r"(?:Got )?permission denied while trying to connect to the "
            r"(?:Docker daemon socket|docker API) at .*",
            # podman, remote.
            r"Error: unable to connect to Podman socket: .*: connect: permission denied",
        ),
    ),
    (
        Fault.CONTEXT_MISSING,
        (
            # 20.10, 28.
            r'(?:Failed to initialize: )?unable to resolve docker endpoint: context ".*',
            r'Current context "[^"]*" is not found on the file system.*',
            # podman, remote.
            r'Error: failed to resolve active destination: "[^"]*" service destination not found',
        ),
    ),
    (
        Fault.DAEMON_DOWN,
        (
            # 20.10, 28: socket absent, nobody listening, port closed.
            CLIENT + r"Cannot connect to the Docker daemon at [^ ]+\. "
            r"Is the docker daemon running\?\.?",
            # 29 (reported): the same.
            CLIENT + r"failed to connect to the docker API at [^ ]+; check if .*",
            # 20.10, 28: unknown host, ssh, end of stream, reset, TLS.
            CLIENT + r"error during connect: .*",
            # 28: ssh, in an exec's second connection, when the first was good; or while it runs.
            CLIENT + r"command \[ssh .*\] has exited with .*",
            # 28: the same of a run.
            r'time="[^"]*" level=error msg="error waiting for container: command \[ssh .*"',
            # 28: the first connection failed, so it could not ask which version is spoken there.
            r"unable to upgrade to tcp, received 40[04]",
            # 20.10, 28: what answers does not speak HTTP. Without the daemon's prefix, with which
            # the same words are about a registry.
            CLIENT + r'(?:Get|Head|Post) "[^"]+": .*',
            # 20.10, 28: what answers speaks HTTP and is no engine.
            CLIENT + r"Error reading JSON: .*",
            CLIENT + r"request returned .* for API route and version [^ ]+, check if .*",
            # 20.10, 28: certificates or scheme.
            r"(?:Failed to initialize: )?unable to resolve docker endpoint: .*",
            r"unable to parse docker host `.*",
            # 28: an ssh:// without a host.
            r"(?:Failed to initialize: )?ssh host connection is not valid: .*",
            # podman, remote: no address, or a scheme that it does not know.
            r"Error: value of CONTAINER_HOST is not a valid url: .*",
            r'Error: unable to create connection\. "[^"]*" is not a supported schema',
            # 20.10, 28: the two cannot talk to each other.
            DAEMON + r'(?:\{"message":")?client version [^ ]+ is too (?:new|old)\. .*',
            # engine 20.10: its containerd is gone.
            DAEMON + r"connection closed: unavailable\.?",
            DAEMON + r'connection error: desc = "transport: .*": unavailable\.?',
            # podman, remote, the last one by ssh.
            r"Cannot connect to Podman\. Please verify your connection .*",
            r"Error: unable to connect to Podman socket: .*",
            r"Error: failed to connect: (?:dial |ssh: ).*",
        ),
    ),
)
