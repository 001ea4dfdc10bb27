"""Arithmetic of 16-bit floats, single and in pairs: add, sub, mul, fma, min, max, abs, neg, set.

Everything is computed in wider floats without error or rounded to odd, then rounded once. f16 sums
and products need only 24 bits for that (Figueroa, "When is double rounding innocuous?", 1995).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compare import FLOAT
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.extremes import chooser, with_sign
from sparkbuild.qualify.alu.flush import gradual
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.half import NAN16, float_to_f16, to_float
from sparkbuild.qualify.alu.rounding import FORMATS, add_odd, encode
from sparkbuild.qualify.alu.types import F32, F64, TYPES, U16, U32, parts, scalar
from sparkbuild.qualify.ptx.model import Instruction

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
SMALLEST = np.asarray(2.0**-14, F32)
SIGN, REST = scalar(0x8000, U16), scalar(0x7FFF, U16)
Narrow = Callable[..., Any]


def arithmetic(instruction: Instruction) -> LaneOp:
    """``add``, ``sub``, ``mul`` and ``fma``: rounded to nearest, with .ftz, .sat, .relu, .oob."""
    form = Form(instruction)
    opcode = instruction.opcode
    if opcode == "fma":
        form.pick("rn")
    else:
        form.pick("rn", default="rn")
    flush, saturate, relu = form.flag("ftz"), form.flag("sat"), form.flag("relu")
    kind = form.type(*HALVES)
    name = kind.name.removesuffix("x2")
    form.finish(3 if opcode == "fma" else 2)
    if name == "bf16" and (flush or saturate):
        form.refuse("modifier .ftz or .sat")
    if relu and opcode != "fma":
        form.refuse("modifier .relu")
    compute = _function(opcode, name)
    widen = to_float(name)

    def run(*codes: Bits) -> Any:
        values = [widen(code) for code in codes]
        if flush:
            values = [_flushed(value) for value in values]
        result = compute(*values)
        if flush:
            result = _flushed_code(result)
        return _clamped(result, widen, saturate=saturate, relu=relu)

    return packed(form, kind.name, run, plain=name == "f16")


def _function(opcode: str, name: str) -> Narrow:
    """From wide floats to codes, rounded once."""
    if opcode == "fma":
        return _fused(name)
    function: Callable[..., Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[opcode]
    if name == "f16":
        return lambda a, b: float_to_f16(function(a, b))
    format_ = FORMATS[name]
    if opcode == "mul":
        return lambda a, b: encode(a.astype(F64) * b.astype(F64), format_, "rn").astype(U16)

    def total(a: Bits, b: Bits) -> Any:
        other = b.astype(F64) if opcode == "add" else np.negative(b.astype(F64))
        return encode(add_odd(a.astype(F64), other), format_, "rn").astype(U16)

    return total


def _fused(name: str) -> Narrow:
    if name == "f16":
        # The sum needs more than 53 bits only where the product is infinite as an f16, or so small
        # beside c that it moves c nowhere near the middle to the next f16.
        return lambda a, b, c: float_to_f16(a.astype(F64) * b.astype(F64) + c.astype(F64))
    format_ = FORMATS[name]

    def run(a: Bits, b: Bits, c: Bits) -> Any:
        total = add_odd(a.astype(F64) * b.astype(F64), c.astype(F64))
        return encode(total, format_, "rn").astype(U16)

    return run


def _flushed(values: Bits) -> Any:
    return values * (np.abs(values) >= SMALLEST)


def _flushed_code(code: Bits) -> Any:
    """f16 codes with subnormal ones replaced by zero of their sign."""
    return np.where((code & REST) < 0x0400, code & SIGN, code)


def _clamped(code: Bits, widen: Callable[[Bits], Any], *, saturate: bool, relu: bool) -> Any:
    if saturate:
        values = widen(code)
        code = np.where(values > 0, np.where(values > 1, U16.type(0x3C00), code), U16.type(0))
    if relu:
        code = np.where((code & SIGN) != 0, U16.type(0), code)
    return code


def packed(form: Form, name: str, run: Narrow, *, plain: bool = False) -> LaneOp:
    """``run`` on codes of 16 bits, singly or on both halves of each register.

    ``plain``: no subnormal float of 32 or 64 bits can appear, whatever the processor's mode.
    """
    pair = name.endswith("x2")
    readers = [form.code(index, TYPES[name]).reader for index in range(len(form.sources))]
    if not pair:
        single = lambda *bits: (  # noqa: E731
            run(*[read(value) for read, value in zip(readers, bits, strict=True)]),
        )
        return LaneOp(single if plain else gradual(single))

    def both(*bits: Bits) -> tuple[Bits, ...]:
        words = [read(value) for read, value in zip(readers, bits, strict=True)]
        lanes = max(word.size for word in words)
        words = [word if word.size == lanes else np.repeat(word, lanes) for word in words]
        return (np.ascontiguousarray(run(*[parts(word, U16) for word in words])).view(U32),)

    return LaneOp(both if plain else gradual(both))


def extreme(instruction: Instruction) -> LaneOp:
    """``min`` and ``max``: .ftz (f16), .NaN, .xorsign.abs."""
    form = Form(instruction)
    flush, nan = form.flag("ftz"), form.flag("NaN")
    xorsign, magnitude = form.flag("xorsign"), form.flag("abs")
    kind = form.type(*HALVES)
    name = kind.name.removesuffix("x2")
    form.finish(2)
    if (flush and name == "bf16") or xorsign != magnitude:
        form.refuse("modifier .ftz or .xorsign.abs")
    widen, single = to_float(name), TYPES[name]
    choose = chooser(instruction.opcode, TYPES["f32"], nan=nan)

    def run(a: Bits, b: Bits) -> Any:
        signs = a ^ b
        if magnitude:
            a, b = a & REST, b & REST
        values = [widen(a), widen(b)]
        if flush:
            values = [_flushed(value) for value in values]
        chosen = choose(*values)
        if name == "f16":
            code = float_to_f16(chosen.view(F32))
        else:
            code = np.right_shift(chosen, U32.type(16)).astype(U16)
        return with_sign(code, signs, single) if xorsign else code

    return packed(form, kind.name, run, plain=name == "f16")


def sign_change(instruction: Instruction) -> LaneOp:
    """``abs`` and ``neg``; NaN becomes the canonical one."""
    form = Form(instruction)
    flush = form.flag("ftz")
    kind = form.type(*HALVES)
    name = kind.name.removesuffix("x2")
    form.finish(1)
    if flush and name == "bf16":
        form.refuse("modifier .ftz")
    negate = instruction.opcode == "neg"
    infinity = scalar(FORMATS[name].infinity or 0, U16)

    def run(a: Bits) -> Any:
        code = np.bitwise_xor(a, SIGN) if negate else np.bitwise_and(a, REST)
        if flush:
            code = _flushed_code(code)
        return np.where((a & REST) > infinity, NAN16, code)

    return packed(form, kind.name, run, plain=True)


def set_(instruction: Instruction) -> LaneOp:
    """``set`` with a 16-bit result of 16-bit sources: 1.0 where the comparison holds, else 0."""
    form = Form(instruction)
    kind = form.type(*HALVES)
    if not form.modifiers or form.modifiers.pop() != kind.name:
        form.refuse("a result of another type")
    name = kind.name.removesuffix("x2")
    flush = form.flag("ftz")
    test = FLOAT[form.pick(*FLOAT)]
    form.finish(2)
    if flush and name == "bf16":
        form.refuse("modifier .ftz")
    widen = to_float(name)
    one = U16.type(0x3C00 if name == "f16" else 0x3F80)

    def run(a: Bits, b: Bits) -> Any:
        values = [widen(a), widen(b)]
        if flush:
            values = [_flushed(value) for value in values]
        return np.where(test(*values), one, U16.type(0))

    return packed(form, kind.name, run, plain=name == "f16")


FUNCTIONS: dict[str, Callable[..., Any]] = {"ex2": np.exp2, "tanh": np.tanh}


def approximated(instruction: Instruction) -> LaneOp:
    """``ex2.approx`` and ``tanh.approx``: the exact value, rounded."""
    form = Form(instruction)
    form.pick("approx")
    flush = form.flag("ftz")
    kind = form.type(*HALVES)
    name = kind.name.removesuffix("x2")
    form.finish(1)
    # ex2 of bf16 has .ftz, that of f16 has not, and tanh never.
    if flush != (instruction.opcode == "ex2" and name == "bf16"):
        form.refuse("modifier .ftz")
    function, widen, format_ = FUNCTIONS[instruction.opcode], to_float(name), FORMATS[name]

    def run(a: Bits) -> Any:
        values = widen(a).astype(F64)
        if flush:
            values = values * (np.abs(values) >= 2.0**-126)
        code = encode(function(values), format_, "rn").astype(U16)
        return np.where((code & REST) < 0x0080, code & SIGN, code) if flush else code

    return packed(form, kind.name, run)
