"""Comparisons, choices and moves."""

import math
import struct
from collections.abc import Callable

import pytest

from .lanes import nasty, product, run, signed

REGISTER = {16: "%rs", 32: "%r", 64: "%rd"}
NAMES: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("kind", ["u", "s", "b"])
def test_whole_numbers(width: int, kind: str) -> None:
    name = REGISTER[width]
    a, b = product(nasty(width), nasty(width))
    names = dict(NAMES)
    if kind == "u":
        names |= {"lo": NAMES["lt"], "ls": NAMES["le"], "hi": NAMES["gt"], "hs": NAMES["ge"]}
    if kind == "b":
        names = {"eq": NAMES["eq"], "ne": NAMES["ne"]}
    for test, holds in names.items():
        found = run(f"setp.{test}.{kind}{width} %p0, {name}1, {name}2", a, b)
        pairs = zip(a, b, strict=True)
        if kind == "s":
            assert found == [holds(signed(x, width), signed(y, width)) for x, y in pairs]
        else:
            assert found == [holds(x, y) for x, y in pairs]
    assert run(f"setp.eq.{kind}{width} %p0, {name}1, -1", [-1, 1]) == [1, 0]


FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 2.0**-126, math.inf, -math.inf, math.nan, 3.5]


def bits(value: float, width: int = 32) -> int:
    code = {16: "<e", 32: "<f", 64: "<d"}[width]
    size = {16: "<H", 32: "<I", 64: "<Q"}[width]
    return int(struct.unpack(size, struct.pack(code, value))[0])


def ordered(test: str, a: float, b: float) -> bool:
    """A comparison by the manual: the plain ones are false for NaN, those with u true."""
    either = math.isnan(a) or math.isnan(b)
    if test in {"num", "nan"}:
        return either == (test == "nan")
    if test.endswith("u"):
        return either or NAMES[test[:-1]](a, b)
    return not either and NAMES[test](a, b)


TESTS = [*NAMES, *(f"{name}u" for name in NAMES), "num", "nan"]


@pytest.mark.parametrize("test", TESTS)
def test_floats(test: str) -> None:
    a, b = ([FLOATS[i] for i in column] for column in product(range(11), range(11)))
    for kind, name, width in (("f32", "%f", 32), ("f64", "%fd", 64), ("f16", "%rs", 16)):
        one, two = ([bits(value, width) for value in column] for column in (a, b))
        exact = [struct.unpack("<e", struct.pack("<e", x))[0] if width == 16 else x for x in a]
        other = [struct.unpack("<e", struct.pack("<e", x))[0] if width == 16 else x for x in b]
        found = run(f"setp.{test}.{kind} %p0, {name}1, {name}2", one, two)
        assert found == [ordered(test, x, y) for x, y in zip(exact, other, strict=True)]
    flat = [0.0 if abs(value) < 2.0**-126 else value for value in a]
    flat_b = [0.0 if abs(value) < 2.0**-126 else value for value in b]
    one, two = ([bits(value) for value in column] for column in (a, b))
    found = run(f"setp.{test}.ftz.f32 %p0, %f1, %f2", one, two)
    assert found == [ordered(test, x, y) for x, y in zip(flat, flat_b, strict=True)]


def test_halves_flush_below_their_own_smallest_normal() -> None:
    tiny = [0x0001, 0x83FF, 0x0400]
    assert run("setp.eq.ftz.f16 %p0, %rs1, %rs2", tiny, [0, 0, 0]) == [1, 1, 0]
    assert run("setp.eq.f16 %p0, %rs1, %rs2", tiny, [0, 0, 0]) == [0, 0, 0]


def test_brain_floats_and_pairs_of_halves() -> None:
    assert run("setp.lt.bf16 %p0, %rs1, %rs2", [0x3F80, 0x0001, 0x7FC0], [0x4000, 0, 0]) == [
        1,
        0,
        0,
    ]
    assert run("setp.eq.bf16 %p0, %rs1, %rs2", [0x0001, 0x8000], [0, 0]) == [0, 1]
    both = run("setp.eq.bf16x2 %p0|%p1, %r1, %r2", [0x0001_8000], [0], raw=True)
    assert both == [[1], [0]]
    low_less, high_less = 0x3C00_0000, 0x0000_3C00
    found = run(
        "setp.lt.f16x2 %p0|%p1, %r1, %r2", [low_less, high_less], [0x3C003C00] * 2, raw=True
    )
    assert found == [[1, 0], [0, 1]]
    found = run("setp.ge.and.bf16x2 %p0|%p1, %r1, %r2, %p2", [0x3F80_0000], [0x3F80], [1], raw=True)
    assert found == [[0], [1]]


@pytest.mark.parametrize("join", ["and", "or", "xor"])
def test_combination_with_a_predicate_and_the_opposite(join: str) -> None:
    functions: dict[str, Callable[[int, int], int]] = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    }  # fmt: skip
    combine = functions[join]
    a, b, c = [1, 1, 5, 5], [3, 3, 3, 3], [0, 1, 0, 1]
    truth = [1, 1, 0, 0]
    pairs = list(zip(truth, c, strict=True))
    text = f"setp.lt.{join}.s32"
    assert run(f"{text} %p0, %r1, %r2, %p3", a, b, c) == [combine(*pair) for pair in pairs]
    negated = [combine(t, 1 - p) for t, p in pairs]
    assert run(f"{text} %p0, %r1, %r2, !%p3", a, b, c) == negated
    both = run(f"{text} %p0|%p1, %r1, %r2, %p3", a, b, c, raw=True)
    assert both == [[combine(*pair) for pair in pairs], [combine(1 - t, p) for t, p in pairs]]


def test_a_pair_of_opposite_results() -> None:
    assert run("setp.lt.s32 %p0|%p1, %r1, 3", [2, 3], raw=True) == [[1, 0], [0, 1]]
    assert run("setp.lt.s32 _|%p1, %r1, 3", [2, 3], raw=True) == [None, [0, 1]]
    nan = bits(math.nan)
    assert run("setp.lt.f32 %p0|%p1, %f1, %f2", [nan], [0], raw=True) == [[0], [1]]


def test_choices() -> None:
    assert run("selp.b32 %r0, %r1, %r2, %p3", [1, 2], [3, 4], [1, 0]) == [1, 4]
    assert run("selp.b32 %r0, %r1, %r2, !%p3", [1, 2], [3, 4], [1, 0]) == [3, 2]
    assert run("selp.s64 %rd0, -1, 0, %p1", [1, 0]) == [(1 << 64) - 1, 0]
    assert run("selp.f32 %f0, %f1, 0f3F800000, %p2", [7, 7], [1, 0]) == [7, 0x3F800000]
    assert run("selp.s32 %rd0, %r1, %r2, %p3", [-1], [4], [1]) == [(1 << 64) - 1]
    assert run("selp.u32 %rd0, %r1, %r2, %p3", [-1], [4], [1]) == [0xFFFFFFFF]
    assert run("selp.b16 %rs0, 0, %rs1, %p2", [5, 5], [1, 0]) == [0, 5]
    assert run("selp.f64 %fd0, %fd1, 0d3FF0000000000000, %p2", [9], [0]) == [0x3FF0000000000000]


def test_choices_by_the_sign_of_a_third() -> None:
    third = [0, 1, -1, 1 << 31]
    assert run("slct.b32.s32 %r0, %r1, %r2, %r3", [1] * 4, [2] * 4, third) == [1, 1, 2, 2]
    assert run("slct.s32.s32 %rd0, %r1, %r2, %r3", [-1], [2], [0]) == [(1 << 64) - 1]
    assert run("slct.u32.s32 %rd0, %r1, %r2, %r3", [-1], [2], [0]) == [0xFFFFFFFF]
    floats = [bits(value) for value in (0.0, -0.0, -1e-40, -1.0, math.nan, 2.0)]
    ones, twos = [1] * 6, [2] * 6
    assert run("slct.u32.f32 %r0, %r1, %r2, %f3", ones, twos, floats) == [1, 1, 2, 2, 2, 1]
    assert run("slct.ftz.u32.f32 %r0, %r1, %r2, %f3", ones, twos, floats) == [1, 1, 1, 2, 2, 1]


def test_comparison_to_numbers() -> None:
    assert run("set.lt.s32.s32 %r0, %r1, %r2", [1, 3], [2, 2]) == [0xFFFFFFFF, 0]
    assert run("set.lt.s32.s32 %rd0, %r1, %r2", [1, 3], [2, 2]) == [(1 << 64) - 1, 0]
    assert run("set.lt.u32.s32 %rd0, %r1, %r2", [1, 3], [2, 2]) == [0xFFFFFFFF, 0]
    assert run("set.gt.f32.f32 %f0, %f1, %f2", [bits(2.0), bits(math.nan)], [0, 0]) == [
        0x3F800000,
        0,
    ]
    assert run("set.gtu.ftz.u32.f32 %r0, %f1, 0f00000000", [bits(1e-40), bits(math.nan)]) == [
        0, 0xFFFFFFFF,
    ]  # fmt: skip
    assert run("set.eq.and.u32.u16 %r0, %rs1, %rs2, %p3", [1, 1], [1, 1], [1, 0]) == [0xFFFFFFFF, 0]
    assert run("set.le.f16.f16 %rs0, %rs1, %rs2", [0x3C00, 0x4000], [0x3C00, 0x3C00]) == [0x3C00, 0]
    assert run("set.ge.f16x2.f16x2 %r0, %r1, %r2", [0x40003C00], [0x40004000]) == [0x3C000000]
    assert run("set.nan.bf16x2.bf16x2 %r0, %r1, %r2", [0x7FC00000], [0]) == [0x3F800000]


def test_moves() -> None:
    assert run("mov.u32 %r0, %r1", [7]) == [7]
    assert run("mov.b32 %r0, %f1", [0x3F800000]) == [0x3F800000]
    assert run("mov.f32 %f0, 0f3F800000") == [0x3F800000]
    assert run("mov.b64 %rd0, -2") == [(1 << 64) - 2]
    assert run("mov.s32 %rd0, %r1", [-2]) == [(1 << 64) - 2]
    assert run("mov.u32 %rd0, %r1", [-2]) == [(1 << 32) - 2]
    assert run("mov.pred %p0, -1") == [1]
    assert run("mov.pred %p0, %p1", [0, 1]) == [0, 1]
    assert run("mov.b32 %r0, {%rs1, %rs2}", [0x1234], [0xABCD]) == [0xABCD1234]
    assert run("mov.b64 %rd0, {%r1, %r2}", [5, 6], [7, 8]) == [7 << 32 | 5, 8 << 32 | 6]
    assert run("mov.b64 %rd0, {%rs1, %rs2, %rs3, %rs4}", [1], [2], [3], [4]) == [0x0004000300020001]
    assert run("mov.b32 %r0, {%rs1, 7}", [9]) == [7 << 16 | 9]
    assert run("mov.b32 {%rs0, %rs1}, %r1", [0xABCD1234, 1], raw=True) == [[0x1234, 1], [0xABCD, 0]]
    assert run("mov.b64 {_, %r1}, %rd1", [7 << 32], raw=True) == [None, [7]]
    assert run("mov.b64 {%rs0, %rs1, %rs2, %rs3}, %rd1", [0x0004000300020001], raw=True) == [
        [1], [2], [3], [4],
    ]  # fmt: skip
