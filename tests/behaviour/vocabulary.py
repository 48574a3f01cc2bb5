"""Commands that mean the same to a real shell and to the fake engine: text and handler in pairs.

Each name below is the command's text; :data:`COMMANDS` holds what the fake does for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anyio import sleep

from sandbox_exec.testing import FakeCall, Handler

COMMANDS: Final[dict[str, Handler]] = {}
CODES: Final = (0, 1, 2, 77, 124, 125, 126, 127, 128, 130, 137, 143, 255)

_USERS: Final = {"0:0": "root"}


def shell(text: str) -> Callable[[Handler], str]:
    """Let the decorated handler be what the fake does for ``text``, and the name be the text."""

    def register(handler: Handler) -> str:
        COMMANDS[text] = handler
        return text

    return register


def exits(code: int) -> str:
    """Return the command that exits with ``code``."""

    async def leave(call: FakeCall) -> int:
        return code

    return shell(f"exit {code}")(leave)


for _code in CODES:
    exits(_code)


@shell("echo out; echo err >&2; exit 3")
async def speaks(call: FakeCall) -> int:
    await call.stdout(b"out\n")
    await call.stderr(b"err\n")
    return 3


@shell("cat")
async def copies(call: FakeCall) -> int:
    await call.stdout(call.stdin or b"")
    return 0


@shell('printf %s "${TOKEN-unset}"')
async def shows_token(call: FakeCall) -> int:
    await call.stdout(call.env.get("TOKEN", "unset").encode())
    return 0


@shell("pwd")
async def shows_directory(call: FakeCall) -> int:
    await call.stdout(f"{call.cwd}\n".encode())
    return 0


@shell("id -un")
async def shows_user(call: FakeCall) -> int:
    await call.stdout(f"{_USERS.get(call.user, call.user)}\n".encode())
    return 0


@shell("echo x >> count")
async def counts(call: FakeCall) -> int:
    path = f"{call.cwd}/count"
    call.files[path] = call.files.get(path, b"") + b"x\n"
    return 0


@shell("cat count 2>/dev/null || echo none")
async def shows_count(call: FakeCall) -> int:
    await call.stdout(call.files.get(f"{call.cwd}/count", b"none\n"))
    return 0


@shell("printf 'Error: No such container: sbx\\n' >&2; echo x >> count; exit 1")
async def speaks_like_an_engine(call: FakeCall) -> int:
    await call.stderr(b"Error: No such container: sbx\n")
    await COMMANDS[counts](call)
    return 1


@shell("echo begun; echo grumbled >&2; touch begun; sleep 60; touch ended")
async def lasts(call: FakeCall) -> int:
    await call.stdout(b"begun\n")
    await call.stderr(b"grumbled\n")
    call.files["/workspace/begun"] = b""
    await call.forever()
    return 0


@shell("until [ -e begun ]; do sleep 0.05; done")
async def awaits_begun(call: FakeCall) -> int:
    while "/workspace/begun" not in call.files:  # noqa: ASYNC110  # as the text does
        await sleep(0.002)
    return 0


@shell("[ -e ended ] && echo ended || echo ended early")
async def shows_end(call: FakeCall) -> int:
    ended = "/workspace/ended" in call.files
    await call.stdout(b"ended\n" if ended else b"ended early\n")
    return 0


@shell("trap '' TERM; echo begun; echo grumbled >&2; sleep 60")
async def overruns(call: FakeCall) -> int:
    await call.stdout(b"begun\n")
    await call.stderr(b"grumbled\n")
    await call.sleep(60)
    return 0


@shell("sleep 4711 >/dev/null 2>&1 & echo $! > pid; echo up")
async def serves(call: FakeCall) -> int:
    await call.stdout(b"up\n")
    call.background()
    return 0


# The whole command line, since the number of a dead process may be a new one's.
@shell(
    "IFS= read -r line < pid; line=$(tr '\\0' ' ' < /proc/$line/cmdline); "
    '[ "$line" = "sleep 4711 " ] && echo up || echo down'
)
async def shows_server(call: FakeCall) -> int:
    await call.stdout(b"up\n" if serves in call.container.background else b"down\n")
    return 0
