"""``mov`` of registers, constants and packed parts; also what only looks like arithmetic."""

from __future__ import annotations

from operator import methodcaller

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.types import REGISTER_BITS, TYPES, Type, U, parts
from sparkbuild.qualify.ptx.model import Instruction, Register, Vector

MOVED = (
    "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f16", "bf16", "f32", "f64",
    "pred",
)  # fmt: skip


def move(instruction: Instruction) -> LaneOp:
    """``mov``: a copy, the parts of a vector packed into one, or one register taken apart.

    Addresses of symbols and special registers are the executor's.
    """
    form = Form(instruction)
    kind = form.type(*MOVED)
    form.finish()
    operand = instruction.operands[1] if len(instruction.operands) == 2 else None
    if operand is None:
        form.refuse(f"{len(instruction.operands)} operands")
    if kind.kind == "pred":
        return lane(_same, [form.predicate(0)])
    if isinstance(operand, Vector):
        return _pack(form, kind)
    if isinstance(instruction.operands[0], Vector):
        return _unpack(form, kind, instruction.operands[0])
    source = form.bits(0, kind)
    finish = methodcaller("view", kind.signed) if kind.kind == "s" and form.widens(kind) else None
    return lane(_same, [source], finish)


def _same(bits: Bits) -> Bits:
    return bits


def _pack(form: Form, kind: Type) -> LaneOp:
    """The first element becomes the low bits."""
    count = len(form.sources)
    if kind.kind != "b" or count not in {2, 4} or kind.bits // count < 8:
        form.refuse(f"{count} parts of .{kind.name}")
    part = TYPES[f"b{kind.bits // count}"]
    for source in form.sources:
        if isinstance(source, Register) and REGISTER_BITS.get(source.type) != part.bits:
            form.refuse(f"a part of type .{source.type}")
    readers = [form.bits(index, part).reader for index in range(count)]
    whole, narrow = U[kind.bits], U[part.bits]

    def run(*sources: Bits) -> tuple[Bits, ...]:
        values = [read(bits) for read, bits in zip(readers, sources, strict=True)]
        packed = np.empty(count * max(value.size for value in values), narrow)
        for index, value in enumerate(values):
            packed[index::count] = value
        return (packed.view(whole),)

    return LaneOp(run)


def _unpack(form: Form, kind: Type, destination: Vector) -> LaneOp:
    """The low bits go to the first element."""
    count = len(destination.items)
    if kind.kind != "b" or count not in {2, 4} or kind.bits // count < 8:
        form.refuse(f"{count} parts of .{kind.name}")
    narrow = U[kind.bits // count]
    source = form.bits(0, kind).reader

    def run(bits: Bits) -> tuple[Bits, ...]:
        split = parts(source(bits), narrow)
        return tuple(split[index::count].copy() for index in range(count))

    return LaneOp(run)
