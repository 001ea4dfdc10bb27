"""Tensor-core products: fragments laid out by the manual's formulas, products by plain matmul.

The formulas for row and column of element i of a lane's fragment are written down here for each
shape as the PTX manual's figures give them, independently of how the implementation finds them.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sparkbuild.qualify.alu.fragments import wmma_elements

from .lanes import warp
from .test_alu_convert_packed import value_of

Place = Callable[[int, int, int], tuple[int, int]]


def places(k: int, each: int, rows: int) -> tuple[Place, Place]:
    """Of A (row, k) and B (k, column) for ``each`` elements in a register: group g, member t."""
    half = 4 * each

    def a(g: int, t: int, i: int) -> tuple[int, int]:
        register, inside = divmod(i, each)
        if rows == 8:
            return g, t * each + inside + half * register
        row = g if register % 2 == 0 else g + 8
        return row, t * each + inside + (half if register >= 2 else 0)

    def b(g: int, t: int, i: int) -> tuple[int, int]:
        register, inside = divmod(i, each)
        return t * each + inside + half * register, g

    return a, b


def f16_k16_a(g: int, t: int, i: int) -> tuple[int, int]:
    row = g if i in {0, 1, 4, 5} else g + 8
    return row, t * 2 + (i & 1) + (8 if i >= 4 else 0)


def f16_k16_b(g: int, t: int, i: int) -> tuple[int, int]:
    return t * 2 + (i & 1) + (8 if i >= 2 else 0), g


def s8_k32_a(g: int, t: int, i: int) -> tuple[int, int]:
    row = g if i < 4 or 8 <= i < 12 else g + 8
    return row, t * 4 + (i & 3) + (16 if i >= 8 else 0)


def s8_k32_b(g: int, t: int, i: int) -> tuple[int, int]:
    return t * 4 + (i & 3) + (16 if i >= 4 else 0), g


def s4_k64_a(g: int, t: int, i: int) -> tuple[int, int]:
    row = g if i < 8 or 16 <= i < 24 else g + 8
    return row, t * 8 + (i & 7) + (32 if i >= 16 else 0)


def s4_k64_b(g: int, t: int, i: int) -> tuple[int, int]:
    return t * 8 + (i & 7) + (32 if i >= 8 else 0), g


def tf32_k8_a(g: int, t: int, i: int) -> tuple[int, int]:
    return (g, g + 8, g, g + 8)[i], (t, t, t + 4, t + 4)[i]


def tf32_k8_b(g: int, t: int, i: int) -> tuple[int, int]:
    return t + 4 * i, g


# The formulas as the manual prints them, for the larger shapes; the smaller follow ``places``.
PRINTED: dict[tuple[int, int], tuple[Place, Place]] = {
    (16, 16): (f16_k16_a, f16_k16_b),
    (32, 8): (s8_k32_a, s8_k32_b),
    (64, 4): (s4_k64_a, s4_k64_b),
    (8, 32): (tf32_k8_a, tf32_k8_b),
}


def registers(matrix: Any, place: Place, bits: int) -> list[list[int]]:
    """Codes of a matrix as the registers of 32 lanes."""
    total = matrix.size * bits // 32 // 32
    words = [[0] * 32 for _ in range(total)]
    each = 32 // bits
    for lane in range(32):
        for i in range(total * each):
            code = int(matrix[place(lane // 4, lane % 4, i)])
            words[i // each][lane] |= (code & (1 << bits) - 1) << bits * (i % each)
    return words


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return g + 8 * (i // 2), 2 * t + i % 2


def matrix_of(words: list[Any], rows: int, bits: int) -> Any:
    result = np.zeros((rows, 8), np.uint32)
    each = 32 // bits
    for lane in range(32):
        for i in range(len(words) * each):
            code = int(words[i // each][lane]) >> bits * (i % each) & (1 << bits) - 1
            result[c_place(lane // 4, lane % 4, i)] = code
    return result


def text(name: str, counts: tuple[int, ...], tail: str = "") -> str:
    """One mma with its destination and its register sources numbered apart."""
    groups, first = [], 0
    for count in counts:
        groups.append("{" + ", ".join(f"%r{first + index}" for index in range(count)) + "}")
        first += count
    return f"{name} {', '.join(groups)}{tail}"


def multiplied(name: str, a: Any, b: Any, c: Any, bits: int, c_bits: int = 32) -> Any:
    """Codes A (m, k), B (k, 8), C (m, 8) through the instruction; codes of D."""
    rows, k = a.shape
    printed = PRINTED.get((k, bits)) if rows == 16 else None
    lay_a, lay_b = printed or places(k, 32 // bits, rows)
    one, two = registers(a, lay_a, bits), registers(b, lay_b, bits)
    three = registers(c, c_place, c_bits)
    counts = (len(three), len(one), len(two), len(three))
    found = warp(text(name, counts), *one, *two, *three)
    return matrix_of([words[0] for words in found], rows, c_bits)


INTEGER_SHAPES = [("m8n8k16", 8), ("m16n8k16", 8), ("m16n8k32", 8), ("m8n8k32", 4),
                  ("m16n8k32", 4), ("m16n8k64", 4)]  # fmt: skip


@pytest.mark.parametrize(("shape", "bits"), INTEGER_SHAPES)
@pytest.mark.parametrize("left", "su")
@pytest.mark.parametrize("right", "su")
def test_integers(shape: str, bits: int, left: str, right: str) -> None:
    generator = np.random.default_rng(7)
    m, k = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])

    def codes(kind: str, size: tuple[int, int]) -> Any:
        low = -(1 << bits - 1) if kind == "s" else 0
        return generator.integers(low, low + (1 << bits), size)

    a, b = codes(left, (m, k)), codes(right, (k, 8))
    c = generator.integers(-(1 << 31), 1 << 31, (m, 8))
    # Near both ends of a word, where the sum wraps or is clamped.
    c[0], c[1], c[2] = (1 << 31) - 1, -(1 << 31), (1 << 31) - 100
    name = f"mma.sync.aligned.{shape}.row.col.s32.{left}{bits}.{right}{bits}.s32"
    exact = a @ b + c
    assert np.array_equal(multiplied(name, a, b, c, bits), exact & 0xFFFFFFFF)
    clamped = np.clip(exact, -(1 << 31), (1 << 31) - 1) & 0xFFFFFFFF
    name = name.replace(".s32", ".satfinite.s32", 1)
    assert np.array_equal(multiplied(name, a, b, c, bits), clamped)


def float_codes(values: Any, kind: str) -> Any:
    """f32 values as codes of f16, bf16, tf32 or f32, which hold them exactly."""
    words = values.astype(np.float32).view(np.uint32)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return words >> 16 if kind == "bf16" else words


FLOAT_SHAPES = [("m16n8k8", "f16", 16), ("m16n8k16", "f16", 16), ("m16n8k8", "bf16", 16),
                ("m16n8k16", "bf16", 16), ("m16n8k4", "tf32", 32),
                ("m16n8k8", "tf32", 32)]  # fmt: skip


@pytest.mark.parametrize(("shape", "kind", "bits"), FLOAT_SHAPES)
def test_floats(shape: str, kind: str, bits: int) -> None:
    generator = np.random.default_rng(8)
    k = int(shape[shape.index("k") + 1 :])
    # Eighths of small whole numbers: exact in every format, and so are their sums.
    a, b = (generator.integers(-32, 33, size) / 8 for size in ((16, k), (k, 8)))
    c = generator.integers(-999, 999, (16, 8)) / 64
    name = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32"
    found = multiplied(
        name, float_codes(a, kind), float_codes(b, kind), float_codes(c, "f32"), bits
    )
    assert np.array_equal(found, float_codes(a @ b + c, "f32"))
    if kind == "f16":
        name = name.replace("f32", "f16")
        one, two, three = (float_codes(each, "f16") for each in (a, b, c))
        found = multiplied(name, one, two, three, bits, c_bits=16)
        assert np.array_equal(found, float_codes(a @ b + c, "f16"))


def test_the_sum_is_rounded_once() -> None:
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    a[0, :3], b[:3, 0] = (2048.0, 1.0, -2048.0), (2048.0, 2.0**-12, 2048.0)
    c = np.zeros((16, 8))
    c[0, 0], c[3, 3] = 2.0**-24, np.nan
    name = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    found = multiplied(
        name, float_codes(a, "f16"), float_codes(b, "f16"), float_codes(c, "f32"), 16
    )
    assert found[0, 0] == float_codes(np.array([2.0**-12 + 2.0**-24]), "f32")[0]
    assert found[3, 3] == 0x7FFFFFFF


def test_the_low_bits_of_a_tf32_do_not_count() -> None:
    a = np.full((16, 8), 0x3F801FFF, np.uint32)
    b = np.full((8, 8), 0x3F800FFF, np.uint32)
    name = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    found = multiplied(name, a, b, np.zeros((16, 8), np.uint32), 32)
    assert (found == float_codes(np.array([8.0]), "f32")[0]).all()


def value_table(kind: str) -> Any:
    return np.array([float(value_of(code, kind)) for code in range(256)])


@pytest.mark.parametrize("shape", ["m16n8k16", "m16n8k32"])
@pytest.mark.parametrize("left", ["e4m3", "e5m2"])
@pytest.mark.parametrize("right", ["e4m3", "e5m2"])
@pytest.mark.parametrize("result", ["f16", "f32"])
def test_floats_of_8_bits(shape: str, left: str, right: str, result: str) -> None:
    generator = np.random.default_rng(9)
    k = int(shape[shape.index("k") + 1 :])
    # Codes of moderate numbers, so that a sum of f32 is exact.
    a, b = (
        generator.integers(0x34, 0x40, size) | generator.integers(0, 2, size) << 7
        for size in ((16, k), (k, 8))
    )
    exact = value_table(left)[a] @ value_table(right)[b]
    name = f"mma.sync.aligned.{shape}.row.col.{result}.{left}.{right}.{result}"
    c_bits = 16 if result == "f16" else 32
    found = multiplied(name, a, b, np.zeros((16, 8), np.uint32), 8, c_bits)
    rounded = exact.astype(np.float16).astype(np.float64) if result == "f16" else exact
    assert np.array_equal(found, float_codes(rounded, result))


KINDS = ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"]
WIDTHS = {"e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4}


def padded(codes: Any, kind: str) -> Any:
    """Codes in their byte: those of four bits in its middle."""
    return codes << 2 if kind == "e2m1" else codes


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
def test_mixed_small_floats_with_and_without_scales(left: str, right: str) -> None:
    generator = np.random.default_rng(10)

    def codes(kind: str, size: tuple[int, int]) -> Any:
        width = WIDTHS[kind]
        found = generator.integers(0, 1 << width, size)
        finite = np.isfinite(value_table(kind)[found])
        return np.where(finite, found, 1)

    a, b = codes(left, (16, 32)), codes(right, (32, 8))
    x, y = value_table(left)[a], value_table(right)[b]
    c = np.zeros((16, 8), np.uint32)
    given = padded(a, left), padded(b, right)
    name = f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{left}.{right}.f32"
    found = multiplied(name, *given, c, 8)
    assert np.array_equal(found, float_codes((x @ y).astype(np.float32), "f32"))
    scales_a, scales_b = generator.integers(120, 134, 16), generator.integers(120, 134, 8)
    wanted = (x * 2.0 ** (scales_a[:, None] - 127)) @ (y * 2.0 ** (scales_b - 127))
    name = "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col"
    name += f".f32.{left}.{right}.f32.ue8m0"
    for byte, thread_a, thread_b in ((0, 0, 0), (3, 1, 2), (1, 0, 3)):
        words_a, words_b = [0xAAAAAAAA] * 32, [0xBBBBBBBB] * 32
        for row in range(16):
            lane = 4 * (row % 8) + 2 * thread_a + row // 8
            words_a[lane] = words_a[lane] & ~(255 << 8 * byte) | int(scales_a[row]) << 8 * byte
        for column in range(8):
            lane = 4 * column + thread_b
            words_b[lane] = words_b[lane] & ~(255 << 8 * byte) | int(scales_b[column]) << 8 * byte
        tail = (words_a, (byte, thread_a), words_b, (byte, thread_b))
        found = scaled(name, *given, c, 8, tail)
        assert np.array_equal(found, float_codes(wanted.astype(np.float32), "f32"))


def scaled(name: str, a: Any, b: Any, c: Any, bits: int, tail: Any) -> Any:
    words_a, of_a, words_b, of_b = tail
    lay_a, lay_b = PRINTED[(a.shape[1], bits)]
    one, two = registers(a, lay_a, bits), registers(b, lay_b, bits)
    three = registers(c, c_place, 32)
    end = f", %r90, {{{of_a[0]}, {of_a[1]}}}, %r91, {{{of_b[0]}, {of_b[1]}}}"
    counts = (len(three), len(one), len(two), len(three))
    found = warp(text(name, counts, end), *one, *two, *three, words_a, words_b)
    return matrix_of([words[0] for words in found], 16, 32)


E4M3 = value_table("e4m3")


@pytest.mark.parametrize(
    ("kind", "count", "stype", "thread_a", "thread_b", "byte"),
    [("mxf4", 2, "ue8m0", 0, 0, 0), ("mxf4", 2, "ue8m0", 1, 3, 2),
     ("mxf4nvf4", 2, "ue8m0", 0, 1, 2),
     ("mxf4nvf4", 4, "ue4m3", 0, 0, 0), ("mxf4nvf4", 4, "ue4m3", 1, 2, 0),
     ("mxf4nvf4", 4, "ue8m0", 1, 2, 0)],
)  # fmt: skip
def test_scaled_floats_of_4_bits(
    kind: str, count: int, stype: str, thread_a: int, thread_b: int, byte: int
) -> None:
    generator = np.random.default_rng(11)
    a, b = generator.integers(0, 16, (16, 64)), generator.integers(0, 16, (64, 8))
    x, y = value_table("e2m1")[a], value_table("e2m1")[b]
    low, high = (0x30, 0x50) if stype == "ue4m3" else (118, 136)
    scales_a = generator.integers(low, high, (16, count))
    scales_b = generator.integers(low, high, (8, count))
    values = E4M3 if stype == "ue4m3" else 2.0 ** (np.arange(256) - 127.0)
    x = x * np.repeat(values[scales_a], 64 // count, axis=1)
    y = y * np.repeat(values[scales_b], 64 // count, axis=1).T
    words_a, words_b = [0] * 32, [0xFFFFFFFF] * 32
    for row in range(16):
        lane = 4 * (row % 8) + 2 * thread_a + row // 8
        for index in range(count):
            words_a[lane] |= int(scales_a[row, index]) << 8 * (byte + index)
    for column in range(8):
        lane, words_b[4 * column + thread_b] = 4 * column + thread_b, 0
        for index in range(count):
            words_b[lane] |= int(scales_b[column, index]) << 8 * (byte + index)
    c = generator.integers(-100, 100, (16, 8)) / 4
    name = f"mma.sync.aligned.kind::{kind}.block_scale.scale_vec::{count}X.m16n8k64.row.col"
    name += f".f32.e2m1.e2m1.f32.{stype}"
    tail = (words_a, (byte, thread_a), words_b, (byte, thread_b))
    found = scaled(name, a, b, float_codes(c, "f32"), 4, tail)
    assert np.array_equal(found, float_codes((x @ y + c).astype(np.float32), "f32"))


def test_a_scale_that_is_no_number_spoils_its_row() -> None:
    a, b = np.full((16, 64), 2), np.full((64, 8), 2)
    words_a = [0x7F7F if lane != 4 * 5 else 0xFF7F for lane in range(32)]
    name = "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col"
    name += ".f32.e2m1.e2m1.f32.ue8m0"
    tail = (words_a, (0, 0), [0x7F7F] * 32, (0, 0))
    found = scaled(name, a, b, np.zeros((16, 8), np.uint32), 4, tail)
    assert (found[5] == 0x7FFFFFFF).all()
    others = np.delete(found, 5, axis=0)
    assert (others == float_codes(np.array([64.0]), "f32")[0]).all()


@pytest.mark.parametrize("shape", ["m16n16k16", "m32n8k16", "m8n32k16"])
@pytest.mark.parametrize("result", ["f16", "f32"])
def test_wmma_in_its_own_layout(shape: str, result: str) -> None:
    generator = np.random.default_rng(12)
    m, n, k = (int(part) for part in re.findall(r"\d+", shape))
    a, b = generator.integers(-8, 9, (m, k)) / 4, generator.integers(-8, 9, (k, n)) / 4
    c = generator.integers(-99, 99, (m, n)) / 8

    def fragment(matrix: Any, which: str, kind: str) -> list[list[int]]:
        rows, columns = wmma_elements(shape, which)
        codes = float_codes(matrix[rows, columns], kind)
        if kind == "f16":
            codes = codes[:, 0::2] | codes[:, 1::2] << 16
        return [[int(each) for each in column] for column in codes.T]

    parts = [fragment(a, "a", "f16"), fragment(b, "b", "f16"), fragment(c, "c", result)]
    count = len(parts[2])
    name = f"wmma.mma.sync.aligned.row.col.{shape}.{result}.{result}"
    found = warp(text(name, (count, 8, 8, count)), *parts[0], *parts[1], *parts[2])
    wanted = fragment(a @ b + c, "d", result)
    assert [[int(each) for each in words[0]] for words in found] == wanted


def test_every_element_of_a_wmma_matrix_is_held() -> None:
    for shape, (m, n, k) in {
        "m16n16k16": (16, 16, 16),
        "m32n8k16": (32, 8, 16),
        "m8n32k16": (8, 32, 16),
    }.items():
        for matrix, size in (("a", (m, k)), ("b", (k, n)), ("c", (m, n)), ("d", (m, n))):
            rows, columns = wmma_elements(shape, matrix)
            assert rows.shape == columns.shape == (32, 16 if matrix in "ab" else 8)
            held = np.zeros(size, bool)
            held[rows, columns] = True
            assert held.all()


def test_warps_are_kept_apart() -> None:
    generator = np.random.default_rng(13)
    words = [[int(each) for each in generator.integers(0, 1 << 32, 96)] for _ in range(10)]
    name = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
    together = warp(text(name, (4, 4, 2, 4)), *words)
    for row in range(3):
        alone = warp(text(name, (4, 4, 2, 4)), *[each[32 * row : 32 * row + 32] for each in words])
        for one, all_ in zip(alone, together, strict=True):
            assert np.array_equal(one[0], all_[row])
