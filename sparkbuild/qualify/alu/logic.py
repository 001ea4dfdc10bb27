"""Bitwise logic: and, or, xor, not, cnot, and lop3 with any truth table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form, Source
from sparkbuild.qualify.alu.types import U32, Type, scalar
from sparkbuild.qualify.ptx.model import Instruction, Pair

TWO: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
LOGIC_TYPES = ("b16", "b32", "b64", "pred")


def logic(instruction: Instruction) -> LaneOp:
    """``and``, ``or``, ``xor``, ``not`` of bits and of predicates."""
    form = Form(instruction)
    kind = form.type(*LOGIC_TYPES)
    sources = 1 if instruction.opcode == "not" else 2
    form.finish(sources)
    function = TWO.get(instruction.opcode, np.invert)
    read = _predicates(form) if kind.kind == "pred" else _bits(form, kind)
    return lane(function, [read(index) for index in range(sources)])


def _bits(form: Form, kind: Type) -> Callable[[int], Source]:
    return lambda index: form.bits(index, kind)


def _predicates(form: Form) -> Callable[[int], Source]:
    return form.predicate


def cnot(instruction: Instruction) -> LaneOp:
    """``cnot``: 1 where the source is 0, else 0."""
    form = Form(instruction)
    kind = form.type("b16", "b32", "b64")
    form.finish(1)
    zero = scalar(0, kind.unsigned)
    return lane(lambda a: np.equal(a, zero).astype(kind.unsigned), [form.bits(0, kind)])


def lop3(instruction: Instruction) -> LaneOp:
    """``lop3.b32``: any function of three bits; ``.and``/``.or`` give a predicate as well."""
    form = Form(instruction)
    combine = next((name for name in ("and", "or") if form.flag(name)), "")
    kind = form.type("b32")
    form.finish(5 if combine else 4)
    table = form.constant(3)
    if not 0 <= table < 256:
        form.refuse(f"truth table {table}")
    function = truth_table(table)
    sources = [form.bits(index, kind) for index in range(3)]
    if not combine:
        return lane(lambda a, b, c, _: function(a, b, c), [*sources, Source()])
    return _with_predicate(form, function, combine, sources)


def _with_predicate(
    form: Form, function: Callable[..., Bits], combine: str, sources: list[Source]
) -> LaneOp:
    """``lop3.BoolOp.b32 d|p``: p is (d != 0) combined with the last source; d may be ``_``."""
    destination = form.instruction.operands[0]
    if not isinstance(destination, Pair):
        form.refuse("no predicate to write")
    one, two, three = (source.reader for source in sources)
    truth = form.predicate(4).reader
    join = TWO[combine]
    zero = scalar(0, U32)

    def run(a: Bits, b: Bits, c: Bits, _: Bits, q: Bits) -> tuple[Bits, ...]:
        result = function(one(a), two(b), three(c))
        return result, join(np.not_equal(result, zero), truth(q))

    return LaneOp(run)


def truth_table(table: int) -> Callable[[Bits, Bits, Bits], Bits]:
    """The function of three words whose bits follow ``table``: bit 4a+2b+c of it."""
    where_c = sum(((table >> (2 * row + 1)) & 1) << row for row in range(4))
    where_not_c = sum(((table >> (2 * row)) & 1) << row for row in range(4))
    base, change = _two_bits(where_not_c), _two_bits(where_c ^ where_not_c)
    if where_c == where_not_c:
        return lambda a, b, c: np.bitwise_or(base(a, b), np.bitwise_and(c, c.dtype.type(0)))
    if where_c ^ where_not_c == 0b1111:
        return lambda a, b, c: np.bitwise_xor(base(a, b), c)
    if where_not_c == 0:
        return lambda a, b, c: np.bitwise_and(change(a, b), c)
    return lambda a, b, c: np.bitwise_xor(base(a, b), np.bitwise_and(change(a, b), c))


def _two_bits(table: int) -> Callable[[Bits, Bits], Bits]:
    """The function of two words by its table: bit 2a+b of it; at most two operations."""
    ones = np.bitwise_not
    functions: dict[int, Callable[[Bits, Bits], Any]] = {
        0b0000: lambda a, b: (a ^ a) & b,
        0b0001: lambda a, b: ones(a | b),
        0b0010: lambda a, b: ones(a) & b,
        0b0011: lambda a, b: ones(a) | (b ^ b),
        0b0100: lambda a, b: a & ones(b),
        0b0101: lambda a, b: ones(b) | (a ^ a),
        0b0110: np.bitwise_xor,
        0b0111: lambda a, b: ones(a & b),
        0b1000: np.bitwise_and,
        0b1001: lambda a, b: ones(a ^ b),
        0b1010: lambda a, b: b | (a ^ a),
        0b1011: lambda a, b: ones(a) | b,
        0b1100: lambda a, b: a | (b ^ b),
        0b1101: lambda a, b: a | ones(b),
        0b1110: np.bitwise_or,
        0b1111: lambda a, b: ones((a ^ a) & b),
    }
    return functions[table]
