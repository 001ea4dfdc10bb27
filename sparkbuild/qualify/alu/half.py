"""The 16-bit floats: what their bits stand for, and the bits for exact values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.types import F16, F32, U16, U32, scalar

SIXTEEN = scalar(16, U32)
SIGN, SIZE = scalar(0x80000000, U32), scalar(0x7FFFFFFF, U32)
NAN16 = np.uint16(0x7FFF)
INFINITE = scalar(0x7F800000, U32)
# bf16 keeps the high half: adding this and the bit that stays last rounds to nearest even.
ALMOST_HALF, ONE = scalar(0x7FFF, U32), scalar(1, U32)


def f16_to_float(bits: Bits) -> Any:
    """f16 as floats of 32 bits, exactly."""
    return bits.view(F16).astype(F32)


def bf16_to_float(bits: Bits) -> Any:
    """bf16 as floats of 32 bits, exactly: they are its high half."""
    return np.left_shift(bits.astype(U32), SIXTEEN).view(F32)


def to_float(name: str) -> Callable[[Bits], Any]:
    """What reads ``f16`` or ``bf16`` as floats of 32 bits."""
    return f16_to_float if name == "f16" else bf16_to_float


def float_to_f16(values: Bits) -> Bits:
    """Floats of 32 bits as f16 bits: to nearest even, canonical NaN."""
    bits = values.astype(F16).view(U16)
    bad = np.not_equal(values, values)
    return np.where(bad, NAN16, bits) if np.count_nonzero(bad) else bits


def float_to_bf16(values: Bits) -> Bits:
    """Floats of 32 bits as bf16 bits: to nearest even, canonical NaN."""
    bits = values.view(U32)
    last = np.right_shift(bits, SIXTEEN) & ONE
    rounded = np.right_shift(bits + last + ALMOST_HALF, SIXTEEN).astype(U16)
    bad = np.greater(bits & SIZE, INFINITE)
    return np.where(bad, NAN16, rounded) if np.count_nonzero(bad) else rounded
