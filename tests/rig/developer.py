"""A long-lived private daemon for a developer's shell: ``up`` and ``down``."""

from __future__ import annotations

import os
from pathlib import Path

from tests.rig import places
from tests.rig.daemon import PrivateDaemon, answers


def _note() -> Path:
    return places.state_dir() / "daemon.json"


def up() -> PrivateDaemon:
    """Return the developer's daemon, started if it is not running; its images and containers are
    kept.
    """
    with places.locked("developer"):
        daemon = PrivateDaemon.load(_note())
        if daemon and daemon.pid and answers(daemon.runtime / "docker.sock", 10):
            return daemon
        if daemon:
            daemon.stop()
        data = os.environ.get("SANDBOX_EXEC_RIG_DATA")
        fresh = PrivateDaemon(
            data=Path(data) / "developer" if data else places.state_dir() / "data", detached=True
        )
        fresh.start()
        fresh.save(_note())
        return fresh


def down() -> bool:
    """Stop the daemon that ``up`` started, and nothing else; false if there is none."""
    with places.locked("developer"):
        daemon = PrivateDaemon.load(_note())
        if daemon is None:
            return False
        daemon.stop()
        _note().unlink(missing_ok=True)
        return True
