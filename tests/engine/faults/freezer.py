"""Freezes and thaws containers behind the engine's back, for an engine that has locked itself up.

A pause that meets the start of an ``exec`` can lock a container in docker for good (seen with
20.10): the start waits inside the frozen cgroup and holds the lock that ``unpause`` needs.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.rig.daemon import PrivateDaemon
from tests.rig.leftovers import _cgroup_dirs

_WORDS = {"freezer.state": ("THAWED", "FROZEN"), "cgroup.freeze": ("0", "1")}


def set_frozen(daemon: PrivateDaemon, frozen: bool, identity: str = "") -> None:
    """Freeze or thaw the container with this id, or all containers of the daemon."""
    for top in _cgroup_dirs(daemon.cgroup):
        for directory, _, files in os.walk(top):
            for name in _WORDS.keys() & files:
                if identity in Path(directory).name:
                    with contextlib.suppress(OSError):
                        (Path(directory) / name).write_text(_WORDS[name][frozen])
