"""Functions of one float, and division: rounded exactly, or approximated by a GPU.

For what a GPU approximates the result here is the exact value rounded to nearest; a GPU may differ
from it by what ``errors.APPROXIMATE`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.exact import exact_lanes
from sparkbuild.qualify.alu.floats import ROUNDINGS, canonical, canonical_double
from sparkbuild.qualify.alu.flush import UNIT, flushed, gradual, narrowed
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.rounding import ONE, Mode, directed
from sparkbuild.qualify.alu.types import F32, F64, I64, scalar
from sparkbuild.qualify.ptx.model import Instruction

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "rsqrt": lambda value: np.reciprocal(np.sqrt(value)),
}
LARGE = np.asarray(2.0**126, F32)
# The bits of a double below the highest 26.
SHORT = scalar((1 << 27) - 1, I64)


def unary(instruction: Instruction) -> LaneOp:
    """``ex2``, ``lg2``, ``sin``, ``cos``, ``tanh``, ``rcp``, ``sqrt``, ``rsqrt`` of f32 and f64."""
    form = Form(instruction)
    opcode = instruction.opcode
    exactly = opcode in {"rcp", "sqrt"}
    mode = form.pick("approx", *(ROUNDINGS if exactly else ()))
    flush = form.flag("ftz")
    kind = form.type("f32", "f64")
    form.finish(1)
    read = form.floats(0, kind).reader
    if kind.bits == 64:
        if flush or mode == "approx":
            form.refuse("an approximation of .f64")
        return _double(opcode, mode, read)
    function = FUNCTIONS[opcode]
    if mode == "approx":
        run = _nearest(function, flush=flush)
    else:
        run = _rounded(opcode, mode, flush=flush)
    return LaneOp(lambda a: (canonical(run(read(a))),))


def _nearest(function: Callable[..., Any], *, flush: bool) -> Callable[[Bits], Any]:
    """Through doubles, whose own error is far below what a float can show."""
    if flush:
        return lambda a: narrowed(function(flushed(a).astype(F64)))
    return gradual(lambda a: function(a.astype(F64)).astype(F32))


def _rounded(opcode: str, mode: Any, *, flush: bool) -> Callable[[Bits], Any]:
    """``rcp`` and ``sqrt`` in any direction: the double is moved to odd by what it misses."""

    def exact(a: Bits) -> Any:
        wide = a.astype(F64)
        if opcode == "rcp":
            return _quotient(np.ones_like(wide), wide)
        root = np.sqrt(wide)
        return _to_odd(root, wide - root * root)

    def run(a: Bits) -> Any:
        if flush:
            return flushed(directed(exact(flushed(a)), mode))
        return directed(exact(a), mode)

    return gradual(run)


def _quotient(a: Bits, b: Bits) -> Any:
    """A / b of floats, as doubles to be rounded again."""
    result = a / b
    missed = a - result * b
    return _to_odd(result, np.where(np.signbit(b), -missed, missed))


def _to_odd(result: Bits, missed: Bits) -> Any:
    """Doubles of 26 bits or fewer, moved to the odd neighbour where they miss the exact value.

    No other double lies where a float could be rounded wrongly. The product of one with 24 bits is
    exact, and so the sign of ``missed`` is right there (elsewhere it is not used).
    """
    bits = result.view(I64)
    inexact = ((bits & SHORT) == 0) & (np.abs(missed) > 0) & np.isfinite(result)
    step = np.where((missed > 0) == (result > 0), ONE, -ONE)
    return np.where(inexact, (bits + step).view(F64), result)


def _double(opcode: str, mode: str, read: Callable[[Bits], Any]) -> LaneOp:
    if opcode not in {"rcp", "sqrt"}:
        function: Callable[..., Any] = FUNCTIONS[opcode]
    elif opcode == "rcp":
        divide = exact_lanes("div", mode)  # type: ignore[arg-type]
        function = lambda a: divide(np.ones_like(a), a)  # noqa: E731
    else:
        function = exact_lanes("sqrt", mode)  # type: ignore[arg-type]
    return LaneOp(gradual(lambda a: (canonical_double(function(read(a))),)))


def divide(instruction: Instruction) -> LaneOp:
    """``div`` of floats: ``.approx``, ``.full``, or rounded in a direction; f32 and f64."""
    form = Form(instruction)
    mode: Any = form.pick("approx", "full", *ROUNDINGS)
    flush = form.flag("ftz")
    kind = form.type("f32", "f64")
    form.finish(2)
    one, two = (form.floats(index, kind).reader for index in (0, 1))
    if kind.bits == 64:
        if flush or mode in {"approx", "full"}:
            form.refuse("an approximation of .f64")
        function = exact_lanes("div", mode)
        return LaneOp(gradual(lambda a, b: (canonical_double(function(one(a), two(b))),)))
    if mode in {"approx", "full"}:
        run = _divide_nearest(flush=flush, limited=mode == "approx")
    else:
        run = _divide(mode, flush=flush)
    return LaneOp(lambda a, b: (canonical(run(one(a), two(b))),))


def _divide(mode: Mode, *, flush: bool) -> Callable[[Bits, Bits], Any]:
    def run(a: Bits, b: Bits) -> Any:
        if flush:
            a, b = flushed(a), flushed(b)
        result = directed(_quotient(a.astype(F64), b.astype(F64)), mode)
        return flushed(result) if flush else result

    return gradual(run)


def _divide_nearest(*, flush: bool, limited: bool) -> Callable[[Bits, Bits], Any]:
    """Rounded to nearest; ``.approx`` gives 0 (NaN for infinity) where |b| is above 2^126."""

    def quotient(a: Bits, b: Bits) -> Any:
        if not flush or UNIT.flushing:
            return np.divide(a, b)
        return narrowed(flushed(a).astype(F64) / flushed(b).astype(F64))

    def run(a: Bits, b: Bits) -> Any:
        result = quotient(a, b)
        if limited:
            size = np.abs(b)
            large = np.greater(size, LARGE)
            if np.count_nonzero(large):
                # The reciprocal of such a number is subnormal, and flushed.
                large &= np.isfinite(size)
                result = np.where(large, a * np.copysign(np.float32(0), b), result)
        return result

    return run if flush else gradual(run)
