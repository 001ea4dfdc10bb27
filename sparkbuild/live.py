"""What a person sees while stages run: a line for each that ended, a bar for the one that runs."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from sparkbuild.report.model import StageReport
from sparkbuild.report.text import visible
from sparkbuild.stages import STAGES

_QUIET_INTERVAL: Final = 30.0
"""Seconds between progress lines where the output is not a terminal, so that a log stays short."""


_BYTES_FROM: Final = 100_000
"""No build has as many steps; a total above it counts bytes."""

_STYLES: Final = {"done": "green", "reused": "cyan", "failed": "bold red", "not tried": "yellow"}


class Live:
    """An ``Observer`` on a terminal, or on a pipe: then plain lines and now and then a count."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._task: TaskID | None = None
        self._printed = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[now]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def started(self, stage: str) -> None:
        """Show the stage with a spinner."""
        if self._task is None:
            self._printed = time.monotonic()
        else:  # what runs has changed before anything ended
            self._progress.remove_task(self._task)
        self._stage = stage
        self._task = self._progress.add_task(_heading(stage), total=None, count="", now="")

    def progress(self, done: int, total: int, text: str) -> None:
        """Move the bar; on a pipe print a line every half minute."""
        if self._task is not None:
            name = escape(visible(text)[-48:])
            self._progress.update(
                self._task,
                completed=done,
                total=total or None,
                count=counted(done, total),
                now=name,
            )
        now = time.monotonic()
        if not self._console.is_terminal and now - self._printed > _QUIET_INTERVAL:
            self._printed = now
            self._console.print(
                f"  {_heading(self._stage)} {counted(done, total)} {escape(visible(text))}"
            )

    def note(self, text: str) -> None:
        """Print a warning above the bar."""
        self._console.print(f"  [yellow]![/] {escape(visible(text))}", highlight=False)

    def finished(self, report: StageReport) -> None:
        """Replace the bar by the stage's closing line."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._progress.refresh()
            self._task = None
        style = _STYLES.get(report.state, "dim")
        taken = f"{report.seconds:.1f} s" if report.state in {"done", "failed"} else ""
        self._console.print(
            f"{_heading(report.name)} [{style}]{report.state:<14}[/] {taken:>8}  "
            f"{escape(visible(report.summary))}",
            highlight=False,
            soft_wrap=True,
        )


def counted(done: int, total: int) -> str:
    """``12/220`` steps, ``1.5/37.4 MB`` of a download, nothing where the end is not known."""
    if not total:
        return ""
    if total >= _BYTES_FROM:
        return f"{done / 1e6:.1f}/{total / 1e6:.1f} MB"
    return f"{done}/{total}"


def _heading(stage: str) -> str:
    if stage not in STAGES:  # a command of its own, not a stage of make
        return stage
    return f"{STAGES.index(stage) + 1}/{len(STAGES)} {stage:<9}"
