"""Video instructions: four bytes or two halves at once (``vadd4``, ``vset2``), and single words.

Selectors and masks on operands (``%r1.b7654``) have no place in the model of an instruction, so
only the whole registers that they default to can be met here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.compose import lane
from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.integer import signed_again
from sparkbuild.qualify.alu.types import I64, TYPES, I, Type, U, parts, scalar
from sparkbuild.qualify.ptx.model import Instruction

ONE = scalar(1, I64)
COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
SECOND: dict[str, Callable[..., Any]] = {"add": np.add, "min": np.minimum, "max": np.maximum}


def _average(a: Any, b: Any) -> Any:
    """Half the sum, rounded up where the sum is not negative."""
    total = a + b
    return np.right_shift(total + (total >= 0), ONE)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": _average,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


def _range(kind: Type, width: int) -> tuple[int, int]:
    """What numbers of a sign and a width can be."""
    return (
        (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind.kind == "s" else (0, (1 << width) - 1)
    )


def parallel(instruction: Instruction) -> LaneOp:
    """``vadd4`` and its like, and ``vset4``; ``.add`` sums all results onto the third source."""
    form = Form(instruction)
    name, count = instruction.opcode[:-1], int(instruction.opcode[-1])
    width = 32 // count
    saturate, gather = form.flag("sat"), form.flag("add")
    comparing = name == "vset"
    function = COMPARISONS[form.pick(*COMPARISONS)] if comparing else OPERATIONS[name]
    right, left = form.type("u32", "s32"), form.type("u32", "s32")
    result = TYPES["u32"] if comparing else form.type("u32", "s32")
    form.finish(3)
    if saturate and (gather or comparing):
        form.refuse("modifier .sat")
    types = [(I if kind.kind == "s" else U)[width] for kind in (left, right)]
    low, high = _range(result, width)

    def run(a: Bits, b: Bits, c: Bits) -> Any:
        lanes = max(a.size, b.size)
        x, y = (
            parts(word if word.size == lanes else np.repeat(word, lanes), kind).astype(I64)
            for word, kind in zip((a, b), types, strict=True)
        )
        values = function(x, y)
        if saturate:
            values = np.clip(values, low, high)
        if gather:
            total = values.reshape(lanes, count).sum(axis=1, dtype=I64)
            return total.astype(U[32]) + c
        return values.astype(U[width]).view(U[32])

    sources = [form.bits(index, TYPES["b32"]) for index in range(3)]
    return lane(run, sources, signed_again(form, result))


def single(instruction: Instruction) -> LaneOp:
    """``vadd``, ``vsub``, ``vabsdiff``, ``vmin``, ``vmax``, ``vset`` of words, and a second step.

    The first result is exact; it is clamped (``.sat``) or wraps, then added to the third source,
    or the smaller or larger of both is taken.
    """
    form = Form(instruction)
    comparing = instruction.opcode == "vset"
    saturate = form.flag("sat")
    second = next((name for name in SECOND if form.flag(name)), "")
    function = OPERATIONS.get(instruction.opcode, np.equal)
    if comparing:
        function = COMPARISONS[form.pick(*COMPARISONS)]
    right, left = form.type("u32", "s32"), form.type("u32", "s32")
    result = TYPES["u32"] if comparing else form.type("u32", "s32")
    form.finish(3 if second else 2)
    if saturate and comparing:
        form.refuse("modifier .sat")
    low, high = _range(result, 32)
    own = result.own

    def first(a: Bits, b: Bits) -> Any:
        values = function(a.astype(I64), b.astype(I64))
        return (np.clip(values, low, high) if saturate else values).astype(I64).astype(own)

    sources = [form.integers(0, left), form.integers(1, right)]
    if not second:
        return lane(first, sources)
    join = SECOND[second]
    return lane(lambda a, b, c: join(first(a, b), c), [*sources, form.integers(2, result)])


BUILDERS: dict[str, Callable[[Instruction], LaneOp]] = {
    **{f"{name}{count}": parallel for name in (*OPERATIONS, "vset") for count in (2, 4)},
    **dict.fromkeys(("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset"), single),
}
