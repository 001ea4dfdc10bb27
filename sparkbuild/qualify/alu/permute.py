"""``prmt``: four bytes picked out of eight, in all its modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form, Source
from sparkbuild.qualify.alu.types import I8, TYPES, U8, U32, scalar
from sparkbuild.qualify.ptx.model import Instruction

# For each mode and each value of the selector's low two bits, the bytes picked: byte 0 of the
# result in the lowest nibble. Forward and backward windows, one byte everywhere, edges clamped
# from the left and from the right, one half twice.
MODES: dict[str, tuple[int, int, int, int]] = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
SEVEN, THREE, EIGHT = scalar(7, U32), scalar(3, U32), scalar(8, U32)
SIGN_SHIFT = scalar(7, I8)


def permute(instruction: Instruction) -> LaneOp:
    """``prmt.b32`` with or without a mode; a constant selector becomes shifts and masks."""
    form = Form(instruction)
    mode = next((name for name in MODES if form.flag(name)), "")
    kind = form.type("b32")
    form.finish(3)
    one, two = form.bits(0, kind), form.bits(1, kind)
    if form.is_constant(2):
        selector = form.constant(2)
        return _constant(MODES[mode][selector & 3] if mode else selector & 0xFFFF, one, two)
    read = form.bits(2, TYPES["u32"]).reader
    left, right = one.reader, two.reader
    if not mode:
        return LaneOp(lambda a, b, c: (_pick(left(a), right(b), read(c)),))
    table = np.array(MODES[mode], U32)
    return LaneOp(lambda a, b, c: (_pick(left(a), right(b), table.take(read(c) & THREE)),))


def _pick(a: Bits, b: Bits, selector: Bits) -> Bits:
    """Each lane by its own selector: nibble i says which byte becomes byte i."""
    lanes = max(np.size(value) for value in (a, b, selector))
    both = np.empty((lanes, 2), U32)
    both[:, 0], both[:, 1] = a, b
    chosen = np.empty((lanes, 4), U32)
    for index in range(4):
        chosen[:, index] = selector >> U32.type(4 * index)
    found = np.take_along_axis(both.view(U8), (chosen & SEVEN).astype(np.intp), axis=1)
    signs = np.right_shift(found.view(I8), SIGN_SHIFT).view(U8)
    return np.where(chosen & EIGHT, signs, found).view(U32)[:, 0]


def _constant(selector: int, one: Source, two: Source) -> LaneOp:
    """Bytes that move by the same distance move together; those of constants are known."""
    moves: dict[tuple[int, bool, int], int] = {}
    known = 0
    for place in range(4):
        nibble = (selector >> (4 * place)) & 0xF
        source, sign, byte = (nibble >> 2) & 1, bool(nibble & 8), nibble & 3
        value = (two if source else one).value
        if value is None:
            key = (source, sign, 8 * (place - byte))
            moves[key] = moves.get(key, 0) | 0xFF << (8 * place)
            continue
        picked = (value >> (8 * byte)) & 0xFF
        known |= (255 * (picked >> 7) if sign else picked) << (8 * place)
    if not moves:
        # Nothing comes from a register: the same for all lanes.
        same = np.array([known], U32)
        return LaneOp(lambda *_: (same,))
    steps = [_step(*key, mask) for key, mask in moves.items()]
    if known:
        constant = scalar(known, U32)
        steps.append(lambda _: constant)
    run, left, right = _joined(steps), one.reader, two.reader
    if one.prepare is None and two.prepare is None:
        return LaneOp(lambda a, b, _: (run((a, b)),))
    return LaneOp(lambda a, b, _: (run((left(a), right(b))),))


def _step(source: int, sign: bool, distance: int, mask: int) -> Callable[[Any], Any]:
    """The bytes of one source that move by one distance (in bits), the rest 0."""
    whole = (0xFFFFFFFF << distance if distance >= 0 else 0xFFFFFFFF >> -distance) & 0xFFFFFFFF
    keep = scalar(mask, U32)
    shift: Callable[..., Any] = np.left_shift if distance > 0 else np.right_shift
    by = scalar(abs(distance), U32)

    def run(both: Any) -> Any:
        bits = both[source]
        if sign:
            bits = np.right_shift(bits.view(I8), SIGN_SHIFT).view(U32)
        if distance:
            bits = shift(bits, by)
        return bits if mask == whole else np.bitwise_and(bits, keep)

    return run


def _joined(steps: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    if len(steps) == 1:
        return steps[0]
    if len(steps) == 2:
        first, second = steps
        return lambda both: np.bitwise_or(first(both), second(both))

    def run(both: Any) -> Any:
        result = np.bitwise_or(steps[0](both), steps[1](both))
        for step in steps[2:]:
            result = np.bitwise_or(result, step(both))
        return result

    return run
