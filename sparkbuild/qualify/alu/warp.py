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
LANE = np.arange(LANES, dtype=I64)
LANE32 = LANE.astype(U32)
WEIGHTS = np.left_shift(np.ones(LANES, U64), LANE.astype(U64))
FIVE, EIGHT, ONE = scalar(31, I64), scalar(8, I64), scalar(1, U32)


def _rows(bits: Bits, active: Bits) -> Any:
    """A source as one row of 32 lanes for each warp."""
    return bits if bits.shape == active.shape else np.broadcast_to(bits, active.shape)


def _members(form: Form, index: int) -> Callable[[Bits, Bits], Any]:
    """From the member mask and who is there, which lanes of each warp take part."""
    if form.is_constant(index) and form.constant(index) & 0xFFFFFFFF == 0xFFFFFFFF:
        return lambda _, active: active
    read = form.bits(index, TYPES["b32"]).reader

    def run(mask: Bits, active: Bits) -> Any:
        words = _rows(read(mask), active)
        # All members name the same mask, so any of them will do.
        first = words[np.arange(len(words)), active.argmax(axis=1)]
        named = np.right_shift(first[:, None], LANE32) & ONE
        return (named != 0) & active

    return run


def ballot_word(truth: Any) -> Any:
    """Bits of 32 lanes as one number for each warp, the same in every lane."""
    word = np.packbits(truth, axis=1, bitorder="little").view(U32)
    return np.broadcast_to(word, truth.shape)


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
    read, step, control = (form.bits(index, kind).reader for index in range(3))
    pair = isinstance(instruction.operands[0], Pair)
    if form.is_constant(1) and form.is_constant(2):
        by, limits = (np.full((1, LANES), form.constant(index), I64) for index in (1, 2))
        origin, valid = _origin(mode, by, _segments(limits))
        return WarpOp(_fixed_shuffle(read, origin[0], valid, pair=pair), 1, 3)
    fixed = None
    if form.is_constant(2):
        fixed = _segments(np.full((1, LANES), form.constant(2), I64))

    def run(active: Bits, a: Bits, b: Bits, c: Bits, _: Bits) -> tuple[Bits, ...]:
        values = _rows(read(a), active)
        segments = fixed or _segments(_rows(control(c), active).astype(I64))
        origin, valid = _origin(mode, _rows(step(b), active).astype(I64), segments)
        first = np.arange(0, values.size, LANES).reshape(-1, 1)
        found = values.reshape(-1).take(origin + first)
        return (found, valid) if pair else (found,)

    return WarpOp(run, 1, 3)


def _fixed_shuffle(
    read: Callable[[Bits], Bits], origin: Any, valid: Any, *, pair: bool
) -> Callable[..., tuple[Bits, ...]]:
    """The same lanes in every warp, worked out beforehand."""

    def run(active: Bits, values: Bits, *_: Bits) -> tuple[Bits, ...]:
        found = _rows(read(values), active).take(origin, axis=1)
        return (found, np.broadcast_to(valid, active.shape)) if pair else (found,)

    return run


def _segments(control: Any) -> tuple[Any, Any, Any]:
    """The last lane of each lane's segment (the first, for up), its base, and the free bits."""
    clamp, segment = control & FIVE, (control >> EIGHT) & FIVE
    free = ~segment & FIVE
    base = LANE & segment
    return base | (clamp & free), base, free


FORWARD: dict[str, Callable[[Any, Any, Any], Any]] = {
    "down": lambda by, _, __: LANE + by,
    "bfly": lambda by, _, __: LANE ^ by,
    "idx": lambda by, base, free: base | (by & free),
}


def _origin(mode: str, step: Any, segments: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """From which lane each lane takes its value, and whether that is inside its segment."""
    bound, base, free = segments
    by = step & FIVE
    if mode == "up":
        origin = LANE - by
        valid = origin >= bound
        return np.where(valid, origin, LANE), valid
    origin = FORWARD[mode](by, base, free)
    valid = origin <= bound
    return np.where(valid, origin, LANE), valid


def vote(instruction: Instruction) -> WarpOp:
    """``vote.sync.{all,any,uni}.pred`` and ``vote.sync.ballot.b32``: source, member mask."""
    form = Form(instruction)
    if not form.flag("sync"):
        form.refuse("without .sync")
    mode = form.pick("all", "any", "uni", "ballot")
    form.type("b32" if mode == "ballot" else "pred")
    form.finish(2)
    read, taking_part = form.predicate(0).reader, _members(form, 1)
    judge = VOTES[mode]

    def run(active: Bits, truth: Bits, named: Bits) -> tuple[Bits, ...]:
        return (judge(_rows(read(truth), active), taking_part(named, active)),)

    return WarpOp(run, 1, 1)


def _all(given: Any, members: Any) -> Any:
    return np.broadcast_to((given | ~members).all(axis=1, keepdims=True), members.shape)


def _any(given: Any, members: Any) -> Any:
    return np.broadcast_to((given & members).any(axis=1, keepdims=True), members.shape)


VOTES: dict[str, Callable[[Any, Any], Any]] = {
    "all": _all,
    "any": _any,
    "uni": lambda given, members: _all(given, members) | ~_any(given, members),
    "ballot": lambda given, members: ballot_word(given & members),
}


def match(instruction: Instruction) -> WarpOp:
    """``match.any.sync`` and ``match.all.sync``: which lanes hold the same value."""
    form = Form(instruction)
    if not form.flag("sync"):
        form.refuse("without .sync")
    every = form.pick("any", "all") == "all"
    kind = form.type("b32", "b64")
    form.finish(2)
    read, taking_part = form.bits(0, kind).reader, _members(form, 1)
    pair = isinstance(instruction.operands[0], Pair)

    def run(active: Bits, values: Bits, named: Bits) -> tuple[Bits, ...]:
        members = taking_part(named, active)
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
    read, taking_part = form.bits(0, TYPES["b32"]).reader, _members(form, 1)
    gather = _float_extreme(name, magnitude=magnitude, nan=nan) if kind.name == "f32" else None
    function, neutral = _reduction(name, kind.name)

    def run(active: Bits, values: Bits, named: Bits) -> tuple[Bits, ...]:
        members = taking_part(named, active)
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
    taking_part = _members(form, 0)
    if not isinstance(instruction.operands[0], Pair):
        form.refuse("no predicate to write")

    def run(active: Bits, named: Bits) -> tuple[Bits, ...]:
        leader = taking_part(named, active).argmax(axis=1)[:, None]
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
