"""Products of integers: the low half, the high half, the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.types import I64, U32, U64, I, Type, U, scalar

Product = Callable[[Bits, Bits], Any]
LOW_HALF = scalar(0xFFFFFFFF, U64)
HALF = scalar(32, U64)


def low_product(kind: Type) -> Product:  # noqa: ARG001  the three are called alike
    """The low half, from unsigned sources."""
    return np.multiply


def wide_product(kind: Type) -> Product:
    """The whole product, twice as wide, from sources of the type's own sign."""
    double = (I if kind.kind == "s" else U)[kind.bits * 2]
    unsigned = U[kind.bits * 2]

    def run(a: Bits, b: Bits) -> Any:
        return np.multiply(a.astype(double), b.astype(double, copy=False)).view(unsigned)

    return run


def high_product(kind: Type) -> Product:
    """The high half, as unsigned bits, from sources of the type's own sign."""
    if kind.bits == 64:
        return _high_signed if kind.kind == "s" else _high_unsigned
    whole = wide_product(kind)
    narrow = U[kind.bits]

    shift = scalar(kind.bits, U[kind.bits * 2])

    def run(a: Bits, b: Bits) -> Any:
        return np.right_shift(whole(a, b), shift).astype(narrow)

    return run


def _high_unsigned(a: Bits, b: Bits) -> Any:
    a_low, a_high = a & LOW_HALF, a >> HALF
    b_low, b_high = b & LOW_HALF, b >> HALF
    cross = a_high * b_low
    middle = (a_low * b_low >> HALF) + (cross & LOW_HALF) + a_low * b_high
    return np.asarray(a_high * b_high + (cross >> HALF) + (middle >> HALF))


def _high_signed(a: Bits, b: Bits) -> Any:
    left, right = a.view(U64), b.view(U64)
    high = _high_unsigned(left, right)
    sign = scalar(63, I64)
    # A negative factor counts as itself plus 2^64 there: take the other factor off again.
    return np.asarray(high - ((a >> sign).view(U64) & right) - ((b >> sign).view(U64) & left))


def bit_length(bits: Bits) -> Any:
    """How many bits each number needs: 0 for 0, as int64; from uint32 or uint64."""
    if bits.dtype == U32:
        # A double holds any 32 bits, so its exponent is theirs.
        exponent = bits.astype(np.float64).view(I64) >> scalar(52, I64)
        return np.maximum(exponent - scalar(1022, I64), scalar(0, I64))
    high = bit_length((bits >> HALF).astype(U32))
    low = bit_length(bits.astype(U32))
    return np.where(high > 0, high + scalar(32, I64), low)
