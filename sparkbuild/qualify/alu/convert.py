"""``cvt`` between single values: integers of all widths, f16, bf16, f32, f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.convert_packed import PACKED, convert_packed, positive
from sparkbuild.qualify.alu.floats import NAN32, NAN64, saturated
from sparkbuild.qualify.alu.flush import flushed, gradual
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.half import float_to_bf16, float_to_f16, to_float
from sparkbuild.qualify.alu.rounding import FORMATS, Mode, add_odd, directed, encode
from sparkbuild.qualify.alu.types import F32, F64, REGISTER_BITS, TYPES, U16, U32, U64, Type
from sparkbuild.qualify.ptx.model import Instruction, Register

WHOLE: dict[str, Callable[[Any], Any]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
FLOATS = {"f16", "bf16", "f32", "f64"}
SMALL_INTEGERS = {f"{sign}{bits}" for sign in "us" for bits in (2, 4, 8)}
INTEGERS = {f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64)}
FROM_FLOAT: dict[str, Callable[[Bits], Bits]] = {"f16": float_to_f16, "bf16": float_to_bf16}


def convert(instruction: Instruction) -> LaneOp:
    """``cvt`` in every direction; the type pairs that pack several values included."""
    modifiers = instruction.modifiers
    target, origin = (modifiers[-2], modifiers[-1]) if len(modifiers) > 1 else ("", "")
    if target in PACKED or origin in PACKED or target == "tf32":
        return convert_packed(instruction)
    form = Form(instruction)
    if form.flag("pack"):
        return _packed_integers(form)
    if target not in FLOATS | INTEGERS or origin not in FLOATS | INTEGERS:
        form.refuse(f"from .{origin} to .{target}")
    del form.modifiers[-2:]
    to, source = TYPES[target], TYPES[origin]
    if origin in INTEGERS:
        return _integers(form, to, source) if target in INTEGERS else _to_float(form, to, source)
    if target in INTEGERS:
        return _to_integer(form, to, source)
    return _floats(form, to, source)


def _integers(form: Form, to: Type, source: Type) -> LaneOp:
    saturate = form.flag("sat")
    form.finish(1)
    if saturate:
        return _clamped(form, to, source)
    operand = form.sources[0]
    width = REGISTER_BITS.get(operand.type, 0) if isinstance(operand, Register) else 0
    if to.bits <= source.bits:
        # The low bits are all that counts.
        return lane(lambda a: a, [form.integers(0, Type(to.name, to.bits, to.kind))])
    own = to.own
    if source.kind == "u" and width in {to.bits, source.bits * 2}:
        mask = np.asarray((1 << source.bits) - 1, f"u{width // 8}")
        register = form.bits(0, TYPES[f"b{width}"])
        if width == to.bits and to.kind == "u":
            return lane(lambda a: np.bitwise_and(a, mask), [register])
        return lane(lambda a: np.bitwise_and(a, mask).astype(own), [register])
    return lane(lambda a: a.astype(own), [form.integers(0, source)])


def _clamped(form: Form, to: Type, source: Type) -> LaneOp:
    """``.sat``: the nearest number that the result's type has."""
    low, high = limits(to)
    source_low, source_high = limits(source)
    bounds = (
        np.asarray(max(low, source_low), source.own),
        np.asarray(min(high, source_high), source.own),
    )
    return lane(lambda a: np.clip(a, *bounds).astype(to.own), [form.integers(0, source)])


def _packed_integers(form: Form) -> LaneOp:
    """``cvt.pack``: two integers clamped, the second lowest, above them the low bits of a third."""
    form.pick("sat")
    narrow = form.modifiers[0] if form.modifiers else ""
    small = narrow in SMALL_INTEGERS
    if (small and form.modifiers.pop() != "b32") or (not small and narrow not in {"u16", "s16"}):
        form.refuse(f"to .{narrow}")
    form.type("s32")
    form.modifiers.clear()
    form.finish(3 if small else 2)
    width = int(narrow[1:])
    low, high = (
        (-(1 << (width - 1)), (1 << (width - 1)) - 1) if narrow[0] == "s" else (0, (1 << width) - 1)
    )
    mask, by = U32.type((1 << width) - 1), U32.type(width)

    def run(a: Bits, b: Bits, *rest: Bits) -> Any:
        upper, lower = (np.clip(each, low, high).view(U32) & mask for each in (a, b))
        pair = np.left_shift(upper, by) | lower
        return pair | np.left_shift(rest[0], by + by) if rest else pair

    sources = [form.signed(0, TYPES["s32"]), form.signed(1, TYPES["s32"])]
    if small:
        sources.append(form.bits(2, TYPES["b32"]))
    return lane(run, sources)


def limits(kind: Type) -> tuple[int, int]:
    """The lowest and the highest number of an integer type."""
    if kind.kind == "s":
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


def _to_float(form: Form, to: Type, source: Type) -> LaneOp:
    mode: Any = form.pick("rn", "rz", "rm", "rp")
    saturate = form.flag("sat")
    form.finish(1)
    if saturate:
        form.refuse("modifier .sat")
    return lane(_from_integer(form, to, source, mode), [form.integers(0, source)])


def _from_integer(form: Form, to: Type, source: Type, mode: Mode) -> Callable[[Bits], Any]:
    small = source.bits <= 32
    if to.name == "f32" and mode == "rn":
        return lambda a: a.astype(F32).view(U32)
    if to.name == "f64":
        if not small and mode != "rn":
            form.refuse(f"from .{source.name} to .f64 with .{mode}")
        return lambda a: a.astype(F64).view(U64)
    if to.name == "f16" and mode == "rn":
        # What a float cannot hold exactly is infinite as an f16, so it is rounded once.
        return lambda a: float_to_f16(a.astype(F32))
    exact: Callable[[Bits], Any] = (lambda a: a.astype(F64)) if small else _odd_double
    if to.name == "f32":
        return lambda a: directed(exact(a), mode).view(U32)
    return lambda a: encode(exact(a), FORMATS[to.name], mode).astype(U16)


def _odd_double(whole: Bits) -> Any:
    """64-bit integers as doubles rounded to odd: both halves are exact."""
    high = (whole >> whole.dtype.type(32)).astype(F64) * 2.0**32
    low = (whole & whole.dtype.type(0xFFFFFFFF)).astype(F64)
    return add_odd(high, low)


def read_float(form: Form, index: int, source: Type) -> Callable[[Bits], Any]:
    """What reads a source as floats of 32 bits, or of 64 for f64."""
    if source.bits == 16:
        read, widen = form.code(index, source).reader, to_float(source.name)
        return lambda bits: widen(read(bits))
    return form.floats(index, source).reader


def _to_integer(form: Form, to: Type, source: Type) -> LaneOp:
    whole = WHOLE[form.pick(*WHOLE)]
    flush = form.flag("ftz")
    form.flag("sat")  # Integers from floats are saturated with and without it.
    form.finish(1)
    if flush and source.name != "f32":
        form.refuse("modifier .ftz")
    read = read_float(form, 0, source)
    nan = 1 << (to.bits - 1) if to.bits == 64 or source.bits == 64 else 0
    finish = _saturating(to, nan)

    def run(bits: Bits) -> tuple[Bits, ...]:
        values = read(bits)
        return (finish(whole(flushed(values) if flush else values)),)

    return LaneOp(run if flush else gradual(run))


def _saturating(to: Type, nan: int) -> Callable[[Any], Any]:
    """Whole floats as integers of a type, the nearest where there is none, NaN as given."""
    low, high = limits(to)
    own = to.own
    # The bounds as doubles: the upper one is exact, being a power of two that is not reached.
    below, above = float(low), float(high + 1)
    not_a_number = np.asarray(nan).astype(to.unsigned).view(own)

    def run(whole: Any) -> Any:
        inside = np.less(np.abs(whole), np.asarray(above, whole.dtype))
        if low and np.count_nonzero(inside) == inside.size:
            return whole.astype(own)
        wide = whole.astype(F64)
        kept = (wide >= below) & (wide < above)
        result = np.where(kept, wide, 0.0).astype(own)
        result = np.where(wide >= above, own.type(high), result)
        result = np.where(wide < below, own.type(low), result)
        return np.where(np.isnan(wide), not_a_number, result)

    return run


def _floats(form: Form, to: Type, source: Type) -> LaneOp:
    whole = next((WHOLE[name] for name in WHOLE if form.flag(name)), None)
    narrowing = not (to.bits > source.bits or to.name == source.name)
    given = next((name for name in ("rn", "rz", "rm", "rp") if form.flag(name)), "")
    if narrowing and not given and whole is None:
        form.refuse("no rounding")
    mode: Any = given or "rn"
    flush, saturate = form.flag("ftz"), form.flag("sat")
    relu, finite = form.flag("relu"), form.flag("satfinite")
    form.finish(1)
    if flush and "f32" not in {to.name, source.name}:
        form.refuse("modifier .ftz")
    if (relu or finite) and not (source.name == "f32" and to.bits == 16):
        form.refuse("modifier .relu or .satfinite")
    read, write = read_float(form, 0, source), _writer(to, source, mode, finite=finite)
    steps: list[Callable[[Any], Any]] = []
    if flush and source.name == "f32":
        steps.append(flushed)
    if whole is not None:
        steps.append(whole)
    if saturate:
        steps.append(saturated if source.bits < 64 else _saturated_double)
    if relu:
        steps.append(positive)
    steps.append(write)

    def run(bits: Bits) -> tuple[Bits, ...]:
        values = read(bits)
        for step in steps:
            values = step(values)
        return (values,)

    if flush and to.name == "f32" and source.name != "f32":
        inner = run
        return LaneOp(gradual(lambda bits: (flushed(inner(bits)[0].view(F32)).view(U32),)))
    plain = (source.name, to.name) in {("f16", "f32"), ("f32", "f16"), ("bf16", "f32")}
    return LaneOp(run if plain and not steps[:-1] and mode == "rn" else gradual(run))


def _saturated_double(values: Bits) -> Any:
    return np.minimum(np.where(values > 0, values, 0.0), 1.0)


def _writer(to: Type, source: Type, mode: Mode, *, finite: bool) -> Callable[[Any], Any]:
    """From floats of 32 or 64 bits to the bits of the result."""
    if to.name in FROM_FLOAT and source.bits < 64 and mode == "rn" and not finite:
        return FROM_FLOAT[to.name]
    if to.bits == 16:
        return lambda values: encode(
            values.astype(F64), FORMATS[to.name], mode, finite=finite
        ).astype(U16)
    if to.name == "f32":
        if source.bits == 16:
            return lambda values: values.view(U32)
        if source.bits == 64:
            return lambda values: _canonical32(directed(values, mode))
        return _canonical32
    return lambda values: _canonical64(values.astype(F64))


def _canonical32(values: Any) -> Any:
    bad = np.not_equal(values, values)
    bits = values.view(U32)
    return np.where(bad, np.uint32(NAN32), bits) if np.count_nonzero(bad) else bits


def _canonical64(values: Any) -> Any:
    return np.where(np.isnan(values), np.uint64(NAN64), values.view(U64))
