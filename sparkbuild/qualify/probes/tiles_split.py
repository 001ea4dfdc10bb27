"""One tile whose inner dimension two CUDA blocks share: both of the kernel's ways to end a tile.

The first block stops early and leaves its sums in ``fixup``; the second goes twice round its loop
and writes the result. The kernel holds the loader and the dot product once for each of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import Bounded, expected
from sparkbuild.qualify.probes.model import Case
from sparkbuild.qualify.probes.tiles_config import TileConfig
from sparkbuild.qualify.probes.tiles_launch import Shape, tile_launch

BLOCKS: Final = 2
ROUNDS: Final = 3
"""Rounds of the loop over the inner dimension, of which the first block takes one: a half of three,
down to whole ones."""

Values = Callable[[int, int], Bounded]
"""The product of the elements from one number to another, (columns, rows)."""


def split_depth(config: TileConfig) -> int:
    """Elements of a row."""
    return ROUNDS * config.depth


def split_case(
    entry: str,
    config: TileConfig,
    x: NDArray[np.uint8],
    y: NDArray[np.uint8],
    values: Values,
    *,
    why: str,
    y_scale: NDArray[np.float32] | None = None,
) -> Case:
    """The launch, and what is right in ``dst`` and in the first block's part of ``fixup``."""
    depth = split_depth(config)
    shape = Shape(config.rows, config.columns, depth, blocks=BLOCKS)
    launch = tile_launch(entry, config, shape, x, y, y_scale)
    first = values(0, config.depth)
    left = first.map(lambda some: np.stack([some, np.zeros_like(some)]))
    defined = np.zeros(left.value.shape, bool)
    defined[0] = True
    right = {
        "dst": expected(values(config.depth, depth), why),
        "fixup": expected(left, why, defined=defined),
    }
    return Case(f"{shape.rows} x {shape.columns} x {depth}", launch, right)
