"""Bytes picked (prmt) and multiplied (dp4a, dp2a), one by one as the PTX manual's tables say."""

import numpy as np
import pytest

from sparkbuild.qualify.alu.contract import LaneOp
from sparkbuild.qualify.alu.decode import decode

from .lanes import instruction, run, signed

A, B = 0x83_72_61_50, 0xC7_B6_25_14
EIGHT = [0x50, 0x61, 0x72, 0x83, 0x14, 0x25, 0xB6, 0xC7]
# Rows of the manual's table: selector value to the four source bytes, highest byte first.
TABLE = {
    "f4e": [(3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)],
    "b4e": [(5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)],
    "rc8": [(0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)],
    "ecl": [(3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)],
    "ecr": [(0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)],
    "rc16": [(1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)],
}


def word(high_first: list[int]) -> int:
    return int.from_bytes(bytes(high_first), "big")


@pytest.mark.parametrize("mode", TABLE)
def test_every_mode_and_selector(mode: str) -> None:
    for selector, row in enumerate(TABLE[mode]):
        expected = [word([EIGHT[byte] for byte in row])]
        # Only the two lowest bits of the selector count.
        for value in (selector, selector | 0xFFFFFFFC, selector | 4):
            assert run(f"prmt.b32.{mode} %r0, %r1, %r2, {value}", [A], [B]) == expected
            assert run(f"prmt.b32.{mode} %r0, %r1, %r2, %r3", [A], [B], [value]) == expected


def picked(a: int, b: int, selector: int) -> int:
    source = (a | b << 32).to_bytes(8, "little")
    result = []
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = source[nibble & 7]
        result.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(result), "little")


def test_generic_selectors_with_and_without_sign() -> None:
    generator = np.random.default_rng(1)
    special = [0x3210, 0x7654, 0x3340, 0x5410, 0x7632, 0xBA98, 0xFEDC, 0x4321, 0x7770, 0x0000]
    selectors = [*special, *map(int, generator.integers(0, 1 << 16, 150))]
    words = [[int(each) for each in generator.integers(0, 1 << 32, 40)] for _ in range(2)]
    for selector in selectors:
        expected = [picked(a, b, selector) for a, b in zip(*words, strict=True)]
        assert run(f"prmt.b32 %r0, %r1, %r2, {selector:#x}U", *words) == expected, hex(selector)
        expected = [picked(a, 0, selector) for a in words[0]]
        assert run(f"prmt.b32 %r0, %r1, 0, {selector:#x}", words[0]) == expected
        expected = [picked(0x80, b, selector) for b in words[1]]
        assert run(f"prmt.b32 %r0, 128, %r1, {selector:#x}", words[1]) == expected
    count = len(selectors)
    lanes = [[int(each) for each in generator.integers(0, 1 << 32, count)] for _ in range(2)]
    # Bits above the four nibbles do not count.
    given = [selector | 0xABCD0000 for selector in selectors]
    expected = [picked(*row) for row in zip(*lanes, selectors, strict=True)]
    assert run("prmt.b32 %r0, %r1, %r2, %r3", *lanes, given) == expected


def test_selectors_and_sources_that_are_the_same_for_all_lanes() -> None:
    """Registers of one element stand for all lanes; the executor keeps constants so."""
    generator = np.random.default_rng(14)
    op = decode(instruction("prmt.b32 %r0, %r1, %r2, %r3"))
    assert isinstance(op, LaneOp)
    words = [generator.integers(0, 1 << 32, 64, dtype=np.uint32) for _ in range(3)]
    for selector in (0x5140, 0x7362, 0xBA98, 0xF0123210):
        one = np.array([selector], np.uint32)
        (found,) = op.run(words[0], words[1], one)
        pairs = zip(words[0].tolist(), words[1].tolist(), strict=True)
        assert found.tolist() == [picked(a, b, selector & 0xFFFF) for a, b in pairs]
    table = np.array([0x11100100], np.uint32), np.array([0x8020_01FF], np.uint32)
    (found,) = op.run(*table, words[2])
    assert found.tolist() == [picked(0x11100100, 0x802001FF, each) for each in words[2].tolist()]
    (found,) = op.run(table[0], words[1], words[2])
    pairs = zip(words[1].tolist(), words[2].tolist(), strict=True)
    assert found.tolist() == [picked(0x11100100, b, each) for b, each in pairs]


def dot(a: int, b: int, a_signed: bool, b_signed: bool) -> int:
    total = 0
    for shift in (0, 8, 16, 24):
        x, y = a >> shift & 255, b >> shift & 255
        total += (signed(x, 8) if a_signed else x) * (signed(y, 8) if b_signed else y)
    return total


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
def test_four_products_of_bytes(a_type: str, b_type: str) -> None:
    generator = np.random.default_rng(2)
    edges = [0, 0x80808080, 0x7F7F7F7F, 0xFFFFFFFF, 0x01010101, 0x807F807F, 0xFF00FF00]
    a = edges + [0x80808080] * 7 + [int(each) for each in generator.integers(0, 1 << 32, 300)]
    b = edges[::-1] + [0x80808080] * 7 + [int(each) for each in generator.integers(0, 1 << 32, 300)]
    c = [int(each) for each in generator.integers(0, 1 << 32, len(a))]
    text = f"dp4a.{a_type}.{b_type} %r0, %r1, %r2"
    signs = a_type == "s32", b_type == "s32"
    expected = [(dot(x, y, *signs) + z) % (1 << 32) for x, y, z in zip(a, b, c, strict=True)]
    assert run(f"{text}, %r3", a, b, c) == expected
    expected = [dot(x, 0x01010101, *signs) % (1 << 32) for x in a]
    assert run(f"dp4a.{a_type}.{b_type} %r0, %r1, 0x01010101, 0", a) == expected


def test_dot_products_are_widened_by_their_sign() -> None:
    minus_one = [(1 << 64) - 1]
    assert run("dp4a.s32.u32 %rd0, %r1, %r2, 0", [0xFF], [1]) == minus_one
    assert run("dp4a.u32.s32 %rd0, %r1, %r2, 0", [1], [0xFF]) == minus_one
    assert run("dp4a.u32.u32 %rd0, %r1, %r2, -1", [0], [1]) == [0xFFFFFFFF]
    assert run("dp2a.lo.s32.u32 %rd0, %r1, %r2, 0", [0xFFFF], [1]) == minus_one
    assert run("dp2a.hi.u32.u32 %rd0, %r1, %r2, -1", [0], [1]) == [0xFFFFFFFF]


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
@pytest.mark.parametrize("part", ["lo", "hi"])
def test_two_products_of_halves_and_bytes(a_type: str, b_type: str, part: str) -> None:
    generator = np.random.default_rng(3)
    a = [0x80008000, 0xFFFFFFFF, 0x7FFF8000, *map(int, generator.integers(0, 1 << 32, 100))]
    b = [0x80808080, 0xFFFFFFFF, 0x807F0180, *map(int, generator.integers(0, 1 << 32, 100))]
    c = [int(each) for each in generator.integers(0, 1 << 32, len(a))]

    def two(x: int, y: int, z: int) -> int:
        y = y >> 16 if part == "hi" else y
        for i in (0, 1):
            half, byte = x >> 16 * i & 0xFFFF, y >> 8 * i & 0xFF
            half = signed(half, 16) if a_type == "s32" else half
            z += half * (signed(byte, 8) if b_type == "s32" else byte)
        return z % (1 << 32)

    found = run(f"dp2a.{part}.{a_type}.{b_type} %r0, %r1, %r2, %r3", a, b, c)
    assert found == [two(*row) for row in zip(a, b, c, strict=True)]
