"""Runs one instruction on lanes, as the executor would, and more than once: see ``run``."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from sparkbuild.qualify.alu.contract import LaneOp, WarpOp
from sparkbuild.qualify.alu.decode import decode
from sparkbuild.qualify.alu.flush import flush_mode
from sparkbuild.qualify.ptx.model import (
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Vector,
)

# What a register's name says about its type, as nvcc names them.
PREFIXES = {
    "rd": "b64", "rs": "b16", "r": "b32", "fd": "f64", "f": "f32", "p": "pred", "b": "b8",
    "h": "f16",
}  # fmt: skip
WIDTHS = {"b64": 8, "b16": 2, "b32": 4, "f64": 8, "f32": 4, "pred": 0, "b8": 2, "f16": 2}


def instruction(text: str) -> Instruction:
    """``add.s32 %r1, %r2, -3`` as the reader gives it; constants 0fXXXXXXXX and 0dX too."""
    name, _, rest = text.partition(" ")
    opcode, *modifiers = name.split(".")
    parts = re.findall(r"\{[^}]*\}|[^,\s][^,]*", rest)
    operands = tuple(_operand(part.strip()) for part in parts)
    return Instruction(opcode, tuple(modifiers), operands, None, 1)


def _register(text: str) -> Register:
    prefix = re.match(r"%([a-z]+)", text)
    assert prefix, text
    return Register(text, PREFIXES[prefix[1]])


def _half(text: str) -> Register | Sink:
    return Sink() if text == "_" else _register(text)


def _operand(text: str) -> Operand:
    if text[0] in "{%!_" or "|" in text:
        if text[0] == "{":
            return Vector(tuple(_operand(part.strip()) for part in text[1:-1].split(",")))
        if "|" in text:
            first, second = text.split("|")
            return Pair(_half(first), _half(second))
        return Negated(_register(text[1:])) if text[0] == "!" else _half(text)
    kinds: dict[str, Literal["f32", "f64"]] = {"0f": "f32", "0d": "f64"}
    if text[:2] in kinds:
        return Immediate(int(f"0x{text[2:]}", 0), kinds[text[:2]])
    return Immediate(int(text.rstrip("U"), 0))


def flat(operands: Sequence[Operand]) -> list[Operand]:
    found: list[Operand] = []
    for operand in operands:
        if isinstance(operand, Vector):
            found += flat(operand.items)
        elif isinstance(operand, Pair):
            found += [operand.first, operand.second]
        else:
            found.append(operand)
    return found


def stored(values: Any, register: Operand) -> Any:
    """Integers as a register keeps them: raw bits, or bool."""
    if isinstance(register, Negated):
        register = register.register
    assert isinstance(register, Register)
    width = WIDTHS[register.type]
    if not width:
        return np.array(values, np.bool_)
    mask = (1 << (8 * width)) - 1
    return np.array(
        [int(value) & mask for value in np.asarray(values, object).ravel()], f"u{width}"
    )


def kept(result: Any, register: Operand) -> list[int] | None:
    """A result in its register: widened by its sign, then raw bits; None for a sink."""
    if isinstance(register, Sink):
        return None
    assert isinstance(register, Register)
    width = WIDTHS[register.type]
    if not width:
        assert result.dtype == np.bool_
        return [int(value) for value in result.ravel()]
    assert result.dtype.kind in "iu", result.dtype
    assert result.itemsize <= width, "wider than its register"
    wide = result.astype(f"i{width}" if result.dtype.kind == "i" else f"u{width}")
    return [int(value) for value in wide.astype(f"u{width}").ravel()]


def run(text: str, *sources: Any, raw: bool = False) -> Any:
    """The first destination's values (all destinations' with ``raw``) for each lane.

    ``sources`` are the values of the register sources in order. The instruction runs with the
    processor's flushing mode off and on, and for the first lane alone, and must give the same.
    """
    decoded = instruction(text)
    op = decode(decoded)
    assert isinstance(op, LaneOp)
    targets = flat(decoded.operands[: op.destinations])
    wanted = flat(decoded.operands[op.destinations :])
    given = iter(sources)
    arrays = [
        np.array([operand.value % (1 << 64)], np.uint64)
        if isinstance(operand, Immediate) and operand.kind != "f32"
        else np.array([operand.value], np.uint32)
        if isinstance(operand, Immediate)
        else stored(next(given), operand)
        for operand in wanted
    ]
    assert next(given, None) is None, "more sources than registers"
    results = _once(op, arrays, targets)
    with flush_mode():
        assert _once(op, arrays, targets) == results, "differs in the processor's flushing mode"
    # A register may be a column of a table: not dense in memory.
    columns = [np.repeat(array, 2)[::2] for array in arrays]
    assert _once(op, columns, targets) == results, "differs for what is not dense"
    first = _once(op, [array[:1] for array in arrays], targets)
    assert [None if value is None else value[:1] for value in results] == first
    return results if raw else results[0]


def _once(op: LaneOp, arrays: list[Any], targets: list[Operand]) -> list[list[int] | None]:
    before = [array.copy() for array in arrays]
    with np.errstate(all="ignore"):
        results = op.run(*arrays)
    assert all(np.array_equal(one, two) for one, two in zip(before, arrays, strict=True))
    lanes = max(array.size for array in arrays)
    assert len(results) == len(targets)
    for result in results:
        assert isinstance(result, np.ndarray)
        assert result.ndim == 1
        assert result.size in {1, lanes}
    return [
        kept(np.broadcast_to(result, lanes), target)
        for result, target in zip(results, targets, strict=True)
    ]


def warp(text: str, *sources: Any, active: Any = None) -> list[Any]:
    """Every destination's values of a warp operation, each (warps, 32), sources likewise."""
    decoded = instruction(text)
    op = decode(decoded)
    assert isinstance(op, WarpOp)
    targets = flat(decoded.operands[: op.destinations])
    wanted = flat(decoded.operands[op.destinations :])
    given = iter(sources)
    rows = max((np.asarray(source).reshape(-1, 32).shape[0] for source in sources), default=1)
    arrays = [
        np.full((rows, 32), operand.value % (1 << 64), np.uint64)
        if isinstance(operand, Immediate)
        else stored(next(given), operand).reshape(-1, 32)
        for operand in wanted
    ]
    assert next(given, None) is None
    there = np.ones((rows, 32), np.bool_) if active is None else np.asarray(active).reshape(-1, 32)
    with np.errstate(all="ignore"):
        results = op.run(there, *arrays)
        with flush_mode():
            again = op.run(there, *arrays)
    assert len(results) == len(targets)
    for one, two in zip(results, again, strict=True):
        assert one.shape == (rows, 32)
        assert np.array_equal(one, two)
    return list(results)


def nasty(width: int) -> list[int]:
    """Whole numbers of a width where arithmetic goes wrong."""
    top = 1 << (width - 1)
    values = [0, 1, 2, 3, 7, 8, 15, 31, 32, 33, 63, 64, 127, 128, 255, 256, top - 1, top, top + 1]
    values += [2 * top - 1, 2 * top - 2, 0x5555555555555555, 0x8181818181818181, top >> 1, 0x7FFF]
    return sorted({value & (2 * top - 1) for value in values})


def product(*columns: Sequence[int]) -> list[list[int]]:
    """All combinations, as one list for each source."""
    grids = np.meshgrid(*[np.array(column, object) for column in columns], indexing="ij")
    return [list(grid.ravel()) for grid in grids]


def signed(value: int, width: int) -> int:
    """Raw bits as two's complement."""
    return value - (1 << width) if value >> (width - 1) else value


# Binary floats by their definition, in fractions: (exponent bits, stored fraction bits).
LAYOUTS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 10)}


def number(bits: int, layout: str) -> Fraction | float:
    """What bits stand for: a fraction, or inf and nan as floats; -0 is 0."""
    exponent_bits, stored_bits = LAYOUTS[layout]
    sign = -1 if bits >> (exponent_bits + stored_bits) else 1
    exponent = (bits >> stored_bits) & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << stored_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        return float("nan") if fraction else sign * float("inf")
    if exponent == 0:
        return sign * Fraction(fraction, 1 << stored_bits) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(fraction, 1 << stored_bits)) * Fraction(2) ** (exponent - bias)


def finite(bits: int, layout: str) -> Fraction:
    """What the bits of a finite number stand for."""
    value = number(bits, layout)
    assert isinstance(value, Fraction)
    return value


def round_to(value: Fraction, layout: str, mode: str = "rn", negative: bool | None = None) -> int:
    """The bits of a fraction rounded once; ``negative`` is the sign of an exact zero."""
    exponent_bits, stored_bits = LAYOUTS[layout]
    minus = value < 0 if value else bool(negative)
    top, above, below = 1 << (exponent_bits + stored_bits), abs(value.numerator), value.denominator
    if not value:
        return top if minus else 0
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = above.bit_length() - below.bit_length()
    if above << max(-exponent, 0) < below << max(exponent, 0):
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    unit = exponent - stored_bits
    below <<= max(unit, 0)
    whole, rest = divmod(above << max(-unit, 0), below)
    up = {
        "rn": 2 * rest > below or (2 * rest == below and whole % 2 == 1),
        "rz": False,
        "rm": minus and rest > 0,
        "rp": not minus and rest > 0,
        "rna": 2 * rest >= below,
    }[mode]
    code = ((exponent + bias - 1) << stored_bits) + whole + up
    infinity = ((1 << exponent_bits) - 1) << stored_bits
    if code >= infinity:
        stays = mode == "rz" or (mode == "rm" and not minus) or (mode == "rp" and minus)
        code = infinity - 1 if stays else infinity
    return code | (top if minus else 0)
