"""What a person reads of findings: every check in a table, then why and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparkbuild.model.finding import NOT_ASKED, Finding, State
from sparkbuild.report.ink import RULED, Ink, item

_LOOK: Final[dict[State, tuple[str, str, str]]] = {
    "ok": ("✓", "+", "green"),
    "note": ("·", ".", "cyan"),
    "warning": ("!", "!", "yellow"),
    "fault": ("✗", "x", "bold red"),
}
"""State to symbol, symbol where the terminal has only ASCII, and style."""
_Layout = tuple[tuple[str, ...], ...]
_LAYOUTS: Final[tuple[_Layout, ...]] = (
    (("state",), ("check",), ("expected",), ("found",)),
    (("state",), ("check",), ("expected", "found")),
    (("state", "check"), ("expected", "found")),
    (("state", "check", "expected", "found"),),
)
"""Columns side by side, and what stands in each, one below the other: the widest first."""
_Rows = Sequence[dict[str, Text]]
_FOLDS: Final = {"expected", "found"}
_LABEL: Final = max(map(len, _FOLDS)) + 1
_GAP: Final = 3
"""Characters between two columns."""


def findings_table(findings: Iterable[Finding], ink: Ink, width: int) -> Table:
    """Every check that looked at something, in the widest layout that cuts no word."""
    rows = [
        {
            "state": _word(one.state, ink),
            "check": ink.text(one.name, "bold"),
            "expected": ink.line(one.expected, "dim"),
            "found": ink.line(one.found),
        }
        for one in findings
        if one.expected != NOT_ASKED
    ]
    layout = next((one for one in _LAYOUTS if _fits(rows, one, width)), _LAYOUTS[-1])
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    for names, wide in zip(layout, _widths(rows, layout, width), strict=True):
        table.add_column(_heading(names), width=wide, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row, names) for names in layout))
    return table


def reasons(findings: Sequence[Finding], ink: Ink) -> Iterator[RenderableType]:
    """Why each warning and fault matters and what to do, notes by reason, what nobody asked."""
    for one in findings:
        if one.state in {"warning", "fault"}:
            text = ink.headed(f"{one.name}: ", one.reason or one.found)
            yield item(_symbol(one.state, ink), text, _LOOK[one.state][2])
            if one.next_step:
                yield item(" ", ink.headed("next step: ", one.next_step, "green"))
    notes: dict[str, list[str]] = {}
    for one in findings:
        if one.state == "note":
            notes.setdefault(one.reason, []).append(one.name)
    for reason, names in notes.items():
        yield item(_symbol("note", ink), ink.text(f"{', '.join(names)}: {reason}"), "cyan")
    idle = [one.name for one in findings if one.expected == NOT_ASKED]
    if idle:
        yield item(_symbol("note", ink), ink.text(f"not asked: {', '.join(idle)}"), "dim")


def _symbol(state: State, ink: Ink) -> str:
    symbol, plain, _ = _LOOK[state]
    return plain if ink.ascii_only else symbol


def _word(state: State, ink: Ink) -> Text:
    return Text(f"{_symbol(state, ink)} {state}", style=_LOOK[state][2])


def _fits(rows: _Rows, layout: _Layout, width: int) -> bool:
    return sum(_least(rows, layout)) <= width - _GAP * (len(layout) - 1)


def _widths(rows: _Rows, layout: _Layout, width: int) -> list[int]:
    """What each column gets: its whole texts, or its longest word and a share of what is left."""
    least = _least(rows, layout)
    wishes = [max(0, _most(rows, names) - few) for names, few in zip(layout, least, strict=True)]
    spare = max(0, width - _GAP * (len(layout) - 1) - sum(least))
    part = min(1.0, spare / (sum(wishes) or 1))
    return [min(width, few + int(part * wish)) for few, wish in zip(least, wishes, strict=True)]


def _least(rows: _Rows, layout: _Layout) -> list[int]:
    """Characters that each column needs so that no word of it is cut, nor its heading."""
    return [
        max(
            len(_heading(names)),
            *(
                _label(name, names) + cell_len(word)
                for row in rows
                for name in names
                for word in _words(name, row[name].plain)
            ),
        )
        for names in layout
    ]


def _heading(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _most(rows: _Rows, names: tuple[str, ...]) -> int:
    return max(_label(name, names) + row[name].cell_len for row in rows for name in names)


def _words(name: str, text: str) -> list[str]:
    return text.split() if name in _FOLDS else [text]


def _label(name: str, names: tuple[str, ...]) -> int:
    return _LABEL if name in _FOLDS and len(names) > 1 else 0


def _cell(row: dict[str, Text], names: tuple[str, ...]) -> RenderableType:
    """What stands in one cell; texts that fold are labelled where there are several."""
    if len(names) == 1:
        return row[names[0]]
    return Group(*(_labelled(name, row[name]) if name in _FOLDS else row[name] for name in names))


def _labelled(name: str, text: Text) -> Table:
    grid = Table.grid()
    grid.add_column(no_wrap=True, width=_LABEL)
    grid.add_column(overflow="fold")
    grid.add_row(Text(name, style="dim"), text)
    return grid
