"""A private podman without root: an account, with ranges of ids, that only its own processes see.

The account is in copies of ``/etc/passwd`` and its like that are mounted over them where this
podman runs, so the machine gets no user. Layers are kept by the ``vfs`` driver, as overlay file
systems made without root want more of the kernel. The device that its network is made with is one
of its own, too, since not every machine lets a plain user open it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.rig.podman import PrivatePodman
from tests.rig.processes import RigError, every_pid, kill_all

# Far from what a machine gives to people. Two rigs at once take different ones.
_FIRST_USER = 61_000
_FIRST_RANGE = 200_000_000
_RANGE = 65_536

_FILES = ("passwd", "group", "subuid", "subgid")

_WRAPPER = """\
#!/bin/sh
cd /
exec nsenter --net={runtime}/netns unshare --mount --propagation private sh -c '
for file in {files}; do mount --bind {runtime}/etc/$file /etc/$file || exit 125; done
mkdir -p /dev/net && mount -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 || exit 125
export HOME={home} XDG_RUNTIME_DIR={runtime}/user
exec setpriv --reuid {user} --regid {user} --clear-groups "$@"' podman {podman} "$@"
"""


class RootlessPodman(PrivatePodman):
    """One private podman of a plain user, there from ``start`` to ``stop``."""

    driver = "vfs"
    needs: Mapping[str, str] = {
        **PrivatePodman.needs,
        "newuidmap": "uidmap",
        "slirp4netns": "slirp4netns",
        "setpriv": "util-linux",
    }
    _user: int | None = None

    @property
    def user(self) -> int:
        """The account's number."""
        if self._user is None:
            raise RigError("the rootless podman is not started")
        return self._user

    @property
    def home(self) -> Path:
        """The account's directory, in which it may write."""
        return self._data / "home"

    def remove_containers(self) -> None:
        """Remove its containers, and then end what else runs under the account: each call of podman
        sees to it that a process is left which holds its namespaces.
        """
        try:
            super().remove_containers()
        finally:
            for _ in range(3):
                kill_all(_processes_of(self.user))

    def _prepare(self) -> None:
        self._user = _unused_user()
        runtime = self.runtime
        runtime.chmod(0o711)
        (runtime / "etc").mkdir()
        account = f"rig:x:{self.user}:{self.user}::{self.home}:/bin/sh\n"
        first = _FIRST_RANGE + (self.user - _FIRST_USER) * _RANGE
        ranges = f"rig:{first}:{_RANGE}\n"
        _copy_with("passwd", account, runtime)
        _copy_with("group", f"rig:x:{self.user}:\n", runtime)
        for name in ("subuid", "subgid"):
            # Something must be there to mount over.
            Path("/etc", name).touch()
            (runtime / "etc" / name).write_text(ranges)
        super()._prepare()
        self._data.chmod(0o711)
        for path in (self.home, runtime / "user", *(self._data / name for name in _OWN)):
            path.mkdir(mode=0o700, exist_ok=True)
            os.chown(path, self.user, self.user)
        for path in (runtime / "storage", runtime / "libpod"):
            path.mkdir(mode=0o700)
            os.chown(path, self.user, self.user)

    def _wrapper(self) -> str:
        return _WRAPPER.format(
            runtime=self.runtime,
            files=" ".join(_FILES),
            user=self.user,
            home=self.home,
            podman=shutil.which("podman"),
        )


_OWN = ("storage", "volumes", "networks")


def _copy_with(name: str, line: str, runtime: Path) -> None:
    text = Path("/etc", name).read_text()
    (runtime / "etc" / name).write_text(text + line)


def _processes_of(user: int) -> list[int]:
    found: list[int] = []
    for pid in every_pid():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}").stat().st_uid == user:
                found.append(pid)
    return found


def _unused_user() -> int:
    taken = set(_users())
    return next(user for user in range(_FIRST_USER, _FIRST_USER + 1000) if user not in taken)


def _users() -> Iterator[int]:
    for pid in every_pid():
        with contextlib.suppress(OSError):
            yield Path(f"/proc/{pid}").stat().st_uid
