"""Float arithmetic of 32 and 64 bits: add, sub, mul, fma, with every rounding and ``.ftz``.

A NaN result is the canonical one (0x7fffffff, 0x7fffffffffffffff). ``.sat`` puts results into
[0, 1], NaN becoming +0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.exact import exact_lanes
from sparkbuild.qualify.alu.flush import UNIT, flushed, gradual, narrowed
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.rounding import Mode, add_odd, directed, fused_for_float
from sparkbuild.qualify.alu.types import F32, F64, U32, U64, scalar
from sparkbuild.qualify.ptx.model import Instruction

Floats: TypeAlias = Callable[..., Any]
NAN32, NAN64 = 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF
ROUNDINGS = ("rn", "rz", "rm", "rp")
ZERO, ONE = np.asarray(0.0, F32), np.asarray(1.0, F32)
NOTHING = scalar(0, U32)


def canonical(values: Bits) -> Any:
    """Fresh floats as bits, each NaN the one that PTX gives."""
    bad = np.isnan(values)
    bits = values.view(U32)
    if np.count_nonzero(bad):
        bits = np.where(bad, np.uint32(NAN32), bits)
    return bits


def canonical_double(values: Bits) -> Any:
    """Doubles as bits, each NaN the one that PTX gives."""
    return np.where(np.isnan(values), np.uint64(NAN64), values.view(U64))


def saturated(values: Bits) -> Any:
    """In [0, 1]; NaN and -0 become +0."""
    return np.minimum(np.where(values > ZERO, values, ZERO), ONE)


def arithmetic(instruction: Instruction) -> LaneOp:
    """``add``, ``sub``, ``mul``, ``fma`` and ``mad`` of f32 and f64."""
    form = Form(instruction)
    opcode = instruction.opcode
    mode: Any = form.pick(*ROUNDINGS, default="" if opcode in {"fma", "mad"} else "rn")
    if not mode:
        form.refuse("no rounding")
    flush, saturate = form.flag("ftz"), form.flag("sat")
    kind = form.type("f32", "f64")
    count = 3 if opcode in {"fma", "mad"} else 2
    form.finish(count)
    sources = [form.floats(index, kind) for index in range(count)]
    if kind.bits == 64:
        if flush or saturate:
            form.refuse("modifier .ftz or .sat")
        return _double(opcode, mode, sources)
    function = single(opcode, mode, flush=flush)
    if saturate:
        inner = function
        function = lambda *values: saturated(inner(*values))  # noqa: E731
    return finished(function, sources)


def finished(function: Floats, sources: list[Any]) -> LaneOp:
    """``function`` of prepared floats as bits with canonical NaN."""
    readers = [source.reader for source in sources]
    if len(readers) == 1:
        one = readers[0]
        return LaneOp(lambda a: (canonical(function(one(a))),))
    if len(readers) == 2:
        one, two = readers
        return LaneOp(lambda a, b: (canonical(function(one(a), two(b))),))
    one, two, three = readers
    return LaneOp(lambda a, b, c: (canonical(function(one(a), two(b), three(c))),))


def single(opcode: str, mode: Mode, *, flush: bool) -> Floats:
    """The function of floats of 32 bits."""
    if opcode in {"fma", "mad"}:
        return _fused(mode, flush=flush)
    if mode != "rn":
        return _directed(opcode, mode, flush=flush)
    function: Floats = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[opcode]
    if not flush:
        return gradual(function)
    return _flushing_product if opcode == "mul" else _flushing_sum(function)


def _flushing_sum(function: Floats) -> Floats:
    def run(a: Bits, b: Bits) -> Any:
        if UNIT.flushing:
            return np.asarray(function(a, b))
        return flushed(np.asarray(function(flushed(a), flushed(b))))

    return run


def _flushing_product(a: Bits, b: Bits) -> Any:
    if UNIT.flushing:
        return np.multiply(a, b)
    return narrowed(flushed(a).astype(F64) * flushed(b).astype(F64))


def _fused(mode: Mode, *, flush: bool) -> Floats:
    """A * b is exact in a double; the sum is what needs care."""

    def nearest(a: Bits, b: Bits, c: Bits) -> Any:
        return fused_for_float(a, b, c, subnormal=not flush)

    def flushing(a: Bits, b: Bits, c: Bits) -> Any:
        return narrowed(nearest(flushed(a), flushed(b), flushed(c)))

    if mode == "rn":
        return flushing if flush else gradual(lambda a, b, c: nearest(a, b, c).astype(F32))

    def toward(a: Bits, b: Bits, c: Bits) -> Any:
        if flush:
            a, b, c = flushed(a), flushed(b), flushed(c)
        product, addend = a.astype(F64) * b.astype(F64), c.astype(F64)
        return _finish_directed(product, addend, mode, flush=flush)

    return gradual(toward)


def _directed(opcode: str, mode: Mode, *, flush: bool) -> Floats:
    def run(a: Bits, b: Bits) -> Any:
        if flush:
            a, b = flushed(a), flushed(b)
        left, right = a.astype(F64), b.astype(F64)
        if opcode == "mul":
            result = directed(left * right, mode)
            return flushed(result) if flush else result
        if opcode == "sub":
            right = np.negative(right)
        return _finish_directed(left, right, mode, flush=flush)

    return gradual(run)


def _finish_directed(a: Bits, b: Bits, mode: Mode, *, flush: bool) -> Any:
    total = add_odd(a, b)
    if mode == "rm":
        # Opposite numbers sum to -0 when rounding down (IEEE 754, 6.3).
        cancelled = (total == 0) & (np.signbit(a) != np.signbit(b))
        total = np.where(cancelled, -0.0, total)
    result = directed(total, mode)
    return flushed(result) if flush else result


def _double(opcode: str, mode: Mode, sources: list[Any]) -> LaneOp:
    readers = [source.reader for source in sources]
    if mode == "rn" and opcode not in {"fma", "mad"}:
        function: Floats = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[opcode]
    else:
        function = exact_lanes("fma" if opcode == "mad" else opcode, mode)
    run = gradual(
        lambda *bits: (
            canonical_double(
                function(*[read(value) for read, value in zip(readers, bits, strict=True)])
            ),
        )
    )
    return LaneOp(run)
