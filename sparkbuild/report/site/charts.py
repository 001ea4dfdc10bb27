"""The charts: a figure over time with its noise band, faults by kind and stage."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sparkbuild.faults.model import STAGES, Matrix
from sparkbuild.history.model import Reading
from sparkbuild.report.site import svg
from sparkbuild.report.site.data import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCALES: Final = {"B": (1e6, "MB"), "share": (0.01, "%")}
_LOOK: Final = {"control": (svg.CONTROL, "o"), "candidate": (svg.CANDIDATE, "D")}
"""Colour and shape by role."""

_MARKS: Final = 3
"""Labels of bases above a chart; more would cover each other."""


def scaled(unit: str) -> tuple[float, str]:
    """What a value is divided by to be shown, and the unit that it then has."""
    return _SCALES.get(unit, (1.0, unit))


def over_time(series: Series, *, name: str, runs: str) -> str:
    """A figure of control and candidate by night. ``runs`` leads to the folder of run pages."""
    divisor, unit = scaled(series.unit)
    label = f"{series.name} over time, in {unit}; the table below has the numbers"
    with svg.canvas(5.0, 2.4) as drawing:
        axes = drawing.add_subplot()
        _plain(axes)
        _dated(axes)
        _bands(axes, series, divisor)
        titles = {
            **_line(axes, series.control, "control", unit, divisor, runs),
            **_line(axes, series.candidate, "candidate", unit, divisor, runs),
        }
        _bases(axes, series.control)
        axes.set_ylabel(unit)
        return svg.drawn(drawing, name=name, label=label, titles=titles)


def caught(matrix: Matrix, *, name: str) -> str:
    """How many faults of each kind were refused at which stage; missed ones stand at the right."""
    kinds = list(dict.fromkeys(one.kind for one in matrix.found))
    columns = [*STAGES, "missed", "not run"]
    counts = {(kind, column): 0 for kind in kinds for column in columns}
    for one in matrix.found:
        where = one.stage or ("not run" if one.verdict == "not run" else "missed")
        counts[one.kind, where] += 1
    most = max(counts.values(), default=0) or 1
    label = "faults by kind and by the stage that refused them; the table below has each"
    with svg.canvas(8.2, 0.8 + 0.34 * max(1, len(kinds))) as drawing:
        axes = drawing.add_subplot()
        _plain(axes)
        for (kind, stage), count in counts.items():
            _square(axes, columns.index(stage), kinds.index(kind), count, count / most, stage)
        axes.set_xlim(-0.6, len(columns) - 0.4)
        axes.set_ylim(len(kinds) - 0.4, -0.6)
        axes.set_xticks(range(len(columns)), columns, rotation=35, ha="left")
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(kinds)), kinds)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return svg.drawn(drawing, name=name, label=label, titles={})


def when(text: str) -> datetime:
    """A time of the history."""
    return datetime.fromisoformat(text)


def _points(readings: Sequence[Reading]) -> list[tuple[Reading, float]]:
    """The mean of each run's restarts, by time."""
    runs: dict[str, list[Reading]] = {}
    for one in readings:
        runs.setdefault(one.run, []).append(one)
    return [
        (group[0], statistics.fmean(one.value for one in group))
        for group in sorted(runs.values(), key=lambda group: group[0].started)
    ]


def _spans(readings: Sequence[Reading]) -> list[tuple[str, datetime, datetime]]:
    """Base, first and last time of each stretch in which the control had the same base."""
    spans: list[tuple[str, datetime, datetime]] = []
    for one in sorted(readings, key=lambda one: one.started):
        moment = when(one.started)
        if spans and spans[-1][0] == one.base:
            spans[-1] = (one.base, spans[-1][1], moment)
        else:
            spans.append((one.base, moment, moment))
    return spans


def _line(
    axes: Axes, readings: Sequence[Reading], role: str, unit: str, divisor: float, runs: str
) -> dict[str, str]:
    """A role's points, each a link to its run; gives what each link is of."""
    points = _points(readings)
    if not points:
        return {}
    times: Any = [when(reading.started) for reading, _ in points]
    values = [value / divisor for _, value in points]
    colour, marker = _LOOK[role]
    axes.plot(times, values, color=colour, linewidth=1.0, alpha=0.6, zorder=2)
    dots = axes.scatter(times, values, s=16, color=colour, marker=marker, zorder=3)
    addresses = [f"{runs}{reading.run}.html" for reading, _ in points]
    dots.set_urls(addresses)
    return {
        address: f"{reading.started[:10]} {role} {reading.base}: {value:,.4g} {unit}"
        for address, (reading, _), value in zip(addresses, points, values, strict=True)
    }


def _bands(axes: Axes, series: Series, divisor: float) -> None:
    for base, first, last in _spans(series.control):
        if (band := series.bands.get(base)) is not None:
            span: Any = [first, last]
            axes.fill_between(
                span,
                band.low / divisor,
                band.high / divisor,
                color=svg.BAND,
                linewidth=0,
                zorder=1,
            )


def _bases(axes: Axes, control: Sequence[Reading]) -> None:
    """A dotted line where the control has another base than before, the newest with their names."""
    spans = _spans(control)
    for at, (base, moment, _) in enumerate(spans):
        first: Any = moment
        if at:
            axes.axvline(first, color=svg.FAINT, linewidth=0.8, linestyle=":", zorder=0)
        if at >= len(spans) - _MARKS:
            axes.annotate(
                base, (first, 1.0), xycoords=("data", "axes fraction"), xytext=(2, 3),
                textcoords="offset points", fontsize=9.5, color=svg.FAINT,
            )  # fmt: skip


def _plain(axes: Axes) -> None:
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(svg.RULE)
    axes.tick_params(colors=svg.FAINT, length=3)
    axes.yaxis.label.set_color(svg.FAINT)


def _dated(axes: Axes) -> None:
    """A plain scale of values over one of dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415 - see svg
    from matplotlib.ticker import MaxNLocator, ScalarFormatter  # noqa: PLC0415 - see svg

    axes.grid(visible=True, axis="y", color=svg.RULE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    locator = AutoDateLocator(maxticks=5)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))  # type: ignore[no-untyped-call]


def _square(axes: Axes, column: int, row: int, count: int, part: float, stage: str) -> None:
    """A field of the table of counts, the darker the more."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - see svg

    colour = svg.RULE if not count else svg.BAD if stage == "missed" else svg.CONTROL
    depth = 0.25 if not count else 0.2 + 0.45 * part
    axes.add_patch(
        Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, color=colour, alpha=depth, linewidth=0)
    )
    if count:
        axes.text(column, row, str(count), ha="center", va="center", fontsize=10)
