"""``mov``, ``cvta``, ``isspacep``: what knows about addresses and registers, not numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction, Sink, Vector
from sparkbuild.qualify.simt.memory import GLOBAL_BASE, WINDOW_SIZE, WINDOWS

_WIDTHS: Final = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f16x2": 32,
    "f32": 32,
    "f64": 64,
    "pred": 1,
}

_QUIET: Final = frozenset(
    {"membar", "fence", "prefetch", "prefetchu", "nanosleep", "griddepcontrol"}
    | {"applypriority", "setmaxnreg"}
)
"""Without effect here. Lanes of a block run one instruction together and every access is seen at
once, so fences order what is in order already; a kernel begins when the one before has ended, so
there is no other grid to wait for; the rest are hints."""


def is_quiet(instruction: Instruction) -> bool:
    """Whether the instruction changes nothing that this executor keeps."""
    return instruction.opcode in _QUIET


def move_op(instruction: Instruction) -> LaneOp:
    """``mov`` of one value, of a vector into one register, or of a register into a vector."""
    kind = instruction.modifiers[-1] if instruction.modifiers else ""
    width = _WIDTHS.get(kind)
    if width is None or len(instruction.modifiers) != 1 or len(instruction.operands) != 2:
        raise UnsupportedError(instruction.name, instruction)
    destination, source = instruction.operands
    if isinstance(source, Vector):
        return LaneOp(_packing(width, len(source.items), instruction))
    if isinstance(destination, Vector):
        return LaneOp(_unpacking(width, destination, instruction))
    if kind == "pred":
        return LaneOp(lambda value: (value if value.dtype == np.bool_ else value != 0,))
    want = np.dtype(f"u{width // 8}")
    return LaneOp(lambda value: (value if value.dtype == want else value.astype(want),))


def _packing(width: int, count: int, instruction: Instruction) -> Callable[..., tuple[Bits, ...]]:
    part = _part(width, count, instruction)
    want, low = np.dtype(f"u{width // 8}"), np.dtype(f"u{part // 8}")

    def run(*values: Bits) -> tuple[Bits, ...]:
        result = values[0].astype(low).astype(want)
        for number, value in enumerate(values[1:], 1):
            result = result | (value.astype(low).astype(want) << want.type(part * number))
        return (result,)

    return run


def _unpacking(
    width: int, destination: Vector, instruction: Instruction
) -> Callable[..., tuple[Bits, ...]]:
    count = len(destination.items)
    part = _part(width, count, instruction)
    want, low = np.dtype(f"u{width // 8}"), np.dtype(f"u{part // 8}")
    wanted = [not isinstance(item, Sink) for item in destination.items]

    def run(value: Bits) -> tuple[Bits, ...]:
        whole = value.astype(want)
        return tuple(
            (whole >> want.type(part * number)).astype(low) if wanted[number] else whole
            for number in range(count)
        )

    return run


def _part(width: int, count: int, instruction: Instruction) -> int:
    if count not in {2, 4, 8} or width // count < 8:
        raise UnsupportedError(f"{instruction.name} of {count} elements", instruction)
    return width // count


def cvta_op(instruction: Instruction) -> LaneOp:
    """Between the addresses of a space and generic ones; those of global memory are the same."""
    words = [word.partition("::")[0] for word in instruction.modifiers]
    into = words[:1] == ["to"]
    space = words[1 if into else 0] if len(words) > 1 + into else ""
    if space not in {"global", "shared", "local", "const", "param"} or words[-1] != "u64":
        raise UnsupportedError(instruction.name, instruction)
    base = np.uint64(WINDOWS.get(space, 0))
    if not base:
        return LaneOp(lambda address: (address.astype(np.uint64),))
    if into:
        return LaneOp(lambda address: (address.astype(np.uint64) - base,))
    return LaneOp(lambda address: (address.astype(np.uint64) + base,))


def isspacep_op(instruction: Instruction) -> LaneOp:
    """Whether a generic address lies in a space; parameters count as global memory here."""
    space = instruction.modifiers[0].partition("::")[0] if instruction.modifiers else ""
    if space == "global":
        return LaneOp(lambda address: (address >= np.uint64(GLOBAL_BASE),))
    if space not in WINDOWS:
        raise UnsupportedError(instruction.name, instruction)
    base, size = np.uint64(WINDOWS[space]), np.uint64(WINDOW_SIZE)
    return LaneOp(lambda address: (address.astype(np.uint64) - base < size,))
