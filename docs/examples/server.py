"""A Starlette server whose requests run commands, each session in a sandbox of its own."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox_exec import ExecSpec, LocalDockerExecutor, SandboxConfig, SandboxError

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))

CONFIG = SandboxConfig(
    image=os.environ.get("SANDBOX_EXEC_IMAGE", "debian:stable-slim"),
    engine=os.environ.get("SANDBOX_EXEC_ENGINE", "docker"),
    # Sandboxes belong to a deployment. Keep its name, and the next process finds them again.
    deployment=os.environ.get("SANDBOX_DEPLOYMENT", "server-example"),
)


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
    """Keep one executor open for as long as the server runs."""
    async with LocalDockerExecutor(CONFIG) as executor:
        yield {"executor": executor}


async def run(request: Request) -> Response:
    """Run a command in a session: a command that fails is an ordinary answer."""
    try:
        body = await request.json()
        spec = ExecSpec(
            body["command"], session=request.path_params["session"], timeout=body.get("timeout")
        )
    except (KeyError, TypeError, ValueError) as error:
        return JSONResponse({"error": f"bad request: {error}"}, status_code=400)
    result = await request.state.executor.run(spec)
    return JSONResponse(
        {
            "stdout": result.stdout,
            "stderr": result.stderr,
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "truncated": sorted(result.truncated),
            "reset": result.reset,
        }
    )


async def dispose(request: Request) -> Response:
    """Remove a session's sandbox and its files."""
    await request.state.executor.dispose_session(request.path_params["session"])
    return Response(status_code=204)


async def on_sandbox_error(_request: Request, error: Exception) -> Response:
    """Turn a sandbox that failed into an answer that says what a client may do."""
    if not isinstance(error, SandboxError):
        raise error  # cannot be, as registered below; but only this tells a type checker
    return JSONResponse(
        {
            "error": str(error),
            "code": error.code,
            "retryable": error.retryable,
            # Only `false` makes it safe to send the same command again.
            "started": error.started,
        },
        status_code=503 if error.retryable else 500,
    )


app = Starlette(
    routes=[
        Route("/sessions/{session}/run", run, methods=["POST"]),
        Route("/sessions/{session}", dispose, methods=["DELETE"]),
    ],
    exception_handlers={SandboxError: on_sandbox_error},
    lifespan=lifespan,
)
