"""Bits counted and found: popc, clz, bfind, brev, fns."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.product import bit_length
from sparkbuild.qualify.alu.types import I64, TYPES, U8, U32, parts, scalar
from sparkbuild.qualify.ptx.model import Instruction

REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], U8)


def population(instruction: Instruction) -> LaneOp:
    """``popc``: how many bits are set."""
    form = Form(instruction)
    kind = form.type("b32", "b64")
    form.finish(1)
    return lane(lambda a: np.bitwise_count(a).astype(U32), [form.bits(0, kind)])


def leading_zeros(instruction: Instruction) -> LaneOp:
    """``clz``: zeros above the highest bit that is set; the width for 0."""
    form = Form(instruction)
    kind = form.type("b32", "b64")
    form.finish(1)
    width = scalar(kind.bits, I64)
    return lane(lambda a: np.subtract(width, bit_length(a)).astype(U32), [form.bits(0, kind)])


def find(instruction: Instruction) -> LaneOp:
    """``bfind``: the highest bit that is not the sign, or how far up it is to be shifted."""
    form = Form(instruction)
    distance = form.flag("shiftamt")
    kind = form.type("u32", "u64", "s32", "s64")
    form.finish(1)
    last, one = scalar(kind.bits - 1, I64), scalar(1, I64)

    def run(a: Bits) -> Any:
        size = np.where(a < 0, np.invert(a), a).view(kind.unsigned) if kind.kind == "s" else a
        found = bit_length(size) - one
        if distance:
            found = np.where(found < 0, found, last - found)
        return found.astype(U32)

    return lane(run, [form.integers(0, kind)])


def reverse(instruction: Instruction) -> LaneOp:
    """``brev``: the lowest bit becomes the highest."""
    form = Form(instruction)
    kind = form.type("b32", "b64")
    form.finish(1)

    def run(a: Bits) -> Any:
        return REVERSED.take(parts(a, U8)).view(kind.unsigned).byteswap()

    return lane(run, [form.bits(0, kind)])


def nth_set(instruction: Instruction) -> LaneOp:
    """``fns``: the n-th set bit of a mask counted from a base, upwards or (n < 0) downwards.

    n = 0 asks whether the base itself is set; 0xffffffff where there is no such bit.
    """
    form = Form(instruction)
    kind = form.type("b32")
    form.finish(3)
    places = np.arange(32)

    def run(mask: Bits, base: Bits, offset: Bits) -> Any:
        lanes = np.broadcast_arrays(mask, base, offset)
        word, start, count = (value.reshape(-1, 1) for value in lanes)
        bits = (word >> places.astype(U32)) & U32.type(1)
        up = np.cumsum(np.where(places >= start, bits, 0), axis=1)
        down = np.cumsum(np.where(places <= start, bits, 0)[:, ::-1], axis=1)[:, ::-1]
        hits = np.where(
            count > 0,
            (bits == 1) & (places >= start) & (up == count),
            (bits == 1) & (places <= start) & (down == -count),
        )
        hits = np.where(count == 0, (bits == 1) & (places == start), hits)
        found = np.where(hits.any(axis=1), hits.argmax(axis=1), -1)
        return found.astype(U32).reshape(lanes[0].shape)

    sources = [form.bits(0, kind), form.bits(1, TYPES["b32"]), form.signed(2, TYPES["s32"])]
    return lane(lambda a, b, c: run(a, b, c.astype(I64)), sources)
