"""Conversions of single values: integers, f16, bf16, f32, f64, in every direction and rounding."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .lanes import LAYOUTS, nasty, number, product, round_to, run, signed

REGISTER = {8: "%rs", 16: "%rs", 32: "%r", 64: "%rd"}
INTEGERS = [f"{sign}{width}" for sign in "us" for width in (8, 16, 32, 64)]
FLOATS = {"f16": "%rs", "bf16": "%rs", "f32": "%f", "f64": "%fd"}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def width(kind: str) -> int:
    return 16 if kind == "bf16" else int(kind[1:])


def as_number(bits: int, kind: str) -> int:
    bits &= (1 << width(kind)) - 1
    return signed(bits, width(kind)) if kind[0] == "s" else bits


def limits(kind: str) -> tuple[int, int]:
    bits = width(kind)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_whole_numbers(source: str, target: str) -> None:
    values = nasty(64)
    registers = {REGISTER[size] for size in (16, 32, 64) if size >= width(source)}
    for register in registers:
        bits = {"%rs": 16, "%r": 32, "%rd": 64}[register]
        given = [value & (1 << bits) - 1 for value in values]
        numbers = [as_number(value, source) for value in given]
        for result in ("%rs", "%r", "%rd"):
            wide = {"%rs": 16, "%r": 32, "%rd": 64}[result]
            if wide < width(target):
                continue
            kept = [as_number(each, target) & (1 << wide) - 1 for each in numbers]
            assert run(f"cvt.{target}.{source} {result}0, {register}1", given) == kept
            low, high = limits(target)
            clamped = [max(low, min(high, each)) & (1 << wide) - 1 for each in numbers]
            assert run(f"cvt.sat.{target}.{source} {result}0, {register}1", given) == clamped


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", FLOATS)
def test_whole_numbers_to_floats(source: str, target: str) -> None:
    size = width(source)
    values = nasty(size)
    # Just beside what the format can hold, and beside the middle of two neighbours.
    for power in range(size):
        for low in (0, 1, 3):
            for high in (1, 3, 0x1FFFFFF, 0x3FFFFFF, 0x801, 0x1003):
                values.append((high << power) + low & (1 << size) - 1)
    values = sorted(set(values))
    for mode in ("rn", "rz", "rm", "rp"):
        if target == "f64" and size == 64 and mode != "rn":
            continue
        wanted = [round_to(Fraction(as_number(each, source)), target, mode) for each in values]
        text = f"cvt.{mode}.{target}.{source} {FLOATS[target]}0, {REGISTER[size]}1"
        assert run(text, values) == wanted, text


ROUNDERS: dict[str, Callable[[Fraction], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


def float_cases(kind: str) -> list[int]:
    """Bits of numbers near whole ones, halves, limits of integers, subnormal ones, the rest."""
    exponents, stored = LAYOUTS[kind]
    top = 1 << exponents + stored
    infinity = ((1 << exponents) - 1) << stored
    values = [0, 1, (1 << stored) - 1, 1 << stored, infinity - 1, infinity, infinity + 1, top - 1]
    for power in (7, 8, 15, 16, 31, 32, 63, 64):
        for step in (-1, Fraction(-1, 2), 0, Fraction(1, 2), 1):
            value = round_to(Fraction(2) ** power + step, kind)
            values += [value, min(value + 1, infinity), value - 1]
    for quarter in range(-1, 30):
        value = round_to(Fraction(abs(quarter), 4), kind)
        values += [value, value + 1, max(value - 1, 0)]
    return sorted({each for value in values for each in (value, value | top)})


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_to_whole_numbers_saturate(source: str, target: str) -> None:
    values = float_cases(source)
    low, high = limits(target)
    size = max(width(target), 16)
    nan = 1 << width(target) - 1 if width(target) == 64 or source == "f64" else 0

    def whole(bits: int, rounder: str, flush: bool) -> int:
        value = number(bits, source)
        if isinstance(value, float):
            if math.isnan(value):
                return as_number(nan, target) & (1 << size) - 1
            return (high if value > 0 else low) & (1 << size) - 1
        if flush and abs(value) < Fraction(2) ** -126:
            value = Fraction(0)
        return max(low, min(high, ROUNDERS[rounder](value))) & (1 << size) - 1

    for rounder in ROUNDERS:
        text = f"{target}.{source} {REGISTER[size]}0, {FLOATS[source]}1"
        wanted = [whole(each, rounder, flush=False) for each in values]
        assert run(f"cvt.{rounder}.{text}", values) == wanted, text
        assert run(f"cvt.{rounder}.sat.{text}", values) == wanted
        if source == "f32":
            wanted = [whole(each, rounder, flush=True) for each in values]
            assert run(f"cvt.{rounder}.ftz.{text}", values) == wanted


def converted(bits: int, source: str, target: str, mode: str) -> int:
    value, sign = number(bits, source), bits >> width(source) - 1
    top = 1 << width(target) - 1
    if isinstance(value, float):
        if math.isnan(value):
            return NAN[target]
        exponents, stored = LAYOUTS[target]
        return ((1 << exponents) - 1) << stored | (top if sign else 0)
    return round_to(value, target, mode, bool(sign))


def halves(kind: str, step: int = 1) -> list[int]:
    return list(range(0, 1 << 16, step))


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_all_halves_widen_exactly(source: str) -> None:
    values = halves(source)
    wanted = [converted(each, source, "f32", "rn") for each in values]
    found = run(f"cvt.f32.{source} %f0, %rs1", values)
    if source == "bf16":
        # A bf16 is the high half of a float, a NaN as well.
        assert found == [each << 16 for each in values]
        wanted = [
            each << 16 if want == NAN["f32"] else want
            for each, want in zip(values, wanted, strict=True)
        ]
    assert found == wanted
    some = halves(source, 7)
    wanted = [converted(each, source, "f64", "rn") for each in some]
    assert run(f"cvt.f64.{source} %fd0, %rs1", some) == wanted


@pytest.mark.parametrize("target", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_every_half_and_both_sides_of_every_middle(target: str, mode: str) -> None:
    # Every half as a float, the middle between it and the next, and the floats beside both.
    codes = np.arange(0, 0x7C00 if target == "f16" else 0x7F80, 3, dtype=np.uint16)
    exact = (
        codes.view(np.float16).astype(np.float32).view(np.uint32)
        if target == "f16"
        else (codes.astype(np.uint32) << 16)
    )
    following = (codes + 1).astype(np.uint16)
    other = (
        following.view(np.float16).astype(np.float32)
        if target == "f16"
        else ((following.astype(np.uint32) << 16).view(np.float32))
    )
    middles = ((exact.view(np.float32).astype(np.float64) + other) / 2).astype(np.float32)
    words = np.concatenate(
        [
            base.view(np.uint32) + shift
            for base in (exact, middles)
            for shift in (np.uint32(0), np.uint32(1), np.uint32(0xFFFFFFFF))
        ]
    )
    step = 5 if mode == "rn" else 11
    values = [int(each) for each in words[::step] if each < 0x7F800000]
    values += [each | 1 << 31 for each in values[::2]]
    wanted = [converted(each, "f32", target, mode) for each in values]
    assert run(f"cvt.{mode}.{target}.f32 %rs0, %f1", values) == wanted


def test_what_is_no_finite_number_stays_so() -> None:
    values = [0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0xFF7FFFFF]
    assert run("cvt.rn.f16.f32 %rs0, %f1", values) == [
        0x7C00,
        0xFC00,
        0x7FFF,
        0x7FFF,
        0x7C00,
        0xFC00,
    ]
    assert run("cvt.rz.f16.f32 %rs0, %f1", values) == [
        0x7C00,
        0xFC00,
        0x7FFF,
        0x7FFF,
        0x7BFF,
        0xFBFF,
    ]
    assert run("cvt.rn.bf16.f32 %rs0, %f1", values) == [
        0x7F80, 0xFF80, 0x7FFF, 0x7FFF, 0x7F80, 0xFF80,
    ]  # fmt: skip
    assert run("cvt.rn.satfinite.f16.f32 %rs0, %f1", values) == [
        0x7BFF, 0xFBFF, 0x7FFF, 0x7FFF, 0x7BFF, 0xFBFF,
    ]  # fmt: skip
    assert run("cvt.rn.relu.bf16.f32 %rs0, %f1", [*values, 0xBF800000, 0x80000000]) == [
        0x7F80, 0, 0x7FFF, 0x7FFF, 0x7F80, 0, 0, 0,
    ]  # fmt: skip
    assert run("cvt.rz.relu.satfinite.bf16.f32 %rs0, %f1", values) == [
        0x7F7F, 0, 0x7FFF, 0x7FFF, 0x7F7F, 0,
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=30),
    st.sampled_from(["rn", "rz", "rm", "rp"]),
    st.sampled_from(["f16", "bf16", "f32"]),
)
def test_doubles_narrow_in_one_step(values: list[int], mode: str, target: str) -> None:
    exponents = [(each & ~(0x7FF << 52)) | (1023 - 160 + each % 300) << 52 for each in values]
    given = values + exponents
    wanted = [converted(each, "f64", target, mode) for each in given]
    assert run(f"cvt.{mode}.{target}.f64 {FLOATS[target]}0, %fd1", given) == wanted


def test_a_double_is_not_rounded_twice() -> None:
    # 1 + 2^-11 + 2^-40: half-way for f16 once rounded to a float of 32 bits.
    value = round_to(1 + Fraction(1, 1 << 11) + Fraction(1, 1 << 40), "f64")
    assert run("cvt.rn.f16.f64 %rs0, %fd1", [value]) == [0x3C01]
    assert run("cvt.rn.bf16.f16 %rs0, %rs1", [0x3C04, 0x3C05, 0x3C0C]) == [0x3F80, 0x3F81, 0x3F82]
    assert run("cvt.rz.f16.bf16 %rs0, %rs1", [0x3F81, 0x7F7F, 0x0001]) == [0x3C08, 0x7BFF, 0]


@pytest.mark.parametrize("rounder", ROUNDERS)
@pytest.mark.parametrize("kind", FLOATS)
def test_rounding_to_whole_floats(rounder: str, kind: str) -> None:
    values = float_cases(kind)

    def whole(bits: int, flush: bool) -> int:
        value, sign = number(bits, kind), bits >> width(kind) - 1
        if isinstance(value, float):
            if kind == "bf16" and math.isnan(value):
                return NAN[kind]
            return converted(bits, kind, kind, "rn")
        if flush and abs(value) < Fraction(2) ** -126:
            value = Fraction(0)
        return round_to(Fraction(ROUNDERS[rounder](value)), kind, "rn", bool(sign))

    text = f"{kind}.{kind} {FLOATS[kind]}0, {FLOATS[kind]}1"
    assert run(f"cvt.{rounder}.{text}", values) == [whole(each, flush=False) for each in values]
    if kind == "f32":
        wanted = [whole(each, flush=True) for each in values]
        assert run(f"cvt.{rounder}.ftz.{text}", values) == wanted


def test_flushing_and_saturation_of_floats() -> None:
    values = [1, 1 << 31 | 1, 0x00800000, 0x3F000000, 0x40000000, 0xBF800000, 0x7FC00000]
    assert run("cvt.ftz.f32.f32 %f0, %f1", values) == [
        0, 1 << 31, 0x00800000, 0x3F000000, 0x40000000, 0xBF800000, 0x7FFFFFFF,
    ]  # fmt: skip
    assert run("cvt.sat.f32.f32 %f0, %f1", values) == [
        1, 0, 0x00800000, 0x3F000000, 0x3F800000, 0, 0,
    ]  # fmt: skip
    one, two, nan = 1023 << 52, 1024 << 52, 0x7FF8 << 48
    assert run("cvt.sat.f64.f64 %fd0, %fd1", [1 << 63, 1, two, one, nan, two | 1 << 63]) == [
        0, 1, one, one, 0, 0,
    ]  # fmt: skip
    assert run("cvt.ftz.f64.f32 %fd0, %f1", [1]) == [0]
    assert run("cvt.f64.f32 %fd0, %f1", [1]) == [(1023 - 149) << 52]
    tiny = (1023 - 130) << 52
    assert run("cvt.rn.ftz.f32.f64 %f0, %fd1", [tiny]) == [0]
    assert run("cvt.rn.f32.f64 %f0, %fd1", [tiny]) == [1 << 19]
    assert run("cvt.rn.ftz.f16.f32 %rs0, %f1", [0x33800000, 1]) == [1, 0]


@pytest.mark.parametrize("kind", [f"{sign}{size}" for sign in "us" for size in (2, 4, 8, 16)])
def test_two_integers_packed_onto_a_third(kind: str) -> None:
    size = int(kind[1:])
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if kind[0] == "s" else (0, (1 << size) - 1)
    values = [low - 1, low, low + 1, -1, 0, 1, high - 1, high, high + 1, 1 << 31, (1 << 31) - 1]
    a, b = product(values, values)
    c = [(0x9E3779B9 * (index + 1)) % (1 << 32) for index in range(len(a))]
    mask = (1 << size) - 1

    def clamp(value: int) -> int:
        return max(low, min(high, signed(value % (1 << 32), 32))) & mask

    pairs = [clamp(x) << size | clamp(y) for x, y in zip(a, b, strict=True)]
    if size == 16:
        assert run(f"cvt.pack.sat.{kind}.s32 %r0, %r1, %r2", a, b) == pairs
        return
    found = run(f"cvt.pack.sat.{kind}.s32.b32 %r0, %r1, %r2, %r3", a, b, c)
    assert found == [(pair | z << 2 * size) % (1 << 32) for pair, z in zip(pairs, c, strict=True)]
