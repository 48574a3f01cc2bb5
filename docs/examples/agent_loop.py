"""An agent that works in a sandbox: its loop awaits the executor as one of the model's tools."""

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

import anyio

from sandbox_exec import (
    ExecSpec,
    LocalDockerExecutor,
    SandboxConfig,
    SandboxError,
    describe_sandbox,
    format_exec_result,
)

log = logging.getLogger(__name__)


class Message(NamedTuple):
    """One entry of the conversation that the model sees."""

    role: str
    text: str


class ToolCall(NamedTuple):
    """The model wants a command run."""

    command: str


class ScriptedModel:
    """Stands in for a language model, so that this example needs neither a network nor a key."""

    def __init__(self, turns: Sequence[ToolCall | str]) -> None:
        self._turns = iter(turns)

    async def reply(self, messages: Sequence[Message], tool: str) -> ToolCall | str:
        """A real one would be sent the messages and the tool's description."""
        print(f"[model reads {len(messages)} messages; its tool: {len(tool)} characters]")
        return next(self._turns)


async def run_tool(executor: LocalDockerExecutor, session: str, command: str) -> str:
    """Run the model's command and return what the model is to read about it."""
    try:
        result = await executor.run(ExecSpec(command, session=session, timeout=60))
    except ValueError as error:
        # Input that cannot be run, such as a NUL character: the model can do better.
        return f"The command was rejected: {error}"
    except SandboxError as error:
        # The message is for the operator. The hint is written for a model: it says whether to try
        # again or to do without.
        log.warning("%s (%s)", error, error.code)
        return error.hint or str(error)
    return format_exec_result(result)


async def converse(
    executor: LocalDockerExecutor, model: ScriptedModel, session: str, task: str
) -> str:
    """Let the model work on a task until it has an answer."""
    # True of this very configuration: limits, whether there is a network, what persists.
    tool = describe_sandbox(executor.info)
    messages = [Message("user", task)]
    while True:
        reply = await model.reply(messages, tool)
        if isinstance(reply, str):
            return reply
        print(f"$ {reply.command}")
        text = await run_tool(executor, session, reply.command)
        print(text)
        messages += [Message("assistant", reply.command), Message("tool", text)]


async def main() -> None:
    """One conversation, one session: what the first command writes, the next ones find."""
    model = ScriptedModel(
        [
            ToolCall("seq 1 10 | awk '{ sum += $1 } END { print sum }' > total.txt"),
            ToolCall("cat total.txt average.txt"),
            ToolCall("awk '{ print $1 / 10 }' total.txt > average.txt && cat average.txt"),
            "The average of the numbers from 1 to 10 is 5.5.",
        ]
    )
    config = SandboxConfig(
        image=os.environ.get("SANDBOX_EXEC_IMAGE", "debian:stable-slim"),
        engine=os.environ.get("SANDBOX_EXEC_ENGINE", "docker"),
        deployment="agent-example",
    )
    async with LocalDockerExecutor(config) as executor:
        session = "conversation-1"
        try:
            print(await converse(executor, model, session, "Average of 1 to 10, please."))
        finally:
            # A chat that may go on would keep its sandbox, and find it again tomorrow.
            with anyio.CancelScope(shield=True):
                try:
                    await executor.dispose_session(session)
                except SandboxError as error:
                    # Raised from here, it would hide what went wrong in the conversation.
                    log.warning("the sandbox of %s is left behind: %s", session, error)


if __name__ == "__main__":
    anyio.run(main)
