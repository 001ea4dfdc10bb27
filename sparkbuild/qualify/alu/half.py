"""The 16-bit floats: what their bits stand for, and the bits for exact values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.types import F16, F32, U16, U32, scalar

SIXTEEN = scalar(16, U32)
NAN16 = np.uint16(0x7FFF)
# bf16 keeps the high half: adding this and the bit that stays last rounds to nearest even.
ALMOST_HALF, ONE = scalar(0x7FFF, U32), scalar(1, U32)


def _all_f16() -> Any:
    values = np.arange(1 << 16, dtype=U16).view(F16).astype(F32)
    return np.where(np.isnan(values), U32.type(0x7FFFFFFF), values.view(U32))


# The float of 32 bits for each f16, NaN canonical: looking up is faster than converting.
F16_TABLE = _all_f16()


def f16_to_float(bits: Bits) -> Any:
    """f16 as floats of 32 bits, exactly."""
    return F16_TABLE.take(bits).view(F32)


def bf16_to_float(bits: Bits) -> Any:
    """bf16 as floats of 32 bits, exactly: they are its high half."""
    return np.left_shift(bits.astype(U32), SIXTEEN).view(F32)


def to_float(name: str) -> Callable[[Bits], Any]:
    """What reads ``f16`` or ``bf16`` as floats of 32 bits."""
    return f16_to_float if name == "f16" else bf16_to_float


def float_to_f16(values: Bits) -> Bits:
    """Floats of 32 or 64 bits as f16 bits: to nearest even in one step, canonical NaN."""
    bits = values.astype(F16).view(U16)
    bad = np.isnan(values)
    return np.where(bad, NAN16, bits) if np.count_nonzero(bad) else bits


def float_to_bf16(values: Bits) -> Bits:
    """Floats of 32 bits as bf16 bits: to nearest even, canonical NaN."""
    bits = values.view(U32)
    last = np.right_shift(bits, SIXTEEN) & ONE
    rounded = np.right_shift(bits + last + ALMOST_HALF, SIXTEEN).astype(U16)
    bad = np.isnan(values)
    return np.where(bad, NAN16, rounded) if np.count_nonzero(bad) else rounded
