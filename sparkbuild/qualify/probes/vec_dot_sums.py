"""What each ``vec_dot_*_q8_1`` adds up: its elements, its steps in the source's order, their error.

A rule says which elements of a block one ``iqs`` covers, in groups that the function sums in whole
numbers, and how it puts the sums together. The steps are followed with a bound on each rounding, so
the bound on the result is as small as the source allows: zero where every step is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import Bounded, exactly
from sparkbuild.qualify.probes.inputs import Blocks, Partner, Reals
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts

HEADER: Final = "ggml-cuda/vecdotq.cuh"
Index: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Whole-number sums of a launch, each (n, iqs values, groups), at a scale of one."""

    facts: SourceFacts
    blocks: Blocks
    partner: Partner
    quants: Reals
    """Quants times y, their scales inside the block included."""
    offsets: Reals
    """What is added to each quant (the mins) times y; zero where the type has none."""
    plain: Reals
    """y alone."""
    d: Reals
    """The scale of y, of the group's first element."""
    alone: bool = True
    """The result is stored; else it is added to another, and its last product may be fused."""

    def last(self, left: Bounded, right: Bounded | Reals) -> Bounded:
        """The product that is the result."""
        return left.once(right) if self.alone else left * right

    @property
    def scale(self) -> Reals:
        """The scale of x, (n, 1)."""
        return self.blocks.scales()[:, None]

    @property
    def s(self) -> Reals:
        """The sum that y's block carries, (n, iqs values)."""
        per = self.d.shape[1]
        return np.repeat(self.partner.s, per // self.partner.s.shape[1], 1)

    def says(self, function: str, text: str) -> bool:
        """Whether a function of the source holds this text, blanks aside."""
        body = "".join(self.facts.body(HEADER, function).split())
        return "".join(text.split()) in body


Combine: TypeAlias = Callable[[Sums], Bounded]


@dataclass(frozen=True, slots=True)
class Rule:
    """``elements`` (iqs values, groups, elements) of a block, from QI and VDR; then the steps.

    ``ints`` and ``step`` are the QI and VDR that the rule was written for: with others, the source
    means something else by ``iqs``.
    """

    elements: Callable[[int], Index]
    combine: Combine
    ints: int
    step: int


def make_sums(
    facts: SourceFacts,
    references: References,
    blocks: Blocks,
    partner: Partner,
    elements: Index,
    *,
    alone: bool = True,
) -> Sums:
    """Add up the elements of each group, exactly: all are small whole numbers or eighths."""
    name = blocks.kind.name
    unit = references.values(name, blocks.unit().data)
    offset = blocks.offset()
    added = np.zeros_like(unit) if offset is None else references.values(name, offset.data)
    q = partner.q

    def total(values: Reals) -> Reals:
        return np.asarray((values * q)[:, elements].sum(-1))

    return Sums(
        facts, blocks, partner, total(unit), total(added), total(np.ones_like(unit)),
        partner.d[:, elements[..., 0] // 32], alone,
    )  # fmt: skip


def _chunks(groups: int) -> Callable[[int], Index]:
    """32 elements in a row, in equal groups."""

    def elements(per: int) -> Index:
        return np.arange(per * 32).reshape(per, groups, 32 // groups)

    return elements


def _grouped(*axes: NDArray[Any]) -> Index:
    """Sums of all combinations, the axes being (iqs, groups, ..., elements)."""
    total: Index = np.zeros((1, 1), np.int64)
    for number, axis in enumerate(axes):
        shape = [1] * len(axes)
        shape[number] = -1
        total = total + np.asarray(axis).reshape(shape)
    return total.reshape(total.shape[0], total.shape[1], -1)


def _nibbles(per: int) -> Index:
    """Two 32-bit words: the low nibbles' elements, and the high nibbles' 16 further on."""
    return _grouped(8 * np.arange(per), np.zeros(1), np.array([0, 16]), np.arange(8)).astype(int)


def _bytes(per: int) -> Index:
    return np.arange(per * 8).reshape(per, 1, 8)


def _crumbs(per: int) -> Index:
    """Q2_K, Q3_K: one word of each of four rows of 32."""
    iqs = np.arange(per)
    return _grouped(128 * (iqs // 8) + 4 * (iqs % 8), 32 * np.arange(4), np.arange(4))


def _pairs(per: int) -> Index:
    """Q4_K, Q5_K: two words of each of two rows of 32."""
    iqs = np.arange(per)
    start = 64 * (iqs // 4) + 4 * (iqs % 4)
    return _grouped(start, 32 * np.arange(2), np.array([0, 16]), np.arange(4))


def _sixes(per: int) -> Index:
    """Q6_K: one word of each of two rows of 32, which lie 64 apart."""
    iqs = np.arange(per)
    start = 32 * (4 * (iqs // 16) + iqs % 16 // 8) + 4 * (iqs % 8)
    return _grouped(start, 64 * np.arange(2), np.arange(4))


def _simple(sums: Sums) -> Bounded:
    """Both scales multiplied, then the whole number."""
    return sums.last(exactly(sums.scale).once(sums.d[..., 0]), sums.quants.sum(-1))


def _centred(centre: int) -> Combine:
    """Unsigned quants; what they are too large by is taken off through y's own sum."""

    def combine(sums: Sums) -> Bounded:
        share = centre * sums.partner.s.shape[1] / sums.d.shape[1]
        unsigned = (sums.quants + centre * sums.plain)[..., 0]
        inner = exactly(unsigned) * sums.d[..., 0] - exactly(sums.s) * share
        return sums.last(inner, sums.scale)

    return combine


def _with_minimum(function: str) -> Combine:
    """Q4_1, Q5_1: products of scales in f16 where the source multiplies so."""

    def combine(sums: Sums) -> Bounded:
        share = sums.partner.s.shape[1] / sums.d.shape[1]
        minimum = sums.blocks.half("m")[:, None]
        scale = exactly(sums.scale).once(sums.d[..., 0])
        added = exactly(minimum).once(sums.s)
        if sums.says(function, "__hmul2"):
            scale = exactly(_half(sums.scale * sums.d[..., 0]))
            added = exactly(_half(minimum * sums.s))
        found: Bounded = exactly(sums.quants[..., 0]) * scale + added * share
        return found

    return combine


def _scaled(sums: Sums) -> Bounded:
    """Each group times y's scale, added one after the other, times x's scale; so with the mins."""
    found = (exactly(sums.quants) * sums.d).summed()
    if sums.blocks.kind.field("dmin") is None:
        return sums.last(found, sums.scale)
    added = (exactly(sums.offsets) * sums.d).summed()
    return found * sums.scale + added * sums.blocks.half("dmin")[:, None]


def _own_scales(sums: Sums) -> Bounded:
    """NVFP4: every group of 16 has its scale."""
    scales = sums.blocks.scales().reshape(sums.d.shape)
    return (exactly(scales).once(sums.d) * sums.quants).summed()


def _ternary(sums: Sums) -> Bounded:
    """IQ1_S: the grid holds 0, 1, 2; one more or less an eighth is taken off through y's sum."""
    high = sums.blocks.words("qh")
    factor = 2.0 * (high >> 12 & 7) + 1
    shift = np.where(high & 0x8000, -0.125, 0.125)
    grid = sums.quants[..., 0] / factor + (1 - shift) * sums.plain[..., 0]
    inner = exactly(sums.d[..., 0]) * grid + exactly(sums.s) * (shift - 1)
    return sums.last(inner, exactly(sums.scale).once(factor))


def _eighths(sums: Sums) -> Bounded:
    """IQ2_XXS: a whole number of eighths, cut to whole ones where the source does so."""
    whole = 8 * sums.quants.sum(-1)
    return _cut(sums, whole / 8, _toward_zero(whole, 8), "sumi * ls / 8", 1)


def _quarters(sums: Sums) -> Bounded:
    """IQ2_XS, IQ2_S: two halves of a chunk, each with its scale, then divided twice."""
    packed = sums.blocks.field("scales").astype(np.float64)
    scales = np.stack([packed % 16, packed // 16], -1)
    sumi = sums.quants * 4 / (scales + 0.5)
    whole = (sumi * scales).sum(-1) + _toward_zero(sumi.sum(-1), 2)
    text = "(sumi0*ls0 + sumi1*ls1 + (sumi0 + sumi1)/2)/4"
    return _cut(sums, sums.quants.sum(-1), _toward_zero(whole, 4), text, 2)


def _halves(sums: Sums) -> Bounded:
    """IQ3_XXS: as IQ2_XS, with one scale, in the top bits of the signs."""
    scales = (sums.blocks.field("qs")[:, 67::4] >> 4).astype(np.float64)
    sumi = sums.quants.sum(-1) * 2 / (scales + 0.5)
    whole = sumi * scales + _toward_zero(sumi, 2)
    text = "(ls*sumi + sumi/2)/2"
    return _cut(sums, sums.quants.sum(-1), _toward_zero(whole, 2), text, 2)


def _cut(sums: Sums, real: Reals, whole: Reals, text: str, slack: float) -> Bounded:
    """The whole number that the source's own division gives; if it is put another way, any near it.

    ``slack`` is how far a division of integers in two steps may be off, in units of the scale.
    """
    scale = exactly(sums.scale).once(sums.d[..., 0])
    if sums.says(f"vec_dot_{sums.blocks.kind.name}_q8_1", text):
        return sums.last(scale, whole)
    found = scale * real
    return Bounded(found.value, found.error + slack * np.abs(scale.value))


def _toward_zero(values: Reals, by: int) -> Reals:
    """C's division of integers."""
    return np.trunc(values / by)


def _half(values: Reals) -> Reals:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float64)


RULES: Final = {
    "q1_0": Rule(_chunks(1), _simple, 4, 1),
    "q2_0": Rule(_chunks(1), _simple, 2, 1),
    "q4_0": Rule(_nibbles, _centred(8), 4, 2),
    "q4_1": Rule(_nibbles, _with_minimum("vec_dot_q4_1_q8_1_impl"), 4, 2),
    "q5_0": Rule(_nibbles, _centred(16), 4, 2),
    "q5_1": Rule(_nibbles, _with_minimum("vec_dot_q5_1_q8_1_impl"), 4, 2),
    "q8_0": Rule(_bytes, _simple, 8, 2),
    "mxfp4": Rule(_nibbles, _simple, 4, 2),
    "nvfp4": Rule(_chunks(2), _own_scales, 8, 4),
    "q2_K": Rule(_crumbs, _scaled, 16, 1),
    "q3_K": Rule(_crumbs, _scaled, 16, 1),
    "q4_K": Rule(_pairs, _scaled, 32, 2),
    "q5_K": Rule(_pairs, _scaled, 32, 2),
    "q6_K": Rule(_sixes, _scaled, 32, 1),
    "iq1_s": Rule(_chunks(1), _ternary, 8, 1),
    "iq1_m": Rule(_chunks(2), _simple, 8, 1),
    "iq2_xxs": Rule(_chunks(1), _eighths, 16, 2),
    "iq2_xs": Rule(_chunks(2), _quarters, 16, 2),
    "iq2_s": Rule(_chunks(2), _quarters, 16, 2),
    "iq3_xxs": Rule(_chunks(1), _halves, 16, 2),
    "iq3_s": Rule(_chunks(1), _simple, 16, 2),
    "iq4_nl": Rule(_nibbles, _simple, 4, 2),
    "iq4_xs": Rule(_chunks(1), _simple, 32, 4),
}
"""By type, as b11434 has them; a type without one is judged by whole blocks."""
