"""What an engine cannot do, or does in a way of its own: the one list, which the docs show.

An entry is a test that must fail on that engine; one that passes there fails the run, so that the
list never claims too little of an engine.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["EXCEPTIONS", "Deviation", "deviations", "table"]


class Deviation(NamedTuple):
    """One test, by its name without parameters, on one engine."""

    engine: str
    test: str
    reason: str


_SENTRY: Final = (
    "gVisor's kernel is one process of the host, and the limit is on that: where it bites, the "
    "whole sandbox ends, its files stay, and the call fails as lost"
)
_NO_CGROUPS: Final = (
    "without root, podman ignores limits on cgroup v1, where a plain user has no cgroup of its own"
)
_NO_WORKDIR: Final = "podman makes no working directory, and such an image has no mkdir"

EXCEPTIONS: Final = (
    Deviation("gvisor", "test_memory_beyond_the_cap_kills_the_command", _SENTRY),
    Deviation("gvisor", "test_processes_beyond_the_cap_are_refused", _SENTRY),
    Deviation(
        "gvisor",
        "test_no_new_privileges",
        "it is in force, as a suid program shows, but gVisor's /proc does not say so",
    ),
    Deviation("podman", "test_an_image_with_nothing_but_sh", _NO_WORKDIR),
    Deviation("podman-rootless", "test_an_image_with_nothing_but_sh", _NO_WORKDIR),
    Deviation("podman-rootless", "a_paused_sandbox_is_unpaused", _NO_CGROUPS),
    Deviation("podman-rootless", "test_memory_beyond_the_cap_kills_the_command", _NO_CGROUPS),
    Deviation("podman-rootless", "test_memory_beyond_the_cap_is_not_to_be_had", _NO_CGROUPS),
    Deviation("podman-rootless", "test_processes_beyond_the_cap_are_refused", _NO_CGROUPS),
    Deviation("podman-rootless", "test_processes_beyond_the_cap_are_not_to_be_had", _NO_CGROUPS),
    Deviation("podman-rootless", "test_processor_time_is_capped", _NO_CGROUPS),
    Deviation("podman-rootless", "test_shape_in_the_engines_own_words", _NO_CGROUPS),
)


def deviations(engine: str) -> dict[str, str]:
    """Return the tests that must fail on an engine, and why."""
    return {entry.test: entry.reason for entry in EXCEPTIONS if entry.engine == engine}


def table() -> str:
    """Return the list as the documentation shows it."""
    rows = (f"| {one.engine} | `{_named(one.test)}` | {one.reason} |" for one in EXCEPTIONS)
    return "\n".join(("| engine | test that must fail there | why |", "|---|---|---|", *rows))


def _named(test: str) -> str:
    """Return how pytest calls a test: a behaviour that the fake shares is one test's parameter."""
    return test if test.startswith("test_") else f"test_shared_behaviour[{test}]"
