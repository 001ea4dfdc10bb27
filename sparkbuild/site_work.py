"""From a history to its site: readings, bands and judgements of every cell, then the pages."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from sparkbuild.faults.model import Matrix
from sparkbuild.history.model import Band, Judgement, Night, Reading, Run
from sparkbuild.history.noise import FEWEST, band, night_judged, noise
from sparkbuild.history.store import History
from sparkbuild.report.model import Report
from sparkbuild.report.site.data import Book, Cell, Series
from sparkbuild.report.site.write import inside, write_site

_T = TypeVar("_T")
NIGHTS = 120
"""Shown where nobody asks for another number: four months, in pages that a phone loads at once."""

Readings = dict[str, list[Reading]]


def write(history: History, folder: Path, *, last: int | None = NIGHTS) -> tuple[Book, int]:
    """Write the site of the newest ``last`` nights (None: all) to ``folder``."""
    book = gather(history, last=last)
    return book, write_site(book, folder, fewest=FEWEST)


def gather(history: History, *, last: int | None = None, now: datetime | None = None) -> Book:
    """All that the pages show."""
    nights = history.nights(last=last)
    known = {night.id for night in nights}
    begin = nights[0].started if nights and last is not None else None
    runs = [
        _within(run)
        for run in history.runs(since=begin)
        if last is None or run.night in {None, *known}
    ]
    cells = dict.fromkeys((run.what, run.variant, run.toolchain) for run in runs)
    both = {cell: _readings(history, cell) for cell in cells}
    matrix, matrix_run = _matrix(history.root, runs)
    return Book(
        root=history.root,
        made=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        nights=tuple(nights),
        runs=tuple(runs),
        troubles=tuple(history.troubles()),
        series=tuple(itertools.chain.from_iterable(
            _series(cell, control, candidate, begin) for cell, (control, candidate) in both.items()
        )),
        judgements={night.id: _judged(night, both) for night in nights},
        reports=_reports(history.root, runs),
        matrix=matrix,
        matrix_run=matrix_run,
        notes=tuple(history.notes),
    )  # fmt: skip


def _within(run: Run) -> Run:
    """The run without places that lead out of the history's folder: they are data, not ours."""
    evidence = tuple(place for place in run.evidence if inside(place))
    report = run.report if inside(run.report) else ""
    return msgspec.structs.replace(run, evidence=evidence, report=report)


def _readings(history: History, cell: Cell) -> tuple[Readings, Readings]:
    what, variant, toolchain = cell
    control = history.readings(what=what, role="control", variant=variant, toolchain=toolchain)
    candidate = history.readings(what=what, role="candidate", variant=variant, toolchain=toolchain)
    return control, candidate


def _series(cell: Cell, control: Readings, candidate: Readings, begin: str | None) -> list[Series]:
    made = []
    for name in dict.fromkeys((*control, *candidate)):
        ours, theirs = control.get(name, []), candidate.get(name, [])
        made.append(
            Series(
                cell=cell,
                name=name,
                unit=(ours or theirs)[0].unit,
                control=_since(ours, begin),
                candidate=_since(theirs, begin),
                bands=_bands(ours),
            )
        )
    return made


def _since(readings: Sequence[Reading], begin: str | None) -> tuple[Reading, ...]:
    return tuple(one for one in readings if begin is None or one.started >= begin)


def _bands(control: Sequence[Reading]) -> dict[str, Band]:
    """By base, of all its nights: the page looks back."""
    found = {}
    for base in dict.fromkeys(one.base for one in control):
        if (known := noise([one for one in control if one.base == base])) is not None:
            found[base] = band(known)
    return found


def _judged(
    night: Night, both: Mapping[Cell, tuple[Readings, Readings]]
) -> tuple[tuple[Cell, Judgement], ...]:
    return tuple(
        (cell, one)
        for cell, (control, candidate) in both.items()
        for one in night_judged(candidate, control, night.id)
    )


def _reports(root: Path, runs: Sequence[Run]) -> dict[str, Report]:
    """Reports of make that can be read; a run's page does without."""
    found = {}
    for run in runs:
        if run.what == "make" and run.report:
            report = _read(root, run.report, Report)
            if report is not None:
                found[run.id] = report
    return found


def _matrix(root: Path, runs: Sequence[Run]) -> tuple[Matrix | None, str]:
    """The newest fault matrix that can be read, and its run."""
    for run in reversed(runs):
        if run.what == "faults" and run.report:
            matrix = _read(root, run.report, Matrix)
            if matrix is not None:
                return matrix, run.id
    return None, ""


def _read(root: Path, place: str, kind: type[_T]) -> _T | None:
    file = (root / place).resolve()
    if not file.is_relative_to(root.resolve()):
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
