"""What a person reads at the end of a run. Renderables only: the caller owns the terminal.

Print them with ``console.print(renderable, crop=False)``: paths, digests and commands then stay
whole on one line, for a terminal or a file, and can be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.errors import SparkbuildError
from sparkbuild.report.ink import RULED, Ink, item
from sparkbuild.report.model import Report, StageReport
from sparkbuild.report.text import visible


def closing(report: Report, files: Sequence[Path] = ()) -> RenderableType:
    """The end of a run: a table of stages, notes, what was written, the result.

    ``files`` are those that the run wrote for its user; the first wheel among them stands for
    the report's own.
    """
    return _Closing(report=report, files=tuple(files))


def refusal(error: SparkbuildError) -> RenderableType:
    """A refusal: what happened, every problem, the log's tail, evidence, next step, exit code."""
    return _Refusal(error=error)


@dataclass(frozen=True, kw_only=True)
class _Closing:
    """See ``closing``."""

    report: Report
    files: tuple[Path, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        yield _stage_table(self.report.stages, ink)
        yield from _notes(self.report.stages, ink)
        yield from _written(self.report, self.files, ink)
        yield from _accepted(self.report, ink)
        yield from _result(self.report, ink)


@dataclass(frozen=True, kw_only=True)
class _Refusal:
    """See ``refusal``."""

    error: SparkbuildError

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        error = self.error
        yield Text("")
        heading = ink.text(f"refused, {error.title}: ", "bold red")
        yield heading.append_text(ink.text(error.message, "bold"))
        for problem in error.problems:
            yield item("-", ink.text(problem))
        if error.detail:
            yield Text("\n  the last lines of the log:")
            yield from _log_lines(error.detail, ink)
            yield Text("")
        for path in error.evidence:
            yield ink.labelled("evidence", str(path))
        for line in error.next_step.splitlines():
            yield ink.labelled("next step", line, "green")
        yield ink.labelled("exit code", str(error.exit_code))


def _log_lines(detail: str, ink: Ink) -> Iterator[Text]:
    """Unfolded, because compilers point at columns and commands are there to be copied."""
    for line in visible(detail).rstrip("\n").split("\n"):
        yield Text("    ", no_wrap=True, overflow="ignore").append_text(
            ink.text(line, "dim", whole=True)
        )


def _stage_table(stages: Sequence[StageReport], ink: Ink) -> Table:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    # Nothing here may end in an ellipsis: that character is not ASCII.
    table.add_column("stage", no_wrap=True, overflow="fold")
    table.add_column("state", no_wrap=True, overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True, overflow="fold")
    table.add_column("summary", overflow="fold")
    for stage in stages:
        began = stage.state in {"done", "failed"}
        table.add_row(
            ink.text(stage.name),
            ink.state(stage.state),
            Text(f"{stage.seconds:.1f}" if began else ""),
            ink.text(stage.summary, "dim" if stage.state == "not reached" else ""),
        )
    return table


def _notes(stages: Sequence[StageReport], ink: Ink) -> Iterator[RenderableType]:
    noted = [(stage.name, note) for stage in stages for note in stage.notes]
    if noted:
        yield Text("")
    for name, note in noted:
        yield item("!", ink.text(f"{name}: {note}"), "yellow")


def _written(report: Report, files: Sequence[Path], ink: Ink) -> Iterator[RenderableType]:
    wheels = [str(path) for path in files if path.suffix == ".whl"]
    others = [path for path in files if path.suffix != ".whl"]
    if report.wheel is None and not others:
        return
    yield Text("")
    if report.wheel is not None:
        yield ink.labelled("wheel", wheels[0] if wheels else report.wheel.path, "bold")
        yield ink.labelled("sha256", report.wheel.sha256)
    for path in others:
        yield ink.labelled("report", str(path))


def _accepted(report: Report, ink: Ink) -> Iterator[RenderableType]:
    """Last before the result, so that nobody reads "passed" without it."""
    if report.accepted:
        yield Text("")
    for accepted in report.accepted:
        heading = ink.text(f"KNOWN BAD, ACCEPTED: {accepted.id}: ", "bold red")
        yield item("!", heading.append_text(ink.text(accepted.effect, "bold yellow")), "bold red")


def _result(report: Report, ink: Ink) -> Iterator[RenderableType]:
    count = len(report.smoke_checks)
    passed = sum(check.passed for check in report.smoke_checks)
    checks = f", {passed} of {count} smoke checks passed" if count else ""
    took = f"in {report.seconds:.1f} s{checks}"
    yield Text("")
    if report.result == "passed":
        what = f"{report.variant} with toolchain {report.toolchain}"
        yield ink.text("passed ", "bold green").append_text(ink.text(f"{what} {took}"))
        return
    failed = [stage.name for stage in report.stages if stage.state == "failed"]
    where = f"at {failed[0]} " if failed else ""
    text = f"{where}{took}, exit code {report.exit_code}"
    yield ink.text("failed ", "bold red").append_text(ink.text(text))
