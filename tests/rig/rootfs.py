"""Root file systems as tarballs, made from Debian packages once and cached under a key of their
recipe.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig import packages, places
from tests.rig.processes import RigError

# Raise it to rebuild everything, when what the packages bring has changed.
_EDITION = "1"
_STALE_AFTER = 86400.0

_ACCOUNTS = """\
root:x:0:0:root:/root:/bin/sh
app:x:1000:1000:app:/home/app:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/sh
"""
_GROUPS = "root:x:0:\napp:x:1000:\nnogroup:x:65534:\n"
_BARE_LACKS = frozenset({"timeout", "setsid", "stat", "tail"})


@dataclass(frozen=True)
class Rootfs:
    """How one root file system is made: the function that fills a directory, and what else its key
    depends on.
    """

    name: str
    fill: Callable[[Path], None]
    depends: tuple[str, ...] = field(default=())
    as_root: bool = False

    @property
    def key(self) -> str:
        """A hash that changes with the recipe, and not from machine to machine."""
        parts = (
            _EDITION,
            self.name,
            inspect.getsource(self.fill),
            _ACCOUNTS,
            _GROUPS,
            *self.depends,
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def tarball(self) -> Path:
        """Where the cached tarball is, or will be."""
        return places.cache_dir() / f"{self.name}-{self.key}.tar"

    def build(self) -> Path:
        """Return the tarball, made now if it is not in the cache; two rigs at once make it once."""
        tarball = self.tarball
        if tarball.exists():
            return tarball
        with places.locked(f"rootfs-{self.name}"):
            if not tarball.exists():
                self._make(tarball)
        return tarball

    def _make(self, tarball: Path) -> None:
        if self.as_root and os.geteuid() != 0:
            raise RigError(f"the image {self.name} can only be made by root")
        with tempfile.TemporaryDirectory(prefix="sbx-rootfs-", dir=places.data_base()) as scratch:
            root = Path(scratch) / "root"
            root.mkdir(mode=0o755)
            self.fill(root)
            unfinished = tarball.with_suffix(f".{os.getpid()}.part")
            try:
                (_pack_as_it_is if self.as_root else _pack_small)(root, unfinished)
                unfinished.rename(tarball)
            finally:
                unfinished.unlink(missing_ok=True)
        for other in tarball.parent.glob(f"{self.name}-{'[0-9a-f]' * 16}.tar"):
            # A recent one may belong to another checkout that is running now.
            if other != tarball and time.time() - other.stat().st_mtime > _STALE_AFTER:
                other.unlink(missing_ok=True)


def _pack_as_it_is(root: Path, target: Path) -> None:
    pack = ["tar", "--numeric-owner", "--one-file-system", "-C", str(root), "-cf", str(target), "."]
    subprocess.run(pack, check=True)


def _pack_small(root: Path, target: Path) -> None:
    """Pack a tree that anybody may have made: the owners are set here and not on the disk."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 1000 if member.name.startswith("./home/app") else 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(target, "w") as archive:
        archive.add(root, ".", filter=owned)


def debootstrap(root: Path, suite: str, *include: str) -> None:
    """Install a minimal Debian into the directory, without package caches and lists."""
    packages.require({"debootstrap": "debootstrap"})
    options = [f"--include={','.join(include)}"] if include else []
    log = root.parent / "debootstrap.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [
                "debootstrap",
                "--variant=minbase",
                *options,
                suite,
                str(root),
                packages.debian_mirror(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        raise RigError(f"debootstrap of {suite} failed:\n{tail}")
    for pattern in ("var/cache/apt/archives/*.deb", "var/cache/apt/*.bin", "var/lib/apt/lists/*_*"):
        for path in root.glob(pattern):
            path.unlink()
    for directory in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / directory, ignore_errors=True)


def _users(root: Path) -> None:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text(_ACCOUNTS)
    (root / "etc/group").write_text(_GROUPS)
    for name, mode in (("tmp", 0o1777), ("root", 0o700), ("home/app", 0o755)):
        path = root / name
        path.mkdir(parents=True)
        path.chmod(mode)


def _program(root: Path, package: str, source: str, target: str) -> None:
    """Take one static program out of a package."""
    unpacked = root.parent / f"unpacked-{package}"
    packages.unpack(package, unpacked)
    (root / target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(unpacked / source, root / target)
    (root / target).chmod(0o755)


def _busybox_tree(root: Path, lacking: frozenset[str]) -> None:
    _users(root)
    _program(root, "busybox-static", "bin/busybox", "bin/busybox")
    listed = subprocess.run([str(root / "bin/busybox"), "--list"], check=True, capture_output=True)
    for applet in listed.stdout.decode().split():
        if applet not in lacking | {"busybox"}:
            (root / "bin" / applet).symlink_to("/bin/busybox")


def _busybox(root: Path) -> None:
    _busybox_tree(root, frozenset())


def _busybox_bare(root: Path) -> None:
    # Debian's busybox sh finds every applet in itself, link or no link: another shell, or nothing
    # would be missing.
    _busybox_tree(root, _BARE_LACKS | {"sh", "ash"})
    _program(root, "bash-static", "bin/bash-static", "bin/sh")


def _minimal(root: Path) -> None:
    _users(root)
    _program(root, "bash-static", "bin/bash-static", "bin/sh")


def _debian(root: Path) -> None:
    debootstrap(root, "bookworm")
    with (root / "etc/passwd").open("a") as passwd, (root / "etc/group").open("a") as group:
        passwd.write("app:x:1000:1000:app:/home/app:/bin/sh\n")
        group.write("app:x:1000:\n")
    (root / "home/app").mkdir()
    os.chown(root / "home/app", 1000, 1000)


_STEPS = (_users, _program, _busybox_tree, _pack_small)
_SMALL = tuple(inspect.getsource(step) for step in _STEPS)

BUSYBOX = Rootfs("busybox", _busybox, _SMALL)
BUSYBOX_BARE = Rootfs("busybox-bare", _busybox_bare, (*_SMALL, *sorted(_BARE_LACKS)))
MINIMAL = Rootfs("minimal", _minimal, _SMALL)
DEBIAN = Rootfs("debian", _debian, (inspect.getsource(debootstrap),), as_root=True)
