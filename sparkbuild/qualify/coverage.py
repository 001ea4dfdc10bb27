"""Which device functions of the source were executed, and which not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sparkbuild.qualify.model import FileCoverage
from sparkbuild.qualify.ptx.model import Location


@dataclass(frozen=True, kw_only=True)
class DeviceFunction:
    """A function of device code in one source file; lines count from 1, ends included."""

    name: str
    first: int
    last: int


def covered(
    functions: Mapping[str, Sequence[DeviceFunction]], locations: Iterable[Location]
) -> tuple[FileCoverage, ...]:
    """For each file (by its name in ``ggml-cuda``) what was executed and what was missed.

    A function counts as executed where one of its lines was, inlined or not.
    """
    lines: dict[str, set[int]] = {}
    for location in locations:
        at: Location | None = location
        while at is not None:
            lines.setdefault(PurePosixPath(at.file).name, set()).add(at.line)
            at = at.inlined
    found = []
    for file, there in functions.items():
        seen = lines.get(file, set())
        names = {one.name for one in there if any(one.first <= n <= one.last for n in seen)}
        every = {one.name for one in there}
        found.append(
            FileCoverage(
                file=file, executed=tuple(sorted(names)), missed=tuple(sorted(every - names))
            )
        )
    return tuple(found)
