"""Logic, shifts, fields and counts against bits taken one by one, as the manual defines them."""

from collections.abc import Callable

import pytest

from .lanes import nasty, product, run, signed

REGISTER = {16: "%rs", 32: "%r", 64: "%rd"}


@pytest.mark.parametrize("width", [16, 32, 64])
def test_logic_of_words(width: int) -> None:
    name, mask = REGISTER[width], (1 << width) - 1
    a, b = product(nasty(width), nasty(width))
    operands = f"{name}0, {name}1, {name}2"
    pairs = list(zip(a, b, strict=True))
    assert run(f"and.b{width} {operands}", a, b) == [x & y for x, y in pairs]
    assert run(f"or.b{width} {operands}", a, b) == [x | y for x, y in pairs]
    assert run(f"xor.b{width} {operands}", a, b) == [x ^ y for x, y in pairs]
    assert run(f"not.b{width} {name}0, {name}1", a) == [~x & mask for x in a]
    assert run(f"cnot.b{width} {name}0, {name}1", a) == [int(x == 0) for x in a]


def test_logic_of_predicates() -> None:
    a, b = [0, 0, 1, 1], [0, 1, 0, 1]
    assert run("and.pred %p0, %p1, %p2", a, b) == [0, 0, 0, 1]
    assert run("or.pred %p0, %p1, %p2", a, b) == [0, 1, 1, 1]
    assert run("xor.pred %p0, %p1, %p2", a, b) == [0, 1, 1, 0]
    assert run("not.pred %p0, %p1", a) == [1, 1, 0, 0]
    assert run("and.pred %p0, %p1, !%p2", a, b) == [0, 0, 1, 0]


def test_every_truth_table_of_lop3() -> None:
    # Each of the eight combinations of three bits occurs in these words.
    a, b, c = 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA
    for table in range(256):
        expected = sum(
            ((table >> (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)) & 1) << bit
            for bit in range(32)
        )
        assert run(f"lop3.b32 %r0, %r1, %r2, %r3, {table}", [a], [b], [c]) == [expected], table


def test_lop3_with_a_predicate() -> None:
    words = [[1, 2, 4], [1, 1, 4], [1, 0, 4]]
    results = run("lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 0x80, %p1", *words, [0, 1, 0], raw=True)
    assert results == [[1, 0, 4], [1, 1, 1]]
    results = run("lop3.and.b32 _|%p0, %r1, %r2, %r3, 0x80, %p1", *words, [0, 1, 1], raw=True)
    assert results == [None, [0, 0, 1]]


AMOUNTS = [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 65536, 1 << 31, (1 << 32) - 1]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_beyond_the_width_are_clamped(width: int) -> None:
    name, mask = REGISTER[width], (1 << width) - 1
    a, count = product(nasty(width), AMOUNTS)
    pairs = list(zip(a, count, strict=True))
    operands = f"{name}0, {name}1, %r2"
    left = [(x << min(n, width)) & mask for x, n in pairs]
    right = [x >> min(n, width) for x, n in pairs]
    arithmetic = [(signed(x, width) >> min(n, width)) & mask for x, n in pairs]
    assert run(f"shl.b{width} {operands}", a, count) == left
    assert run(f"shr.b{width} {operands}", a, count) == right
    assert run(f"shr.u{width} {operands}", a, count) == right
    assert run(f"shr.s{width} {operands}", a, count) == arithmetic
    for amount in AMOUNTS:
        x = nasty(width)
        text = f"{name}0, {name}1, {amount}"
        least = min(amount, width)
        assert run(f"shl.b{width} {text}", x) == [(each << least) & mask for each in x]
        assert run(f"shr.u{width} {text}", x) == [each >> least for each in x]
        assert run(f"shr.s{width} {text}", x) == [
            (signed(each, width) >> least) & mask for each in x
        ]


def test_funnel_shifts() -> None:
    a, b, count = product(nasty(32)[::3], nasty(32)[::3], AMOUNTS)
    rows = list(zip(a, b, count, strict=True))
    limits: dict[str, Callable[[int], int]]
    limits = {"wrap": lambda n: n % 32, "clamp": lambda n: min(n, 32)}
    for mode, limit in limits.items():
        cases: dict[str, Callable[[int, int, int], int]] = {
            "l": lambda x, y, n: ((y << 32 | x) << n) >> 32 & 0xFFFFFFFF,
            "r": lambda x, y, n: ((y << 32 | x) >> n) & 0xFFFFFFFF,
        }
        for direction, expected in cases.items():
            found = run(f"shf.{direction}.{mode}.b32 %r0, %r1, %r2, %r3", a, b, count)
            assert found == [expected(x, y, limit(n)) for x, y, n in rows]
    assert run("shf.l.wrap.b32 %r0, %r1, %r2, 8", [0xAABBCCDD], [0x11223344]) == [0x223344AA]


def field(a: int, start: int, count: int, width: int, sign: bool) -> int:
    """``bfe`` bit by bit."""
    start, count = start & 0xFF, count & 0xFF
    last = width - 1
    fill = 0 if not sign or count == 0 else a >> min(start + count - 1, last) & 1
    bits = [a >> start + i & 1 if i < count and start + i <= last else fill for i in range(width)]
    return sum(bit << i for i, bit in enumerate(bits))


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_fields_are_extracted_even_beyond_the_top(width: int, sign: str) -> None:
    name = REGISTER[width]
    places = [0, 1, 8, 24, 31, 32, 33, 63, 64, 65, 255, 256, 257]
    a, start, count = product(nasty(width)[::2], places, places)
    rows = list(zip(a, start, count, strict=True))
    found = run(f"bfe.{sign}{width} {name}0, {name}1, %r2, %r3", a, start, count)
    assert found == [field(*row, width, sign == "s") for row in rows]
    for first in places:
        for length in places:
            found = run(f"bfe.{sign}{width} {name}0, {name}1, {first}, {length}", nasty(width))
            wanted = [field(each, first, length, width, sign == "s") for each in nasty(width)]
            assert found == wanted, (first, length)


@pytest.mark.parametrize("width", [32, 64])
def test_fields_are_inserted(width: int) -> None:
    def inserted(a: int, b: int, start: int, count: int) -> int:
        start, count = start & 0xFF, count & 0xFF
        for i in range(count):
            if start + i < width:
                b = b & ~(1 << start + i) | (a >> i & 1) << start + i if i < width else b
        return b

    name = REGISTER[width]
    places = [0, 1, 8, 31, 32, 40, 63, 64, 255, 256]
    a, b, start, count = product(nasty(width)[::4], nasty(width)[1::4], places, places)
    found = run(f"bfi.b{width} {name}0, {name}1, {name}2, %r3, %r4", a, b, start, count)
    assert found == [inserted(*row) for row in zip(a, b, start, count, strict=True)]
    a, b = product(nasty(width)[::4], nasty(width)[1::4])
    for first in places:
        for length in places:
            found = run(f"bfi.b{width} {name}0, {name}1, {name}2, {first}, {length}", a, b)
            assert found == [inserted(x, y, first, length) for x, y in zip(a, b, strict=True)]


def test_masks() -> None:
    position, length = product(AMOUNTS, AMOUNTS)

    def mask(a: int, b: int, clamp: bool) -> int:
        if not clamp:
            a, b = a % 32, b % 32
        return 0 if a >= 32 else ((1 << min(b, 64)) - 1) << a & 0xFFFFFFFF

    rows = list(zip(position, length, strict=True))
    for mode in ("clamp", "wrap"):
        found = run(f"bmsk.{mode}.b32 %r0, %r1, %r2", position, length)
        assert found == [mask(*row, mode == "clamp") for row in rows]
    assert run("bmsk.wrap.b32 %r0, 1, 2") == [6]


def test_extension_of_low_bits() -> None:
    a, count = product(nasty(32), AMOUNTS)

    def extended(x: int, n: int, kind: str, wrap: bool) -> int:
        n = n % 32 if wrap else min(n, 32)
        low = x & (1 << n) - 1
        return (signed(low, n) if n and kind == "s32" else low) & 0xFFFFFFFF

    for kind in ("u32", "s32"):
        for mode in ("clamp", "wrap"):
            found = run(f"szext.{mode}.{kind} %r0, %r1, %r2", a, count)
            rows = zip(a, count, strict=True)
            assert found == [extended(x, n, kind, mode == "wrap") for x, n in rows]
    assert run("szext.wrap.u32 %r0, 0xffffffff, 0") == [0]


@pytest.mark.parametrize("width", [32, 64])
def test_counts(width: int) -> None:
    name, values = REGISTER[width], nasty(width) + [1 << bit for bit in range(width)]
    operands = f"%r0, {name}1"
    assert run(f"popc.b{width} {operands}", values) == [value.bit_count() for value in values]
    assert run(f"clz.b{width} {operands}", values) == [
        width - value.bit_length() for value in values
    ]
    reversed_ = [int(f"{value:0{width}b}"[::-1], 2) for value in values]
    assert run(f"brev.b{width} {name}0, {name}1", values) == reversed_


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_the_highest_bit_is_found(width: int, sign: str) -> None:
    def highest(value: int, shift: bool) -> int:
        if sign == "s" and value >> width - 1:
            value = ~value & (1 << width) - 1
        found = value.bit_length() - 1
        return 0xFFFFFFFF if found < 0 else width - 1 - found if shift else found

    name, values = REGISTER[width], nasty(width) + [1 << bit for bit in range(width)]
    found = run(f"bfind.{sign}{width} %r0, {name}1", values)
    assert found == [highest(value, shift=False) for value in values]
    found = run(f"bfind.shiftamt.{sign}{width} %r0, {name}1", values)
    assert found == [highest(value, shift=True) for value in values]


def test_the_nth_set_bit() -> None:
    def nth(mask: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if mask >> base & 1 else 0xFFFFFFFF
        position, left = base, abs(offset)
        while 0 <= position < 32:
            left -= mask >> position & 1
            if left == 0 and mask >> position & 1:
                return position
            position += 1 if offset > 0 else -1
        return 0xFFFFFFFF

    masks = [0, 1, 0xAAAAAAAA, 0x80000001, 0xFFFFFFFF, 0x00FF0000]
    mask, base, offset = product(masks, [0, 1, 2, 3, 16, 30, 31], [-33, -2, -1, 0, 1, 2, 9, 32, 40])
    found = run("fns.b32 %r0, %r1, %r2, %r3", mask, base, offset)
    assert found == [nth(*row) for row in zip(mask, base, offset, strict=True)]
    assert run("fns.b32 %r0, 0xaaaaaaaa, 2, -1") == [1]
