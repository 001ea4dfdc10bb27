"""What a person reads about a machine: what it can do, every check, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.doctor.model import Ability, Diagnosis, Finding
from sparkbuild.model.finding import State
from sparkbuild.report.findings import reasons
from sparkbuild.report.ink import RULED, Ink, item

_LOOK: Final[dict[State, tuple[str, str, str]]] = {
    "ok": ("✓", "+", "green"),
    "note": ("·", ".", "cyan"),
    "warning": ("!", "!", "yellow"),
    "fault": ("✗", "x", "bold red"),
}
"""State to symbol, symbol in ASCII, and style, as in other tables of findings."""
_WIDE: Final = 110
"""Columns from which both texts have room for a path on a line."""

_NAMES: Final[dict[Ability, str]] = {
    "build-cpu": "build for the CPU",
    "build-cuda": "build for CUDA",
    "verify-cpu": "verify a CPU build",
    "verify-cuda": "verify a CUDA build",
    "serve-cpu": "serve from the CPU",
    "serve-cuda": "serve from the GPU",
}


def diagnosis_view(found: Diagnosis) -> RenderableType:
    """The verdict in the first line, then the machine, all findings, and their reasons."""
    return _View(found=found)


@dataclass(frozen=True, kw_only=True)
class _View:
    """See ``diagnosis_view``."""

    found: Diagnosis

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink, found = Ink(options.encoding, options.ascii_only), self.found
        yield ink.text(found.verdict, "bold red" if found.count("fault") else "bold green")
        yield from _lacking(found, ink)
        yield ink.line(found.name)
        if found.origin != "read":
            yield ink.line(f"as captured: {found.origin}", "dim")
        yield Text("")
        yield _table(found.findings, ink, options.max_width)
        yield Text("")
        yield from reasons(found.findings, ink)
        yield Text("")
        yield _result(found, ink)


def _table(findings: Sequence[Finding], ink: Ink, width: int) -> Table:
    """A row a check; what was expected stands beside it on a wide screen, and below a narrow one.

    Paths are long words: they fold, since the columns that cut none would be one below the other.
    """
    wide = width >= _WIDE
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    names = ("state", "check", "expected", "found") if wide else ("state", "check", "found")
    for name in names:
        share = {"expected": 2, "found": 3}.get(name)
        table.add_column(name, no_wrap=share is None, ratio=share, overflow="fold")
    table.expand = wide
    for one in findings:
        found = ink.line(one.found)
        if not wide and one.state in {"warning", "fault"}:
            found = Text.assemble(found, ink.line(f"; expected: {one.expected}", "dim"))
        middle = [ink.line(one.expected, "dim")] if wide else []
        table.add_row(_word(one.state, ink), ink.text(one.name, "bold"), *middle, found)
    return table


def _word(state: State, ink: Ink) -> Text:
    symbol, plain, style = _LOOK[state]
    return Text(f"{plain if ink.ascii_only else symbol} {state}", style=style)


def _lacking(found: Diagnosis, ink: Ink) -> Iterator[RenderableType]:
    """For each ability that is not there, the findings because of which it is not."""
    because: dict[tuple[str, ...], list[str]] = {}
    for ability, name in _NAMES.items():
        blockers = tuple(found.blockers(ability))
        if blockers:
            because.setdefault(blockers, []).append(name)
    for blockers, names in because.items():
        text = ink.headed(f"cannot {', '.join(names)}: ", ", ".join(blockers))
        yield item("!", text, "yellow")


def _result(found: Diagnosis, ink: Ink) -> Text:
    faults = [one.name for one in found.findings if one.state == "fault"]
    count = found.count("warning")
    warned = f"{count or 'no'} warning{'' if count == 1 else 's'}"
    if not faults:
        return Text.assemble(ink.text("no fault", "bold green"), f", {warned}")
    number = f"{len(faults)} fault{'' if len(faults) == 1 else 's'}"
    told = f": {', '.join(faults)}; {warned}; exit code {found.exit_code}"
    return Text.assemble(ink.text(number, "bold red"), ink.text(told))
