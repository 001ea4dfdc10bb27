"""Whole-number arithmetic against Python's own unbounded integers."""

import itertools
from collections.abc import Callable

import pytest

from .lanes import nasty, product, run, signed

WIDTHS = {"16": "%rs", "32": "%r", "64": "%rd"}
TYPES = [f"{sign}{width}" for sign in "us" for width in WIDTHS]


def registers(kind: str, count: int, wide: bool = False) -> str:
    width = str(int(kind[1:]) * 2) if wide else kind[1:]
    first = f"{WIDTHS[width]}0"
    return ", ".join([first, *(f"{WIDTHS[kind[1:]]}{index}" for index in range(1, count + 1))])


def value(bits: int, kind: str) -> int:
    return signed(bits, int(kind[1:])) if kind[0] == "s" else bits


def check(text: str, kind: str, count: int, expected: Callable[..., int], bits: int = 0) -> None:
    """All combinations of nasty numbers through ``text`` and through ``expected``."""
    width = int(kind[1:])
    values = nasty(width) if count < 3 else nasty(width)[::2]
    columns = product(*[values] * count)
    found = run(text, *columns)
    mask = (1 << (bits or width)) - 1
    for row, result in zip(zip(*columns, strict=True), found, strict=True):
        wanted = expected(*[value(each, kind) for each in row]) & mask
        assert result == wanted, (text, row)


@pytest.mark.parametrize("kind", TYPES)
def test_sums_and_low_products_wrap(kind: str) -> None:
    check(f"add.{kind} {registers(kind, 2)}", kind, 2, lambda a, b: a + b)
    check(f"sub.{kind} {registers(kind, 2)}", kind, 2, lambda a, b: a - b)
    check(f"mul.lo.{kind} {registers(kind, 2)}", kind, 2, lambda a, b: a * b)
    check(f"mad.lo.{kind} {registers(kind, 3)}", kind, 3, lambda a, b, c: a * b + c)
    check(f"sad.{kind} {registers(kind, 3)}", kind, 3, lambda a, b, c: abs(a - b) + c)


@pytest.mark.parametrize("kind", TYPES)
def test_high_and_wide_products(kind: str) -> None:
    width = int(kind[1:])
    check(f"mul.hi.{kind} {registers(kind, 2)}", kind, 2, lambda a, b: (a * b) >> width)
    check(f"mad.hi.{kind} {registers(kind, 3)}", kind, 3, lambda a, b, c: ((a * b) >> width) + c)
    if width < 64:
        text = f"mul.wide.{kind} {registers(kind, 2, wide=True)}"
        check(text, kind, 2, lambda a, b: a * b, width * 2)


def test_mad_wide_adds_a_wide_number() -> None:
    assert run("mad.wide.s32 %rd0, %r1, %r2, %rd3", [-3], [7], [-(1 << 40)]) == [
        (-21 - (1 << 40)) % (1 << 64)
    ]
    assert run("mad.wide.u16 %r0, %rs1, %rs2, %r3", [0xFFFF], [0xFFFF], [5]) == [
        0xFFFF * 0xFFFF + 5
    ]


@pytest.mark.parametrize("kind", TYPES)
def test_extremes_magnitudes_and_quotients(kind: str) -> None:
    width = int(kind[1:])
    check(f"min.{kind} {registers(kind, 2)}", kind, 2, min)
    check(f"max.{kind} {registers(kind, 2)}", kind, 2, max)
    if kind[0] == "s":
        check(f"abs.{kind} {registers(kind, 1)}", kind, 1, abs)
        check(f"neg.{kind} {registers(kind, 1)}", kind, 1, lambda a: -a)

    def quotient(a: int, b: int) -> int:
        # Unspecified by the manual for 0: all ones here.
        return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    def remainder(a: int, b: int) -> int:
        return a if b == 0 else a - quotient(a, b) * b

    check(f"div.{kind} {registers(kind, 2)}", kind, 2, quotient)
    check(f"rem.{kind} {registers(kind, 2)}", kind, 2, remainder)
    assert width in {16, 32, 64}


def test_lowest_number_divided_by_minus_one_wraps() -> None:
    assert run("div.s32 %r0, %r1, %r2", [-(1 << 31)], [-1]) == [1 << 31]
    assert run("rem.s32 %r0, %r1, %r2", [-(1 << 31), -7, 7], [-1, 2, -2]) == [0, (1 << 32) - 1, 1]
    assert run("div.s64 %rd0, %rd1, -1", [-(1 << 63)]) == [1 << 63]


def clamp(number: int) -> int:
    return max(-(1 << 31), min((1 << 31) - 1, number))


def test_saturation_stops_at_both_ends_of_s32() -> None:
    check("add.sat.s32 %r0, %r1, %r2", "s32", 2, lambda a, b: clamp(a + b))
    check("sub.sat.s32 %r0, %r1, %r2", "s32", 2, lambda a, b: clamp(a - b))
    check(
        "mad.hi.sat.s32 %r0, %r1, %r2, %r3",
        "s32",
        3,
        lambda a, b, c: clamp((a * b >> 32) + c),
    )


def low24(number: int, kind: str) -> int:
    bits = number & 0xFFFFFF
    return signed(bits, 24) if kind[0] == "s" else bits


@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize(("part", "shift"), [("lo", 0), ("hi", 16)])
def test_24_bit_products(kind: str, part: str, shift: int) -> None:
    def factor(a: int, b: int) -> int:
        return low24(a, kind) * low24(b, kind) >> shift

    check(f"mul24.{part}.{kind} %r0, %r1, %r2", kind, 2, factor)
    check(f"mad24.{part}.{kind} %r0, %r1, %r2, %r3", kind, 3, lambda a, b, c: factor(a, b) + c)


def test_24_bit_product_with_saturation() -> None:
    def expected(a: int, b: int, c: int) -> int:
        return clamp(signed((low24(a, "s32") * low24(b, "s32") >> 16) & 0xFFFFFFFF, 32) + c)

    check("mad24.hi.sat.s32 %r0, %r1, %r2, %r3", "s32", 3, expected)


@pytest.mark.parametrize("opcode", ["add", "sub", "min", "max"])
@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_pairs_do_not_carry_into_each_other(opcode: str, kind: str) -> None:
    functions: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "min": min, "max": max,
    }  # fmt: skip
    halves = [0, 1, 0x7FFF, 0x8000, 0xFFFF]
    words = [low | high << 16 for low, high in itertools.product(halves, halves)]
    one, two = product(words, words)
    found = run(f"{opcode}.{kind} %r0, %r1, %r2", one, two)
    for a, b, result in zip(one, two, found, strict=True):
        parts = [
            functions[opcode](
                value(a >> shift & 0xFFFF, kind[:3]), value(b >> shift & 0xFFFF, kind[:3])
            )
            for shift in (0, 16)
        ]
        assert result == (parts[0] & 0xFFFF) | (parts[1] & 0xFFFF) << 16


def test_relu_stops_at_zero() -> None:
    assert run("max.relu.s32 %r0, %r1, %r2", [-5, -5, 3], [-7, 2, 1]) == [0, 2, 3]
    assert run("min.relu.s32 %r0, %r1, %r2", [-5, 5, 3], [7, 2, 1]) == [0, 2, 1]
    assert run(
        "min.s16x2.relu %r0, %r1, %r2".replace("s16x2.relu", "relu.s16x2"),
        [0xFFFF0005],
        [0x00030004],
    ) == [0x00000004]


def test_a_result_is_widened_by_its_own_sign() -> None:
    assert run("add.s16 %r0, %rs1, %rs2", [0x7FFF], [1]) == [0xFFFF8000]
    assert run("add.u16 %r0, %rs1, %rs2", [0xFFFF], [0xFFFF]) == [0xFFFE]
    assert run("neg.s32 %rd0, %r1", [1]) == [(1 << 64) - 1]
    assert run("mul.hi.s32 %rd0, %r1, %r2", [-1], [1]) == [(1 << 64) - 1]


def test_a_wider_source_gives_its_low_bits() -> None:
    assert run("add.u32 %r0, %rd1, 1", [0xAAAAAAAA_FFFFFFFF]) == [0]
    assert run("min.s16 %rs0, %r1, %r2", [0x1FFFF], [5]) == [0xFFFF]
    assert run("mul.wide.u16 %r0, %r1, 256", [0x12345]) == [0x2345 << 8]


def test_immediates_are_cut_to_the_type() -> None:
    assert run("add.s32 %r0, %r1, -1", [5]) == [4]
    assert run("mul.lo.s64 %rd0, %rd1, -2049638230412172401", [3]) == [
        (-2049638230412172401 * 3) % (1 << 64)
    ]
    assert run("mul.hi.u64 %rd0, %rd1, -2049638230412172401", [1 << 63]) == [
        ((-2049638230412172401) % (1 << 64)) >> 1
    ]
    assert run("sub.s32 %r0, 7, 9") == [0xFFFFFFFE]
