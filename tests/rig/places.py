"""Where the rig keeps what it caches, what it runs, and what a developer's long-lived daemon
writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.rig.processes import RigError

RUNTIME_PREFIX = "sbx-"


def _base(variable: str, xdg_variable: str, default: str) -> Path:
    explicit = os.environ.get(variable)
    if explicit:
        return Path(explicit)
    xdg = os.environ.get(xdg_variable)
    return (Path(xdg) if xdg else Path.home() / default) / "sandbox-exec-rig"


def cache_dir() -> Path:
    """Return the directory of root file system tarballs; it is safe to delete."""
    path = _base("SANDBOX_EXEC_RIG_CACHE", "XDG_CACHE_HOME", ".cache")
    path.mkdir(parents=True, exist_ok=True)
    return path


def state_dir() -> Path:
    """Return the directory that remembers the developer's daemon between ``up`` and ``down``."""
    path = _base("SANDBOX_EXEC_RIG_STATE", "XDG_STATE_HOME", ".local/state")
    path.mkdir(parents=True, exist_ok=True)
    return path


def data_base() -> Path:
    """Return where engines keep layers: a disk, as overlay file systems do not stack on each other
    or on tmpfs.
    """
    path = Path(os.environ.get("SANDBOX_EXEC_RIG_DATA") or "/var/tmp")
    path.mkdir(parents=True, exist_ok=True)
    return path


def runtime_base() -> Path:
    """Return where sockets live: short, because a unix socket's path has 107 bytes at most."""
    return Path(os.environ.get("SANDBOX_EXEC_RIG_RUNTIME") or "/run")


def new_runtime_dir() -> Path:
    """Make a fresh private directory for one engine's sockets, pid files and log."""
    path = runtime_base() / f"{RUNTIME_PREFIX}{secrets.token_hex(4)}"
    path.mkdir(mode=0o700)
    return path


def new_network_namespace(file: Path) -> None:
    """Make a network namespace that the file holds until it is unmounted, with its loopback up."""
    file.touch()
    loopback = "ip link set lo up 2>/dev/null || true"
    argv = ["unshare", f"--net={file}", "sh", "-c", loopback]
    done = subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise RigError(f"cannot make a network namespace, which a private engine needs: {reason}")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock among all rigs of this user; the kernel drops it when its holder dies."""
    locks = cache_dir() / "locks"
    locks.mkdir(exist_ok=True)
    with (locks / name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
