"""How something that is open is left: in its own event loop, and with the block's own exception."""

from __future__ import annotations

from anyio import get_cancelled_exc_class, lowlevel
from anyio.abc import TaskGroup

from sandbox_exec._errors import ExecutorClosedError
from sandbox_exec._log import Log

__all__ = ["leave", "refuse_other_loop"]

log = Log(__name__)


def refuse_other_loop(loop: object, what: str) -> None:
    """Refuse to go on in another event loop than the one that something was opened in.

    :param loop: the token of that one.
    :param what: ``executor`` or ``backend``.
    :raises ExecutorClosedError: with code ``wrong-event-loop``.
    """
    if loop != lowlevel.current_token():
        raise ExecutorClosedError(
            f"the {what} was opened in another event loop", code="wrong-event-loop"
        )


async def leave(group: TaskGroup, error: BaseException | None, event: str) -> None:
    """End what runs in the background.

    :param error: what the block ended with, if anything. The ``with`` statement raises it as
        itself: handed to the group, it would come out inside an ``ExceptionGroup``.
    :param event: the log's, for a failure in the background that must give way to ``error``.
    """
    group.cancel_scope.cancel()
    try:
        await group.__aexit__(None, None, None)
    except Exception as failure:
        if error is None or isinstance(error, get_cancelled_exc_class()):
            raise
        log.exception(event, failure=repr(failure))
