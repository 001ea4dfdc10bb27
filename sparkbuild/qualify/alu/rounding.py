"""One rounding, exactly: sums rounded to odd, then to the format and in the direction asked for.

A sum that a double cannot hold is first rounded to odd (the neighbour with an odd last bit): a
second rounding to at most 51 bits then gives what a single one would have given (Boldo and
Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.types import F32, F64, I32, I64, U32, U64, scalar

Mode = Literal["rn", "rz", "rm", "rp", "rna"]
ONE, NONE = scalar(1, I64), scalar(0, I64)
EXPONENT, EXPONENT_MASK = scalar(52, I64), scalar(0x7FF, I64)
# In a double, the bits below a float's last one, and the half of that last one.
BELOW, HALF = scalar(0x1FFFFFFF, U64), scalar(0x10000000, U64)
TINY = np.asarray(2.0**-126, F64)


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float: ``precision`` counts the hidden bit, ``low`` is the smallest exponent.

    ``largest`` is the code of the largest finite number; ``infinity`` and ``nan`` are None where
    the format has none.
    """

    name: str
    width: int
    precision: int
    low: int
    largest: int
    infinity: int | None
    nan: int | None

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << (self.width - 1)


FORMATS: dict[str, Format] = {
    format_.name: format_
    for format_ in (
        Format("f16", 16, 11, -14, 0x7BFF, 0x7C00, 0x7FFF),
        Format("bf16", 16, 8, -126, 0x7F7F, 0x7F80, 0x7FFF),
        # tf32 lies in the high 19 bits of a register.
        Format("tf32", 19, 11, -126, 0x3FBFF, 0x3FC00, 0x3FFFF),
        Format("e4m3", 8, 4, -6, 0x7E, None, 0x7F),
        Format("e5m2", 8, 3, -14, 0x7B, 0x7C, 0x7F),
        Format("e2m1", 4, 2, 0, 0x7, None, None),
        Format("e2m3", 6, 4, 0, 0x1F, None, None),
        Format("e3m2", 6, 3, -2, 0x1F, None, None),
    )
}


def to_odd(total: Bits, a: Bits, b: Bits) -> Bits:
    """``total``, the double nearest to a + b, moved to the odd neighbour where it is not exact."""
    part = total - a
    rest = (a - (total - part)) + (b - part)
    missed = (np.abs(rest) > 0) & ((total.view(I64) & ONE) == 0)
    if not np.count_nonzero(missed):
        return total
    # Bits grow with the magnitude: one up where what is missing points away from zero.
    step = np.where((rest > 0) == (total > 0), ONE, -ONE)
    moved = total.view(I64) + np.where(missed, step, NONE)
    return np.where(np.isfinite(total), moved.view(F64), total)


def add_odd(a: Bits, b: Bits) -> Bits:
    """The sum of doubles rounded to odd."""
    return to_odd(np.add(a, b), a, b)


def fused_for_float(a: Bits, b: Bits, c: Bits, *, subnormal: bool) -> Any:
    """The sum a * b + c of floats as doubles, to be rounded to nearest as floats of 32 bits.

    The product is exact. Only a sum that lies half-way between two floats can be rounded wrongly
    twice, so only those are rounded to odd; with ``subnormal`` also those that will be subnormal.
    """
    total = a.astype(F64)
    if a.shape == b.shape == c.shape:
        total *= b.astype(F64)
        total += c.astype(F64)
    else:
        total = np.add(total * b.astype(F64), c.astype(F64))
    doubtful = np.equal(np.bitwise_and(total.view(U64), BELOW), HALF)
    if subnormal:
        doubtful |= np.abs(total) < TINY
    if np.count_nonzero(doubtful):
        where = np.flatnonzero(doubtful)
        # What is the same for all lanes stays one.
        x, y, z = ((part.take(where) if part.size > 1 else part).astype(F64) for part in (a, b, c))
        total[where] = to_odd(total[where], x * y, z)
    return total


def directed(exact: Bits, mode: Mode) -> Any:
    """Doubles (exact, or rounded to odd) as floats of 32 bits in any direction."""
    nearest = exact.astype(F32)
    if mode == "rn":
        return nearest
    back = nearest.astype(F64)
    if mode == "rz":
        over = np.abs(back) > np.abs(exact)
        return (nearest.view(U32) - over).view(F32)
    up = mode == "rp"
    wrong = back < exact if up else back > exact
    # A zero that should have been the smallest number of the other sign: its own sign says which.
    outward = np.signbit(nearest) != up
    step = np.where(outward, scalar(1, I32), scalar(-1, I32))
    return (nearest.view(I32) + np.where(wrong, step, scalar(0, I32))).view(F32)


def encode(exact: Bits, format_: Format, mode: Mode, *, finite: bool = False) -> Any:
    """Doubles (exact, or rounded to odd) as codes of a format, int64, NaN positive.

    With ``finite`` what is too large becomes the largest finite number, infinities included.
    """
    bits = exact.view(I64)
    raw = ((bits >> EXPONENT) & EXPONENT_MASK) - 1023
    exponent = np.clip(raw, format_.low, 256)
    unit = ((1023 + format_.precision - 1 - exponent) << EXPONENT).view(F64)
    negative = np.signbit(exact)
    size = np.minimum(np.abs(exact), 2.0**256) * unit
    whole = _rounded(size, negative, mode)
    code = ((exponent - format_.low) << (format_.precision - 1)) + whole.astype(np.int64)
    code = _overflow(code, exact, negative, format_, mode, finite=finite)
    code = np.where(negative, code | format_.sign, code)
    if format_.nan is not None:
        code = np.where(np.isnan(exact), format_.nan, code)
    return code


def _rounded(size: Bits, negative: Bits, mode: Mode) -> Any:
    """Magnitudes to whole numbers; ``rm`` and ``rp`` depend on the sign."""
    if mode == "rn":
        return np.rint(size)
    down = np.floor(size)
    if mode == "rz":
        return down
    if mode == "rna":
        return down + (size - down >= 0.5)
    away = negative if mode == "rm" else ~negative
    return np.where(away, np.ceil(size), down)


def _overflow(
    code: Bits, exact: Bits, negative: Bits, format_: Format, mode: Mode, *, finite: bool
) -> Any:
    """Codes beyond the largest finite number: that number, or infinity, or NaN where none is."""
    beyond = code > format_.largest
    if finite:
        return np.where(beyond, format_.largest, code)
    infinity = format_.infinity if format_.infinity is not None else format_.nan
    if infinity is None:
        return np.where(beyond, format_.largest, code)
    kept = {"rz": True, "rm": ~negative, "rp": negative}.get(mode, False)
    return np.where(beyond, np.where(kept & np.isfinite(exact), format_.largest, infinity), code)
