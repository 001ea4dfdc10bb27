"""The machine's read-only registers: thread and block numbers, lane masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.simt.op import Values

WARP: Final = 32
_AXES: Final = "xyz"
_PROCESSORS: Final = 48
"""What ``%nsmid`` says: a GB10 has 48 multiprocessors."""

_LANE_MASKS: Final[dict[str, Callable[[NDArray[np.uint64]], NDArray[np.uint64]]]] = {
    "eq": lambda lane: np.uint64(1) << lane,
    "lt": lambda lane: (np.uint64(1) << lane) - np.uint64(1),
    "le": lambda lane: (np.uint64(2) << lane) - np.uint64(1),
    "gt": lambda lane: ~((np.uint64(2) << lane) - np.uint64(1)),
    "ge": lambda lane: ~((np.uint64(1) << lane) - np.uint64(1)),
}


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Which blocks run together: ``first`` and ``blocks`` count in the grid's linear order.

    ``width`` is the threads of a block, filled up to whole warps.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    first: int
    blocks: int
    shared: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def width(self) -> int:
        """Lanes of a block."""
        return -(-self.threads // WARP) * WARP

    @property
    def lanes(self) -> int:
        """Lanes of all blocks together."""
        return self.blocks * self.width


def special(name: str, shape: Shape) -> Values:
    """The value of a register for each lane, or one for all."""
    base, _, axis = name[1:].partition(".")
    if axis:
        return _by_axis(base, _AXES.index(axis), shape)
    lane = np.arange(shape.lanes, dtype=np.uint64) % np.uint64(WARP)
    if base.startswith("lanemask_"):
        return _LANE_MASKS[base[9:]](lane).astype(np.uint32)
    if base == "laneid":
        return lane.astype(np.uint32)
    if base == "warpid":
        warp = np.arange(shape.width, dtype=np.uint32) // np.uint32(WARP)
        return np.tile(warp, shape.blocks) if shape.width > WARP else _one(0)
    simple = {
        "nwarpid": shape.width // WARP,
        "smid": 0,
        "nsmid": _PROCESSORS,
        "gridid": 0,
        "cluster_ctarank": 0,
        "cluster_nctarank": 1,
        "dynamic_smem_size": shape.shared,
    }
    if base == "is_explicit_cluster":
        return np.zeros(1, dtype=np.bool_)
    if base not in simple:
        raise UnsupportedError(f"the register {name}")
    return _one(simple[base])


def _by_axis(base: str, axis: int, shape: Shape) -> Values:
    if base == "ntid":
        return _one(shape.block[axis])
    if base in {"nctaid", "nclusterid"}:
        return _one(shape.grid[axis])
    if base in {"cluster_ctaid", "cluster_nctaid"}:
        return _one(0 if base == "cluster_ctaid" else 1)
    if base == "tid":
        if shape.block[axis] == 1:
            return _one(0)
        return np.tile(_coordinate(np.arange(shape.width), shape.block, axis), shape.blocks)
    if base in {"ctaid", "clusterid"}:
        number = np.arange(shape.first, shape.first + shape.blocks)
        place = _coordinate(number, shape.grid, axis)
        return place[:1] if (place == place[0]).all() else np.repeat(place, shape.width)
    raise UnsupportedError(f"the register %{base}")


def _coordinate(linear: NDArray[np.int64], size: tuple[int, int, int], axis: int) -> Values:
    before = (1, size[0], size[0] * size[1])[axis]
    return (linear // before % size[axis]).astype(np.uint32)


def _one(value: int) -> Values:
    return np.array([value], dtype=np.uint32)
