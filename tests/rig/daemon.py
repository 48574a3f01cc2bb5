"""A private ``dockerd`` that shares nothing with any other: tests may kill, freeze and restart it.

Three things make it private beyond a data directory and a socket of its own. It has its own network
namespace, as a ``dockerd`` started beside another one deletes the other's ``docker0`` and rewrites
its firewall. It has its own containerd, started here, as ``dockerd`` would otherwise use the
machine's wherever that one is running. And its containers have a cgroup parent of their own, by
which their processes are found when everything else is dead. Containers with network reach each
other and nothing beyond.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.rig import places
from tests.rig.leftovers import remove_leftovers, sweep_abandoned
from tests.rig.processes import ProcessId, RigError, wait_until
from tests.rig.service import Service

_CONTAINERD_CONFIG = """\
version = 2
root = "{data}/containerd"
state = "{runtime}/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{runtime}/containerd.sock"
[ttrpc]
  address = "{runtime}/containerd.sock.ttrpc"
"""


class PrivateDaemon(Service):
    """One private docker daemon; after ``stop`` nothing of it is left.

    ``network=False`` leaves out the bridge (faster to start, needs no iptables). ``data`` keeps
    images and containers in a given directory, which ``stop`` then leaves alone. ``live_restore``
    lets containers outlive the daemon. ``detached`` is for a daemon that is meant to outlive
    whoever starts it; any other one whose starter has died is swept away by the next rig.
    """

    def __init__(
        self,
        *,
        network: bool = True,
        data: Path | None = None,
        live_restore: bool = False,
        start_timeout: float = 60,
        detached: bool = False,
        extra_args: tuple[str, ...] = (),
    ) -> None:
        self._network = network
        self._kept_data = data
        self._live_restore = live_restore
        self._start_timeout = start_timeout
        self._detached = detached
        self._extra_args = extra_args
        self._runtime: Path | None = None
        self._dockerd: ProcessId | None = None
        self._containerd: ProcessId | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def runtime(self) -> Path:
        """The short directory with its sockets and logs; it exists from ``start`` to ``stop``."""
        if self._runtime is None:
            raise RigError("the private daemon is not started")
        return self._runtime

    @property
    def data(self) -> Path:
        """Where its images and containers are."""
        return self._kept_data or places.data_base() / f"{self.runtime.name}-data"

    @property
    def host(self) -> str:
        """The value for DOCKER_HOST."""
        return f"unix://{self.runtime}/docker.sock"

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, pointed at this daemon."""
        environment = {
            name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"
        }
        return environment | {"DOCKER_HOST": self.host}

    @property
    def cgroup(self) -> str:
        """The cgroup under which all of its containers are."""
        return f"/{self.runtime.name}"

    @property
    def pid(self) -> ProcessId | None:
        """The dockerd of now, ``None`` while it is down."""
        return self._dockerd if self._dockerd and self._dockerd.alive() else None

    def start(self) -> None:
        """Start what of it is not running, and wait until it answers."""
        if self._runtime is None:
            sweep_abandoned()
            self._runtime = places.new_runtime_dir()
            self._prepare()
        try:
            if not (self._containerd and self._containerd.alive()):
                self._start_containerd()
            if not self.pid:
                self._start_dockerd()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it and remove all that it left: processes, mounts, cgroups, sockets, and data unless
        that is kept.
        """
        if self._runtime is None:
            return
        if self._kept_data:
            for process in (self._dockerd, self._containerd):
                if process:
                    process.end(patience=20)
        # What is thrown away need not be put in order first, which takes ten seconds for a
        # container without a trap.
        self._reap()
        remove_leftovers(self.runtime, None if self._kept_data else self.data, self.cgroup)
        self._reap()
        self._runtime = self._dockerd = self._containerd = None

    def kill(self) -> None:
        """Kill dockerd alone, as a crash does: containerd, shims and containers live on."""
        if self._dockerd:
            self._dockerd.kill()
        self._reap()

    def freeze(self) -> None:
        """Freeze dockerd: it accepts connections (the kernel does) and never answers."""
        if self._dockerd:
            self._dockerd.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen dockerd go on."""
        if self._dockerd:
            self._dockerd.signal(signal.SIGCONT)

    def restart(self) -> None:
        """Start dockerd again on the same socket and data, after stopping it if it runs."""
        if self._dockerd:
            self._dockerd.end(patience=20)
        self._reap()
        self.start()

    def log_tail(self, lines: int = 15) -> str:
        """Return the end of dockerd's log, for an error message."""
        with contextlib.suppress(OSError):
            return "\n".join(
                (self.runtime / "dockerd.log").read_text(errors="replace").splitlines()[-lines:]
            )
        return "(no log)"

    def save(self, path: Path) -> None:
        """Write down what ``load`` needs to find this daemon from another process."""
        note = {
            "runtime": str(self.runtime),
            "data": str(self._kept_data) if self._kept_data else None,
            "network": self._network,
            "dockerd": str(self._dockerd),
            "containerd": str(self._containerd),
        }
        path.write_text(json.dumps(note))

    @classmethod
    def load(cls, path: Path) -> PrivateDaemon | None:
        """Take over a daemon that another process saved; ``None`` if nothing was saved."""
        try:
            note = json.loads(path.read_text())
        except (OSError, ValueError):
            return None
        daemon = cls(
            network=note["network"],
            data=Path(note["data"]) if note["data"] else None,
            detached=True,
        )
        daemon._runtime = Path(note["runtime"])
        daemon._dockerd = ProcessId.parse(note["dockerd"])
        daemon._containerd = ProcessId.parse(note["containerd"])
        return daemon

    def _prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        owner = "detached" if self._detached else str(ProcessId.of(os.getpid()))
        (self.runtime / "owner").write_text(owner)
        (self.runtime / "data").write_text("" if self._kept_data else str(self.data))
        (self.runtime / "daemon.json").write_text("{}")
        config = _CONTAINERD_CONFIG.format(data=self.data, runtime=self.runtime)
        (self.runtime / "containerd.toml").write_text(config)
        # A namespace held by a file outlives the daemon, so that containers keep their bridge
        # through a restart.
        places.new_network_namespace(self.runtime / "netns")

    def _start_containerd(self) -> None:
        argv = ["containerd", "--config", f"{self.runtime}/containerd.toml"]
        self._containerd = self._spawn(argv, "containerd.log")
        self._await_answer(
            "containerd", self._containerd, lambda: _connects(self.runtime / "containerd.sock")
        )

    def _start_dockerd(self) -> None:
        # After a crash the pid in the file may be somebody else's by now, and dockerd would refuse
        # to start.
        (self.runtime / "dockerd.pid").unlink(missing_ok=True)
        argv = [
            "dockerd",
            f"--config-file={self.runtime}/daemon.json",
            f"--host={self.host}",
            f"--containerd={self.runtime}/containerd.sock",
            f"--data-root={self.data}/docker",
            f"--exec-root={self.runtime}/exec",
            f"--pidfile={self.runtime}/dockerd.pid",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            f"--cgroup-parent={self.cgroup}",
            *(["--live-restore"] if self._live_restore else []),
            *([] if self._network else ["--bridge=none", "--iptables=false"]),
            *self._extra_args,
        ]
        self._dockerd = self._spawn(argv, "dockerd.log")
        self._await_answer("dockerd", self._dockerd, lambda: answers(self.runtime / "docker.sock"))

    def _spawn(self, argv: list[str], log: str) -> ProcessId:
        if shutil.which(argv[0]) is None:
            raise RigError(f"{argv[0]} is not installed")
        with (self.runtime / log).open("ab") as output:
            # nsenter replaces itself by the daemon: the pid is the daemon's.
            child = subprocess.Popen(
                ["nsenter", f"--net={self.runtime}/netns", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )
        self._children.append(child)
        identity = ProcessId.of(child.pid)
        if identity is None:
            raise RigError(f"{argv[0]} ended at once:\n{self.log_tail()}")
        return identity

    def _await_answer(self, name: str, process: ProcessId, ready: Callable[[], bool]) -> None:
        wait_until(lambda: ready() or not process.alive(), self._start_timeout)
        if not process.alive() or not ready():
            what = "did not answer" if process.alive() else "ended"
            limit = f"within {self._start_timeout:g} s of its start"
            raise RigError(f"{name} {what} {limit}; its log ends:\n{self.log_tail()}")

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.connect(str(path))
        return True
    return False


def answers(path: Path, limit: float = 2) -> bool:
    """Tell whether a docker daemon answers on the socket, without needing a CLI."""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.settimeout(limit)
        connection.connect(str(path))
        connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b" 200 " in connection.recv(64)
    return False
