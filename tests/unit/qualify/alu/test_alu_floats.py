"""Float arithmetic against exact fractions, rounded once by the definition of the formats."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .lanes import finite, number, product, round_to, run

NAN = {"f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}
SIGN = {"f32": 1 << 31, "f64": 1 << 63}
REGISTER = {"f32": "%f", "f64": "%fd"}
# Zeros, subnormal numbers, the smallest normal, ones and neighbours, halves of units, the largest.
EDGES32 = [
    0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x33000000, 0x33800000, 0x34000000, 0x3EFFFFFF,
    0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40490FDB, 0x4B000001, 0x4B7FFFFF, 0x4B800000,
    0x7E800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000,
]  # fmt: skip
EDGES32 += [bits | 1 << 31 for bits in EDGES32]
EDGES64 = [
    0, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3CA0000000000000, 0x3FF0000000000000,
    0x3FF0000000000001, 0x400921FB54442D18, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
    0x7FF8000000000000, 0xBFF0000000000000, 0x8000000000000000, 0xC340000000000001,
]  # fmt: skip
EDGES = {"f32": EDGES32, "f64": EDGES64}


def special(opcode: str, a: Any, b: Any, c: Any) -> float | None:
    """What infinities and NaN give, in Python's own floats; None where all are finite."""
    if all(isinstance(each, Fraction) for each in (a, b, c)):
        return None
    x, y, z = (
        each if isinstance(each, float) else math.copysign(1.0, each) * (each != 0)
        for each in (a, b, c)
    )
    return x * y + z if opcode in {"mul", "fma"} else x + z


def expected(opcode: str, kind: str, mode: str, *operands: int) -> int:
    """One result in fractions; a sum is a * 1 + b, a product a * b - 0 of its sign."""
    sign = SIGN[kind]
    one = round_to(Fraction(1), kind)
    if opcode in {"add", "sub"}:
        a, b, c = operands[0], one, operands[1] ^ (sign if opcode == "sub" else 0)
    elif opcode == "mul":
        a, b = operands
        c = (a ^ b) & sign
    else:
        a, b, c = operands
    values = [number(bits, kind) for bits in (a, b, c)]
    unusual = special("fma", *values)
    if unusual is not None:
        if math.isnan(unusual):
            return NAN[kind]
        infinity = 0x7F800000 if kind == "f32" else 0x7FF0000000000000
        return infinity | (sign if unusual < 0 else 0)
    total = values[0] * values[1] + values[2]
    if total:
        return round_to(Fraction(total), kind, mode)
    # An exact zero: the common sign, else + (- when rounding down).
    signs = {bool((a ^ b) & sign), bool(c & sign)}
    return sign if signs == {True} or (len(signs) == 2 and mode == "rm") else 0


def flat(bits: int) -> int:
    return bits & 1 << 31 if bits & 0x7F800000 == 0 else bits


def flushed(opcode: str, mode: str, *operands: int) -> int:
    """The same with subnormal operands and results as zeros of their sign."""
    return flat(expected(opcode, "f32", mode, *map(flat, operands)))


def text(opcode: str, kind: str, mode: str, flush: str = "") -> str:
    count = 3 if opcode == "fma" else 2
    registers = ", ".join(f"{REGISTER[kind]}{index}" for index in range(count + 1))
    return f"{opcode}.{mode}{flush}.{kind} {registers}"


MODES = ["rn", "rz", "rm", "rp"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("opcode", ["add", "sub", "mul"])
def test_all_pairs_of_edges(opcode: str, mode: str) -> None:
    for kind in ("f32", "f64"):
        a, b = product(EDGES[kind], EDGES[kind])
        wanted = [expected(opcode, kind, mode, *row) for row in zip(a, b, strict=True)]
        assert run(text(opcode, kind, mode), a, b) == wanted


def close_to_normal(opcode: str, *operands: int) -> bool:
    """Where the exact result rounds up to the smallest normal only on the subnormal grid.

    The manual does not say whether such a result counts as subnormal; see ``flush``.
    """
    if any(bits & 0x7F800000 == 0x7F800000 for bits in operands):
        return False
    values = [finite(flat(bits), "f32") for bits in operands]
    total = values[0] * values[1] + (values[2] if opcode == "fma" else 0)
    return Fraction(2) ** -126 - Fraction(2) ** -150 <= abs(total) < Fraction(2) ** -126


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("opcode", ["add", "sub", "mul"])
def test_all_pairs_of_edges_flushed(opcode: str, mode: str) -> None:
    a, b = product(EDGES32, EDGES32)
    found = run(text(opcode, "f32", mode, ".ftz"), a, b)
    for x, y, result in zip(a, b, found, strict=True):
        if opcode != "mul" or not close_to_normal(opcode, x, y):
            assert result == flushed(opcode, mode, x, y), (hex(x), hex(y))


@pytest.mark.parametrize("mode", MODES)
def test_fused_edges(mode: str) -> None:
    some = EDGES32[::3]
    a, b, c = product(some, EDGES32[1::3], EDGES32)
    rows = list(zip(a, b, c, strict=True))
    assert run(text("fma", "f32", mode), a, b, c) == [
        expected("fma", "f32", mode, *row) for row in rows
    ]
    found = run(text("fma", "f32", mode, ".ftz"), a, b, c)
    for row, result in zip(rows, found, strict=True):
        if not close_to_normal("fma", *row):
            assert result == flushed("fma", mode, *row), row
    a, b, c = product(EDGES64[::2], EDGES64[1::3], EDGES64)
    wanted = [expected("fma", "f64", mode, *row) for row in zip(a, b, c, strict=True)]
    assert run(text("fma", "f64", mode), a, b, c) == wanted


def test_a_result_that_would_round_to_the_smallest_normal_is_kept() -> None:
    # 2^-126 - 2^-152 rounds to 2^-126 in 24 bits; 2^-126 - 2^-150 is a number of 24 bits itself.
    half, kept, gone = 0x3F000000, (0x3F7FFFFF, 0x01000000), (0x3F7FFFFE, 0x00FFFFFF)
    assert run("mul.ftz.f32 %f0, %f1, %f2", [kept[0], gone[0]], [0x00800000, 0x00800000]) == [0, 0]
    found = run(
        "fma.rn.ftz.f32 %f0, %f1, %f2, %f3", [half, half], [kept[1], 0x00FFFFFF], [0x80000000, 0]
    )
    assert found == [0x00800000, 0]


bits32 = st.integers(0, (1 << 32) - 1)
# Numbers of few bits and near exponents, where sums and products end half-way.
short32 = st.builds(
    lambda sign, exponent, high: sign << 31 | exponent << 23 | high << 11,
    st.integers(0, 1), st.integers(100, 150), st.integers(0, 4095),
)  # fmt: skip
any32 = st.one_of(bits32, short32, st.sampled_from(EDGES32))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(any32, any32, any32), min_size=1, max_size=40), st.sampled_from(MODES))
@example([(0x3F800001, 0x3F800001, 0xBF800002)], "rn")
@example([(0x4B800001, 0x3F800000, 0x3F000000)], "rn")
def test_any_floats(rows: list[tuple[int, int, int]], mode: str) -> None:
    a, b, c = (list(column) for column in zip(*rows, strict=True))
    assert run(text("fma", "f32", mode), a, b, c) == [
        expected("fma", "f32", mode, *row) for row in rows
    ]
    for opcode in ("add", "sub", "mul"):
        wanted = [expected(opcode, "f32", mode, x, y) for x, y in zip(a, b, strict=True)]
        assert run(text(opcode, "f32", mode), a, b) == wanted
        found = run(text(opcode, "f32", mode, ".ftz"), a, b)
        for x, y, result in zip(a, b, found, strict=True):
            if opcode != "mul" or not close_to_normal(opcode, x, y):
                assert result == flushed(opcode, mode, x, y)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, (1 << 24) - 1),
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(-60, 20),
    st.booleans(),
    st.sampled_from(MODES),
)
def test_fused_sums_just_beside_a_half(
    a: int, b: int, exponent: int, minus: bool, mode: str
) -> None:
    """c is chosen so that a * b + c lies one unit of c beside the middle between two floats."""
    x, y = Fraction(a), Fraction(b)
    middle = Fraction((1 << 24) + 1, 2)
    z = middle - x * y if minus else Fraction(2) ** exponent
    bits = [round_to(each, "f32") for each in (x, y, z)]
    wanted = expected("fma", "f32", mode, *bits)
    found = run(text("fma", "f32", mode), *[[each] for each in bits])
    assert found == [wanted]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(MODES),
)
def test_any_doubles(rows: list[tuple[int, int]], mode: str) -> None:
    a, b = (list(column) for column in zip(*rows, strict=True))
    for opcode in ("add", "mul"):
        wanted = [expected(opcode, "f64", mode, x, y) for x, y in rows]
        assert run(text(opcode, "f64", mode), a, b) == wanted
    for opcode, function in (("div", divided), ("sqrt", rooted)):
        operands = [a, b] if opcode == "div" else [a]
        registers = ", ".join(f"%fd{index}" for index in range(len(operands) + 1))
        found = run(f"{opcode}.{mode}.f64 {registers}", *operands)
        columns = zip(*operands, strict=True)
        assert found == [function("f64", mode, *column) for column in columns]


def divided(kind: str, mode: str, a: int, b: int) -> int:
    sign = (a ^ b) & SIGN[kind]
    infinity = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}[kind]
    x, y = number(a, kind), number(b, kind)
    if (isinstance(x, float) and math.isnan(x)) or (isinstance(y, float) and math.isnan(y)):
        return NAN[kind]
    if isinstance(x, float):
        return NAN[kind] if isinstance(y, float) else infinity | sign
    if isinstance(y, float):
        return sign
    if not y:
        return infinity | sign if x else NAN[kind]
    return round_to(x / y, kind, mode) if x else sign


def rooted(kind: str, mode: str, a: int) -> int:
    """A root is bracketed by squares: no root is taken."""
    value = number(a, kind)
    if value == 0:
        return a
    if isinstance(value, float):
        return NAN[kind] if math.isnan(value) or value < 0 else a
    if value < 0:
        return NAN[kind]
    # The largest float whose square is not above, and the middle to the next one.
    low = round_to(Fraction(math.isqrt(int(value * 4**600)), 2**600), kind, "rz")
    root = number(low, kind)
    assert isinstance(root, Fraction)
    if root * root == value:
        return low
    above = number(low + 1, kind)
    assert isinstance(above, Fraction)
    middle = (root + above) / 2
    up = mode == "rp" or (mode == "rn" and (middle * middle < value))
    return low + up


@pytest.mark.parametrize("mode", MODES)
def test_quotients_reciprocals_and_roots(mode: str) -> None:
    a, b = product(EDGES32, EDGES32)
    rows = list(zip(a, b, strict=True))
    assert run(f"div.{mode}.f32 %f0, %f1, %f2", a, b) == [
        divided("f32", mode, *row) for row in rows
    ]
    one = round_to(Fraction(1), "f32")
    wanted = [divided("f32", mode, one, each) for each in EDGES32]
    assert run(f"rcp.{mode}.f32 %f0, %f1", EDGES32) == wanted
    assert run(f"sqrt.{mode}.f32 %f0, %f1", EDGES32) == [rooted("f32", mode, x) for x in EDGES32]
    wanted = [flat(divided("f32", mode, one, flat(each))) for each in EDGES32]
    assert run(f"rcp.{mode}.ftz.f32 %f0, %f1", EDGES32) == wanted
    wanted = [rooted("f32", mode, flat(each)) for each in EDGES32]
    assert run(f"sqrt.{mode}.ftz.f32 %f0, %f1", EDGES32) == wanted


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(any32, any32), min_size=1, max_size=30), st.sampled_from(MODES))
@example([(0x3F800000, 0x3F7FFFFF), (0x00000003, 0x40000000), (0x7F7FFFFF, 0x3F000000)], "rp")
def test_any_quotients_and_roots(rows: list[tuple[int, int]], mode: str) -> None:
    a, b = (list(column) for column in zip(*rows, strict=True))
    assert run(f"div.{mode}.f32 %f0, %f1, %f2", a, b) == [
        divided("f32", mode, *row) for row in rows
    ]
    assert run(f"sqrt.{mode}.f32 %f0, %f1", a) == [rooted("f32", mode, x) for x in a]
    squares = [round_to(Fraction(x % 4096) ** 2, "f32") for x in a]
    assert run(f"sqrt.{mode}.f32 %f0, %f1", squares) == [rooted("f32", mode, x) for x in squares]


def test_saturation_to_the_unit_interval() -> None:
    one, two, minus, nan = 0x3F800000, 0x40000000, 0xC0000000, 0x7FC00000
    a = [one, minus, two, nan, 0x80000000, 0x3E800000]
    assert run("add.sat.f32 %f0, %f1, %f2", a, [one, 0, 0, 0, 0x80000000, 0x3E800000]) == [
        one, 0, one, 0, 0, 0x3F000000,
    ]  # fmt: skip
    assert run("fma.rn.ftz.sat.f32 %f0, %f1, 0f40000000, 0f00000000", [one, minus]) == [one, 0]


@pytest.mark.parametrize("opcode", ["add", "sub", "mul", "fma"])
@pytest.mark.parametrize("mode", MODES)
def test_two_floats_in_one_register(opcode: str, mode: str) -> None:
    count = 3 if opcode == "fma" else 2
    columns = [EDGES32[shift:] + EDGES32[:shift] for shift in (0, 5, 11)][:count]
    words = [
        [low | high << 32 for low, high in zip(column, column[1:] + column[:1], strict=True)]
        for column in columns
    ]
    registers = ", ".join(f"%rd{index}" for index in range(count + 1))
    found = run(f"{opcode}.{mode}.f32x2 {registers}", *words)
    lows = [expected(opcode, "f32", mode, *row) for row in zip(*columns, strict=True)]
    assert found == [low | high << 32 for low, high in zip(lows, lows[1:] + lows[:1], strict=True)]


def extreme(opcode: str, a: int, b: int, nan: bool = False) -> int:
    """By the manual: NaN gives way (or wins), and -0 is less than +0."""
    x, y = number(a, "f32"), number(b, "f32")
    bad = [isinstance(each, float) and math.isnan(each) for each in (x, y)]
    if all(bad) or (nan and any(bad)):
        return 0x7FFFFFFF
    if any(bad):
        return b if bad[0] else a
    keys = [(x, not a >> 31), (y, not b >> 31)]
    choose: Callable[..., Any] = min if opcode == "min" else max
    return a if choose(keys) == keys[0] else b


@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extremes(opcode: str) -> None:
    a, b = product(EDGES32, EDGES32)
    rows = list(zip(a, b, strict=True))
    registers = "%f0, %f1, %f2"
    assert run(f"{opcode}.f32 {registers}", a, b) == [extreme(opcode, *row) for row in rows]
    wanted = [extreme(opcode, *row, nan=True) for row in rows]
    assert run(f"{opcode}.NaN.f32 {registers}", a, b) == wanted
    wanted = [extreme(opcode, flat(x), flat(y)) for x, y in rows]
    assert run(f"{opcode}.ftz.f32 {registers}", a, b) == wanted

    def by_size(x: int, y: int) -> int:
        result = extreme(opcode, x & ~(1 << 31), y & ~(1 << 31))
        return result if result == 0x7FFFFFFF else result | (x ^ y) & 1 << 31

    wanted = [by_size(*row) for row in rows]
    assert run(f"{opcode}.xorsign.abs.f32 {registers}", a, b) == wanted
    some = EDGES32[::4]
    a, b, c = product(some, some[::-1], EDGES32[1::4])
    wanted = [extreme(opcode, extreme(opcode, x, y), z) for x, y, z in zip(a, b, c, strict=True)]
    assert run(f"{opcode}.f32 %f0, %f1, %f2, %f3", a, b, c) == wanted
    constants = [extreme(opcode, each, 0) for each in EDGES32]
    assert run(f"{opcode}.f32 %f0, %f1, 0f00000000", EDGES32) == constants
    assert run(f"{opcode}.f64 %fd0, %fd1, %fd2", [1 << 63, 0x7FF8000000000000], [0, 5]) == [
        0 if opcode == "max" else 1 << 63, 5,
    ]  # fmt: skip


def test_signs() -> None:
    nan = [bits & 0x7FFFFFFF > 0x7F800000 for bits in EDGES32]
    wanted = [
        0x7FFFFFFF if bad else bits & 0x7FFFFFFF for bits, bad in zip(EDGES32, nan, strict=True)
    ]
    assert run("abs.f32 %f0, %f1", EDGES32) == wanted
    assert run("abs.ftz.f32 %f0, %f1", EDGES32) == [flat(bits) for bits in wanted]
    wanted = [0x7FFFFFFF if bad else bits ^ 1 << 31 for bits, bad in zip(EDGES32, nan, strict=True)]
    assert run("neg.f32 %f0, %f1", EDGES32) == wanted
    assert run("neg.ftz.f32 %f0, %f1", EDGES32) == [flat(bits) for bits in wanted]
    assert run("neg.f64 %fd0, %fd1", [1, 0x7FF8000000000000]) == [1 << 63 | 1, NAN["f64"]]
    # The sign of the first, the magnitude of the second.
    assert run("copysign.f32 %f0, %f1, %f2", [0xBF800000, 5], [0x40000000, 0xFFC00000]) == [
        0xC0000000, 0x7FC00000,
    ]  # fmt: skip
    assert run("copysign.f64 %fd0, %fd1, %fd2", [1 << 63], [7]) == [1 << 63 | 7]


def test_what_kind_of_number() -> None:
    values = [0, 1 << 31, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF800000, 0x7F800001]
    answers = {
        "finite": [1, 1, 1, 1, 1, 1, 0, 0],
        "infinite": [0, 0, 0, 0, 0, 0, 1, 0],
        "number": [1, 1, 1, 1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 0, 0, 0, 1],
        "normal": [0, 0, 0, 0, 1, 1, 0, 0],
        "subnormal": [0, 0, 1, 1, 0, 0, 0, 0],
    }
    for name, wanted in answers.items():
        assert run(f"testp.{name}.f32 %p0, %f1", values) == wanted, name
    assert run("testp.subnormal.f64 %p0, %fd1", [1, 1 << 52]) == [1, 0]
