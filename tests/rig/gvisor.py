"""gVisor's ``runsc``, taken from a newer Debian, as a program that a daemon takes for a runtime."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.rig import places
from tests.rig.nested_rootfs import NEWER_DEBIAN
from tests.rig.processes import RigError

# systrap, as the kvm platform hangs where this machine is itself virtual. Without a network of its
# own, since its user-space stack wants more of the host than a private daemon's namespace has; the
# sandboxes have none anyway. cgroups are left on, so that the daemon's limits hold for the sandbox.
# Without an overlay of its own, in which files would be gone after each stop (see docs/engines).
_WRAPPER = """\
#!/bin/sh
exec {program} --platform=systrap --network=none --overlay2=none "$@"
"""

_EDITION = hashlib.sha256(_WRAPPER.encode()).hexdigest()[:8]


def runtime() -> Path:
    """Return the runtime's path, made now if it is not in the cache."""
    directory = places.cache_dir() / f"runsc-{NEWER_DEBIAN.key}-{_EDITION}"
    wrapper = directory / "runsc"
    if wrapper.exists():
        return wrapper
    tarball = NEWER_DEBIAN.build()
    with places.locked("runsc"), tempfile.TemporaryDirectory(dir=places.data_base()) as scratch:
        if wrapper.exists():
            return wrapper
        # The package's program is static, so it runs on an older Debian as it is.
        member = "./usr/bin/runsc"
        done = subprocess.run(
            ["tar", "-C", scratch, "-xf", str(tarball), member], capture_output=True, check=False
        )
        if done.returncode:
            raise RigError(f"no {member} in {tarball.name}: {done.stderr.decode().strip()}")
        unfinished = Path(scratch) / "unfinished"
        unfinished.mkdir(mode=0o755)
        shutil.move(Path(scratch) / member, unfinished / "program")
        (unfinished / "runsc").write_text(_WRAPPER.format(program=directory / "program"))
        (unfinished / "runsc").chmod(0o755)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(unfinished, directory)
        os.sync()
    return wrapper


def version() -> str:
    """Return what the program says of itself."""
    words = subprocess.run([runtime(), "--version"], capture_output=True, text=True, check=True)
    return words.stdout.split()[2]
