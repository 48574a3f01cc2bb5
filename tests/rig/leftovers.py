"""What a dead engine leaves behind (shims, container processes, mounts, cgroups, sockets), found
and removed.

A ``dockerd`` that was killed cleans nothing up. All that belongs to one engine can be told by three
names that only it uses: its runtime directory, its data directory and its cgroup.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from pathlib import Path

from tests.rig import places
from tests.rig.processes import (
    ProcessId,
    RigError,
    command_line,
    descendants,
    every_pid,
    kill_all,
    wait_until,
)

_KEEPERS = ("dockerd", "containerd", "containerd-shim-runc-v2", "conmon")
_MNT_DETACH = 2
_CGROUPS = Path("/sys/fs/cgroup")


def remove_leftovers(runtime: Path, data: Path | None, cgroup: str) -> None:
    """End every process of the engine, unmount its mounts, remove its directories; keep the data if
    it is ``None``.
    """
    sockets = _shim_sockets(runtime)
    for _ in range(5):
        # A paused container's processes do not die of SIGKILL.
        _thaw(cgroup)
        keepers = _keepers(runtime)
        within = descendants(keepers)
        kill_all([*keepers, *within])
        members = _cgroup_members(cgroup)
        kill_all(members)
        if not keepers and not members:
            break
    else:
        raise RigError(f"processes of the engine in {runtime} keep coming back")
    for path in sockets:
        path.unlink(missing_ok=True)
    _remove_cgroups(cgroup)
    places = [runtime] if data is None else [runtime, data]
    for place in places:
        unmount_below(place)
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        if place.exists():
            raise RigError(f"cannot remove {place}: something still uses it")


def sweep_abandoned() -> None:
    """Remove the engines whose owner died without stopping them (a test run that was killed)."""
    with places.locked("sweep"):
        for runtime in places.runtime_base().glob(f"{places.RUNTIME_PREFIX}*"):
            try:
                owner = ProcessId.parse((runtime / "owner").read_text())
                data = (runtime / "data").read_text()
            except OSError:
                continue
            if owner and not owner.alive():
                remove_leftovers(runtime, Path(data) if data else None, f"/{runtime.name}")


def unmount_below(directory: Path) -> None:
    """Detach every mount at or below the directory, the innermost first."""
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(3):
        mounts = _mounts_below(str(directory))
        if not mounts:
            return
        for mount in reversed(mounts):
            libc.umount2(os.fsencode(mount), _MNT_DETACH)


def _mounts_below(directory: str) -> list[str]:
    found: list[str] = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        point = line.split(" ")[4]
        for code in ("\\040", "\\011", "\\012", "\\134"):
            point = point.replace(code, chr(int(code[1:], 8)))
        if point == directory or point.startswith(directory + "/"):
            found.append(point)
    return found


def _keepers(runtime: Path) -> list[int]:
    """Find the engine's own processes by their arguments, which name its directory; daemons come
    first.
    """
    found: dict[str, list[int]] = {name: [] for name in _KEEPERS}
    for pid in every_pid():
        argv = command_line(pid)
        name = Path(argv[0]).name if argv else ""
        if name in found and any(f"{runtime}/" in word for word in argv):
            found[name].append(pid)
    return [pid for name in _KEEPERS for pid in found[name]]


def _shim_sockets(runtime: Path) -> list[Path]:
    """Find the sockets that shims make outside of the runtime directory, from the bundles that name
    them.
    """
    found: list[Path] = []
    for note in runtime.glob("containerd/io.containerd.runtime.v2.task/*/*/address"):
        with contextlib.suppress(OSError):
            address = note.read_text().strip()
            if address.startswith("unix://"):
                found.append(Path(address.removeprefix("unix://")))
    return found


def _cgroup_dirs(cgroup: str) -> list[Path]:
    """Find the engine's directory in every hierarchy (v1 has one for each controller)."""
    if not cgroup.strip("/"):
        return []
    name = cgroup.strip("/")
    own = {
        line.split(":", 2)[2].strip("/")
        for line in Path("/proc/self/cgroup").read_text().splitlines()
    }
    roots = (
        [_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir())]
        if _CGROUPS.is_dir()
        else []
    )
    candidates = [root / name for root in roots] + [
        root / part / name for root in roots for part in own if part
    ]
    return [path for path in candidates if path.is_dir()]


def _thaw(cgroup: str) -> None:
    for top in _cgroup_dirs(cgroup):
        for directory, _, files in os.walk(top):
            for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                if name in files:
                    with contextlib.suppress(OSError):
                        (Path(directory) / name).write_text(word)


def _cgroup_members(cgroup: str) -> list[int]:
    found: set[int] = set()
    for top in _cgroup_dirs(cgroup):
        for directory, _, _ in os.walk(top):
            with contextlib.suppress(OSError):
                found.update(
                    int(word) for word in (Path(directory) / "cgroup.procs").read_text().split()
                )
    found.discard(0)
    return sorted(found)


def _remove_cgroups(cgroup: str) -> None:
    def gone() -> bool:
        for top in _cgroup_dirs(cgroup):
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()
        return not _cgroup_dirs(cgroup)

    wait_until(gone, 5)
