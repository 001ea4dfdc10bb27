"""From an instruction to what computes it: one entry for each opcode.

What the executor has to know beyond the contract: a negated predicate (``!%p``) is passed as the
register holds it, and negated here; a result can be one of the sources itself (``mov``), so no
result may be written into; a sink among the destinations still gets its array. Carries
(``add.cc``) are not kept, so those forms are refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkbuild.qualify.alu import (
    approximate,
    compare,
    count,
    dot,
    extremes,
    floats,
    halves,
    integer,
    logic,
    mma,
    move,
    pairs,
    permute,
    shift,
    video,
    warp,
)
from sparkbuild.qualify.alu.contract import LaneOp, WarpOp
from sparkbuild.qualify.alu.convert import convert
from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction

Build = Callable[[Instruction], LaneOp | WarpOp]
INTEGER_TYPES = {"u16", "u32", "u64", "s16", "s32", "s64", "u16x2", "s16x2"}
HALF_TYPES = {"f16", "f16x2", "bf16", "bf16x2"}


def _by_type(*, whole: Build | None = None, half: Build, full: Build) -> Build:
    """One function for integers, one for floats of 16 bits, one for wider ones."""

    def build(instruction: Instruction) -> LaneOp | WarpOp:
        last = instruction.modifiers[-1] if instruction.modifiers else ""
        if last in HALF_TYPES:
            return half(instruction)
        if last == "f32x2":
            return pairs.arithmetic(instruction)
        return (whole if whole is not None and last in INTEGER_TYPES else full)(instruction)

    return build


ARITHMETIC = _by_type(whole=integer.add, half=halves.arithmetic, full=floats.arithmetic)
PRODUCT = _by_type(whole=integer.multiply, half=halves.arithmetic, full=floats.arithmetic)
SIGN = _by_type(whole=integer.magnitude, half=halves.sign_change, full=extremes.sign_change)
EXTREME = _by_type(whole=integer.extreme, half=halves.extreme, full=extremes.extreme)
APPROXIMATED = _by_type(half=halves.approximated, full=approximate.unary)
DIVISION = _by_type(whole=integer.divide, half=integer.divide, full=approximate.divide)
BUILDERS: dict[str, Build] = {
    "add": ARITHMETIC,
    "sub": ARITHMETIC,
    "mul": PRODUCT,
    "mad": PRODUCT,
    "fma": _by_type(half=halves.arithmetic, full=floats.arithmetic),
    "mul24": integer.multiply_24,
    "mad24": integer.multiply_24,
    "sad": integer.sad,
    "div": DIVISION,
    "rem": integer.divide,
    "abs": SIGN,
    "neg": SIGN,
    "min": EXTREME,
    "max": EXTREME,
    "copysign": extremes.copysign,
    "testp": extremes.testp,
    "ex2": APPROXIMATED,
    "tanh": APPROXIMATED,
    **dict.fromkeys(("lg2", "sin", "cos", "rcp", "sqrt", "rsqrt"), approximate.unary),
    "and": logic.logic,
    "or": logic.logic,
    "xor": logic.logic,
    "not": logic.logic,
    "cnot": logic.cnot,
    "lop3": logic.lop3,
    "shl": shift.shift,
    "shr": shift.shift,
    "shf": shift.funnel,
    "bfe": shift.extract,
    "bfi": shift.insert,
    "bmsk": shift.bit_mask,
    "szext": shift.sign_extend,
    "prmt": permute.permute,
    "popc": count.population,
    "clz": count.leading_zeros,
    "bfind": count.find,
    "brev": count.reverse,
    "fns": count.nth_set,
    "dp4a": dot.four,
    "dp2a": dot.two,
    **video.BUILDERS,
    "setp": compare.setp,
    "set": _by_type(half=halves.set_, full=compare.set_),
    "selp": compare.selp,
    "slct": compare.slct,
    "mov": move.move,
    "cvt": convert,
    "shfl": warp.shuffle,
    "vote": warp.vote,
    "match": warp.match,
    "redux": warp.reduce,
    "activemask": warp.active_mask,
    "elect": warp.elect,
    "movmatrix": warp.transpose,
    "mma": mma.mma,
    "wmma": mma.wmma,
}


def decode(instruction: Instruction) -> LaneOp | WarpOp:
    """What computes an instruction.

    Raises UnsupportedError for an opcode, a modifier, a type or an operand that is not exact here.
    """
    build = BUILDERS.get(instruction.opcode)
    if build is None:
        raise UnsupportedError(instruction.name, instruction)
    return build(instruction)
