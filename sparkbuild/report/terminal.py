"""What a person reads at the end of a run. Renderables only: the caller owns the terminal.

Print them with ``console.print(renderable, crop=False)``: paths, digests and commands then stay
whole on one line, for a terminal or a file, and can be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.errors import SparkbuildError
from sparkbuild.report.model import Report, StageReport, State
from sparkbuild.report.text import encodable, visible

_LOOK: Final[dict[State, tuple[str, str, str]]] = {
    "done": ("✓", "+", "green"),
    "reused": ("=", "=", "cyan"),
    "not applicable": ("-", "-", "dim"),
    "not tried": ("!", "!", "yellow"),
    "failed": ("✗", "x", "bold red"),
    "not reached": ("·", ".", "dim"),
}
"""State to symbol, symbol where the terminal has only ASCII, and style. The word always stands
beside the symbol: colour and shape are extras."""

_RULED: Final = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""One line of dashes below the heading: ASCII, light, and the same on a terminal and in a file."""


def closing(report: Report, files: Sequence[Path] = ()) -> RenderableType:
    """The end of a run: a table of stages, notes, what was written, the result.

    ``files`` are those that the run wrote for its user; the first wheel among them stands for
    the report's own.
    """
    return _Closing(report=report, files=tuple(files))


def refusal(error: SparkbuildError) -> RenderableType:
    """A refusal: what happened, every problem, the log's tail, evidence, next step, exit code."""
    return _Refusal(error=error)


@dataclass(frozen=True)
class _Ink:
    """Makes text for one terminal: harmless, and in characters that it can show."""

    encoding: str
    ascii_only: bool

    def text(self, value: str, style: str = "", *, whole: bool = False) -> Text:
        """Text that folds at the edge, or with ``whole`` runs over it and stays one line."""
        shown = encodable(visible(value), self.encoding)
        overflow = "ignore" if whole else "fold"
        return Text(shown, style=style, no_wrap=whole, overflow=overflow)  # type: ignore[arg-type]

    def state(self, state: State) -> Text:
        """A state's symbol and word."""
        symbol, plain, style = _LOOK[state]
        return Text(f"{plain if self.ascii_only else symbol} {state}", style=style)

    def labelled(self, label: str, value: str, style: str = "") -> Text:
        """A label in a column of its own, then the whole value on the same line."""
        line = Text(f"  {label:<10}", style="bold", no_wrap=True, overflow="ignore")
        return line.append_text(self.text(value, style, whole=True))


@dataclass(frozen=True, kw_only=True)
class _Closing:
    """See ``closing``."""

    report: Report
    files: tuple[Path, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = _Ink(options.encoding, options.ascii_only)
        yield _stage_table(self.report.stages, ink)
        yield from _notes(self.report.stages, ink)
        yield from _written(self.report, self.files, ink)
        yield from _result(self.report, ink)


@dataclass(frozen=True, kw_only=True)
class _Refusal:
    """See ``refusal``."""

    error: SparkbuildError

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = _Ink(options.encoding, options.ascii_only)
        error = self.error
        yield Text("")
        heading = ink.text(f"refused, {error.title}: ", "bold red")
        yield heading.append_text(ink.text(error.message, "bold"))
        for problem in error.problems:
            yield _item("-", ink.text(problem))
        if error.detail:
            yield Text("\n  the last lines of the log:")
            yield from _log_lines(error.detail, ink)
            yield Text("")
        for path in error.evidence:
            yield ink.labelled("evidence", str(path))
        for line in error.next_step.splitlines():
            yield ink.labelled("next step", line, "green")
        yield ink.labelled("exit code", str(error.exit_code))


def _log_lines(detail: str, ink: _Ink) -> Iterator[Text]:
    """Unfolded, because compilers point at columns and commands are there to be copied."""
    for line in visible(detail).rstrip("\n").split("\n"):
        yield Text("    ", no_wrap=True, overflow="ignore").append_text(
            ink.text(line, "dim", whole=True)
        )


def _stage_table(stages: Sequence[StageReport], ink: _Ink) -> Table:
    table = Table(box=_RULED, pad_edge=False, show_edge=False, padding=(0, 1))
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


def _notes(stages: Sequence[StageReport], ink: _Ink) -> Iterator[RenderableType]:
    noted = [(stage.name, note) for stage in stages for note in stage.notes]
    if noted:
        yield Text("")
    for name, note in noted:
        yield _item("!", ink.text(f"{name}: {note}"), "yellow")


def _written(report: Report, files: Sequence[Path], ink: _Ink) -> Iterator[RenderableType]:
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


def _result(report: Report, ink: _Ink) -> Iterator[RenderableType]:
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


def _item(mark: str, text: Text, style: str = "") -> RenderableType:
    """A list item whose further lines hang below its first."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_row(Text(f"  {mark}", style=style), text)
    return grid
