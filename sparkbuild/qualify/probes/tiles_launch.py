"""How ``mul_mat_q`` is launched, as the source's host code does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.launching import NULL, fastdiv
from sparkbuild.qualify.probes.tiles_config import TileConfig
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch

WARP: Final = 32
_BEHIND_IDS: Final = 64
"""ggml's pool gives memory in steps of 256 bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A product of ``rows`` of x with ``columns`` of y over ``depth`` elements.

    ``experts`` stand one behind the other in x, each with its ``rows``; their columns are those
    between neighbouring ``bounds``, and ``ids`` says where each column's result goes.
    """

    rows: int
    columns: int
    depth: int
    blocks: int = 0
    """CUDA blocks; 0: one for each tile."""
    bounds: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()

    @property
    def experts(self) -> int:
        """Matrices in x."""
        return max(len(self.bounds) - 1, 1)


def tile_launch(
    entry: str,
    config: TileConfig,
    shape: Shape,
    x: NDArray[np.uint8],
    y: NDArray[np.uint8],
    y_scale: NDArray[np.float32] | None = None,
) -> Launch:
    """One launch; ``y`` is (elements / block, columns, 144), the result (columns, rows) in ``dst``.

    With fewer blocks than tiles need, partial sums stay in ``fixup``, (blocks, columns, rows of a
    tile).
    """
    padded = np.concatenate([y.reshape(-1), np.zeros(config.padding, np.uint8)])
    tiles = -(-shape.rows // config.rows) * -(-shape.columns // config.columns)
    blocks = shape.blocks or tiles * shape.experts
    dst = np.full((shape.columns, shape.rows), np.nan, np.float32)
    fixup = np.full((blocks, config.columns, config.rows), np.nan, np.float32)
    per_row = shape.depth // config.kind.elements
    one = fastdiv(1)
    arguments: list[Argument] = [
        Buffer("x", x),
        Buffer("y", padded),
        Buffer("ids", _padded(shape.ids)) if shape.ids else NULL,
        Buffer("bounds", np.array(shape.bounds, np.int32)) if shape.bounds else NULL,
        Buffer("dst", dst, writable=True),
        Buffer("fixup", fixup, writable=True) if shape.blocks else NULL,
        NULL if y_scale is None else Buffer("y_scale", y_scale),
        fastdiv(per_row),
        *_ints(shape.rows, shape.columns, per_row, shape.columns, shape.rows),
        one, fastdiv(shape.experts), *_ints(shape.rows * per_row, 0, 0),
        one, one, *_ints(0, 0, 0),
        fastdiv(-(-shape.columns // config.columns)),
    ]  # fmt: skip
    block = (WARP, config.threads // WARP, 1)
    return Launch(entry, (blocks, 1, 1), block, arguments, config.shared)


def fixup_launch(
    entry: str, config: TileConfig, shape: Shape, dst: NDArray[np.float32],
    fixup: NDArray[np.float32],
) -> Launch:  # fmt: skip
    """The launch that adds the partial sums of ``fixup`` to ``dst``."""
    per_row = shape.depth // config.kind.elements
    one = fastdiv(1)
    arguments: list[Argument] = [
        NULL, NULL, Buffer("dst", dst, writable=True), Buffer("fixup", fixup),
        fastdiv(per_row), *_ints(shape.rows, shape.columns, shape.rows),
        one, *_ints(0), one, *_ints(0), fastdiv(-(-shape.columns // config.columns)),
    ]  # fmt: skip
    grid = (shape.blocks, config.rows // WARP, 1)
    return Launch(entry, grid, (WARP, config.threads // WARP // 2, 1), arguments)


def _padded(ids: tuple[int, ...]) -> NDArray[np.int32]:
    """With as many behind them as a tile may read and not use: the host's pool leaves such room."""
    return np.array([*ids, *([0] * _BEHIND_IDS)], np.int32)


def _ints(*values: int) -> list[np.int32]:
    return [np.int32(value) for value in values]
