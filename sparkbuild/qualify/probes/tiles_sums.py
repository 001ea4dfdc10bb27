"""What ``mul_mat_q`` adds up for one tile, in the order of its tensor-core dot products.

Arrays are (groups, columns, rows), a group being 16 or 32 elements of the inner dimension. The
products of scales that a loader keeps in f16 are rounded to f16 here as well: those roundings are
the source's own, and no compiler may change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import Bounded, exactly
from sparkbuild.qualify.probes.inputs import Blocks, Reals
from sparkbuild.qualify.probes.tiles_config import TileConfig
from sparkbuild.qualify.reference.references import References


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The other side in q8_1: ``q`` (elements, columns), ``d`` (elements / 32, columns).

    ``s`` is what stands for the sums of the quants in each group of 32 (DS4) or 16 (D2S6), unused
    for D4. In D2S6 one ``d`` serves 64 elements, and the last two of eight sums are not kept.
    """

    q: Reals
    d: Reals
    s: Reals

    def data(self, layout: str) -> NDArray[np.uint8]:
        """As ``block_q8_1_mmq`` lies in memory: for each 128 elements, a block of each column."""
        depth, count = self.q.shape
        out = np.zeros((depth // 128, count, 144), np.uint8)
        d = self.d.reshape(-1, 4, count).transpose(0, 2, 1)
        if layout == "D4":
            head = d.astype("<f4")
        elif layout == "DS4":
            s = self.s.reshape(-1, 4, count).transpose(0, 2, 1)
            head = np.stack([d, s], -1).astype("<f2").reshape(*d.shape[:2], 8)
        else:
            s = self.s.reshape(-1, 8, count).transpose(0, 2, 1)
            head = np.concatenate([d[..., ::2], s[..., :6]], -1).astype("<f2")
        out[:, :, :16] = np.ascontiguousarray(head).view(np.uint8)
        quants = self.q.reshape(-1, 128, count).transpose(0, 2, 1).astype(np.int8)
        out[:, :, 16:] = np.ascontiguousarray(quants).view(np.uint8)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Sums of whole numbers over groups of 16 elements, (groups, columns, rows)."""

    blocks: Blocks
    columns: Columns
    quants: Reals
    """Quants times y at a scale of one, their scales inside the block included."""
    plain: Reals
    """y alone, (groups, columns, 1)."""
    scale: Reals
    """The block's scale for each group, (groups, 1, rows)."""
    inner: Reals
    """Scales inside the block, (groups, 1, rows): ones where this reader knows none."""
    minima: Reals
    """What is added to each quant at a scale of one, (groups, 1, rows)."""
    rows: int

    def member(self, name: str) -> Reals:
        """An f16 member of each group's block, (groups, 1, rows)."""
        return _per_group(self.blocks.half(name), self.rows, len(self.quants))

    @property
    def y(self) -> Reals:
        """The scale of y for each 32, (elements / 32, columns, 1)."""
        return self.columns.d[:, :, None]

    @property
    def s(self) -> Reals:
        """The sums of y, (groups of 32 or 16, columns, 1)."""
        return self.columns.s[:, :, None]


Combine: TypeAlias = Callable[[Tile], Bounded]


def make_tile(references: References, blocks: Blocks, columns: Columns, rows: int) -> Tile:
    """Add up a tile's groups, exactly. ``blocks`` are ``rows`` rows, one after the other."""
    name = blocks.kind.name
    depth = columns.q.shape[0]
    unit = references.values(name, blocks.unit().data).reshape(rows, depth)
    offset = blocks.offset()
    added = np.zeros_like(unit)
    if offset is not None:
        added = references.values(name, offset.data).reshape(rows, depth)
    y = columns.q.reshape(-1, 16, columns.q.shape[1])
    quants = np.matmul(y.transpose(0, 2, 1), unit.reshape(rows, -1, 16).transpose(1, 2, 0))
    groups = len(y)
    scales = blocks.scales()
    return Tile(
        blocks=blocks,
        columns=columns,
        quants=quants,
        plain=y.sum(1)[:, :, None],
        scale=_per_group(scales, rows, groups),
        inner=_per_group(_inner_scales(references, blocks), rows, groups),
        minima=added.reshape(rows, groups, 16)[:, :, 0].T[:, None, :],
        rows=rows,
    )


def combine_tile(config: TileConfig, tile: Tile) -> Bounded | None:
    """What the kernel must leave for (columns, rows), or None for a dot product not known here."""
    combine = _DOTS.get(config.dot)
    return None if combine is None else combine(tile)


def _per_group(values: Reals, rows: int, groups: int) -> Reals:
    """Values of blocks, (n,) or (n, groups of a block), spread to (groups, 1, rows)."""
    spread = values.reshape(rows, -1)
    return np.repeat(spread, groups // spread.shape[1], 1).T[:, None, :]


def _inner_scales(references: References, blocks: Blocks) -> Reals:
    """Scales inside the block, (n, groups of 16): what all quants being one would give."""
    name = blocks.kind.name
    if name == "iq1_s":
        factor = 2.0 * (blocks.words("qh") >> 12 & 7) + 1
        return np.repeat(factor, 2, 1)
    ones = _ONES.get(name)
    if ones is None:
        return np.ones((len(blocks.data), 1))
    one = blocks.unit()
    for member, byte in ones.items():
        one.field(member)[:] = byte
    return references.values(name, one.data)[:, ::16]


_ONES: Final[Mapping[str, Mapping[str, int]]] = {
    "q2_K": {"qs": 0x55},
    "q4_K": {"qs": 0x11},
    "q5_K": {"qs": 0x11, "qh": 0},
}
"""Bytes that make every quant 1, for types whose loaders keep scales in f16."""


def _single(tile: Tile) -> Bounded:
    """One scale for 32 elements: whole number, times x's scale, times y's."""
    return _chain(exactly(_pairs(tile.quants * tile.scale)).once(1.0) * tile.y)


def _double(tile: Tile) -> Bounded:
    """A scale for each 16: both halves times theirs, added, then times y's scale."""
    halves = exactly(tile.quants * tile.scale) * 1.0
    return _chain((halves[0::2] + halves[1::2]) * tile.y)


def _sixes(tile: Tile) -> Bounded:
    """Q6_K: whole numbers with their scales, times y's, over 128 elements; then x's scale."""
    terms = exactly(_pairs(tile.quants)) * tile.y
    found = exactly(np.zeros(terms.value.shape[1:]))
    for start in range(0, len(terms.value), 4):
        found = found + _chain(terms[start : start + 4]) * tile.scale[2 * start]
    return found


def _with_minima(tile: Tile) -> Bounded:
    """Scales of x and y, times the whole number; and x's minimum times y's sum."""
    scale, whole, minimum = _scale_and_minimum(tile)
    terms = exactly(scale).once(tile.y) * whole
    added = exactly(minimum) * tile.s
    found = exactly(np.zeros(terms.value.shape[1:]))
    for group in range(len(terms.value)):
        found = found + terms[group] + added[group]
    return found


def _scale_and_minimum(tile: Tile) -> tuple[Reals, Reals, Reals]:
    """For each 32: x's scale and the whole number that goes with it, and x's minimum."""
    kind = tile.blocks.kind
    inner, scale = tile.inner[::2], tile.scale[::2]
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = np.nan_to_num(_pairs(tile.quants) / inner)
    if kind.field("dmin") is not None:
        return _half(scale * inner), whole, _half(tile.member("dmin")[::2] * tile.minima[::2])
    if kind.name == "iq1_s":
        high = tile.blocks.words("qh")
        shift = _per_group(np.where(high & 0x8000, -0.125, 0.125), tile.rows, len(inner))
        grid = whole + (1 - shift) * _pairs(tile.plain)
        return _half(scale * inner), grid, _half(scale * inner * (shift - 1))
    return scale, whole, tile.member("m")[::2]


def _twos(tile: Tile) -> Bounded:
    """Q2_K: as with a scale for each 16; the mins meet y's kept sums, or the last 32's quants."""
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = np.nan_to_num(tile.quants / tile.inner)
    terms = exactly(whole) * _half(tile.scale * tile.inner)
    minimum = _half(tile.member("dmin") * -tile.minima)
    last = exactly(tile.plain) * minimum
    found = exactly(np.zeros(terms.value.shape[1:]))
    for start in range(0, len(terms.value), 8):
        for pair in range(start, start + 8, 2):
            part = terms[pair] + terms[pair + 1]
            if pair == start + 6:
                part = part - (last[pair] + last[pair + 1])
            found = found + part * tile.y[pair // 2]
        for group in range(start, start + 6):
            found = found - exactly(minimum[group]) * tile.s[group]
    return found


def _pairs(values: Reals) -> Reals:
    """Groups of 16 to groups of 32."""
    return values[0::2] + values[1::2]


def _chain(terms: Bounded) -> Bounded:
    """The sum over the first axis, one after the other."""
    found = terms[0]
    for group in range(1, len(terms.value)):
        found = found + terms[group]
    return found


def _half(values: Reals) -> Reals:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float64)


_DOTS: Final[Mapping[str, Combine]] = {
    "ggml_cuda_mmq_vec_dot_q8_0_q8_1_mma": _single,
    "ggml_cuda_mmq_vec_dot_q8_0_16_q8_1_mma": _double,
    "ggml_cuda_mmq_vec_dot_q8_1_q8_1_mma": _with_minima,
    "ggml_cuda_mmq_vec_dot_q2_K_q8_1_mma": _twos,
    "ggml_cuda_mmq_vec_dot_q6_K_q8_1_mma": _sixes,
}
"""By the device function that the source names for a type."""
