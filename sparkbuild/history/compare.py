"""Two runs or two nights side by side, figure by figure, with the noise of the control."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from sparkbuild.history.model import Figure, Reading, Role, Row, Run, What
from sparkbuild.history.noise import difference

Cell = tuple[What, Role, str, str]
"""What, role, variant, toolchain."""


def compared(
    first: Sequence[Run],
    second: Sequence[Run],
    history: Callable[[What, str, str], dict[str, list[Reading]]],
) -> list[Row]:
    """Rows by cell and figure. ``history`` gives the control's readings of a cell.

    Where each side is one run of the same kind, they are compared whatever their roles, variants
    and toolchains are; otherwise cell by cell.
    """
    if len(first) == len(second) == 1 and first[0].what == second[0].what:
        pairs = [(list(first), list(second))]
    else:
        ours, theirs = _cells(first), _cells(second)
        pairs = [(ours.get(cell, []), theirs.get(cell, [])) for cell in sorted({*ours, *theirs})]
    return [row for one, other in pairs for row in _rows(one, other, history)]


def _cells(runs: Sequence[Run]) -> dict[Cell, list[Run]]:
    found: dict[Cell, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.what, run.role, run.variant, run.toolchain].append(run)
    return found


def _rows(
    first: list[Run],
    second: list[Run],
    history: Callable[[What, str, str], dict[str, list[Reading]]],
) -> list[Row]:
    one = (second or first)[0]
    seen = {run.id for run in (*first, *second)}
    past = history(one.what, one.variant, one.toolchain)
    roles = list(dict.fromkeys(run.role for run in (*first[:1], *second[:1])))
    ours, theirs = _figures(first), _figures(second)
    rows = []
    for name in dict.fromkeys((*ours, *theirs)):
        noise = [
            reading
            for reading in past.get(name, ())
            if reading.run not in seen and reading.base == (first or second)[0].base
        ]
        both = name in ours and name in theirs
        found = difference(theirs[name], ours[name], noise) if both else None
        rows.append(
            Row(
                what=one.what,
                variant=one.variant,
                toolchain=one.toolchain,
                role=" / ".join(roles),
                name=name,
                unit=(theirs.get(name) or ours[name])[0].unit,
                first=_mean(ours.get(name)),
                second=_mean(theirs.get(name)),
                difference=found,
            )
        )
    return rows


def _figures(runs: Sequence[Run]) -> dict[str, list[Reading]]:
    found: dict[str, list[Reading]] = defaultdict(list)
    for run in runs:
        for one in run.figures:
            found[one.name].append(reading(one, run))
    return found


def reading(one: Figure, run: Run) -> Reading:
    """A figure with the run that it is of."""
    return Reading(
        name=one.name,
        value=one.value,
        unit=one.unit,
        more_is=one.more_is,
        restart=one.restart,
        run=run.id,
        night=run.night,
        started=run.started,
        base=run.base,
    )


def _mean(figures: Sequence[Reading] | None) -> float | None:
    return sum(one.value for one in figures) / len(figures) if figures else None
