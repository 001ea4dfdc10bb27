"""Values with how far a right kernel may be from them, in f32 as ``-use_fast_math`` compiles it.

A ``Bounded`` is a value in float64 and a bound on what a kernel's f32 may differ from it by. Each
operation adds what its own rounding or approximation may add. Where operands have no error and f32
holds the result, nothing is added, whatever the compiler fuses. So products of values with half
of f32's bits, added up in the kernel's own order, give a bound of zero, and any other bit is wrong.
A fused multiply-add rounds once where two operations round twice: the bound holds for both.

The approximations' errors are the PTX ISA's words, section "Floating Point Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparkbuild.qualify.probes.launching import bfloat16
from sparkbuild.qualify.probes.model import Expected

Reals: TypeAlias = NDArray[np.float64]
Operand: TypeAlias = "Bounded | NDArray[Any] | np.generic[Any] | float"

UNIT: Final = 2.0**-24
"""Half a unit in the last place of f32, relative: what rounding to nearest may change."""
SMALLEST: Final = 2.0**-126
"""The smallest normal f32: ``.ftz`` makes smaller ones zero."""
EX2: Final = 2.0**-22
"""ex2.approx.ftz.f32: 2 ulp over the full range."""
DIVISION: Final = 2.0**-22
"""div.approx.ftz.f32: 2 ulp; rcp.approx.ftz.f32 (1 ulp) with a multiplication is within it."""
RECIPROCAL: Final = 2.0**-23
"""rcp.approx.ftz.f32: 1 ulp."""
RSQRT: Final = 2.0**-22.9
"""rsqrt.approx.ftz.f32: relative, over the positive finite range."""
SQRT: Final = 2.0**-23
"""sqrt.approx.ftz.f32: relative, over the positive finite range."""
LG2: Final = 2.0**-22
"""lg2.approx.ftz.f32: absolute between 0.5 and 2, relative elsewhere."""
TANH: Final = 2.0**-11
"""tanh.approx.f32: relative."""
SINE: Final = 2.0**-20.5
"""sin.approx and cos.approx.ftz.f32: absolute, in [-2 pi, 2 pi] ..."""
FAR_SINE: Final = 2.0**-14.7
"""... and in [-100 pi, 100 pi]; nothing is promised beyond."""
SINE_RANGE: Final = 100 * np.pi

_LOG2_E: Final = float(np.float32(np.log2(np.e)))
_LN_2: Final = float(np.float32(np.log(2)))


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """``value`` with ``error``: an f32 of the kernel is no further from it. Shapes are equal."""

    value: Reals
    error: Reals

    def __add__(self, other: Operand) -> Bounded:
        """The sum, rounded: of operands without error it is one f32 for certain."""
        right = exactly(other)
        value, error = self.value + right.value, self.error + right.error
        sure = error == 0
        with np.errstate(all="ignore"):
            value = np.where(sure, _flushed(value.astype(np.float32)), value)
            more = error + UNIT * (np.abs(value) + error) + SMALLEST
        return Bounded(value, np.where(sure | np.isinf(value), 0.0, more))

    __radd__ = __add__

    def __neg__(self) -> Bounded:
        """The negative, which is exact."""
        return Bounded(-self.value, self.error)

    def __sub__(self, other: Operand) -> Bounded:
        """The difference, rounded."""
        return self + -exactly(other)

    def __rsub__(self, other: Operand) -> Bounded:
        """The difference, rounded."""
        return exactly(other) + -self

    def __mul__(self, other: Operand) -> Bounded:
        """The product, rounded."""
        right = exactly(other)
        with np.errstate(invalid="ignore"):  # nothing times a value that is not judged
            error = (
                np.abs(self.value) * right.error
                + np.abs(right.value) * self.error
                + self.error * right.error
            )
        return _rounded(self.value * right.value, np.where(np.isnan(error), np.inf, error))

    __rmul__ = __mul__

    def once(self, other: Operand) -> Bounded:
        """The product where nothing is fused with it: without errors it is one f32 for certain."""
        right, found = exactly(other), self * other
        sure = (self.error + right.error) == 0
        value = np.where(sure, _flushed(found.value.astype(np.float32)), found.value)
        return Bounded(value, np.where(sure, 0.0, found.error))

    def __truediv__(self, other: Operand) -> Bounded:
        """The quotient of div.approx."""
        right = exactly(other)
        apart = _relative(right) + DIVISION
        value = self.value / right.value
        error = self.error / np.abs(right.value) * (1 + apart) + np.abs(value) * apart
        return Bounded(value, error + SMALLEST)

    def __getitem__(self, key: Any) -> Bounded:
        """Elements of both."""
        return Bounded(self.value[key], self.error[key])

    def map(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> Bounded:
        """Both moved about: reshaped, transposed, broadcast."""
        return Bounded(move(self.value), move(self.error))

    def spread(self) -> Bounded:
        """With an axis of one element more, the innermost."""
        return Bounded(self.value[..., None], self.error[..., None])

    def summed(self) -> Bounded:
        """The sum over the last axis, first to last."""
        total = self[..., 0]
        for index in range(1, self.value.shape[-1]):
            total = total + self[..., index]
        return total

    def total(self, depth: int) -> Bounded:
        """The sum over the last axis in any order, no element added to more than ``depth`` times.

        Exact where f32 holds every sum that may be met.
        """
        value, size = self.value.sum(-1), np.abs(self.value).sum(-1)
        if not self.error.any() and _exact(self.value, float(size.max(initial=0.0))):
            return exactly(value)
        error = self.error.sum(-1)
        return Bounded(value, error + (size + error) * np.expm1(depth * np.log1p(UNIT)))

    def warp_sum(self, width: int = 32) -> Bounded:
        """The sum over the last axis, up to ``width`` lanes, as ``warp_reduce_sum`` adds them."""
        rest = width - self.value.shape[-1]
        lanes = self.map(lambda v: np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, rest)]))
        while width > 1:
            width //= 2
            lanes = lanes[..., :width] + lanes[..., width : 2 * width]
        return lanes[..., 0]

    def block_sum(self, block: int) -> Bounded:
        """The sum over the last axis as a block does it: each thread its own, warp, warps."""
        rounds = -(-self.value.shape[-1] // block)
        rest = rounds * block - self.value.shape[-1]
        padded = self.map(lambda v: np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, rest)]))
        shape = (*self.value.shape[:-1], rounds, block)
        each = padded.map(lambda v: np.moveaxis(v.reshape(shape), -2, -1)).summed()
        warps = each.map(lambda v: v.reshape(*v.shape[:-1], block // 32, 32)).warp_sum()
        return warps.warp_sum() if block > 32 else warps[..., 0]


def exactly(values: Operand) -> Bounded:
    """Values that the kernel has without error."""
    if isinstance(values, Bounded):
        return values
    reals = np.asarray(values, np.float64)
    return Bounded(reals, np.zeros_like(reals))


def contracted(x: NDArray[Any], y: NDArray[Any], depth: int) -> Bounded:
    """Sums over the last axes of x, (..., i, k), and y, (..., j, k): (..., i, j), in any order.

    Products are exact; no element goes through more than ``depth`` additions.
    """
    one, two = x.astype(np.float64), np.swapaxes(y.astype(np.float64), -1, -2)
    value, size = one @ two, np.abs(one) @ np.abs(two)
    if size.max(initial=0.0) <= _step(one) * _step(two) * 2.0**24:
        return exactly(value)
    return Bounded(value, size * np.expm1(depth * np.log1p(UNIT)))


def exp(x: Bounded) -> Bounded:
    """expf: ex2.approx of x times log2(e)."""
    with np.errstate(all="ignore"):
        power = x * _LOG2_E
        value = np.exp(x.value)
        off = np.where(np.isinf(x.value), 0.0, np.abs(x.value) * abs(_LOG2_E - np.log2(np.e)))
        apart = np.expm1(np.log(2) * (power.error + off)) * (1 + EX2) + EX2
        error = np.where(np.isinf(x.value), 0.0, value * apart + SMALLEST)
    return Bounded(value, np.where((x.value == 0) & (x.error == 0), 0.0, error))


def log(x: Bounded) -> Bounded:
    """logf: lg2.approx times ln(2)."""
    two = np.log2(x.value)
    near = (x.value > 0.5) & (x.value < 2)
    error = -np.log2(np.maximum(1 - x.error / x.value, UNIT)) + LG2 * np.where(near, 1, np.abs(two))
    return Bounded(two, error) * _LN_2 + Bounded(two * 0, np.abs(two) * abs(_LN_2 - np.log(2)))


def power(base: Bounded, exponent: Operand) -> Bounded:
    """powf: ex2.approx of the exponent times lg2.approx of the base."""
    two = np.log2(base.value)
    near = (base.value > 0.5) & (base.value < 2)
    apart = _relative(base) / np.log(2) + LG2 * np.where(near, 1, np.abs(two))
    raised = Bounded(two, apart) * exponent
    value = np.exp2(raised.value)
    apart = np.expm1(np.log(2) * raised.error) * (1 + EX2) + EX2
    return Bounded(value, np.where((raised.value == 0) & (raised.error == 0), 0.0, value * apart))


def reciprocal(x: Bounded) -> Bounded:
    """1 / x of rcp.approx, or of div.approx."""
    return Bounded(np.ones_like(x.value), np.zeros_like(x.value)) / x


def rsqrt(x: Bounded) -> Bounded:
    """rsqrt.approx."""
    value = 1 / np.sqrt(x.value)
    return Bounded(value, value * (_relative(x) / 2 * (1 + RSQRT) + RSQRT))


def sqrt(x: Bounded) -> Bounded:
    """sqrt.approx."""
    value = np.sqrt(x.value)
    relative = np.where(x.value > 0, _relative(x) / 2, 0.0)
    return Bounded(value, value * (relative * (1 + SQRT) + SQRT))


def tanh(x: Bounded) -> Bounded:
    """tanh.approx."""
    value = np.tanh(x.value)
    return Bounded(value, x.error + np.abs(value) * TANH)


def sine(x: Bounded) -> Bounded:
    """sin.approx; the error is infinite where nothing is promised."""
    return Bounded(np.sin(x.value), x.error + _turned(x))


def cosine(x: Bounded) -> Bounded:
    """cos.approx; the error is infinite where nothing is promised."""
    return Bounded(np.cos(x.value), x.error + _turned(x))


def largest(x: Operand, y: Operand) -> Bounded:
    """The larger of two."""
    one, two = exactly(x), exactly(y)
    return Bounded(np.maximum(one.value, two.value), np.maximum(one.error, two.error))


def least(x: Operand, y: Operand) -> Bounded:
    """The smaller of two."""
    return -largest(-exactly(x), -exactly(y))


def where(condition: NDArray[np.bool_], x: Operand, y: Operand) -> Bounded:
    """One where the condition holds, else the other."""
    one, two = exactly(x), exactly(y)
    return Bounded(
        np.where(condition, one.value, two.value), np.where(condition, one.error, two.error)
    )


def expected(
    found: Operand,
    why: str,
    dtype: DTypeLike = np.float32,
    defined: NDArray[np.bool_] | None = None,
) -> Expected:
    """What a buffer of ``dtype`` (f32, f16) must hold; an infinite error is not judged."""
    right = exactly(found)
    with np.errstate(all="ignore"):
        values = right.value.astype(dtype)
        above = (right.value + right.error).astype(dtype).astype(np.float64)
        below = (right.value - right.error).astype(dtype).astype(np.float64)
        middle = values.astype(np.float64)
        bound = np.maximum(above - middle, middle - below)  # rounding keeps the order
        bound = np.where(above == below, 0.0, bound)  # infinite ones
    judged = np.isfinite(bound)
    if defined is not None:
        judged &= defined
    return Expected(
        values=values,
        bound=np.where(judged, bound, 0.0),
        why=why,
        defined=None if judged.all() else judged,
    )


def expected_bfloat16(found: Bounded, why: str) -> Expected:
    """What a buffer of bf16 must hold, as bits: the bound counts units in the last place.

    A value that may have either sign is not judged.
    """
    above, below = found.value + found.error, found.value - found.error
    bits = [bfloat16(v.astype(np.float32)).astype(np.int64) for v in (found.value, above, below)]
    sure, bound = found.error == 0, np.maximum(abs(bits[1] - bits[0]), abs(bits[2] - bits[0]))
    judged = sure | (above * below > 0)
    return Expected(
        values=bits[0].astype(np.uint16),
        bound=np.where(judged & ~sure, bound, 0).astype(np.float64),
        why=why,
        defined=None if judged.all() else judged,
    )


def _rounded(value: Reals, error: Reals) -> Bounded:
    with np.errstate(all="ignore"):
        exact = (error == 0) & (value.astype(np.float32) == value)
        more = error + UNIT * (np.abs(value) + error) + SMALLEST
    value, error = np.broadcast_arrays(value, np.where(exact, 0.0, more))
    return Bounded(value, error)


def _relative(x: Bounded) -> Reals:
    """The error as a part of the value, as it is after a division: 1 / (1 - r) - 1."""
    with np.errstate(all="ignore"):
        part = np.where(x.error == 0, 0.0, x.error / np.abs(x.value))
        return np.asarray(np.where(part < 1, part / (1 - np.minimum(part, 1 - UNIT)), np.inf))


def _turned(x: Bounded) -> Reals:
    size = np.abs(x.value) + x.error
    far = np.where(size <= SINE_RANGE, FAR_SINE, np.inf)
    return np.asarray(np.where(size <= 2 * np.pi, SINE, far))


def _flushed(values: NDArray[np.float32]) -> Reals:
    small = np.abs(values) < SMALLEST
    return np.where(small, np.copysign(0.0, values), values).astype(np.float64)


def _exact(values: Reals, size: float) -> bool:
    """Whether f32 holds every sum of such values, ``size`` being that of all of one sum."""
    return size <= _step(values) * 2.0**24


def _step(values: Reals) -> float:
    """The largest power of two that all are multiples of."""
    mantissa, exponent = np.frexp(values[values != 0])
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = exponent - 53 + np.log2((whole & -whole).astype(np.float64))
    return float(2.0 ** lowest.min(initial=1000.0))
