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
from sparkbuild.qualify.alu.types import F32, F64, TYPES, U8, U16, U32, scalar
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
        values = [low(b), high(a)]
        if relu:
            values = [positive(value) for value in values]
        return (_join([encoded(value) for value in values], U16),)

    # Rounding bits does not meet the processor's flushing; the other way is through doubles.
    return LaneOp(run if mode == "rn" and not finite and not relu else gradual(run))


def _join(parts: list[Any], narrow: np.dtype[Any]) -> Bits:
    """Parts of each lane, the lowest first, as one register."""
    lanes = max(np.size(part) for part in parts)
    packed = np.empty(lanes * len(parts), narrow)
    for index, part in enumerate(parts):
        packed[index :: len(parts)] = part
    return packed.view(f"<u{narrow.itemsize * len(parts)}")


def _to_small(form: Form, format_: Format, origin: str) -> LaneOp:
    mode: Any = form.pick("rn")
    if not form.flag("satfinite"):
        form.refuse("without .satfinite")
    relu = form.flag("relu")
    form.finish(2 if origin == "f32" else 1)
    if origin == "f32":
        high, low = (form.floats(index, TYPES["f32"]).reader for index in (0, 1))
        unpack: Callable[..., list[Any]] = lambda a, b: [low(b), high(a)]  # noqa: E731
    else:
        unpack = _halves(form, f16_to_float)

    def run(*bits: Bits) -> tuple[Bits, ...]:
        values = unpack(*bits)
        if relu:
            values = [positive(value) for value in values]
        codes = [_small_code(value, format_, mode) for value in values]
        if format_.width == 4:
            return ((codes[0] | (codes[1] << U8.type(4))),)
        return (_join(codes, U8),)

    return LaneOp(gradual(run))


def _small_code(values: Any, format_: Format, mode: Any) -> Any:
    """Codes as uint8; where the format has no NaN, NaN becomes the largest number."""
    code = encode(values.astype(F64), format_, mode, finite=True)
    if format_.nan is None:
        code = np.where(np.isnan(values), format_.largest, code)
    return code.astype(U8)


def _halves(form: Form, widen: Callable[[Bits], Any]) -> Callable[..., list[Any]]:
    read = form.bits(0, TYPES["b32"]).reader

    def run(bits: Bits) -> list[Any]:
        parts = np.ascontiguousarray(read(bits)).view(U16)
        return [widen(parts[0::2]), widen(parts[1::2])]

    return run


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
    return LaneOp(lambda bits: (every.take(np.ascontiguousarray(read(bits)).view(U8)).view(U32),))


def _from_scale(form: Form) -> LaneOp:
    """Code k is 2^(k-127); 0 is a subnormal bf16 and 255 is NaN."""
    form.pick("rn")
    form.finish(1)
    table = (np.arange(256) << 7).astype(U16)
    table[0], table[255] = 0x0040, 0x7FFF
    read = form.bits(0, TYPES["b16"]).reader
    return LaneOp(lambda bits: (table.take(np.ascontiguousarray(read(bits)).view(U8)).view(U32),))


def _to_scale(form: Form, origin: str) -> LaneOp:
    """The power of two below or above the magnitude; the sign has no place and is dropped."""
    up = form.pick("rz", "rp") == "rp"
    finite = form.flag("satfinite")
    form.finish(2 if origin == "f32" else 1)
    if origin == "f32":
        high, low = (form.bits(index, TYPES["b32"]).reader for index in (0, 1))
        unpack: Callable[..., list[Any]] = lambda a, b: [low(b), high(a)]  # noqa: E731
    else:
        halves = _halves(form, bf16_to_float)
        unpack = lambda a: [value.view(U32) for value in halves(a)]  # noqa: E731

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

    return LaneOp(lambda *bits: (_join([code(value) for value in unpack(*bits)], U8),))
