"""What an audit keeps of each perturbation, one line of JSON each, so that it can go on later."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from sparkbuild.canary.gguf.spoil import Kind
from sparkbuild.canary.model import CanaryReport
from sparkbuild.canary.suite import REFERENCES

Role = Literal["model", "vision"]
CHANGED: Final = 1e-10
"""What an NMSE moves from the healthy files' own where a function counts as changed. Keys that are
normalised right after they were scaled moved it by 1e-12: other roundings. It only matters where a
reason says that nothing is altered."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One perturbation and what the suite made of it.

    ``nmse`` is by reference, None where the server gave no whole numbers; ``failed`` names the
    groups that were not well, ``missed`` the share of wrong items in each group.
    """

    key: str
    role: Role
    target: str
    kind: Kind
    detail: str
    drafts: bool = False
    """Whether it is of the draft block, which only drafts can show."""
    refused: str = ""
    """Why the server did not come up, where it did not."""
    nmse: dict[str, float | None] = msgspec.field(default_factory=dict)
    moved: float | None = None
    """The greatest difference of an NMSE from that of the healthy files; None where unknown."""
    failed: tuple[str, ...] = ()
    missed: dict[str, float] = msgspec.field(default_factory=dict)
    seconds: float = 0.0

    @property
    def worst(self) -> float:
        """The greatest NMSE; infinite where numbers are missing, 0 where none was asked for."""
        return max((math.inf if v is None else v for v in self.nmse.values()), default=0.0)

    @property
    def median(self) -> float:
        """The middle NMSE."""
        values = sorted(math.inf if v is None else v for v in self.nmse.values())
        return values[len(values) // 2] if values else 0.0

    @property
    def changed(self) -> bool:
        """Whether anything that was asked had another answer than before."""
        moved = math.inf if self.moved is None else self.moved
        return bool(self.refused) or moved > CHANGED or any(self.missed.values())

    @property
    def noticed(self) -> bool:
        """Whether a check failed, or nothing came up at all."""
        return bool(self.refused or self.failed)


def read(path: Path) -> dict[str, Probe]:
    """What an earlier audit kept, by key; a line that was cut off is left out."""
    found = {}
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    for line in lines:
        try:
            probe = msgspec.json.decode(line, type=Probe)
        except msgspec.DecodeError:
            continue
        found[probe.key] = probe
    return found


def append(path: Path, probe: Probe) -> None:
    """Keep one more; on a line of its own even where the last one was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0, 2)
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(msgspec.json.encode(probe) + b"\n")


def judged(
    report: CanaryReport,
) -> tuple[dict[str, float | None], tuple[str, ...], dict[str, float]]:
    """Of a report: NMSE by reference, the groups that failed, the share of misses by group."""
    nmse = {
        item.name: item.nmse
        for item in report.items
        if item.group == REFERENCES and not item.name.startswith("median ")
    }
    failed = tuple(group.name for group in report.groups if not group.passed)
    missed = {
        group.name: 1 - group.right / group.of
        for group in report.groups
        if group.of and group.name != REFERENCES
    }
    return nmse, failed, missed


def moved(found: Mapping[str, float | None], healthy: Mapping[str, float | None]) -> float | None:
    """The greatest difference between two sets of numbers; None where some are missing."""
    pairs = [(value, healthy.get(name)) for name, value in found.items()]
    whole = [(a, b) for a, b in pairs if a is not None and b is not None]
    return max((abs(a - b) for a, b in whole), default=0.0) if len(whole) == len(pairs) else None


def unfinished(probes: Iterable[Probe], known: dict[str, Probe]) -> list[Probe]:
    """Those that are not known yet, in order."""
    return [probe for probe in probes if probe.key not in known]
