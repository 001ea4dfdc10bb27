"""What a GPU approximates: the exact value to 70 digits, rounded, and the special values."""

import decimal
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from sparkbuild.qualify.alu.errors import APPROXIMATE

from .lanes import finite, round_to, run

NAN, INFINITY, ONE, TOP = 0x7FFFFFFF, 0x7F800000, 0x3F800000, 1 << 31
CONTEXT = decimal.Context(prec=70, Emax=10**6, Emin=-(10**6))


def series(x: Decimal, power: int) -> Decimal:
    """Sine (from x) or cosine (from 1) by its own series."""
    term = CONTEXT.power(x, power)
    total, square = term, x * x
    while abs(term) > Decimal(10) ** -65:
        term = -term * square / ((power + 1) * (power + 2))
        total, power = total + term, power + 2
    return total


def tanh(x: Decimal) -> Decimal:
    if abs(x) < Decimal(2) ** -30:
        return x - x**3 / 3
    double = (2 * x).exp()
    return (double - 1) / (double + 1)


FUNCTIONS: dict[str, Callable[[Decimal], Decimal]] = {
    "ex2": lambda x: (x * Decimal(2).ln()).exp(),
    "lg2": lambda x: x.ln() / Decimal(2).ln(),
    "sin": lambda x: series(x, 1),
    "cos": lambda x: series(x, 0),
    "tanh": tanh,
    "rcp": lambda x: 1 / x,
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: 1 / x.sqrt(),
}
POSITIVE = {"lg2", "sqrt", "rsqrt"}
LARGEST = {"sin": 60, "cos": 60, "ex2": 200, "tanh": 60}


def inputs(opcode: str) -> list[int]:
    generator = np.random.default_rng(5)
    bits = [int(each) for each in generator.integers(0x00800000, 0x7F800000, 150)]
    near = generator.uniform(-8, 8, 150).astype(np.float32).view(np.uint32)
    bits += [int(each) for each in near] + [ONE, ONE | TOP, 0x3F000000, 0x40000000, 0x00800000]
    if opcode in LARGEST:
        bits = [each for each in bits if abs(finite(each, "f32")) < LARGEST[opcode]]
    return [each & ~TOP if opcode in POSITIVE else each for each in bits]


@pytest.mark.parametrize(
    ("opcode", "flush"),
    [(name, flush) for name in FUNCTIONS for flush in ("", ".ftz") if name != "tanh" or not flush],
)
def test_finite_values(opcode: str, flush: str) -> None:
    bits = inputs(opcode)
    found = run(f"{opcode}.approx{flush}.f32 %f0, %f1", bits)
    with decimal.localcontext(CONTEXT):
        for each, result in zip(bits, found, strict=True):
            value = finite(each, "f32")
            exact = FUNCTIONS[opcode](Decimal(value.numerator) / value.denominator)
            wanted = round_to(Fraction(exact), "f32", "rn", bool(each >> 31))
            if flush and wanted & INFINITY == 0:
                wanted &= TOP
            assert result == wanted, (opcode, hex(each))


SPECIAL = {
    # -inf, -subnormal, -0, +0, +subnormal, +inf, NaN, by the manual's tables (.ftz).
    "rcp": [TOP, TOP | INFINITY, TOP | INFINITY, INFINITY, INFINITY, 0, NAN],
    "sqrt": [NAN, TOP, TOP, 0, 0, INFINITY, NAN],
    "rsqrt": [NAN, TOP | INFINITY, TOP | INFINITY, INFINITY, INFINITY, 0, NAN],
    "ex2": [0, ONE, ONE, ONE, ONE, INFINITY, NAN],
    "lg2": [NAN, *[TOP | INFINITY] * 4, INFINITY, NAN],
    "sin": [NAN, TOP, TOP, 0, 0, NAN, NAN],
    "cos": [NAN, ONE, ONE, ONE, ONE, NAN, NAN],
}


@pytest.mark.parametrize("opcode", SPECIAL)
def test_special_values(opcode: str) -> None:
    bits = [TOP | INFINITY, TOP | 1, TOP, 0, 1, INFINITY, 0x7FC00000]
    assert run(f"{opcode}.approx.ftz.f32 %f0, %f1", bits) == SPECIAL[opcode]


def test_without_flushing_subnormal_numbers_count() -> None:
    assert run("rcp.approx.f32 %f0, %f1", [0x00400000, 0x7E800001]) == [0x7F000000, 0x007FFFFF]
    assert run("sqrt.approx.f32 %f0, %f1", [0x00000004]) == [
        round_to(Fraction(2) ** -74 * Fraction(14142135623730951, 10**16), "f32")
    ]
    assert run("tanh.approx.f32 %f0, %f1", [1, TOP, INFINITY, TOP | INFINITY, NAN]) == [
        1, TOP, ONE, ONE | TOP, NAN,
    ]  # fmt: skip


def test_approximate_quotients() -> None:
    three, ten = 0x40400000, 0x41200000
    third = round_to(Fraction(3, 10), "f32")
    for mode in ("approx", "approx.ftz", "full", "full.ftz"):
        assert run(f"div.{mode}.f32 %f0, %f1, %f2", [three], [ten]) == [third]
    big, limit, infinity = 0x7F000000, 0x7E800000, INFINITY
    a = [ONE, ONE | TOP, INFINITY, ONE, ONE, INFINITY, 0, 0]
    b = [big, big, big, limit, infinity, infinity, 0, big | TOP]
    # Above 2^126 the quotient is 0, and NaN for an infinite dividend.
    assert run("div.approx.ftz.f32 %f0, %f1, %f2", a, b) == [
        0, TOP, NAN, 0x00800000, 0, NAN, NAN, TOP,
    ]  # fmt: skip
    assert run("div.full.f32 %f0, %f1, %f2", a, b)[:4] == [
        0x00400000,
        0x80400000,
        INFINITY,
        0x00800000,
    ]


def test_doubles() -> None:
    two, half = 0x4000000000000000, 0x3FE0000000000000
    assert run("rcp.rn.f64 %fd0, %fd1", [two, 0, 1 << 63]) == [half, 0x7FF << 52, 0xFFF << 52]
    assert run("sqrt.rp.f64 %fd0, %fd1", [two, 1 << 63]) == [0x3FF6A09E667F3BCD, 1 << 63]
    assert run("sqrt.rz.f64 %fd0, %fd1", [two]) == [0x3FF6A09E667F3BCC]


def test_the_stated_errors_are_the_manuals() -> None:
    stated = {name: (each.ulp, each.relative, each.absolute) for name, each in APPROXIMATE.items()}
    assert stated == {
        "rcp.approx.f32": (1, 0, 0),
        "div.approx.f32": (2, 0, 0),
        "div.full.f32": (2, 0, 0),
        "sqrt.approx.f32": (0, 2**-23, 0),
        "rsqrt.approx.f32": (0, 2**-22.9, 0),
        "ex2.approx.f32": (2, 0, 0),
        "ex2.approx.f16": (0, 2**-9.9, 0),
        "ex2.approx.f16x2": (0, 2**-9.9, 0),
        "ex2.approx.bf16": (0, 2**-7, 0),
        "ex2.approx.bf16x2": (0, 2**-7, 0),
        "lg2.approx.f32": (0, 2**-22, 2**-22),
        "sin.approx.f32": (0, 0, 2**-20.5),
        "cos.approx.f32": (0, 0, 2**-20.5),
        "tanh.approx.f32": (0, 2**-11, 0),
        "tanh.approx.f16": (0, 0, 2**-10.987),
        "tanh.approx.f16x2": (0, 0, 2**-10.987),
        "tanh.approx.bf16": (0, 0, 2**-8),
        "tanh.approx.bf16x2": (0, 0, 2**-8),
    }


def test_every_approximation_has_its_stated_error() -> None:
    for name, error in APPROXIMATE.items():
        assert error.section == name.split(".", 1)[0]
        assert error.ulp or error.relative or error.absolute
    for opcode in FUNCTIONS:
        assert f"{opcode}.approx.f32" in APPROXIMATE
