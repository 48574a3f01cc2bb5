"""The log: structlog's, as the application configures it, and nearly silent until then."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog
from attrs import frozen

__all__ = ["Log"]

_WARNINGS: Final = structlog.make_filtering_bound_logger(logging.WARNING)


@frozen
class Log:
    """One module's log.

    structlog prints everything to standard output unless it is told otherwise, which would mix
    with the output of whoever uses the library. So where the application has not configured it,
    only warnings are printed, on standard error.
    """

    _name: str

    def debug(self, event: str, **facts: object) -> None:
        """Log what only helps to find a defect."""
        self._logger.debug(event, **facts)

    def info(self, event: str, **facts: object) -> None:
        """Log what became of a sandbox."""
        self._logger.info(event, **facts)

    def warning(self, event: str, **facts: object) -> None:
        """Log what an operator should look at."""
        self._logger.warning(event, **facts)

    def exception(self, event: str, **facts: object) -> None:
        """Log a failure that nobody else is told of, with its traceback."""
        self._logger.exception(event, **facts)  # noqa: LOG004  # its caller is in a handler

    @property
    def _logger(self) -> Any:  # noqa: ANN401  # whatever the application has configured
        if structlog.is_configured():
            return structlog.get_logger(self._name)
        # Of this moment: standard error may have been closed, or exchanged by a test.
        plain: Any = structlog.ReturnLogger()
        if sys.stderr is not None:
            plain = structlog.PrintLogger(sys.stderr)
        return structlog.wrap_logger(plain, wrapper_class=_WARNINGS)
