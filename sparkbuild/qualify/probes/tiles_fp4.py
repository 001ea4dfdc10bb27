"""Tiles whose both sides stay four bits wide: MXFP4 and NVFP4 on Blackwell's tensor cores."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import UNIT, Bounded, exactly
from sparkbuild.qualify.probes.inputs import Blocks, Reals, random_blocks
from sparkbuild.qualify.probes.model import Case
from sparkbuild.qualify.probes.tiles_config import TileConfig
from sparkbuild.qualify.probes.tiles_split import split_case, split_depth
from sparkbuild.qualify.reference.references import References

_PER_STEP: Final = 64
"""Elements that one ``mma`` adds up (m16n8k64)."""

_WHY: Final = (
    "sums of f32 in any order, each step cut or rounded (the PTX ISA leaves that open for mma); "
    "zero where every partial sum fits into f32"
)


def fp4_case(
    entry: str, config: TileConfig, references: References, rng: np.random.Generator
) -> Case:
    """One tile; half of the columns and rows have scales that are near each other."""
    depth = split_depth(config)
    per_row = depth // config.kind.elements
    x = random_blocks(config.kind, config.rows * per_row, rng)
    y = random_blocks(config.kind, config.columns * per_row, rng)
    left = references.values(config.kind.name, x.data).reshape(1, config.rows, depth)
    right = references.values(config.kind.name, y.data).reshape(config.columns, 1, depth)
    y_scale = None
    if config.kind.name == "nvfp4":
        y_scale = np.exp2(rng.integers(-4, 5, config.columns)).astype(np.float32)
        y_scale[config.columns // 2 :] *= np.float32(1.1)

    def values(start: int, end: int) -> Bounded:
        found = fp4_sum(right[..., start:end] * left[..., start:end])
        if y_scale is None:
            return found
        return found * exactly(y_scale.astype(np.float64)[:, None])

    columns = fp4_columns(y, config.columns)
    return split_case(entry, config, x.data, columns, values, why=_WHY, y_scale=y_scale)


def fp4_columns(blocks: Blocks, columns: int) -> NDArray[np.uint8]:
    """``block_fp4_mmq`` of rows of blocks: (elements / 256, columns, 144).

    16 bytes of scales, then the quants of 256 elements as the type itself packs them. Of MXFP4, two
    scales lie in the low half of each 32-bit word.
    """
    per = 256 // blocks.kind.elements
    grouped = Blocks(blocks.kind, blocks.data)
    quants = grouped.field("qs").reshape(columns, -1, 128)
    out = np.zeros((columns, quants.shape[1], 144), np.uint8)
    out[:, :, 16:] = quants
    if blocks.kind.name == "mxfp4":
        scales = grouped.field("e").reshape(columns, -1, per // 2, 2)
        out[:, :, :16].reshape(columns, -1, 4, 4)[..., :2] = scales
    else:
        out[:, :, :16] = grouped.field("d").reshape(columns, -1, 16)
    return np.ascontiguousarray(out.transpose(1, 0, 2))


def fp4_sum(terms: Reals) -> Bounded:
    """The sum over the last axis; without error where f32 holds every partial sum of the terms."""
    size = np.abs(terms).sum(-1)
    mantissa, exponent = np.frexp(terms)
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.where(whole == 0, 1024, exponent - 53 + _trailing_zeros(whole)).min(-1)
    exact = size <= np.ldexp(1.0, 24 + np.minimum(lowest, 900))
    steps = _PER_STEP + terms.shape[-1] // _PER_STEP
    return Bounded(terms.sum(-1), np.where(exact, 0.0, 2 * UNIT * steps * size))


def _trailing_zeros(values: NDArray[np.int64]) -> NDArray[np.int64]:
    lowest = (values & -values).astype(np.float64)
    return np.where(values == 0, 0, np.frexp(lowest)[1] - 1).astype(np.int64)
