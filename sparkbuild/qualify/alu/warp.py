"""What the lanes of a warp do together: shfl, vote, match, redux, activemask, elect, movmatrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, WarpOp
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.types import I32, I64, TYPES, U16, U32, U64, scalar
from sparkbuild.qualify.ptx.model import Instruction, Pair

LANES = 32
LANE = np.arange(LANES)
WEIGHTS = (np.ones(LANES, U64) << np.arange(LANES, dtype=U64)).astype(U64)
FIVE = scalar(31, I64)
ALL = scalar(0xFFFFFFFF, U32)


def _rows(bits: Bits, active: Bits) -> Any:
    """A source as one row of 32 lanes for each warp."""
    return bits if bits.shape == active.shape else np.broadcast_to(bits, active.shape)


def _members(mask: Any, active: Bits) -> Any:
    """Shape (warps, 32): which lanes each lane's member mask names and are there."""
    words = _rows(mask, active)
    first = words[np.arange(len(words)), active.argmax(axis=1)]
    named = (first[:, None] >> LANE.astype(U32)) & U32.type(1)
    return (named != 0) & active


def ballot_word(truth: Any) -> Any:
    """Bits of 32 lanes as one number for each warp, the same in every lane."""
    word = np.where(truth, WEIGHTS, U64.type(0)).sum(axis=1, dtype=U64).astype(U32)
    return np.broadcast_to(word[:, None], truth.shape)


def shuffle(instruction: Instruction) -> WarpOp:
    """``shfl.sync.{up,down,bfly,idx}.b32 d[|p], a, b, c, membermask``.

    c holds the clamp in bits 0 to 4 and the segment mask in bits 8 to 12. A lane outside its
    segment keeps its own value, and its predicate is false.
    """
    form = Form(instruction)
    if not form.flag("sync"):
        form.refuse("without .sync")
    mode = form.pick("up", "down", "bfly", "idx")
    kind = form.type("b32")
    form.finish(4)
    readers = [form.bits(index, kind).reader for index in range(4)]
    pair = isinstance(instruction.operands[0], Pair)

    def run(active: Bits, *bits: Bits) -> tuple[Bits, ...]:
        values, step, control, _ = (
            _rows(read(value), active) for read, value in zip(readers, bits, strict=True)
        )
        origin, valid = _origin(mode, step, control)
        found = np.take_along_axis(values, origin, axis=1)
        return (found, np.broadcast_to(valid, active.shape)) if pair else (found,)

    constant = form.is_constant(1) and form.is_constant(2)
    if constant:
        step, control = (np.full((1, LANES), form.constant(index), I64) for index in (1, 2))
        origin, valid = _origin(mode, step, control)
        return WarpOp(_fixed_shuffle(readers[0], origin[0], valid, pair=pair), 1, 3)
    return WarpOp(run, 1, 3)


def _fixed_shuffle(
    read: Callable[[Bits], Bits], origin: Any, valid: Any, *, pair: bool
) -> Callable[..., tuple[Bits, ...]]:
    """The same lanes in every warp, worked out beforehand."""

    def run(active: Bits, values: Bits, *_: Bits) -> tuple[Bits, ...]:
        found = _rows(read(values), active).take(origin, axis=1)
        return (found, np.broadcast_to(valid, active.shape)) if pair else (found,)

    return run


def _origin(mode: str, step: Any, control: Any) -> tuple[Any, Any]:
    """From which lane each lane takes its value, and whether that is inside its segment."""
    by = step.astype(I64) & FIVE
    clamp, segment = control.astype(I64) & FIVE, (control.astype(I64) >> 8) & FIVE
    lane = LANE.astype(I64)
    highest = (lane & segment) | (clamp & ~segment & FIVE)
    lowest = lane & segment
    if mode == "up":
        origin = lane - by
        valid = origin >= highest
    elif mode == "down":
        origin = lane + by
        valid = origin <= highest
    elif mode == "bfly":
        origin = lane ^ by
        valid = origin <= highest
    else:
        origin = lowest | (by & ~segment & FIVE)
        valid = origin <= highest
    return np.where(valid, origin, lane), valid


def vote(instruction: Instruction) -> WarpOp:
    """``vote.sync.{all,any,uni}.pred`` and ``vote.sync.ballot.b32``: source, member mask."""
    form = Form(instruction)
    if not form.flag("sync"):
        form.refuse("without .sync")
    mode = form.pick("all", "any", "uni", "ballot")
    form.type("b32" if mode == "ballot" else "pred")
    form.finish(2)
    read, mask = form.predicate(0).reader, form.bits(1, TYPES["b32"]).reader

    def run(active: Bits, truth: Bits, named: Bits) -> tuple[Bits, ...]:
        members = _members(mask(named), active)
        given = _rows(read(truth), active)
        holds = given & members
        if mode == "ballot":
            return (ballot_word(holds),)
        every = (given | ~members).all(axis=1)
        some = holds.any(axis=1)
        result = {"all": every, "any": some, "uni": every | ~some}[mode]
        return (np.broadcast_to(result[:, None], active.shape),)

    return WarpOp(run, 1, 1)


def match(instruction: Instruction) -> WarpOp:
    """``match.any.sync`` and ``match.all.sync``: which lanes hold the same value."""
    form = Form(instruction)
    if not form.flag("sync"):
        form.refuse("without .sync")
    every = form.pick("any", "all") == "all"
    kind = form.type("b32", "b64")
    form.finish(2)
    read, mask = form.bits(0, kind).reader, form.bits(1, TYPES["b32"]).reader
    pair = isinstance(instruction.operands[0], Pair)

    def run(active: Bits, values: Bits, named: Bits) -> tuple[Bits, ...]:
        members = _members(mask(named), active)
        held = _rows(read(values), active)
        same = (held[:, :, None] == held[:, None, :]) & members[:, None, :]
        words = np.where(same, WEIGHTS, U64.type(0)).sum(axis=2, dtype=U64).astype(U32)
        if not every:
            return (words,)
        whole = ballot_word(members)
        agreed = words == whole
        agreed = np.broadcast_to((agreed | ~members).all(axis=1)[:, None], active.shape)
        result = np.where(agreed, whole, U32.type(0))
        return (result, agreed) if pair else (result,)

    return WarpOp(run, 1, 1)


def reduce(instruction: Instruction) -> WarpOp:
    """``redux.sync``: add, min, max of integers; and, or, xor of bits; min, max of f32."""
    form = Form(instruction)
    if not form.flag("sync"):
        form.refuse("without .sync")
    name = form.pick("add", "min", "max", "and", "or", "xor")
    magnitude, nan = form.flag("abs"), form.flag("NaN")
    kind = form.type("u32", "s32", "b32", "f32")
    form.finish(2)
    fits = {"f32": {"min", "max"}, "b32": {"and", "or", "xor"}}.get(
        kind.name, {"add", "min", "max"}
    )
    if name not in fits or ((magnitude or nan) and kind.name != "f32"):
        form.refuse(f".{name} of .{kind.name}")
    mask = form.bits(1, TYPES["b32"]).reader
    read = form.bits(0, TYPES["b32"]).reader
    gather = _float_extreme(name, magnitude=magnitude, nan=nan) if kind.name == "f32" else None
    function, neutral = _reduction(name, kind.name)

    def run(active: Bits, values: Bits, named: Bits) -> tuple[Bits, ...]:
        members = _members(mask(named), active)
        held = _rows(read(values), active)
        if gather is not None:
            result = gather(held, members)
        else:
            own = held.view(I32) if kind.kind == "s" else held
            result = function(np.where(members, own, neutral))
        return (np.broadcast_to(result[:, None], active.shape),)

    return WarpOp(run, 1, 1)


def _reduction(name: str, kind: str) -> tuple[Callable[[Any], Any], Any]:
    """What joins a row, and what changes nothing."""
    own = I32 if kind == "s32" else U32
    low, high = (-(1 << 31), (1 << 31) - 1) if kind == "s32" else (0, 0xFFFFFFFF)
    ufuncs: dict[str, tuple[Any, int]] = {
        "add": (np.add, 0),
        "min": (np.minimum, high),
        "max": (np.maximum, low),
        "and": (np.bitwise_and, 0xFFFFFFFF),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }
    ufunc, neutral = ufuncs[name]
    return (lambda rows: ufunc.reduce(rows, axis=1, dtype=own)), own.type(neutral)


def _float_extreme(name: str, *, magnitude: bool, nan: bool) -> Callable[[Any, Any], Any]:
    """Floats in the order of signed numbers, so that -0 is below +0; NaN apart."""

    def run(held: Any, members: Any) -> Any:
        bits = held & U32.type(0x7FFFFFFF) if magnitude else held
        number = (bits & U32.type(0x7FFFFFFF)) <= U32.type(0x7F800000)
        signed = bits.view(I32) if bits.flags.c_contiguous else bits.copy().view(I32)
        key = signed ^ ((signed >> I32.type(31)) & I32.type(0x7FFFFFFF))
        worst = I32.type((1 << 31) - 1 if name == "min" else -(1 << 31))
        ufunc: Any = np.minimum if name == "min" else np.maximum
        best = ufunc.reduce(np.where(members & number, key, worst), axis=1)
        result = (best ^ ((best >> I32.type(31)) & I32.type(0x7FFFFFFF))).view(U32)
        bad = members & ~number
        lost = bad.any(axis=1) if nan else (bad | ~members).all(axis=1)
        return np.where(lost, U32.type(0x7FFFFFFF), result)

    return run


def active_mask(instruction: Instruction) -> WarpOp:
    """``activemask.b32``: which lanes execute it now."""
    form = Form(instruction)
    form.type("b32")
    form.finish(0)
    return WarpOp(lambda active: (ballot_word(active),))


def elect(instruction: Instruction) -> WarpOp:
    """``elect.sync d|p, membermask``: one member, here the lowest; its lane, and who it is."""
    form = Form(instruction)
    if not form.flag("sync"):
        form.refuse("without .sync")
    form.finish(1)
    mask = form.bits(0, TYPES["b32"]).reader
    if not isinstance(instruction.operands[0], Pair):
        form.refuse("no predicate to write")

    def run(active: Bits, named: Bits) -> tuple[Bits, ...]:
        members = _members(mask(named), active)
        leader = members.argmax(axis=1)[:, None]
        return np.broadcast_to(leader, active.shape).astype(U32), leader == LANE

    return WarpOp(run, 1, 0)


def transpose(instruction: Instruction) -> WarpOp:
    """``movmatrix.sync.aligned.m8n8.trans.b16``: an 8x8 matrix of 16 bits, transposed.

    Lane l holds elements (l / 4, 2 (l % 4)) and the one to its right.
    """
    form = Form(instruction)
    for name in ("sync", "aligned", "m8n8", "trans"):
        if not form.flag(name):
            form.refuse(f"without .{name}")
    form.type("b16")
    form.finish(1)
    read = form.bits(0, TYPES["b32"]).reader

    def run(active: Bits, values: Bits) -> tuple[Bits, ...]:
        rows = np.ascontiguousarray(_rows(read(values), active))
        matrix = rows.view(U16).reshape(len(rows), 8, 8)
        turned = np.ascontiguousarray(matrix.transpose(0, 2, 1))
        return (turned.reshape(len(rows), 64).view(U32),)

    return WarpOp(run)
