"""A finished or abandoned call as a verdict: ended, certainly not started, or lost.

Only the guest's frames count. The engine's own words are looked at where there is no frame, and
never handed on as a command's output (hazards S2, C9).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from attrs import Factory, define, evolve, field, frozen

from sandbox_exec._collect import Collector
from sandbox_exec._docker.diagnose import Diagnosis, Fault, diagnose
from sandbox_exec._frames import End, Ready
from sandbox_exec._guest import PROTOCOL
from sandbox_exec._models import ExecResult

__all__ = ["Ended", "Lost", "NotStarted", "Report", "Verdict", "judge"]

_SIGNALS: Final = 128
_LAST_LINES: Final = 20
_ENGINE_WORDS: Final = 16 * 1024


@define
class Report:
    """What was seen of one conversation with a guest, written while it goes on.

    :ivar engine_stdout: what came on standard output before the guest, bounded.
    :ivar engine_stderr: likewise on standard error.
    :ivar hello: what READY said; ``None`` while there was none.
    :ivar silent: time ran out before the request was written whole.
    :ivar sending: some of the request may be on its way.
    :ivar sent: the request was written whole.
    :ivar refused: the guest's reason for not starting, if it refused.
    :ivar end: the end frame.
    :ivar overdue: the host's own timer fired, so the guest was asked to kill.
    :ivar reaped: the fallback confirmed that nothing of the command is left.
    :ivar tentative: what was done lasts only if the client says that it has seen the end.
    :ivar exit_code: status of the engine's program, once it ended.
    :ivar killed_by: the signal that ended that program, which was none of ours; 0 for no signal.
    :ivar duration: seconds from the request to its end.
    """

    stdout: Collector
    stderr: Collector
    engine_stdout: bytes = field(default=b"", repr=False)
    engine_stderr: bytes = field(default=b"", repr=False)
    hello: Ready | None = None
    silent: bool = False
    sending: bool = False
    sent: bool = False
    refused: str | None = None
    end: End | None = None
    overdue: bool = False
    reaped: bool = False
    tentative: bool = False
    exit_code: int | None = None
    killed_by: int = 0
    duration: float = 0.0

    @property
    def over(self) -> bool:
        """Whether there is nothing more to come."""
        return not (self.end is None and self.refused is None and self.exit_code is None)

    def overhear(self, *, stdout: bytes = b"", stderr: bytes = b"") -> None:
        """Keep what came before the guest, as far as there is room for it."""
        self.engine_stdout += stdout[: _ENGINE_WORDS - len(self.engine_stdout)]
        self.engine_stderr += stderr[: _ENGINE_WORDS - len(self.engine_stderr)]

    @property
    def ready(self) -> bool:
        """Whether a guest that speaks our protocol answered."""
        return self.hello is not None and self.hello.protocol == PROTOCOL


@frozen
class Ended:
    """The command ran and ended, or was ended by its limit."""

    result: ExecResult
    unkillable: bool = False


@frozen
class NotStarted:
    """The command cannot have started.

    :param refused: the guest's reason, when it was the guest that said no.
    :param diagnosis: what the engine's own words mean, otherwise.
    :param silent: nobody said anything until time ran out.
    :param sent: the guest had the whole request. What it runs can speak for it, so a refusal that
        comes then may be a command's that wants to be run again.
    """

    refused: str | None = None
    diagnosis: Diagnosis = Factory(lambda: Diagnosis(Fault.UNKNOWN, ""))
    silent: bool = False
    sent: bool = field(default=False, eq=False)

    @property
    def why(self) -> str:
        """What kept it from starting, for logs."""
        if self.refused is not None:
            return f"refused: {self.refused}"
        return "no answer" if self.silent else self.diagnosis.fault.name.lower().replace("_", " ")


@frozen
class Lost:
    """The command may have run, wholly or in part, and nobody can say.

    :param partial: what it had printed, without what the engine's program said at its end.
    :param cut: that program's last words, where they say that it lost its engine, or ours about a
        program that was killed.
    """

    partial: ExecResult
    cut: Diagnosis | None = None


Verdict: TypeAlias = Ended | NotStarted | Lost


def judge(report: Report) -> Verdict:
    """Return what a conversation came to."""
    if report.refused is not None:
        return NotStarted(refused=report.refused, sent=report.sent)
    if not report.sent:
        if report.silent or report.exit_code is None:
            return NotStarted(silent=True)
        return NotStarted(
            diagnosis=diagnose(report.exit_code, report.engine_stdout, report.engine_stderr)
        )
    if report.end is not None:
        timed_out = report.end.timed_out or (report.overdue and report.end.killed)
        code = -1 if timed_out else report.end.exit_code
        return Ended(_result(report, code, timed_out=timed_out), report.end.unkillable)
    if report.overdue and report.reaped:
        return Ended(_result(report, -1, timed_out=True))
    return _lost(report)


def _lost(report: Report) -> Lost:
    partial = _result(report, -1, timed_out=False)
    if report.killed_by:
        words = f"its program was killed on this host by signal {report.killed_by}"
        return Lost(partial, Diagnosis(Fault.DAEMON_DOWN, words))
    own, cut = _last_words(partial.stderr, report.exit_code or 0)
    return Lost(evolve(partial, stderr=own), cut)


def _last_words(stderr: str, exit_code: int) -> tuple[str, Diagnosis | None]:
    """Part what a command printed from what the engine's program said when its connection was cut.

    A status of 128 and more tells how what it ran ended, so then it has said nothing. What a
    command prints can look the same, so nothing is done on these words but to choose the error.
    """
    if not 0 < exit_code < _SIGNALS:
        return stderr, None
    lines = stderr.splitlines(keepends=True)
    for start in range(max(len(lines) - _LAST_LINES, 0), len(lines)):
        if diagnose(exit_code, b"", lines[start].encode()).fault is Fault.DAEMON_DOWN:
            words = "".join(lines[start:]).encode()
            return "".join(lines[:start]), diagnose(exit_code, b"", words)
    return stderr, None


def _result(report: Report, exit_code: int, *, timed_out: bool) -> ExecResult:
    stdout, stdout_gap = report.stdout.text()
    stderr, stderr_gap = report.stderr.text()
    return ExecResult(
        stdout,
        stderr,
        exit_code,
        timed_out,
        duration=report.duration,
        stdout_gap=stdout_gap,
        stderr_gap=stderr_gap,
        oom_killed=report.end is not None and report.end.oom_killed,
    )
