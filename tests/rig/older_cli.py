"""Debian's own docker program, unpacked beside whatever the machine has, which stays as it is."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path

from tests.rig import packages
from tests.rig.processes import RigError


def debian_cli(directory: Path) -> tuple[Path, str]:
    """Return the program in a directory of its own, and a note where it is the machine's already.

    On a Debian whose docker.io brings no program, docker-cli does.
    """
    for package in ("docker.io", "docker-cli"):
        unpacked = directory / package
        packages.unpack(package, unpacked)
        program = unpacked / "usr/bin/docker"
        if program.exists():
            machines = shutil.which("docker")
            same = machines is not None and filecmp.cmp(machines, program, shallow=False)
            return program, "the machine's own docker is this very one" if same else ""
    raise RigError("neither docker.io nor docker-cli of this Debian has a docker program")
