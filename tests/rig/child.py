"""Run the command that an engine was made ready for, as if the rig were not there: signals, status
and all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_child(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command and return its exit status, 128 and more for one that died of a signal.

    A signal that somebody sent to the rig is passed on. One that the terminal sent (Ctrl-C) went to
    the whole process group, the command included, and is not sent to it twice.
    """
    waited = (*_FORWARDED, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        try:
            child = subprocess.Popen(
                list(argv),
                env=dict(environment),
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509
            )
        except OSError as error:
            print(f"rig: cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
            return 127
        while child.poll() is None:
            arrived = signal.sigwaitinfo(waited)
            from_a_process = arrived.si_code <= 0
            if arrived.si_signo in _FORWARDED and from_a_process and child.poll() is None:
                os.kill(child.pid, arrived.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode
