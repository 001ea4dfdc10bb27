"""Floats beside arithmetic: abs, neg, min, max, copysign, testp, of 32 and 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.flush import UNIT, flushed, gradual
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.types import F32, U32, F, Type, scalar
from sparkbuild.qualify.ptx.model import Instruction

SIGN = {bits: 1 << (bits - 1) for bits in (16, 32, 64)}
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def sign_change(instruction: Instruction) -> LaneOp:
    """``abs`` and ``neg`` of f32 and f64; NaN becomes the canonical one."""
    form = Form(instruction)
    flush = form.flag("ftz")
    kind = form.type("f32", "f64")
    form.finish(1)
    if flush and kind.name != "f32":
        form.refuse("modifier .ftz")
    negate = instruction.opcode == "neg"
    sign = scalar(SIGN[kind.bits], kind.unsigned)
    rest = scalar(SIGN[kind.bits] - 1, kind.unsigned)
    nan = kind.unsigned.type(NAN[kind.name])
    width = F[kind.bits]

    def run(values: Bits) -> Any:
        bad = np.isnan(values)
        if flush:
            values = values * np.asarray(1, width) if UNIT.flushing else flushed(values)
        bits = values.view(kind.unsigned)
        bits = np.bitwise_xor(bits, sign) if negate else np.bitwise_and(bits, rest)
        return np.where(bad, nan, bits) if np.count_nonzero(bad) else bits

    return lane(run, [form.floats(0, kind)])


def extreme(instruction: Instruction) -> LaneOp:
    """``min`` and ``max`` of f32 (two or three sources) and f64.

    A NaN counts only when all are, or with ``.NaN``; -0 is less than +0. ``.abs`` compares the
    magnitudes; ``.xorsign`` then gives the result the product of the signs.
    """
    form = Form(instruction)
    flush, nan = form.flag("ftz"), form.flag("NaN")
    xorsign, magnitude = form.flag("xorsign"), form.flag("abs")
    kind = form.type("f32", "f64")
    form.finish(2, 3)
    if kind.bits == 64 and (flush or nan or xorsign or magnitude or len(form.sources) == 3):
        form.refuse("a modifier or a third source of .f64")
    if xorsign and (not magnitude or len(form.sources) == 3):
        form.refuse("modifier .xorsign")
    readers = [form.floats(index, kind).reader for index in range(len(form.sources))]
    choose = chooser(instruction.opcode, kind, nan=nan)
    if not (nan or xorsign or magnitude) and len(form.sources) == 2:
        return _plain(form, kind, choose, flush=flush)

    def run(*bits: Bits) -> tuple[Bits, ...]:
        values = [read(value) for read, value in zip(readers, bits, strict=True)]
        if flush:
            values = [_flush(value) for value in values]
        signs = values[0].view(kind.unsigned) ^ values[1].view(kind.unsigned) if xorsign else None
        if magnitude:
            values = [np.abs(value) for value in values]
        result = choose(values[0], values[1])
        if len(values) == 3:
            result = choose(result.view(values[0].dtype), values[2])
        if signs is not None:
            result = with_sign(result, signs, kind)
        return (result,)

    return LaneOp(run if flush else gradual(run))


def _plain(form: Form, kind: Type, choose: Callable[[Any, Any], Any], *, flush: bool) -> LaneOp:
    """The common form, with the result flushed instead of the sources where the processor can."""
    one, two = (form.floats(index, kind).reader for index in (0, 1))
    if not flush:
        return LaneOp(gradual(lambda a, b: (choose(one(a), two(b)),)))
    unit = np.asarray(1, F32)

    def run(a: Bits, b: Bits) -> tuple[Bits, ...]:
        if UNIT.flushing:
            # Compared as zeros, a subnormal number may still come out: it is flushed then.
            return (np.multiply(choose(one(a), two(b)).view(F32), unit).view(U32),)
        return (choose(flushed(one(a)), flushed(two(b))),)

    return LaneOp(run)


def _flush(values: Bits) -> Bits:
    return values * np.float32(1) if UNIT.flushing else flushed(values)


def with_sign(bits: Bits, signs: Bits, kind: Type) -> Any:
    """Bits with the sign taken from others; NaN stays canonical."""
    rest = scalar(SIGN[kind.bits] - 1, kind.unsigned)
    sign = scalar(SIGN[kind.bits], kind.unsigned)
    result = (bits & rest) | (signs & sign)
    return np.where((bits & rest) > INFINITY[kind.name], kind.unsigned.type(NAN[kind.name]), result)


def chooser(opcode: str, kind: Type, *, nan: bool) -> Callable[[Any, Any], Any]:
    """The smaller or larger of two floats as bits."""
    lower = opcode == "min"
    function: Callable[..., Any] = np.fmin if lower else np.fmax
    if nan:
        function = np.minimum if lower else np.maximum
    join: Callable[..., Any] = np.bitwise_or if opcode == "min" else np.bitwise_and
    unsigned, not_a_number = kind.unsigned, kind.unsigned.type(NAN[kind.name])

    def run(a: Any, b: Any) -> Any:
        # Where the two are equal, numpy gives one of them, and the other way round the other: only
        # zeros of opposite sign differ then, and -0 has the sign bit.
        chosen = function(a, b)
        bits = join(chosen.view(unsigned), function(b, a).view(unsigned))
        bad = np.isnan(chosen)
        return np.where(bad, not_a_number, bits) if np.count_nonzero(bad) else bits

    return run


def copysign(instruction: Instruction) -> LaneOp:
    """``copysign``: the magnitude of the second source with the sign of the first."""
    form = Form(instruction)
    kind = form.type("f32", "f64")
    form.finish(2)
    sign = scalar(SIGN[kind.bits], kind.unsigned)
    rest = scalar(SIGN[kind.bits] - 1, kind.unsigned)
    one, two = form.bits(0, kind), form.bits(1, kind)
    return lane(lambda a, b: np.bitwise_or(a & sign, b & rest), [one, two])


def testp(instruction: Instruction) -> LaneOp:
    """``testp``: what kind of number a float is."""
    form = Form(instruction)
    kind = form.type("f32", "f64")
    test = form.pick("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    form.finish(1)
    rest = scalar(SIGN[kind.bits] - 1, kind.unsigned)
    infinity = scalar(INFINITY[kind.name], kind.unsigned)
    normal = scalar(1 << {32: 23, 64: 52}[kind.bits], kind.unsigned)
    zero = scalar(0, kind.unsigned)
    tests: dict[str, Callable[[Any], Any]] = {
        "finite": lambda size: size < infinity,
        "infinite": lambda size: size == infinity,
        "number": lambda size: size <= infinity,
        "notanumber": lambda size: size > infinity,
        "normal": lambda size: (size >= normal) & (size < infinity),
        "subnormal": lambda size: (size < normal) & (size > zero),
    }
    chosen = tests[test]
    return lane(lambda a: chosen(np.bitwise_and(a, rest)), [form.bits(0, kind)])
