"""Dot products of bytes: dp4a and dp2a."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.integer import signed_again
from sparkbuild.qualify.alu.types import I8, I16, I32, TYPES, U8, U16, U32, parts, scalar
from sparkbuild.qualify.ptx.model import Instruction

HALF = {True: scalar(16, I32), False: scalar(16, U32)}


def _types(form: Form) -> tuple[bool, bool]:
    """Whether a and b are signed: the last two modifiers."""
    second = form.type("u32", "s32")
    first = form.type("u32", "s32")
    return first.kind == "s", second.kind == "s"


def four(instruction: Instruction) -> LaneOp:
    """``dp4a``: four products of bytes, added to a 32-bit number, wrapping."""
    form = Form(instruction)
    a_signed, b_signed = _types(form)
    form.finish(3)
    kind = TYPES["s32" if a_signed or b_signed else "u32"]
    sources = [form.bits(index, TYPES["b32"]) for index in range(3)]
    return lane(_four(a_signed, b_signed), sources, signed_again(form, kind))


def _four(a_signed: bool, b_signed: bool) -> Callable[[Bits, Bits, Bits], Any]:
    signed = a_signed or b_signed
    # A product of bytes fits 16 bits: of two unsigned without a sign, of all others with one.
    short, word = (I16, I32) if signed else (U16, U32)
    left, right = (I8 if a_signed else U8), (I8 if b_signed else U8)
    half = HALF[signed]

    def run(a: Bits, b: Bits, c: Bits) -> Any:
        factors = parts(a, left).astype(short)
        if a.shape == b.shape:
            factors *= parts(b, right).astype(short)
        else:
            factors = _spread(a, left, short, b, right)
        pairs = factors.view(word)
        # The two products in each word, taken apart and added as whole words.
        total = np.left_shift(pairs, half)
        np.right_shift(total, half, total)
        np.right_shift(pairs, half, pairs)
        total += pairs
        return np.add(total[0::2], total[1::2]).view(U32) + c

    return run


def _spread(
    a: Bits, left: np.dtype[Any], short: np.dtype[Any], b: Bits, right: np.dtype[Any]
) -> Any:
    """Products where one source is the same for all lanes."""
    one, two = a.reshape(-1, 1).view(left), b.reshape(-1, 1).view(right)
    return np.multiply(one.astype(short), two.astype(short)).reshape(-1)


def two(instruction: Instruction) -> LaneOp:
    """``dp2a``: two 16-bit numbers of a times the ``.lo`` or ``.hi`` two bytes of b, added to c."""
    form = Form(instruction)
    high = form.pick("lo", "hi") == "hi"
    a_signed, b_signed = _types(form)
    form.finish(3)
    kind = TYPES["s32" if a_signed or b_signed else "u32"]
    wide, narrow = (I16 if a_signed else U16), (I8 if b_signed else U8)
    first = 2 if high else 0

    def run(a: Bits, b: Bits, c: Bits) -> Any:
        halves = a.reshape(-1, 1).view(wide).astype(I32)
        parts = b.reshape(-1, 1).view(narrow)[:, first : first + 2].astype(I32)
        products = halves * parts
        return (products[:, 0] + products[:, 1]).view(U32) + c

    sources = [form.bits(index, TYPES["b32"]) for index in range(3)]
    return lane(run, sources, signed_again(form, kind))
