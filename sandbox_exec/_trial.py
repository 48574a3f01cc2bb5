"""Whether a container of certain settings can be had at all, before another is removed for it."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_exec._config import SandboxConfig
from sandbox_exec._docker import argv as command_line
from sandbox_exec._docker.client import EngineClient
from sandbox_exec._docker.diagnose import Fault, diagnose
from sandbox_exec._naming import LABEL_DEPLOYMENT, LABEL_KIND, one_off_name
from sandbox_exec._start_error import start_error_from

__all__ = ["try_out"]


async def try_out(
    config: SandboxConfig, client: EngineClient, flags: Sequence[str], instead_of: str
) -> None:
    """Run ``sh`` to do nothing, under the flags that a sandbox is to have.

    What is in a sandbox must not be lost to a mistyped image or a runtime that is not there.

    :param instead_of: the name of the container that is to go for it, and stays if this fails.
    :raises ContainerStartError: when there can be no such container.
    :raises DaemonUnavailableError: when the engine does not answer.
    """
    argv = command_line.run_tool(
        one_off_name(config.deployment),
        labels={LABEL_DEPLOYMENT: config.deployment, LABEL_KIND: "reaper"},
        flags=flags,
        image=config.image,
        command=("sh", "-c", ":"),
    )
    answer = await client.control(argv, timeout=config.start_timeout)
    # Without a quota is how it is made, where the engine has none.
    quota = diagnose(answer.exit_code, answer.stdout, answer.stderr).fault is Fault.NO_QUOTA
    if answer.exit_code != 0 and not quota:
        what = f"{instead_of} is not replaced, as nothing could be started in its place"
        raise start_error_from(what, client.line(argv), answer)
