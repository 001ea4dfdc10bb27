"""Video instructions, element by element as the PTX manual's pseudocode has them."""

import operator
from collections.abc import Callable

import numpy as np
import pytest

from .lanes import nasty, product, run, signed

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vavrg": lambda a, b: (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}
TYPES = [(d, a, b) for d in ("u32", "s32") for a in ("u32", "s32") for b in ("u32", "s32")]


def elements(word: int, count: int, kind: str) -> list[int]:
    width = 32 // count
    found = [word >> width * i & (1 << width) - 1 for i in range(count)]
    return [signed(each, width) for each in found] if kind == "s32" else found


def limits(kind: str, width: int) -> tuple[int, int]:
    return (-(1 << width - 1), (1 << width - 1) - 1) if kind == "s32" else (0, (1 << width) - 1)


def join(values: list[int], count: int) -> int:
    width = 32 // count
    return sum((value & (1 << width) - 1) << width * i for i, value in enumerate(values))


def words() -> list[list[int]]:
    generator = np.random.default_rng(15)
    edges = [0, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x80007FFF, 0x00FF01FE]
    random = [int(each) for each in generator.integers(0, 1 << 32, 20)]
    return product(edges + random, edges + random)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", OPERATIONS)
def test_elements_side_by_side(name: str, count: int) -> None:
    a, b = words()
    c = [(7 * index + 3) % (1 << 32) for index in range(len(a))]
    for d_type, a_type, b_type in TYPES:
        low, high = limits(d_type, 32 // count)
        wanted, clamped, summed = [], [], []
        for x, y, z in zip(a, b, c, strict=True):
            pairs = zip(elements(x, count, a_type), elements(y, count, b_type), strict=True)
            values = [OPERATIONS[name](*pair) for pair in pairs]
            wanted.append(join(values, count))
            clamped.append(join([max(low, min(high, value)) for value in values], count))
            summed.append((sum(values) + z) % (1 << 32))
        text = f"{name}{count}.{d_type}.{a_type}.{b_type}"
        assert run(f"{text} %r0, %r1, %r2, %r3", a, b, c) == wanted, text
        assert run(f"{text}.sat %r0, %r1, %r2, %r3", a, b, c) == clamped, text
        assert run(f"{text}.add %r0, %r1, %r2, %r3", a, b, c) == summed, text


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("test", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_side_by_side(test: str, count: int) -> None:
    a, b = words()
    c = [5] * len(a)
    compare: Callable[[int, int], bool] = getattr(operator, test)
    for a_type in ("u32", "s32"):
        for b_type in ("u32", "s32"):
            truths = [
                [int(compare(u, v)) for u, v in zip(elements(x, count, a_type),
                                                    elements(y, count, b_type), strict=True)]
                for x, y in zip(a, b, strict=True)
            ]  # fmt: skip
            text = f"vset{count}.{a_type}.{b_type}.{test}"
            assert run(f"{text} %r0, %r1, %r2, %r3", a, b, c) == [
                join(each, count) for each in truths
            ]
            found = run(f"{text}.add %r0, %r1, %r2, %r3", a, b, c)
            assert found == [sum(each) + 5 for each in truths]


@pytest.mark.parametrize("name", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
def test_words(name: str) -> None:
    a, b = product(nasty(32), nasty(32))
    c = [nasty(32)[index % len(nasty(32))] for index in range(len(a))]
    for d_type, a_type, b_type in TYPES:
        low, high = limits(d_type, 32)
        exact = [
            OPERATIONS[name](elements(x, 1, a_type)[0], elements(y, 1, b_type)[0])
            for x, y in zip(a, b, strict=True)
        ]
        clamped = [max(low, min(high, value)) for value in exact]
        text = f"{name}.{d_type}.{a_type}.{b_type}"
        assert run(f"{text} %r0, %r1, %r2", a, b) == [value % (1 << 32) for value in exact]
        found = run(f"{text}.sat %r0, %r1, %r2", a, b)
        assert found == [value % (1 << 32) for value in clamped]
        addends = [elements(each, 1, d_type)[0] for each in c]
        seconds: dict[str, Callable[[int, int], int]]
        seconds = {"add": operator.add, "min": min, "max": max}
        for second, join_ in seconds.items():
            found = run(f"{text}.sat.{second} %r0, %r1, %r2, %r3", a, b, c)
            pairs = zip(clamped, addends, strict=True)
            assert found == [join_(*pair) % (1 << 32) for pair in pairs], (text, second)


def test_comparison_of_words_and_one_element() -> None:
    assert run("vset.s32.u32.lt %r0, %r1, %r2", [-1, 5], [0, 4]) == [1, 0]
    assert run("vset.u32.u32.ge.add %r0, %r1, %r2, %r3", [5, 3], [4, 4], [10, 10]) == [11, 10]
    # One value for all lanes beside one a lane.
    assert run("vadd4.u32.u32.u32 %r0, %r1, 0x01010101, 0", [0xFF000102, 0]) == [
        0x00010203, 0x01010101,
    ]  # fmt: skip
