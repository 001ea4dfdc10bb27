"""What the pages are made of: all that the history knows, in the form that a page needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparkbuild.faults.model import Matrix
from sparkbuild.history.model import Band, Judgement, Night, Reading, Run, Trouble, What
from sparkbuild.report.model import Report

Cell = tuple[What, str, str]
"""What, variant, toolchain."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A figure over time: the control's readings and the candidate's, the band for each base."""

    cell: Cell
    name: str
    unit: str
    control: tuple[Reading, ...]
    candidate: tuple[Reading, ...]
    bands: Mapping[str, Band] = field(default_factory=dict)
    """By the control's base; none where there are too few nights to tell."""


@dataclass(frozen=True, kw_only=True)
class Book:
    """A history, ready to be written. Times are UTC in ISO 8601; lists are oldest first."""

    root: Path
    """The history's folder, where reports and evidence are copied from."""
    made: str
    nights: tuple[Night, ...]
    runs: tuple[Run, ...]
    troubles: tuple[Trouble, ...]
    series: tuple[Series, ...]
    judgements: Mapping[str, tuple[tuple[Cell, Judgement], ...]]
    """By night, each with the cell that it is of."""
    reports: Mapping[str, Report]
    """Of make, by run."""
    matrix: Matrix | None = None
    matrix_run: str = ""
    notes: tuple[str, ...] = ()
