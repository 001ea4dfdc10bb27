"""The types of PTX and the arrays that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sparkbuild.qualify.alu.contract import Bits

U8, U16, U32, U64 = (np.dtype(f"<u{size}") for size in (1, 2, 4, 8))
I8, I16, I32, I64 = (np.dtype(f"<i{size}") for size in (1, 2, 4, 8))
F16, F32, F64 = (np.dtype(f"<f{size}") for size in (2, 4, 8))
BOOL = np.dtype(np.bool_)

U: dict[int, np.dtype[Any]] = {8: U8, 16: U16, 32: U32, 64: U64}
I: dict[int, np.dtype[Any]] = {8: I8, 16: I16, 32: I32, 64: I64}  # noqa: E741
F: dict[int, np.dtype[Any]] = {16: F16, 32: F32, 64: F64}

Kind = Literal["u", "s", "b", "f", "bf", "pred"]


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar type of PTX: its width in bits, and what its bits mean."""

    name: str
    bits: int
    kind: Kind

    @property
    def unsigned(self) -> np.dtype[Any]:
        """The dtype of its bits."""
        return U[self.bits]

    @property
    def signed(self) -> np.dtype[Any]:
        """The dtype of two's complement."""
        return I[self.bits]

    @property
    def own(self) -> np.dtype[Any]:
        """The dtype of an integer type: signed where the type is."""
        return I[self.bits] if self.kind == "s" else U[self.bits]

    @property
    def float(self) -> np.dtype[Any]:
        """The dtype of a float type that numpy has."""
        return F[self.bits]


TYPES: dict[str, Type] = {
    **{f"u{bits}": Type(f"u{bits}", bits, "u") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": Type(f"s{bits}", bits, "s") for bits in (8, 16, 32, 64)},
    **{f"b{bits}": Type(f"b{bits}", bits, "b") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": Type(f"f{bits}", bits, "f") for bits in (16, 32, 64)},
    "bf16": Type("bf16", 16, "bf"),
    "pred": Type("pred", 1, "pred"),
    # Two or four small values in one register.
    "f16x2": Type("f16x2", 32, "b"),
    "bf16x2": Type("bf16x2", 32, "b"),
    "u16x2": Type("u16x2", 32, "b"),
    "s16x2": Type("s16x2", 32, "b"),
    "f32x2": Type("f32x2", 64, "b"),
}
REGISTER_BITS: dict[str, int] = {name: kind.bits for name, kind in TYPES.items()}


def bits_array(value: int, width: int) -> Bits:
    """One element: the low ``width`` bits of a Python integer."""
    return np.asarray([value & ((1 << width) - 1)], dtype=U[width])


def scalar(value: int, dtype: np.dtype[Any]) -> Bits:
    """A constant without axes: numpy combines it with a vector at the lowest price."""
    return np.asarray(value, dtype=dtype)


def parts(bits: Bits, dtype: np.dtype[Any]) -> Bits:
    """The smaller numbers that registers are made of, one after the other, the lowest first."""
    try:
        return bits.view(dtype)
    except ValueError:
        # A column of a table is no dense array.
        return np.ascontiguousarray(bits).view(dtype)
