"""Comparison and choice: setp, set, selp, slct."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.flush import UNIT, flushed, gradual
from sparkbuild.qualify.alu.form import Form, Source
from sparkbuild.qualify.alu.half import to_float
from sparkbuild.qualify.alu.types import F32, TYPES, Type
from sparkbuild.qualify.ptx.model import Instruction, Pair

Test = Callable[[Any, Any], Any]
SIMPLE: dict[str, Test] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
INTEGER: dict[str, Test] = {
    **SIMPLE,
    "ne": np.not_equal,
    # Names of the unsigned comparisons.
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def _unordered(test: Test) -> Test:
    """True as well where a source is NaN: the opposite of the opposite comparison."""
    return lambda a, b: np.logical_not(test(a, b))


def _differs(a: Bits, b: Bits) -> Any:
    return np.less(a, b) | np.greater(a, b)


FLOAT: dict[str, Test] = {
    **SIMPLE,
    "ne": _differs,
    "equ": _unordered(_differs),
    "neu": np.not_equal,
    "ltu": _unordered(np.greater_equal),
    "leu": _unordered(np.greater),
    "gtu": _unordered(np.less_equal),
    "geu": _unordered(np.less),
    "num": lambda a, b: np.equal(a, a) & np.equal(b, b),
    "nan": lambda a, b: np.not_equal(a, a) | np.not_equal(b, b),
}
BITS = ("b16", "b32", "b64")
INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
UNSIGNED_ONLY = {"lo", "ls", "hi", "hs"}
# From so many lanes on, np.where costs more than arithmetic if neighbours disagree (measured).
MANY = 2048
COMBINE: dict[str, Test] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def setp(instruction: Instruction) -> LaneOp:
    """``setp``: one predicate, or a pair of opposite ones, each combined with a third."""
    form = Form(instruction)
    test, kind = _test(form)
    combine = next((name for name in COMBINE if form.flag(name)), "")
    if kind.name in {"f16x2", "bf16x2"}:
        form.finish(3 if combine else 2)
        return _packed(form, test, kind, combine)
    form.finish(3 if combine else 2)
    sources = _compared(form, kind)
    pair = isinstance(instruction.operands[0], Pair)
    if not combine and not pair:
        return lane(test, sources)
    return _joined(form, test, sources, combine, pair=pair)


def _test(form: Form) -> tuple[Test, Type]:
    """The comparison of prepared sources, and their type."""
    flush = form.flag("ftz")
    kind = form.type(*BITS, *INTEGERS, "f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
    floating = kind.kind in {"f", "bf"} or kind.name in {"f16x2", "bf16x2"}
    table = FLOAT if floating else INTEGER
    if kind.kind == "b" and not floating:
        table = {"eq": np.equal, "ne": np.not_equal}
    name = form.pick(*table)
    if name in UNSIGNED_ONLY and kind.kind != "u":
        form.refuse(f"comparison .{name} of .{kind.name}")
    if flush and kind.name != "f32":
        if kind.name not in {"f16", "f16x2"}:
            form.refuse("modifier .ftz")
        return _flushed_halves(table[name]), kind
    if flush:
        return _flushing(table[name]), kind
    # No f16 is a subnormal float of 32 bits; those of bf16 are.
    plain = not floating or kind.name in {"f16", "f16x2"}
    return (table[name] if plain else gradual(table[name])), kind


def _flushing(test: Test) -> Test:
    def run(a: Bits, b: Bits) -> Any:
        if UNIT.flushing:
            return test(a, b)
        return test(flushed(a), flushed(b))

    return run


def _flushed_halves(test: Test) -> Test:
    """Halves come as floats of 32 bits; theirs are subnormal below 2^-14."""
    limit = np.asarray(2.0**-14, F32)

    def run(a: Bits, b: Bits) -> Any:
        return test(a * (np.abs(a) >= limit), b * (np.abs(b) >= limit))

    return run


def _compared(form: Form, kind: Type) -> list[Source]:
    if kind.bits == 16 and kind.kind in {"f", "bf"}:
        return [_half_source(form, index, kind) for index in (0, 1)]
    read = form.floats if kind.kind == "f" else form.integers
    return [read(0, kind), read(1, kind)]


def _half_source(form: Form, index: int, kind: Type) -> Source:
    read = form.code(index, kind).reader
    widen = to_float(kind.name)
    return Source(lambda bits: widen(read(bits)))


def _joined(form: Form, test: Test, sources: list[Source], combine: str, *, pair: bool) -> LaneOp:
    one, two = (source.reader for source in sources)
    third = form.predicate(2).reader if combine else None
    join = COMBINE.get(combine)

    def run(a: Bits, b: Bits, *rest: Bits) -> tuple[Bits, ...]:
        truth = test(one(a), two(b))
        results = (truth, np.logical_not(truth)) if pair else (truth,)
        if join is None or third is None:
            return results
        other = third(rest[0])
        return tuple(join(result, other) for result in results)

    return LaneOp(run)


def _packed(form: Form, test: Test, kind: Type, combine: str) -> LaneOp:
    """Two halves at once: p for the low ones, q for the high ones."""
    if not isinstance(form.instruction.operands[0], Pair):
        form.refuse("one predicate for two comparisons")
    readers = [form.bits(index, kind).reader for index in (0, 1)]
    third = form.predicate(2).reader if combine else None
    join, widen = COMBINE.get(combine), to_float(kind.name.removesuffix("x2"))

    def run(a: Bits, b: Bits, *rest: Bits) -> tuple[Bits, ...]:
        left, right = (
            widen(read(bits).reshape(*bits.shape, 1).view(np.uint16))
            for read, bits in zip(readers, (a, b), strict=True)
        )
        truth = test(left, right)
        results = (truth[..., 0], truth[..., 1])
        if join is None or third is None:
            return results
        other = third(rest[0])
        return tuple(join(result, other) for result in results)

    return LaneOp(run)


def selp(instruction: Instruction) -> LaneOp:
    """``selp``: the first source where the predicate holds, else the second."""
    form = Form(instruction)
    kind = form.type(*BITS, *INTEGERS, "f32", "f64", "f16", "bf16")
    form.finish(3)
    one, two = (form.bits(index, kind).reader for index in (0, 1))
    choose = form.predicate(2).reader
    finish = kind.signed if kind.kind == "s" and form.widens(kind) else kind.unsigned
    unsigned = kind.unsigned

    def run(a: Bits, b: Bits, c: Bits) -> tuple[Bits, ...]:
        truth, yes, no = choose(c), one(a), two(b)
        if truth.size < MANY:
            return (np.where(truth, yes, no).view(finish),)
        # Many lanes that disagree are chosen between faster by arithmetic, which wraps.
        difference = np.subtract(yes, no)
        chosen = np.multiply(difference, truth.astype(unsigned))
        return (np.add(chosen, no).view(finish),)

    return LaneOp(run)


def slct(instruction: Instruction) -> LaneOp:
    """``slct``: the first source where the third is at least 0 (NaN is not), else the second."""
    form = Form(instruction)
    judge = form.type("s32", "f32")
    flush = form.flag("ftz")
    kind = form.type(*BITS, *INTEGERS, "f32", "f64")
    form.finish(3)
    if flush and judge.name != "f32":
        form.refuse("modifier .ftz")
    one, two = (form.bits(index, kind).reader for index in (0, 1))
    # A flushed -subnormal is -0, which is at least 0; .f32 without .ftz sees it as negative.
    third = form.floats(2, judge).reader if judge.kind == "f" else form.signed(2, judge).reader
    test: Callable[[Any], Any]
    test = gradual(lambda c: c >= 0) if not flush else (lambda c: flushed(c) >= 0)
    finish = kind.signed if kind.kind == "s" and form.widens(kind) else kind.unsigned

    def run(a: Bits, b: Bits, c: Bits) -> tuple[Bits, ...]:
        return (np.where(test(third(c)), one(a), two(b)).view(finish),)

    return LaneOp(run)


def set_(instruction: Instruction) -> LaneOp:
    """``set``: all ones (or 1.0 for a float result) where the comparison holds, else 0."""
    form = Form(instruction)
    flush = "ftz" in form.modifiers
    last = form.modifiers[-1] if form.modifiers else ""
    result_name = form.modifiers[-2] if len(form.modifiers) > 1 else ""
    if result_name not in {"u32", "s32", "f32"} or last in {"f16x2", "bf16x2", "f16", "bf16"}:
        form.refuse(f"result type .{result_name} from .{last}")
    del form.modifiers[-2]
    if flush and last != "f32":
        form.refuse("modifier .ftz")
    test, kind = _test(form)
    combine = next((name for name in COMBINE if form.flag(name)), "")
    form.finish(3 if combine else 2)
    one, two = (source.reader for source in _compared(form, kind))
    third = form.predicate(2).reader if combine else None
    yes = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000}[result_name]
    signed = result_name == "s32" and form.widens(TYPES["s32"])

    def run(a: Bits, b: Bits, *rest: Bits) -> tuple[Bits, ...]:
        truth = test(one(a), two(b))
        if third is not None:
            truth = COMBINE[combine](truth, third(rest[0]))
        bits = np.where(truth, np.uint32(yes), np.uint32(0))
        return (bits.view(np.int32) if signed else bits,)

    return LaneOp(run)
