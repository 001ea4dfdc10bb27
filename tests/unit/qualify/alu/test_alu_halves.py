"""Arithmetic of 16-bit floats against exact fractions, singly and in pairs."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .lanes import number, product, round_to, run

NAN, TOP = 0x7FFF, 0x8000
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80}
LOWEST_NORMAL = {"f16": 0x0400, "bf16": 0x0080}
EDGES = {
    "f16": [0, 1, 0x3FF, 0x400, 0x401, 0x1400, 0x3800, 0x3BFF, 0x3C00, 0x3C01, 0x3555, 0x6400,
            0x7BFF, 0x7C00, 0x7E00],
    "bf16": [0, 1, 0x7F, 0x80, 0x81, 0x0100, 0x3F00, 0x3F7F, 0x3F80, 0x3F81, 0x3EAB, 0x4B00,
             0x7F7F, 0x7F80, 0x7FC0],
}  # fmt: skip


def edges(name: str) -> list[int]:
    return EDGES[name] + [bits | TOP for bits in EDGES[name]]


def expected(opcode: str, name: str, *operands: int) -> int:
    one = round_to(Fraction(1), name)
    if opcode in {"add", "sub"}:
        a, b, c = operands[0], one, operands[1] ^ (TOP if opcode == "sub" else 0)
    elif opcode == "mul":
        a, b = operands
        c = (a ^ b) & TOP
    else:
        a, b, c = operands
    x, y, z = (number(bits, name) for bits in (a, b, c))
    if isinstance(x, Fraction) and isinstance(y, Fraction) and isinstance(z, Fraction):
        total = x * y + z
        if total:
            return round_to(total, name)
        signs = {bool((a ^ b) & TOP), bool(c & TOP)}
        return TOP if signs == {True} else 0
    flat = [each if isinstance(each, float) else (each > 0) - (each < 0) for each in (x, y, z)]
    unusual = flat[0] * flat[1] + flat[2]
    return NAN if math.isnan(unusual) else INFINITY[name] | (TOP if unusual < 0 else 0)


def flat(bits: int) -> int:
    return bits & TOP if bits & 0x7FFF < 0x0400 else bits


def registers(count: int, pair: bool) -> str:
    return ", ".join(f"{'%r' if pair else '%rs'}{index}" for index in range(count + 1))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("opcode", ["add", "sub", "mul", "fma"])
def test_edges(opcode: str, name: str) -> None:
    count = 3 if opcode == "fma" else 2
    values = edges(name) if count == 2 else edges(name)[::2]
    columns = product(*[values] * count)
    wanted = [expected(opcode, name, *row) for row in zip(*columns, strict=True)]
    rounding = ".rn" if opcode == "fma" else ""
    assert run(f"{opcode}{rounding}.{name} {registers(count, pair=False)}", *columns) == wanted
    words = [
        [a | b << 16 for a, b in zip(each, each[1:] + each[:1], strict=True)] for each in columns
    ]
    pairs = [a | b << 16 for a, b in zip(wanted, wanted[1:] + wanted[:1], strict=True)]
    assert run(f"{opcode}.rn.{name}x2 {registers(count, pair=True)}", *words) == pairs
    if name == "f16":
        ftz = [flat(expected(opcode, name, *map(flat, row))) for row in zip(*columns, strict=True)]
        assert run(f"{opcode}.rn.ftz.f16 {registers(count, pair=False)}", *columns) == ftz


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 0xFFFF)] * 3), min_size=1, max_size=40),
    st.sampled_from(["f16", "bf16"]),
)
def test_any_halves(rows: list[tuple[int, int, int]], name: str) -> None:
    a, b, c = (list(column) for column in zip(*rows, strict=True))
    wanted = [expected("fma", name, *row) for row in rows]
    assert run(f"fma.rn.{name} %rs0, %rs1, %rs2, %rs3", a, b, c) == wanted
    for opcode in ("add", "mul"):
        wanted = [expected(opcode, name, x, y) for x, y, _ in rows]
        assert run(f"{opcode}.{name} %rs0, %rs1, %rs2", a, b) == wanted


def test_fused_sums_are_rounded_once() -> None:
    # 2049/2048 squared is 1 + 2^-10 + 2^-22; with -1 only the small part is left.
    assert run("fma.rn.f16 %rs0, %rs1, %rs2, %rs3", [0x3C01], [0x3C01], [0xBC02]) == [
        round_to(Fraction(1, 1 << 20), "f16")
    ]
    # A product just above half a unit of 1, by less than a float of 32 bits would show.
    one = round_to(Fraction(1), "f16")
    found = 0
    for left in range(1024, 2048):
        right = -(-(1 << 21) // left)
        over = left * right - (1 << 21)
        if right < 2048 and 0 < over < 128:
            x, y = (round_to(Fraction(each, 1 << 16), "f16") for each in (left, right))
            half = Fraction(left * right, 1 << 32)
            assert half > Fraction(1, 1 << 11)
            assert run("fma.rn.f16 %rs0, %rs1, %rs2, %rs3", [x], [y], [one]) == [one + 1]
            found += 1
    assert found > 5


def test_clamps() -> None:
    one, two, minus = 0x3C00, 0x4000, 0xBC00
    left, right = [one, minus, 0x7E00, 0x8000], [one, 0, 0, 0x8000]
    assert run("add.sat.f16 %rs0, %rs1, %rs2", left, right) == [one, 0, 0, 0]
    assert run(
        "fma.rn.relu.f16 %rs0, %rs1, %rs2, %rs3", [two, two, 0x7E00], [minus, one, one], [0, 0, 0]
    ) == [0, two, NAN]
    assert run("fma.rn.relu.bf16x2 %r0, %r1, %r2, %r3", [0x3F80BF80], [0x3F803F80], [0]) == [
        0x3F800000
    ]
    assert run("mul.sat.f16x2 %r0, %r1, %r2", [0x4000BC00], [0x3C003C00]) == [0x3C000000]


def extreme(opcode: str, name: str, a: int, b: int, nan: bool) -> int:
    values = number(a, name), number(b, name)
    bad = [isinstance(each, float) and math.isnan(each) for each in values]
    if all(bad) or (nan and any(bad)):
        return NAN
    if any(bad):
        return b if bad[0] else a
    keys = [(values[0], not a >> 15), (values[1], not b >> 15)]
    return a if (min(keys) if opcode == "min" else max(keys)) == keys[0] else b


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extremes_and_signs(opcode: str, name: str) -> None:
    a, b = product(edges(name), edges(name))
    rows = list(zip(a, b, strict=True))
    for modifier in ("", ".NaN"):
        wanted = [extreme(opcode, name, *row, nan=bool(modifier)) for row in rows]
        assert run(f"{opcode}{modifier}.{name} %rs0, %rs1, %rs2", a, b) == wanted
        words = [[x | x << 16 for x in column] for column in (a, b)]
        found = run(f"{opcode}{modifier}.{name}x2 %r0, %r1, %r2", *words)
        assert found == [each | each << 16 for each in wanted]
    sized = [extreme(opcode, name, x & 0x7FFF, y & 0x7FFF, nan=False) for x, y in rows]
    wanted = [
        each if each == NAN else each | (x ^ y) & TOP
        for each, (x, y) in zip(sized, rows, strict=True)
    ]
    assert run(f"{opcode}.xorsign.abs.{name} %rs0, %rs1, %rs2", a, b) == wanted
    values = edges(name)
    bad = [each & 0x7FFF > INFINITY[name] for each in values]
    wanted = [NAN if nan else each & 0x7FFF for each, nan in zip(values, bad, strict=True)]
    assert run(f"abs.{name} %rs0, %rs1", values) == wanted
    wanted = [NAN if nan else each ^ TOP for each, nan in zip(values, bad, strict=True)]
    assert run(f"neg.{name} %rs0, %rs1", values) == wanted
    both = [each << 16 | each for each in values]
    assert run(f"neg.{name}x2 %r0, %r1", both) == [each << 16 | each for each in wanted]


def test_flushing_extremes_and_signs() -> None:
    assert run("max.ftz.f16 %rs0, %rs1, %rs2", [0x03FF, 0x83FF], [0x8001, 0x8000]) == [0, TOP]
    assert run("abs.ftz.f16 %rs0, %rs1", [0x83FF, 0x8400]) == [0, 0x0400]
    assert run("neg.ftz.f16x2 %r0, %r1", [0x03FF0400]) == [0x80008400]


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("opcode", ["ex2", "tanh"])
def test_approximations_are_the_rounded_exact_value(opcode: str, name: str) -> None:
    values = [each for each in range(0, 1 << 16, 17) if each & 0x7FFF < INFINITY[name]]
    flush = ".ftz" if (opcode, name) == ("ex2", "bf16") else ""
    found = run(f"{opcode}.approx{flush}.{name} %rs0, %rs1", values)
    for bits, result in zip(values, found, strict=True):
        given = number(bits, name)
        assert isinstance(given, Fraction)
        x = float(given) if not flush or bits & 0x7F80 else 0.0
        with np.errstate(all="ignore"):
            exact = float(np.exp2(x)) if opcode == "ex2" else math.tanh(x)
        if math.isinf(exact):
            assert result == INFINITY[name]
            continue
        wanted = round_to(Fraction(exact), name, "rn", opcode == "tanh" and bool(bits >> 15))
        if flush and wanted & 0x7FFF < 0x80:
            wanted &= TOP
        assert result == wanted, hex(bits)
    special = [INFINITY[name], INFINITY[name] | TOP, NAN]
    answers = {"ex2": [INFINITY[name], 0, NAN]}.get(
        opcode, [round_to(Fraction(1), name), round_to(Fraction(-1), name), NAN]
    )
    words = [each | each << 16 for each in special]
    found = run(f"{opcode}.approx{flush}.{name}x2 %r0, %r1", words)
    assert found == [each | each << 16 for each in answers]
