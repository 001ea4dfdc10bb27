"""Whole-number arithmetic: add, sub, mul, mad, sad, div, rem, abs, neg, min, max.

Sums and low products wrap, which is the same for either sign, so they run on unsigned arrays. What
PTX calls unspecified has to be something here: dividing by zero gives all ones, and the remainder
is the dividend.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form, Prepare, Source
from sparkbuild.qualify.alu.product import high_product, low_product, wide_product
from sparkbuild.qualify.alu.types import I32, I64, TYPES, U16, U32, Type, scalar
from sparkbuild.qualify.ptx.model import Instruction

INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
PACKED = ("u16x2", "s16x2")
MULTIPLIED = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
LOWEST, HIGHEST = scalar(-(1 << 31), I64), scalar((1 << 31) - 1, I64)


def signed_again(form: Form, kind: Type) -> Prepare | None:
    """What a result computed without a sign needs before it may be widened."""
    if kind.kind == "s" and form.widens(kind):
        return methodcaller("view", kind.signed)
    return None


def add(instruction: Instruction) -> LaneOp:
    """``add`` and ``sub`` of integers, ``.sat`` of s32 included, and pairs of 16 bits."""
    form = Form(instruction)
    function: Callable[..., Any] = np.add if instruction.opcode == "add" else np.subtract
    saturate = form.flag("sat")
    kind = form.type(*INTEGERS, *PACKED)
    form.finish(2)
    if kind.name in PACKED:
        if saturate:
            form.refuse("saturating pairs")
        return lane(_halves(function, U16), [form.bits(0, kind), form.bits(1, kind)])
    if saturate:
        if kind.name != "s32":
            form.refuse(f"saturating .{kind.name}")
        return lane(_saturating(function), [form.signed(0, kind), form.signed(1, kind)])
    sources = [form.bits(0, kind), form.bits(1, kind)]
    return lane(function, sources, signed_again(form, kind))


def _saturating(function: Callable[..., Any]) -> Callable[[Bits, Bits], Any]:
    def run(a: Bits, b: Bits) -> Any:
        exact = function(a.astype(I64), b.astype(I64))
        return np.clip(exact, LOWEST, HIGHEST).astype(I32)

    return run


def _halves(function: Callable[..., Any], dtype: np.dtype[Any]) -> Callable[[Bits, Bits], Bits]:
    def run(a: Bits, b: Bits) -> Bits:
        return np.asarray(function(pairs(a, dtype), pairs(b, dtype))).view(U32)[..., 0]

    return run


def pairs(bits: Bits, dtype: np.dtype[Any]) -> Bits:
    """Shape (lanes, n): the parts of each register, the lowest first."""
    return bits.reshape(*bits.shape, 1).view(dtype)


def multiply(instruction: Instruction) -> LaneOp:
    """``mul`` and ``mad`` of integers: ``.lo``, ``.hi`` (``.sat`` for mad) and ``.wide``."""
    form = Form(instruction)
    part = form.pick("lo", "hi", "wide")
    saturate = form.flag("sat")
    kind = form.type(*INTEGERS)
    add_it = instruction.opcode == "mad"
    form.finish(3 if add_it else 2)
    if saturate and (part, kind.name, add_it) != ("hi", "s32", True):
        form.refuse("modifier .sat")
    wide = kind
    if part == "wide":
        if kind.name not in MULTIPLIED:
            form.refuse(f"type .{kind.name}")
        wide = TYPES[MULTIPLIED[kind.name]]
    product = {"lo": low_product, "hi": high_product, "wide": wide_product}[part](kind)
    read = form.bits if part == "lo" else form.integers
    sources = [read(0, kind), read(1, kind)]
    if sources[1].constant is not None and kind.bits < 64 and part != "lo":
        sources[1] = widened(sources[1].constant, TYPES[MULTIPLIED[kind.name]])
    if not add_it:
        return lane(product, sources, signed_again(form, wide))
    if saturate:
        addend = form.signed(2, kind)
        return lane(_saturated_sum(product), [*sources, addend])
    addend = form.bits(2, wide)
    return lane(lambda a, b, c: product(a, b) + c, [*sources, addend], signed_again(form, wide))


def widened(value: Bits, kind: Type) -> Source:
    """A constant in a wider type, so that no lane need widen it."""
    constant = np.asarray(value.astype(kind.own))
    return Source(lambda _: constant, constant)


def _saturated_sum(product: Callable[[Bits, Bits], Bits]) -> Callable[..., Bits]:
    total = _saturating(np.add)
    return lambda a, b, c: total(product(a, b).view(I32), c)


def multiply_24(instruction: Instruction) -> LaneOp:
    """``mul24`` and ``mad24``: the low 24 bits of each factor; ``.hi`` is bits 16 to 47."""
    form = Form(instruction)
    part = form.pick("lo", "hi")
    saturate = form.flag("sat")
    kind = form.type("u32", "s32")
    add_it = instruction.opcode == "mad24"
    form.finish(3 if add_it else 2)
    if saturate and (part, kind.name, add_it) != ("hi", "s32", True):
        form.refuse("modifier .sat")
    shift = scalar(16 if part == "hi" else 0, I64)
    unused = scalar(8, U32)

    def product(a: Bits, b: Bits) -> Any:
        left = ((a << unused).view(kind.own) >> unused.view(kind.own)).astype(I64)
        right = ((b << unused).view(kind.own) >> unused.view(kind.own)).astype(I64)
        return np.asarray((left * right) >> shift).astype(U32)

    sources = [form.bits(0, kind), form.bits(1, kind)]
    if not add_it:
        return lane(product, sources, signed_again(form, kind))
    if saturate:
        return lane(_saturated_sum(product), [*sources, form.signed(2, kind)])
    sources.append(form.bits(2, kind))
    return lane(lambda a, b, c: product(a, b) + c, sources, signed_again(form, kind))


def sad(instruction: Instruction) -> LaneOp:
    """``sad``: the absolute difference of two, plus a third."""
    form = Form(instruction)
    kind = form.type(*INTEGERS)
    form.finish(3)

    def run(a: Bits, b: Bits, c: Bits) -> Bits:
        return np.asarray(np.maximum(a, b).view(U) - np.minimum(a, b).view(U) + c)

    U = kind.unsigned  # noqa: N806  the name of the dtype's family
    sources = [form.integers(0, kind), form.integers(1, kind), form.bits(2, kind)]
    return lane(run, sources, signed_again(form, kind))


def divide(instruction: Instruction) -> LaneOp:
    """``div`` and ``rem`` of integers, towards zero."""
    form = Form(instruction)
    kind = form.type(*INTEGERS)
    form.finish(2)
    quotient = instruction.opcode == "div"
    if kind.kind == "u":
        run = _unsigned_quotient if quotient else _unsigned_remainder
        return lane(run, [form.bits(0, kind), form.bits(1, kind)])
    function = _signed_quotient if quotient else _signed_remainder
    sources = [form.signed(0, kind), form.signed(1, kind)]
    return lane(lambda a, b: function(a, b, kind), sources)


def _unsigned_quotient(a: Bits, b: Bits) -> Bits:
    result = np.floor_divide(a, b)
    zero = b == 0
    if np.count_nonzero(zero):
        result = np.where(zero, np.array(-1).astype(result.dtype), result)
    return result


def _unsigned_remainder(a: Bits, b: Bits) -> Bits:
    result = np.remainder(a, b)
    zero = b == 0
    if np.count_nonzero(zero):
        result = np.where(zero, a, result)
    return result


def _signed_quotient(a: Bits, b: Bits, kind: Type) -> Bits:
    # Magnitudes are divided without a sign: that is towards zero, and -2^31 / -1 wraps as it must.
    size = np.abs(a).view(kind.unsigned) // np.abs(b).view(kind.unsigned)
    result = np.where((a ^ b) < 0, np.negative(size), size)
    return np.where(b == 0, np.array(-1, kind.signed), result.view(kind.signed))


def _signed_remainder(a: Bits, b: Bits, kind: Type) -> Bits:
    size = np.remainder(np.abs(a).view(kind.unsigned), np.abs(b).view(kind.unsigned))
    result = np.where(a < 0, np.negative(size), size).view(kind.signed)
    return np.where(b == 0, a, result)


def magnitude(instruction: Instruction) -> LaneOp:
    """``abs`` and ``neg`` of integers; the lowest number is its own magnitude."""
    form = Form(instruction)
    kind = form.type("s16", "s32", "s64")
    form.finish(1)
    if instruction.opcode == "abs":
        return lane(np.abs, [form.signed(0, kind)])
    return lane(np.negative, [form.bits(0, kind)], signed_again(form, kind))


def extreme(instruction: Instruction) -> LaneOp:
    """``min`` and ``max`` of integers, pairs of 16 bits, and ``.relu`` of the signed."""
    form = Form(instruction)
    relu = form.flag("relu")
    kind = form.type(*INTEGERS, *PACKED)
    form.finish(2)
    if relu and kind.name not in {"s32", "s16x2"}:
        form.refuse("modifier .relu")
    function: Callable[..., Any] = np.minimum if instruction.opcode == "min" else np.maximum
    if kind.name in PACKED:
        dtype = TYPES[kind.name.removesuffix("x2")].own
        zero = np.zeros((), dtype)
        chosen = (lambda a, b: np.maximum(function(a, b), zero)) if relu else function
        return lane(_halves(chosen, dtype), [form.bits(0, kind), form.bits(1, kind)])
    sources = [form.integers(0, kind), form.integers(1, kind)]
    if relu:
        floor = scalar(0, kind.signed)
        return lane(lambda a, b: np.maximum(function(a, b), floor), sources)
    return lane(function, sources)
