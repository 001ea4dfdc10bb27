"""``prmt``: four bytes picked out of eight, in all its modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Form, Source
from sparkbuild.qualify.alu.types import I8, TYPES, U8, U16, U32, U64, parts, scalar
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
THREE, NIBBLE, BYTE, WORD = scalar(3, U32), scalar(4, U32), scalar(8, U32), scalar(32, U64)
FOUR, PAIRS = scalar(0xFFFF, U32), scalar(0x00FF00FF, U32)
NIBBLES = scalar(0x0F0F0F0F, U32)
INDICES, SIGNS, ALL_BITS = scalar(0x07070707, U32), scalar(0x08080808, U32), scalar(255, U32)
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
    return _variable(MODES[mode] if mode else (), form.bits(2, TYPES["u32"]), one, two)


def _variable(table: tuple[int, ...], control: Source, one: Source, two: Source) -> LaneOp:
    """The selector comes from a register; where it is the same for all lanes, that is used."""
    read, left, right = control.reader, one.reader, two.reader
    translate = np.array(table, U32)
    known: dict[int, LaneOp] = {}
    tables: dict[tuple[int, int], Any] = {}

    def same_selector(a: Bits, b: Bits, selector: int) -> Bits:
        if selector not in known:
            known[selector] = _constant(selector & 0xFFFF, Source(), Source())
        return known[selector].run(a, b, b)[0]

    def same_bytes(first: int, second: int, selector: Bits) -> Bits:
        if (first, second) not in tables:
            tables[first, second] = _pairs_of_bytes(first, second)
        return np.asarray(tables[first, second].take(selector.astype(U16).view(U8)).view(U32))

    def run(a: Bits, b: Bits, c: Bits) -> tuple[Bits, ...]:
        a, b, selector = left(a), right(b), read(c)
        if table:
            selector = translate.take(selector & THREE)
        if selector.size == 1:
            return (same_selector(a, b, int(selector.reshape(()))),)
        if a.size == b.size == 1:
            return (same_bytes(int(a.reshape(())), int(b.reshape(())), selector),)
        return (_pick(a, b, selector),)

    return LaneOp(run)


def _pairs_of_bytes(first: int, second: int) -> Any:
    """Two bytes of the result for each byte of the selector, as uint16."""
    source = np.array([first, second], U32).view(U8)
    nibbles = np.arange(16)
    signs = np.right_shift(source.view(I8), SIGN_SHIFT).view(U8)
    picked = np.where(nibbles & 8, signs[nibbles & 7], source[nibbles & 7]).astype(U16)
    selectors = np.arange(256)
    return (picked[selectors & 15] | (picked[selectors >> 4] << U16.type(8))).astype(U16)


def _pick(a: Bits, b: Bits, selector: Bits) -> Any:
    """Each lane by its own selector: nibble i says which byte becomes byte i."""
    # The four nibbles spread to four bytes.
    selector = np.bitwise_and(selector, FOUR)
    spread = (selector | np.left_shift(selector, BYTE)) & PAIRS
    spread = (spread | np.left_shift(spread, NIBBLE)) & NIBBLES
    both = np.left_shift(b.astype(U64), WORD) | a
    by = np.left_shift(np.bitwise_and(spread, INDICES), THREE).view(U8)
    places = by.reshape(-1, 4)
    found = np.right_shift(both.reshape(-1, 1), places).astype(U8).view(U32).reshape(-1)
    signs = np.bitwise_and(spread, SIGNS)
    if not np.count_nonzero(signs):
        return found
    full = np.right_shift(found.view(I8), SIGN_SHIFT).view(U32)
    where = np.right_shift(signs, THREE) * ALL_BITS
    return found ^ ((found ^ full) & where)


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
            bits = np.right_shift(parts(bits, I8), SIGN_SHIFT).view(U32)
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
