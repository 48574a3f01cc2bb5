"""A private podman: a configuration and storage of its own, under which Debian's podman runs as
plain root.

Debian's defaults fail in a machine that is itself a container: crun wants newer cgroups, and the
default ulimits are above what may be set. A wrapper named ``podman`` is put first on PATH, so that
containers and their bridge live in a network namespace of this podman and not in the machine's.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.rig import packages, places
from tests.rig.leftovers import remove_leftovers, sweep_abandoned
from tests.rig.processes import ProcessId, RigError
from tests.rig.service import Service

_CONTAINERS_CONF = """\
[containers]
default_ulimits = [{ulimits}]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
image_default_transport = "docker://"
static_dir = "{data}/storage/libpod"
tmp_dir = "{runtime}/libpod"
volume_path = "{data}/volumes"
lock_type = "file"
[network]
network_backend = "netavark"
network_config_dir = "{data}/networks"
"""

_STORAGE_CONF = """\
[storage]
driver = "{driver}"
runroot = "{runtime}/storage"
graphroot = "{data}/storage"
"""

# Nothing is ever pulled, and a name without a host means an image that is already here.
_REGISTRIES_CONF = "unqualified-search-registries = []\n"

# podman lowers its own nproc to the kernel's pid_max before it starts a container: stay well below
# that.
_ULIMITS = {
    "nofile": (resource.RLIMIT_NOFILE, 65536),
    "nproc": (resource.RLIMIT_NPROC, 16384),
}

_WRAPPER = """\
#!/bin/sh
exec nsenter --net={runtime}/netns {podman} "$@"
"""


class PrivatePodman(Service):
    """One private podman, there from ``start`` to ``stop``; nothing of it is left afterwards."""

    driver = "overlay"
    needs: Mapping[str, str] = {
        "podman": "podman",
        "runc": "runc",
        "catatonit": "catatonit",
        "iptables": "iptables",
        "ip": "iproute2",
        "/usr/lib/podman/netavark": "netavark",
    }

    def __init__(self) -> None:
        self._runtime: Path | None = None

    @property
    def runtime(self) -> Path:
        """The directory with its configuration and sockets."""
        if self._runtime is None:
            raise RigError("the private podman is not started")
        return self._runtime

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with which ``podman`` is this one."""
        return os.environ | {
            "CONTAINERS_CONF": f"{self.runtime}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self.runtime}/storage.conf",
            "CONTAINERS_REGISTRIES_CONF": f"{self.runtime}/registries.conf",
            "SANDBOX_EXEC_ENGINE": "podman",
            "PATH": f"{self.runtime}/bin:{os.environ.get('PATH', os.defpath)}",
        }

    def start(self) -> None:
        """Install what is missing and write the configuration; podman has no daemon to start."""
        packages.require(self.needs)
        sweep_abandoned()
        self._runtime = places.new_runtime_dir()
        try:
            self._prepare()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Remove its containers and everything else that it left."""
        if self._runtime is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            self.remove_containers()
        remove_leftovers(self.runtime, self._data, "")
        self._runtime = None

    def remove_containers(self) -> None:
        """Remove all of its containers, running or not."""
        subprocess.run(
            [f"{self.runtime}/bin/podman", "rm", "--all", "--force", "--time", "0"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
        )

    @property
    def _data(self) -> Path:
        return places.data_base() / f"{self.runtime.name}-data"

    def _prepare(self) -> None:
        runtime, data = self.runtime, self._data
        data.mkdir(parents=True)
        (runtime / "owner").write_text(str(ProcessId.of(os.getpid())))
        (runtime / "data").write_text(str(data))
        ulimits = ", ".join(f'"{name}={_allowed(name)}"' for name in _ULIMITS)
        names = {"runtime": runtime, "data": data, "ulimits": ulimits, "driver": self.driver}
        (runtime / "containers.conf").write_text(_CONTAINERS_CONF.format(**names))
        (runtime / "storage.conf").write_text(_STORAGE_CONF.format(**names))
        (runtime / "registries.conf").write_text(_REGISTRIES_CONF)
        (runtime / "bin").mkdir()
        wrapper = runtime / "bin/podman"
        wrapper.write_text(self._wrapper())
        wrapper.chmod(0o755)
        places.new_network_namespace(runtime / "netns")

    def _wrapper(self) -> str:
        return _WRAPPER.format(runtime=self.runtime, podman=shutil.which("podman"))


def _allowed(name: str) -> str:
    """The value for this limit, soft and hard alike, that a process here may still set."""
    number, most = _ULIMITS[name]
    hard = resource.getrlimit(number)[1]
    value = most if hard == resource.RLIM_INFINITY else min(hard, most)
    return f"{value}:{value}"
