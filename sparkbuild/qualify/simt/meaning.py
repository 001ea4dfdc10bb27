"""What computes an instruction, found once for all that differ in their registers only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparkbuild.qualify.alu.contract import LaneOp, WarpOp
from sparkbuild.qualify.alu.decode import decode
from sparkbuild.qualify.ptx.model import (
    Immediate,
    Instruction,
    Negated,
    Pair,
    Register,
    Vector,
)
from sparkbuild.qualify.simt.moves import cvta_op, isspacep_op, move_op

_OWN: Final[dict[str, Callable[[Instruction], LaneOp]]] = {
    "mov": move_op,
    "cvta": cvta_op,
    "isspacep": isspacep_op,
}
_MOST: Final = 1 << 16
"""Forms that are kept; a kernel has some hundreds."""

_known: dict[Any, LaneOp | WarpOp] = {}


def meaning(instruction: Instruction) -> LaneOp | WarpOp:
    """The operation; raises UnsupportedError where there is none."""
    key = (
        instruction.opcode,
        instruction.modifiers,
        tuple([_form(operand) for operand in instruction.operands]),
    )
    op = _known.get(key)
    if op is None:
        op = _OWN.get(instruction.opcode, decode)(instruction)
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = op
    return op


def _form(operand: Any) -> Any:
    """All of an operand but which register, symbol or place it is."""
    kind = type(operand)
    if kind is Register:
        return operand.type
    if kind is Immediate:
        return operand.kind, operand.value
    if kind is Vector:
        return tuple([_form(item) for item in operand.items])
    if kind is Negated:
        return Negated, operand.register.type
    if kind is Pair:
        return Pair, _form(operand.first), _form(operand.second)
    return kind
