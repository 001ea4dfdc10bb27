"""Shifts and bit fields: shl, shr, shf, bfe, bfi, bmsk, szext.

numpy's own rule for a shift by the width or more (zeros, or the sign for signed numbers) is PTX's
clamping, so no amount is clamped here; amounts must only not lose bits before they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form, Source
from sparkbuild.qualify.alu.types import I32, TYPES, U32, I, Type, U, scalar
from sparkbuild.qualify.ptx.model import Instruction

B32 = TYPES["u32"]
BYTE = scalar(0xFF, U32)


def amount(form: Form, index: int, dtype: np.dtype[Any]) -> Source:
    """A shift amount (always 32 bits) in the dtype of what it shifts, 64 standing for more."""
    source = form.bits(index, B32)
    if source.constant is not None:
        value = np.minimum(source.constant, 64).astype(dtype).reshape(source.constant.shape)
        return Source(lambda _: value, value)
    read = source.reader
    if dtype == U32:
        return source
    if dtype == I32:
        # An amount of 2^31 or more reads as negative, which numpy takes for far too much as well.
        return Source(lambda bits: read(bits).view(I32))
    return Source(lambda bits: read(bits).astype(dtype))


def shift(instruction: Instruction) -> LaneOp:
    """``shl`` and ``shr``; ``shr`` of a signed type repeats the sign."""
    form = Form(instruction)
    left = instruction.opcode == "shl"
    types = ("b16", "b32", "b64") if left else ("b16", "b32", "b64", *SHIFTED)
    kind = form.type(*types)
    form.finish(2)
    function: Callable[..., Any] = np.left_shift if left else np.right_shift
    own = kind.own
    if kind.bits == 16:
        return _short(form, kind, function)
    return lane(function, [form.integers(0, kind), amount(form, 1, own)])


SHIFTED = ("u16", "u32", "u64", "s16", "s32", "s64")


def _short(form: Form, kind: Type, function: Callable[..., Any]) -> LaneOp:
    """16 bits: a constant amount stays narrow, a variable one would not fit (65536)."""
    if form.is_constant(1):
        return lane(function, [form.integers(0, kind), amount(form, 1, kind.own)])
    wide = (I if kind.kind == "s" else U)[32]
    narrow = kind.own
    sources = [form.integers(0, kind), amount(form, 1, wide)]
    return lane(lambda a, b: np.asarray(function(a.astype(wide), b)).astype(narrow), sources)


def funnel(instruction: Instruction) -> LaneOp:
    """``shf``: 32 bits out of the 64 of (b, a), shifted ``.l`` or ``.r``."""
    form = Form(instruction)
    left = form.pick("l", "r") == "l"
    wrap = form.pick("clamp", "wrap") == "wrap"
    kind = form.type("b32")
    form.finish(3)
    width, low_bits = scalar(32, U32), scalar(31, U32)

    def run(a: Bits, b: Bits, count: Bits) -> Any:
        by = np.bitwise_and(count, low_bits) if wrap else np.minimum(count, width)
        rest = width - by
        if left:
            return np.left_shift(b, by) | np.right_shift(a, rest)
        return np.left_shift(b, rest) | np.right_shift(a, by)

    return lane(run, [form.bits(index, kind) for index in range(3)])


def extract(instruction: Instruction) -> LaneOp:
    """``bfe``: a field at a position of a length, its sign repeated for signed types."""
    form = Form(instruction)
    kind = form.type("u32", "u64", "s32", "s64")
    form.finish(3)
    source = form.integers(0, kind)
    if form.is_constant(1) and form.is_constant(2):
        return _extract_constant(form, kind, source)
    own = kind.own
    width, zero = scalar(kind.bits, I32), scalar(0, I32)

    def run(a: Bits, position: Bits, length: Bits) -> Any:
        start, count = (position & BYTE).view(I32), (length & BYTE).view(I32)
        up = np.maximum(width - (start + count), zero)
        moved = np.left_shift(a, up.astype(own))
        field = np.right_shift(moved, (up + start).astype(own))
        return np.where(count == zero, own.type(0), field) if kind.kind == "s" else field

    return lane(run, [source, form.bits(1, B32), form.bits(2, B32)])


def _extract_constant(form: Form, kind: Type, source: Source) -> LaneOp:
    start, count = form.constant(1) & 0xFF, form.constant(2) & 0xFF
    up = max(kind.bits - (start + count), 0)
    left, right = scalar(up, kind.own), scalar(up + start, kind.own)
    ignored = [Source(), Source()]
    if count == 0:
        return lane(lambda a, _, __: a & kind.own.type(0), [source, *ignored])
    if up == 0:
        return lane(lambda a, _, __: np.right_shift(a, right), [source, *ignored])
    if kind.kind == "u":
        mask, by = scalar((1 << count) - 1, kind.own), scalar(start, kind.own)
        if start == 0:
            return lane(lambda a, _, __: np.bitwise_and(a, mask), [source, *ignored])
        return lane(lambda a, _, __: np.right_shift(a, by) & mask, [source, *ignored])
    return lane(lambda a, _, __: np.right_shift(np.left_shift(a, left), right), [source, *ignored])


def insert(instruction: Instruction) -> LaneOp:
    """``bfi``: the low bits of the first source put into the second at a position."""
    form = Form(instruction)
    kind = form.type("b32", "b64")
    form.finish(4)
    own, one = kind.unsigned, scalar(1, kind.unsigned)

    def run(a: Bits, b: Bits, position: Bits, length: Bits) -> Any:
        start, count = (position & BYTE).astype(own), (length & BYTE).astype(own)
        mask = np.left_shift(np.left_shift(one, count) - one, start)
        return np.asarray(b ^ ((b ^ np.left_shift(a, start)) & mask))

    sources = [form.bits(0, kind), form.bits(1, kind)]
    if not (form.is_constant(2) and form.is_constant(3)):
        return lane(run, [*sources, form.bits(2, B32), form.bits(3, B32)])
    start, count = form.constant(2) & 0xFF, form.constant(3) & 0xFF
    whole = (1 << kind.bits) - 1
    field = (((1 << count) - 1) << start) & whole
    mask, by = scalar(field, own), scalar(min(start, kind.bits), own)
    ignored = [Source(), Source()]
    return lane(lambda a, b, _, __: b ^ ((b ^ (a << by)) & mask), [*sources, *ignored])


def bit_mask(instruction: Instruction) -> LaneOp:
    """``bmsk``: ones from a position on, as many as asked for; ``.clamp`` or ``.wrap`` at 32."""
    form = Form(instruction)
    wrap = form.pick("clamp", "wrap") == "wrap"
    kind = form.type("b32")
    form.finish(2)
    one, limit = scalar(1, U32), scalar(31, U32)

    def run(position: Bits, length: Bits) -> Any:
        if wrap:
            position, length = position & limit, length & limit
        return np.left_shift(np.left_shift(one, length) - one, position)

    return lane(run, [form.bits(0, kind), form.bits(1, kind)])


def sign_extend(instruction: Instruction) -> LaneOp:
    """``szext``: the low bits of a number, extended by sign or zeros; the count clamps or wraps."""
    form = Form(instruction)
    wrap = form.pick("clamp", "wrap") == "wrap"
    kind = form.type("u32", "s32")
    form.finish(2)
    own, width, low_bits = kind.own, scalar(32, U32), scalar(31, U32)

    def run(a: Bits, length: Bits) -> Any:
        count = length & low_bits if wrap else np.minimum(length, width)
        up = (width - count).astype(own)
        field = np.right_shift(np.left_shift(a, up), up)
        return np.where(count == 0, own.type(0), field)

    return lane(run, [form.integers(0, kind), form.bits(1, B32)])
