"""Figures over time: the headline ones of every cell on a page, all of a cell on its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sparkbuild.report.site import charts
from sparkbuild.report.site.data import Book, Cell, Series
from sparkbuild.report.site.shared import common
from sparkbuild.report.site.words import page, raw

_FEWEST: Final = 2
"""Runs with a figure from which on a chart says more than its value."""

_HEADLINE: Final = (
    r"build\.seconds", r"smoke\.seconds", r"wheel\.bytes", r"speed\..+",
    r"drafts\.[^.]+\.depth\d+", r"questions\.seconds",
)  # fmt: skip
"""What a visitor looks for first, in this order: time, size, speed, acceptance."""

_ROWS: Final = 40
"""Values in the table below a chart, the newest; ``history export`` gives all."""


def figure_pages(book: Book, fewest: int) -> Iterator[tuple[str, str]]:
    """``trends.html``, and a page for each cell. ``fewest``: nights from which on bands are."""
    cells: dict[Cell, list[Series]] = {}
    for one in book.series:
        if len({reading.run for reading in (*one.control, *one.candidate)}) >= _FEWEST:
            cells.setdefault(one.cell, []).append(one)
    shown = []
    for at, (cell, found) in enumerate(cells.items()):
        place, title = f"figures/{at + 1}.html", " ".join(part for part in cell if part)
        ordered = sorted(found, key=lambda one: (_rank(one.name), one.name))
        headline = [one for one in ordered if _rank(one.name) < len(_HEADLINE)] or ordered
        shown.append(
            {"title": title, "more": place, "count": len(found),
             "charts": _charts(headline, f"h{at}", "runs/")}
        )  # fmt: skip
        group = {"title": title, "more": "", "count": len(found),
                 "charts": _charts(ordered, f"c{at}", "../runs/")}  # fmt: skip
        yield place, _page(book, place, [group], fewest)
    yield "trends.html", _page(book, "trends.html", shown, fewest)


def _page(book: Book, place: str, groups: Sequence[dict[str, Any]], fewest: int) -> str:
    given = {**common(book, place), "groups": groups, "fewest": fewest, "rows": _ROWS}
    return page("trends.html", given)


def _rank(name: str) -> int:
    return next(
        (at for at, pattern in enumerate(_HEADLINE) if re.fullmatch(pattern, name)),
        len(_HEADLINE),
    )


def _charts(found: Sequence[Series], name: str, runs: str) -> list[dict[str, Any]]:
    return [_chart(one, f"{name}-{at}", runs) for at, one in enumerate(found)]


def _chart(one: Series, name: str, runs: str) -> dict[str, Any]:
    both = ((one.control, "control"), (one.candidate, "candidate"))
    rows = [
        {"run": reading.run, "started": reading.started, "base": reading.base, "role": role,
         "value": reading.value, "unit": reading.unit}
        for readings, role in both
        for reading in readings
    ]  # fmt: skip
    rows.sort(key=lambda row: str(row["started"]), reverse=True)
    chart = charts.over_time(one, name=name, runs=runs)
    return {"name": one.name, "chart": raw(chart), "rows": rows[:_ROWS], "count": len(rows)}
