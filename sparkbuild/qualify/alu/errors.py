"""How far a GPU's approximations may be from the exact value, as the PTX manual states it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Error:
    """A stated maximal error; where several figures are given, the largest of them applies.

    ``ulp`` counts units in the last place of the rounded result, ``relative`` is a share of the
    exact value, ``absolute`` stands as it is. ``where`` says for which inputs; ``section`` is the
    PTX manual's instruction.
    """

    section: str
    ulp: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    where: str = "all inputs"


# By opcode, modifier and type, ``.ftz`` left out: it changes the results, not the error.
APPROXIMATE: dict[str, Error] = {
    "rcp.approx.f32": Error("rcp", ulp=1),
    "div.approx.f32": Error("div", ulp=2, where="2^-126 <= |b| <= 2^126"),
    "div.full.f32": Error("div", ulp=2),
    "sqrt.approx.f32": Error("sqrt", relative=2.0**-23, where="positive finite inputs"),
    "rsqrt.approx.f32": Error("rsqrt", relative=2.0**-22.9, where="positive finite inputs"),
    "ex2.approx.f32": Error("ex2", ulp=2),
    "ex2.approx.f16": Error("ex2", relative=2.0**-9.9),
    "ex2.approx.f16x2": Error("ex2", relative=2.0**-9.9),
    "ex2.approx.bf16": Error("ex2", relative=2.0**-7),
    "ex2.approx.bf16x2": Error("ex2", relative=2.0**-7),
    "lg2.approx.f32": Error(
        "lg2",
        absolute=2.0**-22,
        relative=2.0**-22,
        where="absolute for inputs in (0.5, 2), relative for other positive finite inputs",
    ),
    "sin.approx.f32": Error("sin", absolute=2.0**-20.5, where="inputs in [-2 pi, 2 pi]"),
    "cos.approx.f32": Error("cos", absolute=2.0**-20.5, where="inputs in [-2 pi, 2 pi]"),
    "tanh.approx.f32": Error("tanh", relative=2.0**-11),
    "tanh.approx.f16": Error("tanh", absolute=2.0**-10.987),
    "tanh.approx.f16x2": Error("tanh", absolute=2.0**-10.987),
    "tanh.approx.bf16": Error("tanh", absolute=2.0**-8),
    "tanh.approx.bf16x2": Error("tanh", absolute=2.0**-8),
}
# Beyond 2 pi, up to 100 pi; nothing is promised further out.
WIDE_ANGLES = 2.0**-14.7


@dataclass(frozen=True, slots=True)
class TensorCore:
    """How a tensor core adds: bits kept below the largest exponent, and in how many steps."""

    bits: int
    steps: int = 1


# The addends of a dot product are aligned to the largest exponent among them, and what lies too
# far below it is cut off. Found bit for bit on GPUs of each generation by P. Xie et al., "MMA-Sim"
# (arXiv 2511.10909).
TENSOR_CORES: dict[str, TensorCore] = {
    "ampere": TensorCore(24, steps=2),
    "ada": TensorCore(24, steps=2),
    "ada-f8": TensorCore(13, steps=2),
    "hopper": TensorCore(25),
    "blackwell": TensorCore(25),
    "blackwell-f4": TensorCore(35),
}


def mma_bound(
    largest: Floats, terms: int, result: Floats, *, core: str = "blackwell", half: bool = False
) -> Floats:
    """How far a GPU's ``mma`` may be from the one here, element by element.

    ``largest`` is the largest magnitude among an element's products and its addend (of operands
    that are not subnormal), ``terms`` how many products there are, ``result`` the result here;
    ``core`` names a row of TENSOR_CORES, ``half`` says that the accumulator is f16. Each addend
    loses less than a unit in the last bit kept; between two steps the sum is cut to 24 bits; at
    the end it is rounded, once here and once there.
    """
    kind = TENSOR_CORES[core]
    unit = np.ldexp(np.asarray(largest, np.float64), -kind.bits)
    lost = terms + 1 if kind.steps == 1 else 2 * (terms + 2)
    # To nearest here; towards zero there for f32, to nearest for f16.
    rounding = 2.0**-10 if half else 1.5 * 2.0**-23
    smallest = 2.0**-24 if half else 2.0**-149
    return np.asarray(lost * unit + np.abs(result) * rounding + smallest)
