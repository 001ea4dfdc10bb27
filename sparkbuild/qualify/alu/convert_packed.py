"""``cvt`` of packed values: pairs of f16 and bf16, the 8, 6 and 4-bit floats, scales, tf32.

Values come from f32 registers (the first source gives the high part), from f16x2 or bf16x2, or
from packed codes through a table of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.flush import gradual
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.half import bf16_to_float, f16_to_float, float_to_bf16, float_to_f16
from sparkbuild.qualify.alu.rounding import FORMATS, Format, encode
from sparkbuild.qualify.alu.types import F32, F64, TYPES, U8, U16, U32, parts, scalar
from sparkbuild.qualify.ptx.model import Instruction

PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}
SMALL = {
    f"{name}x{count}": name for name in ("e4m3", "e5m2", "e2m1", "e2m3", "e3m2") for count in (2, 4)
}
SCALES = "ue8m0x2"
PACKED = {*PAIRS, *SMALL, SCALES}
SHIFT13 = scalar(13, U32)
EXPONENT, MANTISSA = scalar(23, U32), scalar(0x7FFFFF, U32)


def convert_packed(instruction: Instruction) -> LaneOp:
    """One of the ``cvt`` forms whose source or result holds several values, or tf32."""
    form = Form(instruction)
    target, origin = form.modifiers[-2:]
    del form.modifiers[-2:]
    if target == "tf32" and origin == "f32":
        return _tf32(form)
    if target in PAIRS and origin == "f32":
        return _pair(form, PAIRS[target])
    wide = {"f32", "f16x2"} if target.startswith(("e4m3", "e5m2")) else {"f32"}
    if target in SMALL and target.endswith("x2") and origin in wide:
        return _to_small(form, FORMATS[SMALL[target]], origin)
    if target == "f16x2" and origin in SMALL and origin.endswith("x2"):
        return _from_small(form, FORMATS[SMALL[origin]])
    if target == SCALES and origin in {"f32", "bf16x2"}:
        return _to_scale(form, origin)
    if target == "bf16x2" and origin == SCALES:
        return _from_scale(form)
    raise form.refusal(f"from .{origin} to .{target}")


def positive(values: Any) -> Any:
    """``.relu``: negative numbers become +0, NaN stays."""
    return np.where(values <= 0, np.asarray(0, values.dtype), values)


def _tf32(form: Form) -> LaneOp:
    mode: Any = form.pick("rn", "rz", "rna")
    finite, relu = form.flag("satfinite"), form.flag("relu")
    form.finish(1)
    if mode == "rna" and relu:
        form.refuse("modifier .relu")
    read = form.floats(0, TYPES["f32"]).reader

    def run(bits: Bits) -> tuple[Bits, ...]:
        values = positive(read(bits)) if relu else read(bits)
        code = encode(values.astype(F64), FORMATS["tf32"], mode, finite=finite).astype(U32)
        code = np.left_shift(code, SHIFT13)
        return (np.where(np.isnan(values), np.uint32(0x7FFFFFFF), code),)

    return LaneOp(gradual(run))


def _pair(form: Form, name: str) -> LaneOp:
    mode: Any = form.pick("rn", "rz")
    finite, relu = form.flag("satfinite"), form.flag("relu")
    form.finish(2)
    high, low = (form.floats(index, TYPES["f32"]).reader for index in (0, 1))
    encoded: Callable[[Any], Any]
    if mode == "rn" and not finite:
        encoded = float_to_f16 if name == "f16" else float_to_bf16
    else:
        format_ = FORMATS[name]
        encoded = lambda values: encode(values.astype(F64), format_, mode, finite=finite)  # noqa: E731

    def run(a: Bits, b: Bits) -> tuple[Bits, ...]:
        values = join([low(b), high(a)], F32)
        codes = encoded(positive(values) if relu else values)
        return (codes.astype(U16, copy=False).view(U32),)

    # Rounding bits does not meet the processor's flushing; the other way is through doubles.
    return LaneOp(run if mode == "rn" and not finite and not relu else gradual(run))


def join(values: list[Any], dtype: np.dtype[Any]) -> Any:
    """The parts of each lane one after the other, the lowest first."""
    joined = np.empty(len(values) * max(value.size for value in values), dtype)
    for index, value in enumerate(values):
        joined[index :: len(values)] = value
    return joined


def _to_small(form: Form, format_: Format, origin: str) -> LaneOp:
    form.pick("rn")
    if not form.flag("satfinite"):
        form.refuse("without .satfinite")
    relu = form.flag("relu")
    form.finish(2 if origin == "f32" else 1)
    if origin == "f32":
        high, low = (form.floats(index, TYPES["f32"]).reader for index in (0, 1))
        unpack: Callable[..., Any] = lambda a, b: join([low(b), high(a)], F32)  # noqa: E731
    else:
        unpack = _halves(form, f16_to_float)
    coded = _nearest(format_)

    def run(*bits: Bits) -> tuple[Bits, ...]:
        values = unpack(*bits)
        codes = coded(positive(values) if relu else values)
        if format_.width == 4:
            return (codes[0::2] | (codes[1::2] << U8.type(4)),)
        return (codes.view(U16),)

    # Nothing is computed that the processor might flush, except that it may compare.
    return LaneOp(gradual(run))


def _nearest(format_: Format) -> Callable[[Any], Any]:
    """Floats of 32 bits to codes, as uint8: nearest, ties to even, the largest for what is beyond.

    NaN is NaN where the format has it, else the largest number.
    """
    finite = decoded(format_)[: format_.largest + 1].astype(F64)
    middles = ((finite[:-1] + finite[1:]) / 2).astype(F32)
    # From a middle on the higher code is nearer, from above it where the lower one is even.
    lowest = np.where(np.arange(format_.largest) % 2 == 0, np.nextafter(middles, np.inf), middles)
    lowest = lowest.astype(F32)
    not_a_number = U8.type(format_.largest if format_.nan is None else format_.nan)
    shift = scalar(format_.width - 1, U8)

    def run(values: Any) -> Any:
        code = lowest.searchsorted(np.abs(values), "right").astype(U8)
        code |= np.left_shift(np.signbit(values).view(U8), shift)
        bad = np.isnan(values)
        return np.where(bad, not_a_number, code) if np.count_nonzero(bad) else code

    return run


def _halves(form: Form, widen: Callable[[Bits], Any]) -> Callable[..., Any]:
    read = form.bits(0, TYPES["b32"]).reader
    return lambda bits: widen(parts(read(bits), U16))


def decoded(format_: Format) -> Any:
    """The value of every code of a small format, float32: its own formula, all codes."""
    codes = np.arange(1 << format_.width)
    stored = format_.precision - 1
    exponent = (codes & (format_.sign - 1)) >> stored
    fraction = codes & ((1 << stored) - 1)
    hidden = np.where(exponent > 0, 1 << stored, 0)
    power = np.maximum(exponent, 1) - 1 + format_.low - stored
    values = (hidden + fraction) * np.exp2(power.astype(F64))
    if format_.infinity is not None:
        values = np.where((codes & (format_.sign - 1)) == format_.infinity, np.inf, values)
        values = np.where((codes & (format_.sign - 1)) > format_.infinity, np.nan, values)
    elif format_.nan is not None:
        values = np.where((codes & (format_.sign - 1)) == format_.nan, np.nan, values)
    return np.where(codes & format_.sign, -values, values).astype(F32)


def _from_small(form: Form, format_: Format) -> LaneOp:
    form.pick("rn")
    relu = form.flag("relu")
    form.finish(1)
    values = decoded(format_)
    table = float_to_f16(positive(values) if relu else values)
    if format_.width == 4:
        read = form.bits(0, TYPES["b8"]).reader
        pairs = (
            table[np.arange(256) & 15] | (table[np.arange(256) >> 4].astype(U32) << 16)
        ).astype(U32)
        return LaneOp(lambda bits: (pairs.take(read(bits)),))
    read = form.bits(0, TYPES["b16"]).reader
    mask = (1 << format_.width) - 1
    every = np.tile(table, 256 // (mask + 1))
    return LaneOp(lambda bits: (every.take(parts(read(bits), U8)).view(U32),))


def _from_scale(form: Form) -> LaneOp:
    """Code k is 2^(k-127); 0 is a subnormal bf16 and 255 is NaN."""
    form.pick("rn")
    form.finish(1)
    table = (np.arange(256) << 7).astype(U16)
    table[0], table[255] = 0x0040, 0x7FFF
    read = form.bits(0, TYPES["b16"]).reader
    return LaneOp(lambda bits: (table.take(parts(read(bits), U8)).view(U32),))


def _to_scale(form: Form, origin: str) -> LaneOp:
    """The power of two below or above the magnitude; the sign has no place and is dropped."""
    up = form.pick("rz", "rp") == "rp"
    finite = form.flag("satfinite")
    form.finish(2 if origin == "f32" else 1)
    if origin == "f32":
        high, low = (form.bits(index, TYPES["b32"]).reader for index in (0, 1))
        unpack: Callable[..., Any] = lambda a, b: join([low(b), high(a)], U32)  # noqa: E731
    else:
        halves = _halves(form, bf16_to_float)
        unpack = lambda a: halves(a).view(U32)  # noqa: E731

    def code(bits: Any) -> Any:
        size = bits & np.uint32(0x7FFFFFFF)
        power = np.right_shift(size, EXPONENT)
        if up:
            # 2^-127 itself is code 0, although its exponent field is that of all subnormals.
            more = ((size & MANTISSA) != 0) & (size > 0x00400000) & (size < 0x7F800000)
            power = power + more
        if finite:
            power = np.where((power == 255) & (size <= 0x7F800000), 254, power)
        return power.astype(U8)

    return LaneOp(lambda *bits: (code(unpack(*bits)).view(U16),))
