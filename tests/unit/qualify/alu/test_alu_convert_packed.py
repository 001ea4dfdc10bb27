"""Packed conversions: pairs of halves, tf32, and the 8, 6 and 4-bit floats with their scales.

The small formats are written down here by their own definition (sign, exponent bits, stored bits,
bias, what the highest codes are), and every code and every middle between two codes is tried.
"""

import bisect
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from .lanes import finite, number, round_to, run

# Exponent bits, stored fraction bits, bias, the largest finite number.
SMALL: dict[str, tuple[int, int, int, int | Fraction]] = {
    "e4m3": (4, 3, 7, 448),
    "e5m2": (5, 2, 15, 57344),
    "e2m1": (2, 1, 1, 6),
    "e2m3": (2, 3, 1, Fraction(15, 2)),
    "e3m2": (3, 2, 3, 28),
}


def value_of(code: int, name: str) -> Fraction | float:
    exponent_bits, stored, bias, _ = SMALL[name]
    size = code & (1 << exponent_bits + stored) - 1
    sign = -1 if code >> exponent_bits + stored & 1 else 1
    exponent, fraction = size >> stored, size & (1 << stored) - 1
    if name == "e4m3" and size == 0x7F:
        return math.nan
    if name == "e5m2" and exponent == 31:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * Fraction(fraction, 1 << stored) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(fraction, 1 << stored)) * Fraction(2) ** (exponent - bias)


@functools.cache
def magnitudes(name: str) -> list[Fraction]:
    exponent_bits, stored, _, largest = SMALL[name]
    values = [value_of(code, name) for code in range(1 << exponent_bits + stored)]
    return [each for each in values if isinstance(each, Fraction) and each <= largest]


def nearest(value: Fraction | float, name: str, sign: int) -> int:
    """The code of the nearest number, ties to the even code, what is too large to the largest."""
    exponent_bits, stored, _, _ = SMALL[name]
    top = 1 << exponent_bits + stored
    codes = magnitudes(name)
    if isinstance(value, float):
        if math.isnan(value):
            return {"e4m3": 0x7F, "e5m2": 0x7F}.get(name, len(codes) - 1)
        return (len(codes) - 1) | (top if value < 0 else 0)
    size = abs(value)
    after = bisect.bisect_left(codes, size)
    beside = [code for code in (after - 1, after) if 0 <= code < len(codes)]
    chosen = min(beside, key=lambda code: (abs(codes[code] - size), code % 2))
    return chosen | (top if sign else 0)


def floats_around(name: str) -> list[int]:
    """f32 bits of every number, of every middle, their neighbours, and beyond the largest."""
    values = magnitudes(name)
    points = [*values, *((a + b) / 2 for a, b in itertools.pairwise(values))]
    points += [values[-1] * 17 / 16, values[-1] * 2, Fraction(2) ** 127]
    bits = []
    for point in points:
        middle = round_to(point, "f32")
        bits += [middle, middle + 1, max(middle - 1, 0)]
    bits += [0x7F800000, 0x7FC00000, 1]
    return [each | sign << 31 for each in bits for sign in (0, 1)]


def pack(high: int, low: int, name: str) -> int:
    shift = 4 if name == "e2m1" else 8
    return high << shift | low


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_floats_to_small_floats(name: str, relu: str) -> None:
    low = floats_around(name)
    high = low[7:] + low[:7]

    def code(bits: int) -> int:
        value = number(bits, "f32")
        if relu and (bits >> 31) and not (isinstance(value, float) and math.isnan(value)):
            return 0
        return nearest(value, name, bits >> 31)

    register = "%b0" if name == "e2m1" else "%rs0"
    found = run(f"cvt.rn.satfinite{relu}.{name}x2.f32 {register}, %f1, %f2", high, low)
    assert found == [pack(code(a), code(b), name) for a, b in zip(high, low, strict=True)]


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_all_f16_to_8_bits(name: str) -> None:
    low = list(range(0, 1 << 16, 9))
    high = low[::-1]
    words = [a << 16 | b for a, b in zip(high, low, strict=True)]
    codes = {each: nearest(number(each, "f16"), name, each >> 15) for each in low}
    found = run(f"cvt.rn.satfinite.{name}x2.f16x2 %rs0, %r1", words)
    assert found == [codes[a] << 8 | codes[b] for a, b in zip(high, low, strict=True)]


def as_f16(value: Fraction | float, sign: int) -> int:
    if isinstance(value, float):
        return 0x7FFF if math.isnan(value) else 0xFC00 if value < 0 else 0x7C00
    return round_to(value, "f16", "rn", bool(sign))


@pytest.mark.parametrize("name", SMALL)
def test_every_code_widens_to_f16(name: str) -> None:
    width = sum(SMALL[name][:2]) + 1
    codes = list(range(1 << width))
    halves = [as_f16(value_of(code, name), code >> width - 1) for code in codes]
    words = [pack(code, codes[-1 - code], name) for code in codes]
    wanted = [halves[code] << 16 | halves[-1 - code] for code in codes]
    register = "%b1" if name == "e2m1" else "%rs1"
    assert run(f"cvt.rn.f16x2.{name}x2 %r0, {register}", words) == wanted
    positive = [0 if half >> 15 else half for half in halves]
    wanted = [positive[code] << 16 | positive[-1 - code] for code in codes]
    assert run(f"cvt.rn.relu.f16x2.{name}x2 %r0, {register}", words) == wanted


def test_scales() -> None:
    words = [code << 8 | 255 - code for code in range(256)]

    def power(code: int) -> int:
        return 0x7FFF if code == 255 else round_to(Fraction(2) ** (code - 127), "bf16")

    wanted = [power(code) << 16 | power(255 - code) for code in range(256)]
    assert run("cvt.rn.bf16x2.ue8m0x2 %r0, %rs1", words) == wanted


def scale(bits: int, up: bool, finite: bool) -> int:
    """The largest power of two not above the magnitude, or the smallest not below."""
    value = number(bits & 0x7FFFFFFF, "f32")
    if isinstance(value, float):
        return 0xFF if math.isnan(value) or not finite else 0xFE
    codes = [code for code in range(255) if (Fraction(2) ** (code - 127) <= value)]
    code = codes[-1] if codes else 0
    if up and value > Fraction(2) ** (code - 127):
        code += 1
    return min(code, 0xFE) if finite else code


@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("finite", ["", ".satfinite"])
def test_floats_to_scales(mode: str, finite: str) -> None:
    bits = [0, 1, 0x003FFFFF, 0x00400000, 0x00400001, 0x007FFFFF, 0x00800000, 0x00800001]
    bits += [0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x7F000000, 0x7F000001, 0x7F7FFFFF, 0x7F800000]
    bits += [0x7FC00000, 0xBFC00000, 0xFF800000]
    low, high = bits, bits[3:] + bits[:3]
    found = run(f"cvt.{mode}{finite}.ue8m0x2.f32 %rs0, %f1, %f2", high, low)
    wanted = [
        scale(a, mode == "rp", bool(finite)) << 8 | scale(b, mode == "rp", bool(finite))
        for a, b in zip(high, low, strict=True)
    ]
    assert found == wanted
    short = [each & 0xFFFF0000 for each in bits]
    words = [b >> 16 | a for a, b in zip(short[3:] + short[:3], short, strict=True)]
    found = run(f"cvt.{mode}{finite}.ue8m0x2.bf16x2 %rs0, %r1", words)
    wanted = [
        scale(a, mode == "rp", bool(finite)) << 8 | scale(b, mode == "rp", bool(finite))
        for a, b in zip(short[3:] + short[:3], short, strict=True)
    ]
    assert found == wanted


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_pairs_of_halves(name: str, mode: str) -> None:
    generator = np.random.default_rng(4)
    low = [int(each) for each in generator.integers(0, 1 << 32, 400)]
    low = [each for each in low if each & 0x7F800000 != 0x7F800000]
    low += [0x477FF000, 0x477FEFFF, 0x33000000, 0x33000001, 0x80000000, 1, 0x7F7FFFFF]
    high = low[5:] + low[:5]
    one, two = (
        [round_to(finite(each, "f32"), name, mode, bool(each >> 31)) for each in column]
        for column in (high, low)
    )
    found = run(f"cvt.{mode}.{name}x2.f32 %r0, %f1, %f2", high, low)
    assert found == [a << 16 | b for a, b in zip(one, two, strict=True)]
    largest = {"f16": 0x7BFF, "bf16": 0x7F7F}[name]
    inputs = [0x7F7FFFFF, 0x7F800000, 0xFF800000], [0xBF800000, 0x7FC00000, 0x7F7FFFFF]
    found = run(f"cvt.{mode}.satfinite.{name}x2.f32 %r0, %f1, %f2", *inputs)
    minus_one = {"f16": 0xBC00, "bf16": 0xBF80}[name]
    assert found == [
        largest << 16 | minus_one,
        largest << 16 | 0x7FFF,
        (largest | 0x8000) << 16 | largest,
    ]
    found = run(f"cvt.{mode}.relu.{name}x2.f32 %r0, %f1, %f2", [0xBF800000], [0x7FC00000])
    assert found == [0x7FFF]


@pytest.mark.parametrize("mode", ["rn", "rz", "rna"])
def test_tf32(mode: str) -> None:
    bits = [
        0x3F800000,
        0x3F800FFF,
        0x3F801000,
        0x3F801001,
        0x3F803000,
        0x3F802FFF,
        0x7F7FFFFF,
        1,
        0x00001000,
        0x00000FFF,
        0x80003000,
    ]
    wanted = [round_to(finite(each, "f32"), "tf32", mode, bool(each >> 31)) << 13 for each in bits]
    assert run(f"cvt.{mode}.tf32.f32 %r0, %f1", bits) == wanted
    assert run(f"cvt.{mode}.tf32.f32 %r0, %f1", [0x7FC00000, 0xFF800000]) == [
        0x7FFFFFFF,
        0xFF800000,
    ]
    assert run(f"cvt.{mode}.satfinite.tf32.f32 %r0, %f1", [0x7F800000]) == [0x7F7FE000]
    if mode != "rna":
        assert run(f"cvt.{mode}.relu.tf32.f32 %r0, %f1", [0xBF800000]) == [0]
