"""Doubles lane by lane in exact fractions, where numpy has no single rounding: fma, directions.

Slow and simple: no kernel of llama.cpp does arithmetic in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.rounding import Mode
from sparkbuild.qualify.alu.types import F64

PRECISION, LOWEST, HIGHEST = 53, -1074, 1023
MAXIMUM = Fraction((1 << PRECISION) - 1) * Fraction(2) ** (HIGHEST - PRECISION + 1)


def exact_lanes(opcode: str, mode: Mode) -> Callable[..., Bits]:
    """``add``, ``sub``, ``mul``, ``fma``, ``div`` or ``sqrt`` of doubles, rounded once."""
    functions: dict[str, Callable[..., float]] = {"fma": _fma, "div": _div, "sqrt": _sqrt}
    scalar = functions.get(opcode) or _two(opcode)

    def run(*values: Bits) -> Bits:
        lanes = np.broadcast_arrays(*values)
        found = [
            scalar(*[float(value) for value in row], mode)
            for row in zip(*[lane.ravel() for lane in lanes], strict=True)
        ]
        return np.array(found, F64).reshape(lanes[0].shape)

    return run


def _two(opcode: str) -> Callable[..., float]:
    def run(a: float, b: float, mode: Mode) -> float:
        if opcode == "mul":
            return _fma(a, b, math.copysign(0.0, _sign(a) * _sign(b)), mode)
        return _fma(a, 1.0, -b if opcode == "sub" else b, mode)

    return run


def _sign(value: float) -> float:
    return math.copysign(1.0, value)


def _fma(a: float, b: float, c: float, mode: Mode) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        # Signs and zeros say it all; a finite product must not overflow on the way.
        x, y, z = (_sign(each) * (each != 0) if math.isfinite(each) else each for each in (a, b, c))
        return x * y + z
    product_sign, total = _sign(a) * _sign(b), Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        zeros_agree = product_sign == _sign(c)
        exact_zero = product_sign if zeros_agree else (-1.0 if mode == "rm" else 1.0)
        return math.copysign(0.0, exact_zero)
    return round_double(total, mode)


def _div(a: float, b: float, mode: Mode) -> float:
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    return round_double(Fraction(a) / Fraction(b), mode)


def _sqrt(a: float, mode: Mode) -> float:
    if not math.isfinite(a) or a <= 0:
        with np.errstate(all="ignore"):
            return float(np.sqrt(np.float64(a)))
    # 120 bits of root, and one more that says whether anything was left: enough to round once.
    exact = Fraction(a)
    shift = 2 * (160 + max(0, -math.frexp(a)[1]))
    scaled = exact.numerator * (1 << shift) // exact.denominator
    root = math.isqrt(scaled)
    sticky = 0 if Fraction(root * root) == exact * (1 << shift) else 1
    return round_double(Fraction(2 * root + sticky, 2 << (shift // 2)), mode)


def round_double(value: Fraction, mode: Mode) -> float:
    """A non-zero fraction as a double, rounded once."""
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - PRECISION + 1, LOWEST)
    count, rest = divmod(size, unit)
    up = _rounds_up(count, rest / unit, mode, negative=value < 0)
    rounded = (count + up) * unit
    sign = -1.0 if value < 0 else 1.0
    if rounded > MAXIMUM:
        stays = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
        return sign * (float(MAXIMUM) if stays else math.inf)
    return math.copysign(float(rounded), sign)


def _rounds_up(count: int, rest: Fraction, mode: Mode, *, negative: bool) -> bool:
    half = Fraction(1, 2)
    if mode == "rn":
        return rest > half or (rest == half and count % 2 == 1)
    if mode == "rz":
        return False
    return rest > 0 and (negative if mode == "rm" else not negative)
