"""What the library says where nobody has said where to."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog

from sandbox_exec._log import Log

log = Log("sandbox_exec.test")


@pytest.fixture(autouse=True)
def own_settings() -> Iterator[None]:
    """No test leaves its logging behind, or finds another's."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_only_warnings_are_printed_and_not_among_the_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By itself structlog prints everything to standard output."""
    log.debug("routine")
    log.info("routine")
    assert capsys.readouterr() == ("", "")
    log.warning("strange", key="k")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "strange" in printed.err
    assert "key" in printed.err


def test_without_a_standard_error_nothing_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon may have closed it."""
    monkeypatch.setattr(sys, "stderr", None)
    log.warning("strange")
    assert capsys.readouterr().out == ""


def test_the_application_decides() -> None:
    """What it configured, before or after, gets everything, with the module's name."""
    entries: list[structlog.typing.EventDict] = []

    def keep(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        entries.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    log.debug("looked", step=1)
    log.info("made")
    try:
        raise ValueError("x")  # noqa: TRY301  # what is logged needs a traceback
    except ValueError:
        log.exception("failed", failure="x")
    assert entries == [
        {"event": "looked", "step": 1},
        {"event": "made"},
        {"event": "failed", "failure": "x", "exc_info": True},
    ]
