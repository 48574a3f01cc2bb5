"""Whether a container's own files can be bounded on this engine's disk (hazard B7)."""

from __future__ import annotations

from typing import Final

from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.diagnose import Fault, diagnose
from sandbox_exec._docker.facts import EngineFacts
from sandbox_exec._naming import LABEL_DEPLOYMENT, LABEL_KIND, one_off_name
from sandbox_exec._start_error import start_error_from
from sandbox_exec._tool_box import quota_flags

__all__ = ["disk_quota_works"]

_TRIED_BYTES: Final = 64 * 2**20

# About the quota itself: in words that are known, or in some that nobody has seen.
_REFUSALS: Final = frozenset({Fault.NO_QUOTA, Fault.BAD_FLAG, Fault.UNKNOWN})


async def disk_quota_works(
    client: EngineClient,
    facts: EngineFacts | None,
    image: str,
    *,
    deployment: str = "default",
    timeout: float = 60.0,
) -> bool:
    """Return whether ``--storage-opt size=`` bounds what a container writes.

    An engine whose disk certainly has no quotas is not asked. For any other one container is made
    with a quota and removed again, since it depends on how the disk is mounted, which no engine
    says: most refuse the container, which S1 took for a silent no-op.

    :param facts: what the engine says of itself; ``None`` if that is not known.
    :param image: an image that the engine has, with ``sh`` in it.
    :param deployment: the namespace that the container belongs to.
    :param timeout: seconds that the container may take.
    :raises ContainerStartError: when no container can be made for a reason that is not the quota.
    :raises DaemonUnavailableError: when the engine does not answer.
    :raises EngineNotFoundError: when there is no such program.

    Source: S1's ``diskMb``; hazard B7.
    """
    if facts is not None and facts.limits.disk is False:
        return False
    argv = command_line.run_tool(
        one_off_name(deployment),
        labels={LABEL_DEPLOYMENT: deployment, LABEL_KIND: "reaper"},
        flags=quota_flags(_TRIED_BYTES),
        image=image,
        command=("sh", "-c", ":"),
    )
    answer = await client.control(argv, timeout=timeout)
    if answer.exit_code == 0:
        return True
    if diagnose(answer.exit_code, answer.stdout, answer.stderr).fault in _REFUSALS:
        return False
    raise start_error_from(
        "it could not be tried whether the disk can be bounded", client.line(argv), answer
    )
