"""What the quantisers of activations must write, and where two answers are right.

Scales come from approximate divisions, so a value that lies at the border between two quants may
fall to either side: such words are not judged, a few in ten thousand. All others are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.inputs import Reals

Words = NDArray[np.uint32]
Flags = NDArray[np.bool_]

NEAR: Final = 2.0**-20
"""Relative: three approximate divisions of 2 ulp each and a product (2**-22 and less each)."""
SUM_NEAR: Final = 8 * 2.0**-24
"""Of the sum of sizes: a sum of 32 in a tree has at most eight roundings on the way."""
LARGEST_INT8: Final = 127.0

E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
"""Values of four-bit floats, by their three low bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Quants:
    """Values as whole numbers or codes, and whether each is beyond doubt."""

    values: NDArray[np.int64]
    sure: Flags


def to_int8(x: Reals, group: int) -> tuple[Quants, Reals]:
    """Quants of each ``group`` of the last axis, and the groups' scales (the largest is 127)."""
    grouped = x.reshape(*x.shape[:-1], -1, group)
    scale = np.abs(grouped).max(-1, keepdims=True) / LARGEST_INT8
    with np.errstate(invalid="ignore", divide="ignore"):
        wide = np.nan_to_num(grouped / scale)
    values = np.sign(wide) * np.floor(np.abs(wide) + 0.5)
    border = np.abs(np.abs(wide) % 1 - 0.5)
    sure = border > LARGEST_INT8 * NEAR
    quants = Quants(values.astype(np.int64).reshape(x.shape), sure.reshape(x.shape))
    return quants, scale[..., 0]


def to_half(values: Reals, off: Reals) -> Quants:
    """f16 bits of values that a kernel has to within ``off``."""
    with np.errstate(over="ignore"):
        ends = [(values + side * off).astype(np.float16).view(np.uint16) for side in (-1, 1)]
        bits = values.astype(np.float16).view(np.uint16).astype(np.int64)
    return Quants(bits, ends[0] == ends[1])


def to_e2m1(x: Reals, near: float) -> Quants:
    """Four-bit codes, rounded to nearest, ties to even, saturating; ``near`` is relative."""
    size = np.minimum(np.abs(x), E2M1[-1])
    borders = (E2M1[1:] + E2M1[:-1]) / 2
    above = np.searchsorted(borders, size, side="right")  # a tie goes up ...
    tie = np.isin(size, borders) & (above % 2 == 1)  # ... and back where that is odd
    codes = above - tie + 8 * np.signbit(x)
    distance = np.abs(size[..., None] - borders).min(-1)
    return Quants(codes.astype(np.int64), (distance > near * size) | (near == 0))


def ue4m3_values() -> Reals:
    """The value of each code of an unsigned E4M3 up to the largest, 448."""
    code = np.arange(0x7F)
    power, low = code >> 3, code & 7
    return np.where(power > 0, np.ldexp(1 + low / 8, power - 7), np.ldexp(low / 8, -6))


def to_ue4m3(x: Reals, near: float) -> Quants:
    """Codes of positive numbers, rounded to nearest, ties to even, saturating."""
    values = ue4m3_values()
    size = np.minimum(x, values[-1])
    borders = (values[1:] + values[:-1]) / 2
    above = np.searchsorted(borders, size, side="right")
    tie = np.isin(size, borders) & (above % 2 == 1)
    nearest = np.clip(np.searchsorted(borders, size), 0, len(borders) - 1)
    distance = np.minimum(
        np.abs(size - borders[nearest]), np.abs(size - borders[np.maximum(nearest - 1, 0)])
    )
    return Quants(above - tie, distance > near * size)


def to_e8m0(largest: Reals) -> Quants:
    """The power of two that brings a group's largest value near 4: MXFP4's scale, and its code."""
    with np.errstate(divide="ignore"):
        power = np.where(largest > 0, np.log2(np.maximum(largest, 2.0**-200)), 0.0)
    codes = np.clip(np.rint(power) - 2 + 127, 0, 254)
    # lg2.approx: 2**-22 absolute near one, relative elsewhere.
    sure = np.abs(np.abs(power) % 1 - 0.5) > 2.0**-22 * np.maximum(np.abs(power), 1)
    return Quants(np.where(largest > 0, codes, 0).astype(np.int64), sure | (largest == 0))


def pack_bytes(values: NDArray[np.int64], sure: Flags) -> tuple[Words, Flags]:
    """Four bytes of the last axis to a 32-bit word, the first lowest."""
    four = (values.reshape(*values.shape[:-1], -1, 4) & 255) << np.array([0, 8, 16, 24])
    known = np.asarray(sure.reshape(*sure.shape[:-1], -1, 4).all(-1))
    return four.sum(-1).astype(np.uint32), known


def pack_halves(low: Quants, high: Quants) -> tuple[Words, Flags]:
    """Two f16 to a 32-bit word."""
    return (low.values | high.values << 16).astype(np.uint32), low.sure & high.sure


def nibbles(codes: Quants, group: int) -> Quants:
    """Codes to bytes: of each ``group``, the first half lies in the low nibbles."""
    half = codes.values.reshape(*codes.values.shape[:-1], -1, 2, group // 2)
    sure = codes.sure.reshape(half.shape)
    packed = half[..., 0, :] | half[..., 1, :] << 4
    shape = (*codes.values.shape[:-1], -1)
    return Quants(packed.reshape(shape), (sure[..., 0, :] & sure[..., 1, :]).reshape(shape))


@dataclass(frozen=True, slots=True, eq=False)
class Nvfp4:
    """Rows in NVFP4: codes (rows, values), scale codes (rows, values / 16), row scales."""

    codes: Quants
    scales: Quants
    rows: Reals


def to_nvfp4(x: Reals) -> Nvfp4:
    """Scale by row, then by 16 values: of five neighbouring codes that with the least error."""
    rows = np.abs(x).max(-1, keepdims=True) / (6.0 * 448.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.nan_to_num(x / rows).reshape(len(x), -1, 16)
    first = to_ue4m3(np.abs(scaled).max(-1) / 6, NEAR)
    table = ue4m3_values()
    errors = []
    tried = [first.values + step for step in (0, -1, 1, -2, 2)]
    for code in tried:
        scale = table[np.clip(code, 0, 0x7E)][..., None]
        with np.errstate(invalid="ignore", divide="ignore"):
            wide = np.where(scale > 0, scaled / scale, 0.0)
        reached = E2M1[to_e2m1(wide, 0).values & 7] * scale
        error = ((np.abs(scaled) - reached) ** 2).sum(-1)
        errors.append(np.where((code < 0) | (code > 0x7E), np.inf, error))
    stacked = np.stack(errors)
    best = stacked.argmin(0)
    least = np.sort(stacked, 0)[:2]
    size = (scaled**2).sum(-1)
    sure = (size == 0) | (first.sure & (least[1] - least[0] > 2.0**-16 * size))
    chosen = np.take_along_axis(np.stack(tried), best[None], 0)[0]
    scale = table[chosen][..., None]
    with np.errstate(invalid="ignore", divide="ignore"):
        wide = np.where(scale > 0, scaled / scale, 0.0)
    codes = to_e2m1(wide, NEAR)
    return Nvfp4(
        Quants(codes.values.reshape(x.shape), (codes.sure & sure[..., None]).reshape(x.shape)),
        Quants(chosen, sure),
        rows[:, 0],
    )
