"""What a person reads about kept runs and nights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.history.model import Band, Night, Row, Run
from sparkbuild.report.canaries import plain_table
from sparkbuild.report.ink import RULED, Ink, item

_SHOWN: Final = 300
"""Characters of a message in a list; ``show`` has all of it."""
_WELL: Final = frozenset({"", "passed", "green", "running"})


def runs_view(runs: Sequence[Run]) -> RenderableType:
    """Each run: its id whole, to be copied, and below it what it was and what it came to."""
    entries = []
    for run in runs:
        what = " ".join(part for part in (run.role, run.what, run.variant, run.toolchain) if part)
        base = f", base {run.base}" if run.base else ""
        below = [f"{run.state}, {what}{base}, {run.seconds:.0f} s"]
        entries.append((run.id, run.state, (*below, *([_failure(run)] if _failure(run) else []))))
    return _Entries(tuple(entries), "no such run")


def nights_view(nights: Sequence[Night]) -> RenderableType:
    """Each night, and below it whom it blames and why."""
    entries = []
    for one in nights:
        newer = f", candidate {one.candidate}" if one.candidate else ""
        blame = f", blame {one.blame}" if one.state == "red" else ""
        below = (
            f"{one.state}{blame}, base {one.base}{newer}",
            *([one.reason] if one.reason else []),
        )
        entries.append((one.id, one.state, below))
    return _Entries(tuple(entries), "no night")


def night_view(night: Night, runs: Sequence[Run]) -> RenderableType:
    """A night, its notes and its runs."""
    facts = [
        ("night", night.id),
        ("state", night.state),
        ("blame", night.blame),
        ("reason", night.reason),
        ("from, to", f"{night.started}, {night.ended or 'not ended'}"),
        ("base", night.base),
        ("candidate", night.candidate or "none"),
        *(("published", one) for one in night.published),
        *(("note", one) for one in night.notes),
    ]
    return Group(_Facts(tuple(facts)), Text(""), runs_view(runs))


def run_view(run: Run, bands: Mapping[str, Band], root: Path) -> RenderableType:
    """A run, its figures with where the control's next one is expected, its evidence."""
    facts = [
        ("run", run.id),
        ("night", run.night or "none"),
        ("what", f"{run.what}, {run.role}"),
        ("variant", f"{run.variant} {run.toolchain}".strip()),
        ("base", f"{run.base}, source {run.source[:12]}, build key {run.key[:12]}"),
        ("started", f"{run.started}, {run.seconds:.1f} s"),
        ("state", run.state if run.exit_code is None else f"{run.state}, exit {run.exit_code}"),
        *([("failure", _failure(run, None))] if _failure(run, None) else []),
        *([("report", str(root / run.report))] if run.report else []),
        *(("evidence", str(root / one)) for one in run.evidence),
    ]
    rows = [
        (one.name, one.restart, f"{_value(one.value)} {one.unit}", *_band(bands.get(one.name)))
        for one in run.figures
    ]
    shown: list[RenderableType] = [_Facts(tuple(facts))]
    if rows:
        heads = ("figure", "restart", "value", "n", "control's band")
        shown += [Text(""), plain_table(heads, rows)]
    return Group(*shown)


def compared_view(first: str, second: str, rows: Sequence[Row]) -> RenderableType:
    """Both sides, the difference, what noise explains, what follows; a table for each cell."""
    shown: list[RenderableType] = [_Facts((("first", first), ("second", second)))]
    cells: dict[str, list[Row]] = {}
    for row in rows:
        title = " ".join(part for part in (row.what, row.variant, row.toolchain, row.role) if part)
        cells.setdefault(title, []).append(row)
    for title, found in cells.items():
        shown += [Text(""), _Entries(((title, "", ()),), ""), _Compared(tuple(found))]
    return Group(*shown) if rows else Text("neither has figures")


@dataclass(frozen=True)
class _Compared:
    """Figures of a cell. What a figure is called may fold, numbers never do."""

    rows: tuple[Row, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
        table.add_column("figure", overflow="fold", min_width=16)
        for name in ("first", "second", "change", "noise", "n"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("so it is", overflow="fold", min_width=10)
        for row in self.rows:
            found = row.difference
            margin = found.margin if found else None
            cells = (
                row.name,
                _value(row.first),
                f"{_value(row.second)} {row.unit}",
                f"{found.share:+.1%}" if found and found.share is not None else "-",
                f"{'+-' if options.ascii_only else '±'}{margin:.2g}" if margin is not None else "-",
                str(found.n) if found else "-",
                found.state if found else "of one side alone",
            )
            table.add_row(*(ink.text(cell) for cell in cells))
        yield table


@dataclass(frozen=True)
class _Entries:
    """Names that stay whole, each with lines that hang below it."""

    entries: tuple[tuple[str, str, tuple[str, ...]], ...]
    nothing: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        if not self.entries:
            yield Text(self.nothing)
        for name, state, below in self.entries:
            style = "bold red" if state not in _WELL else "bold"
            yield ink.text(name, style, whole=True)
            for line in below:
                yield item(" ", ink.line(line))


@dataclass(frozen=True)
class _Facts:
    """Labels and values; paths stay whole."""

    rows: tuple[tuple[str, str], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        for label, value in self.rows:
            yield ink.labelled(label, value.replace("\n", "; "))


def _failure(run: Run, shown: int | None = _SHOWN) -> str:
    where = ", ".join(part for part in (run.stage, run.check) if part)
    message = run.message.replace("\n", "; ")[:shown]
    return ": ".join(part for part in (where, message) if part)


def _band(found: Band | None) -> tuple[str, str]:
    if found is None:
        return "", "too few nights to tell"
    return str(found.n), f"{_value(found.low)} to {_value(found.high)}"


def _value(value: float | None) -> str:
    """Four digits, or all of those before the point."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
