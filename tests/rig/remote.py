"""A remote host as far as ssh can tell: a newer Debian's sshd in a file system of its own, where a
daemon's socket is what docker looks for by default.

It is in the daemon's network namespace, so it listens where nobody else on this machine can connect
to, on the port that clients expect.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.rig import packages
from tests.rig.daemon import PrivateDaemon
from tests.rig.leftovers import unmount_below
from tests.rig.nested_rootfs import NEWER_DEBIAN
from tests.rig.processes import ProcessId, RigError, descendants, kill_all, wait_until
from tests.rig.service import Service

# The defaults of sshd, MaxSessions 10 and MaxStartups 10:30:100, are left as they are: they are
# what a user meets.
_SSHD_CONFIG = """\
Port 22
ListenAddress 127.0.0.1
HostKey /etc/ssh/rig_host_key
AuthorizedKeysFile /etc/ssh/rig_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
PidFile none
"""

_HOST = """\
Host {name}
  HostName 127.0.0.1
  HostKeyAlias remote
  User root
  IdentityFile {directory}/key
  IdentitiesOnly yes
  UserKnownHostsFile {directory}/{known}
  StrictHostKeyChecking {checking}
"""

_MULTIPLEXED = """\
  ControlMaster auto
  ControlPath {directory}/mux-%C
  ControlPersist 60
"""

# docker runs the ssh of its PATH, and ssh reads the configuration of the account's real home, which
# is not the rig's to write to.
_WRAPPER = """\
#!/bin/sh
exec {ssh} -F {directory}/config "$@"
"""

_START = """\
mount --bind {engine} {root}/run/engine && mount --rbind /dev {root}/dev &&
mount -t proc proc {root}/proc && exec chroot {root} /usr/sbin/sshd -D -e -f /etc/ssh/rig_config
"""


class RemoteHost(Service):
    """One sshd in front of one daemon, there from ``start`` to ``stop``.

    The ssh names ``remote`` (one multiplexed connection), ``plain`` (a connection for each call),
    ``impostor`` (its key is another than the known one) and ``stranger`` (its key is not known)
    all lead to it.
    """

    def __init__(self, daemon: PrivateDaemon) -> None:
        self._daemon = daemon
        self._root = daemon.data / "remote"
        self._sshd: ProcessId | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def directory(self) -> Path:
        """Where the client's side is: its configuration, keys and sockets."""
        return self._daemon.runtime / "ssh"

    @property
    def path(self) -> str:
        """A PATH whose ssh knows the names."""
        return f"{self.directory}/bin:{os.environ.get('PATH', os.defpath)}"

    def start(self) -> None:
        """Make the file system, keys and configuration, and start sshd."""
        packages.require({"ssh": "openssh-client"})
        self._root.mkdir(parents=True)
        tarball = NEWER_DEBIAN.build()
        subprocess.run(["tar", "-C", str(self._root), "-xpf", str(tarball)], check=True)
        self._configure()
        words = _START.format(engine=self._daemon.runtime, root=self._root)
        with (self._daemon.runtime / "sshd.log").open("ab") as log:
            self._child = subprocess.Popen(
                [
                    *("nsenter", f"--net={self._daemon.runtime}/netns"),
                    *("unshare", "--mount", "--propagation", "private", "sh", "-c", words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sshd = ProcessId.of(self._child.pid)
        (self.directory / "sshd").write_text(str(self._sshd))
        if not wait_until(self._listens, 20):
            self.stop()
            raise RigError(f"sshd does not listen; its log ends:\n{self._log_tail()}")

    def stop(self) -> None:
        """End sshd, its connections and the clients' masters, and remove its file system."""
        if self._sshd is not None:
            kill_all([*descendants([self._sshd.pid]), self._sshd.pid])
            self._sshd = None
        if self._child is not None:
            self._child.wait(timeout=10)
        unmount_below(self._root)
        shutil.rmtree(self._root, ignore_errors=True)

    def _configure(self) -> None:
        root, directory = self._root, self.directory
        (directory / "bin").mkdir(parents=True, mode=0o700)
        for path in ("run/engine", "run/sshd"):
            (root / path).mkdir(parents=True, exist_ok=True)
        (root / "run/docker.sock").symlink_to("/run/engine/docker.sock")
        for key in (directory / "key", directory / "other", root / "etc/ssh/rig_host_key"):
            _generate(key)
        (root / "etc/ssh/rig_config").write_text(_SSHD_CONFIG)
        shutil.copy(directory / "key.pub", root / "etc/ssh/rig_keys")
        _know(directory / "known", root / "etc/ssh/rig_host_key.pub")
        _know(directory / "mistaken", directory / "other.pub")
        hosts = (
            ("remote", "known", "yes"),
            ("plain", "known", "yes"),
            ("impostor", "mistaken", "yes"),
            # What ssh does unless told otherwise; there is nobody to answer its question.
            ("stranger", "empty", "ask"),
        )
        texts = [
            _HOST.format(name=name, directory=directory, known=known, checking=checking)
            for name, known, checking in hosts
        ]
        texts[0] += _MULTIPLEXED.format(directory=directory)
        (directory / "config").write_text("".join(texts))
        wrapper = directory / "bin/ssh"
        wrapper.write_text(_WRAPPER.format(ssh=shutil.which("ssh"), directory=directory))
        wrapper.chmod(0o755)

    def _listens(self) -> bool:
        """Look from inside of the namespace, which takes a process of its own."""
        program = "import socket; socket.create_connection(('127.0.0.1', 22), 2).recv(3)"
        argv = ["nsenter", f"--net={self._daemon.runtime}/netns", sys.executable, "-c", program]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            text = (self._daemon.runtime / "sshd.log").read_text(errors="replace")
            return "\n".join(text.splitlines()[-8:])
        return "(no log)"


def connections(directory: Path) -> list[int]:
    """List the processes that serve a connection to the sshd of this client directory."""
    sshd = ProcessId.parse((directory / "sshd").read_text())
    return descendants([sshd.pid]) if sshd and sshd.alive() else []


def _generate(path: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def _know(path: Path, key: Path) -> None:
    path.write_text(f"remote {key.read_text()}")
