"""Device memory: regions in one 64-bit address space, each with its exact bounds.

Every buffer and variable is a region of its own, far from its neighbours, so that an address
computed wrong meets nothing. Shared variables exist once a block, local ones and the parameters of
calls once a lane: their bytes lie instance after instance in one array. Addresses of shared and
local space are small numbers, to which ``cvta`` adds the base of a window.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.ptx.model import Space

GLOBAL_BASE: Final = 0x7F00_0000_0000
GLOBAL_STEP: Final = 1 << 32
"""Between two regions: no offset of 32 bits leads from one to another."""

WINDOWS: Final = {"shared": 0x7E00_0000_0000, "local": 0x7D00_0000_0000}
"""Where the generic addresses of a block's shared and a lane's local memory begin."""
WINDOW_SIZE: Final = 1 << 32
SMALL_STEP: Final = 1 << 20
"""Between two regions of a window; more than any block's shared memory."""

POISON: Final = 0xFFF5
"""Repeated, what undefined memory holds: no number in f16, bf16, f32 and f64."""

_PAD: Final = 64
"""Bytes that an instance is rounded up to, for views of any element."""

_FIRST: Final = np.zeros(1, dtype=np.int64)

Bytes = NDArray[np.uint8]


class Region:
    """A buffer or a variable: ``size`` bytes from ``base`` on.

    ``per`` says what has an instance of its own; ``instances`` numbers the one that each lane sees,
    None where there is but one.
    """

    __slots__ = (
        "base",
        "instances",
        "name",
        "per",
        "raw",
        "rows",
        "size",
        "space",
        "steps",
        "stride",
        "writable",
    )

    def __init__(self, name: str, space: Space, base: int, size: int, *, writable: bool) -> None:
        self.name = name
        self.space = space
        self.base = base
        self.size = size
        self.writable = writable
        self.per: Literal["launch", "block", "lane"] = "launch"
        self.stride = -(-max(size, 1) // _PAD) * _PAD
        self.instances: NDArray[np.int64] | None = None
        self.raw: Bytes = np.zeros(0, dtype=np.uint8)
        self.rows: dict[tuple[int, int], NDArray[Any]] = {}
        self.steps: dict[int, NDArray[np.int64]] = {}

    def fill(self, data: bytes | NDArray[np.uint8]) -> None:
        """Give it content: ``data``, then zeros."""
        self.raw = np.zeros(self.stride, dtype=np.uint8)
        self.raw[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        self.rows = {}

    def poison(self, count: int, instances: NDArray[np.int64]) -> None:
        """Make ``count`` undefined instances; ``instances`` tells each lane's."""
        words = np.full(self.stride // 2 * count, POISON, dtype="<u2")
        self.raw = words.view(np.uint8)
        self.instances = instances if count > 1 else None
        self.rows = {}
        self.steps = {}

    def view(self, size: int, count: int) -> NDArray[Any]:
        """All instances as elements of ``size`` bytes, in rows of ``count`` where that is not 1."""
        view = self.rows.get((size, count))
        if view is None:
            view = self.raw.view(f"<u{size}")
            view = view.reshape(-1, count) if count > 1 else view
            self.rows[size, count] = view
        return view

    def first(self, shift: int) -> NDArray[np.int64]:
        """Where each lane's instance begins, in elements of ``1 << shift`` bytes."""
        steps = self.steps.get(shift)
        if steps is None:
            lanes = self.instances if self.instances is not None else _FIRST
            steps = lanes * (self.stride >> shift)
            self.steps[shift] = steps
        return steps


class Memory:
    """All regions; those of shared and local memory also under their generic addresses."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self._sorted: dict[str, list[tuple[int, int]]] = {"flat": [], "shared": [], "local": []}
        self._count: dict[str, int] = {}

    def add(self, name: str, space: Space, size: int, *, writable: bool = True) -> Region:
        """Make a region with an address of its own."""
        group = _group(space)
        number = self._count.get(group, 0)
        self._count[group] = number + 1
        flat = group == "flat"
        base = GLOBAL_BASE + number * GLOBAL_STEP if flat else (number + 1) * SMALL_STEP
        region = Region(name, space, base, size, writable=writable)
        insort(self._sorted[group], (base, len(self.regions)))
        if not flat:
            insort(self._sorted["flat"], (WINDOWS[group] + base, len(self.regions)))
        self.regions.append(region)
        return region

    def at(self, space: str, address: int) -> Region | None:
        """The last region of that space that begins at or before the address.

        ``space`` is ``generic`` or that of the instruction.
        """
        known = self._sorted[_group(space)]
        at = bisect_right(known, (address, len(self.regions)))
        return self.regions[known[at - 1][1]] if at else None

    def nearest(self, space: str, address: int) -> Region | None:
        """The region that the instruction may reach and that begins or ends next to the address."""
        found, least = None, WINDOW_SIZE
        for base, number in self._sorted[_group(space)]:
            region = self.regions[number]
            distance = max(base - address, address - base - region.size, 0)
            if distance < least and allowed(region, space):
                found, least = region, distance
        return found


def _group(space: str) -> str:
    return space if space in WINDOWS else "flat"


def allowed(region: Region, space: str) -> bool:
    """Whether an instruction of that space may reach the region."""
    return space in {"generic", region.space}
