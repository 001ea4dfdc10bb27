"""What lanes do together, lane by lane as the PTX manual's pseudocode says."""

from typing import Any

import numpy as np
import pytest

from sparkbuild.qualify.alu.contract import WarpOp
from sparkbuild.qualify.alu.decode import decode

from .lanes import instruction, warp

ALL = 0xFFFFFFFF
LANES = list(range(32))
VALUES = [1000 + lane for lane in LANES] + [5000 + 3 * lane for lane in LANES]


def source(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The manual's computation of the lane to copy from."""
    b, clamp, mask = b & 31, c & 31, c >> 8 & 31
    most, least = lane & mask | clamp & ~mask & 31, lane & mask
    if mode == "up":
        j = lane - b
        inside = j >= most
    elif mode == "down":
        j = lane + b
        inside = j <= most
    elif mode == "bfly":
        j = lane ^ b
        inside = j <= most
    else:
        j = least | b & ~mask & 31
        inside = j <= most
    return (j if inside else lane), inside


def control(width: int, mode: str) -> int:
    """What CUDA's __shfl functions pass for a width."""
    return (32 - width) << 8 | (0 if mode == "up" else 31)


CONTROLS = [control(width, mode) for width in (1, 2, 4, 8, 16, 32) for mode in ("up", "down")]
CONTROLS += [7, 15, 0x1C07, 0x1F1F, 0x100F, 0xFFFF]


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_every_distance_and_segment(mode: str) -> None:
    for c in CONTROLS:
        for b in (0, 1, 2, 5, 8, 15, 16, 17, 31, 32, 33, 63):
            wanted = [source(mode, lane, b, c) for lane in LANES]
            values, inside = warp(f"shfl.sync.{mode}.b32 %r0|%p0, %r1, {b}, {c}, -1", VALUES)
            for row in (0, 1):
                assert list(values[row]) == [VALUES[32 * row + j] for j, _ in wanted], (b, c)
                assert list(inside[row]) == [truth for _, truth in wanted]
            registers = [[b] * 64, [c] * 64, [ALL] * 64]
            (again,) = warp(f"shfl.sync.{mode}.b32 %r0, %r1, %r2, %r3, %r4", VALUES, *registers)
            assert np.array_equal(again, values)


def test_each_lane_may_ask_for_another() -> None:
    asked = [(7 * lane + 3) % 40 for lane in LANES]
    (values,) = warp("shfl.sync.idx.b32 %r0, %r1, %r2, 31, -1", VALUES[:32], asked)
    assert list(values[0]) == [VALUES[each % 32] for each in asked]
    (floats,) = warp("shfl.sync.bfly.b32 %f0, %f1, 16, 31, -1", VALUES[:32])
    assert list(floats[0]) == [VALUES[lane ^ 16] for lane in LANES]


def rows(*columns: Any) -> list[Any]:
    return [np.array(column) for column in columns]


TRUTHS = [[0] * 32, [1] * 32, [lane % 2 for lane in LANES], [int(lane == 31) for lane in LANES]]


@pytest.mark.parametrize("mask", [ALL, 0x0000FFFF, 0x80000001, 0xAAAAAAAA])
def test_votes_count_the_members_only(mask: int) -> None:
    members = [lane for lane in LANES if mask >> lane & 1]
    active = [[lane in members for lane in LANES]] * len(TRUTHS)
    flat = [truth for row in TRUTHS for truth in row]
    masks = [mask] * len(flat)
    answers = {
        "all": [all(row[lane] for lane in members) for row in TRUTHS],
        "any": [any(row[lane] for lane in members) for row in TRUTHS],
        "uni": [len({row[lane] for lane in members}) == 1 for row in TRUTHS],
    }
    for mode, wanted in answers.items():
        (found,) = warp(f"vote.sync.{mode}.pred %p0, %p1, %r2", flat, masks, active=active)
        assert [bool(row[members[0]]) for row in found] == wanted, mode
        assert all(len({bool(row[lane]) for lane in members}) == 1 for row in found)
    (found,) = warp("vote.sync.ballot.b32 %r0, %p1, %r2", flat, masks, active=active)
    assert [int(row[members[0]]) for row in found] == [
        sum(row[lane] << lane for lane in members) for row in TRUTHS
    ]
    (found,) = warp("vote.sync.ballot.b32 %r0, !%p1, %r2", flat, masks, active=active)
    assert [int(row[members[0]]) for row in found] == [
        sum((1 - row[lane]) << lane for lane in members) for row in TRUTHS
    ]


def test_votes_of_lanes_that_are_there() -> None:
    active = [[lane < 5 for lane in LANES]]
    (found,) = warp("vote.sync.ballot.b32 %r0, %p1, -1", TRUTHS[1], active=active)
    assert int(found[0][0]) == 0b11111
    (found,) = warp("vote.sync.all.pred %p0, %p1, -1", [1] * 5 + [0] * 27, active=active)
    assert bool(found[0][0])


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_matches(kind: str) -> None:
    name = "%rd1" if kind == "b64" else "%r1"
    values = [lane % 3 + (7 << 32) for lane in LANES] + [9] * 32
    groups = [sum(1 << other for other in LANES if other % 3 == lane % 3) for lane in LANES]
    (found,) = warp(f"match.any.sync.{kind} %r0, {name}, -1", values)
    assert list(found[0]) == groups
    assert list(found[1]) == [ALL] * 32
    found, agreed = warp(f"match.all.sync.{kind} %r0|%p0, {name}, -1", values)
    assert list(found[0]) == [0] * 32
    assert not agreed[0].any()
    assert list(found[1]) == [ALL] * 32
    assert agreed[1].all()
    active = [[lane % 3 == 1 for lane in LANES]]
    mask = sum(1 << lane for lane in LANES if lane % 3 == 1)
    found, agreed = warp(
        f"match.all.sync.{kind} %r0|%p0, {name}, {mask}", values[:32], active=active
    )
    assert int(found[0][1]) == mask
    assert agreed[0][1]


def test_one_lane_that_differs_breaks_the_match_of_all() -> None:
    values = [7] * 31 + [8]
    found, agreed = warp("match.all.sync.b32 %r0|%p0, %r1, -1", values)
    assert not found.any()
    assert not agreed.any()
    (found,) = warp("match.all.sync.b32 %r0, %r1, -1", [7] * 32)
    assert (found == ALL).all()


def test_two_values_that_differ_above_32_bits() -> None:
    values = [lane % 2 << 40 for lane in LANES]
    (found,) = warp("match.any.sync.b64 %r0, %rd1, -1", values)
    assert list(found[0]) == [0x55555555 << lane % 2 for lane in LANES]


@pytest.mark.parametrize("mask", [ALL, 0x0F0F0F0F, 1])
def test_reductions(mask: int) -> None:
    generator = np.random.default_rng(6)
    values = [int(each) for each in generator.integers(0, 1 << 32, 32)]
    members = [values[lane] for lane in LANES if mask >> lane & 1]
    signed = [each - (1 << 32) if each >> 31 else each for each in members]
    active = [[bool(mask >> lane & 1) for lane in LANES]]
    joined = {"and": ALL, "or": 0, "xor": 0}
    for each in members:
        joined = {
            "and": joined["and"] & each,
            "or": joined["or"] | each,
            "xor": joined["xor"] ^ each,
        }
    wanted = {
        "add.u32": sum(members), "add.s32": sum(signed), "min.u32": min(members),
        "max.u32": max(members), "min.s32": min(signed), "max.s32": max(signed),
        "and.b32": joined["and"], "or.b32": joined["or"], "xor.b32": joined["xor"],
    }  # fmt: skip
    for name, result in wanted.items():
        (found,) = warp(f"redux.sync.{name} %r0, %r1, {mask}", values, active=active)
        assert int(found[0][0]) & ALL == result & ALL, name


def test_reductions_of_one_sign_by_some_lanes() -> None:
    active = [[lane in {3, 9} for lane in LANES]]
    mask = 1 << 3 | 1 << 9
    low, high = [-5 - lane for lane in LANES], [5 + lane for lane in LANES]
    big = [ALL - lane for lane in LANES]
    for name, values, wanted in (
        ("max.s32", low, -8), ("min.s32", low, -14), ("max.s32", high, 14), ("min.s32", high, 8),
        ("min.u32", big, ALL - 9), ("max.u32", high, 14), ("and.b32", big, (ALL - 3) & (ALL - 9)),
    ):  # fmt: skip
        (found,) = warp(f"redux.sync.{name} %r0, %r1, {mask}", values, active=active)
        assert int(found[0][3]) & ALL == wanted & ALL, name


def test_float_reductions() -> None:
    def bits(*values: float) -> list[int]:
        words = np.array(values, np.float32).view(np.uint32)
        return [int(each) for each in words] + [0x3F800000] * (32 - len(values))

    nan, minus_zero = float("nan"), 0x80000000

    def reduced(name: str, values: list[int]) -> int:
        (found,) = warp(f"redux.sync.{name}.f32 %f0, %f1, -1", values)
        return int(found[0][7])

    assert reduced("min", bits(-3.5, 2.0, nan)) == bits(-3.5)[0]
    assert reduced("max", bits(-3.5, 2.0, nan)) == bits(2.0)[0]
    assert reduced("max.abs", bits(-3.5, 2.0, nan)) == bits(3.5)[0]
    assert reduced("min.abs", bits(-0.5, 2.0)) == bits(0.5)[0]
    assert reduced("max.NaN", bits(-3.5, 2.0, nan)) == 0x7FFFFFFF
    assert reduced("min.abs.NaN", bits(-3.5, nan)) == 0x7FFFFFFF
    assert reduced("min", [0x7FC00000] * 32) == 0x7FFFFFFF
    assert reduced("min", [0, minus_zero] * 16) == minus_zero
    assert reduced("max", [0, minus_zero] * 16) == 0
    assert reduced("max", [0x80000001] * 32) == 0x80000001
    assert reduced("max", bits(-np.inf, *[-1.0] * 31)) == bits(-1.0)[0]
    active = [[lane < 2 for lane in LANES]]
    (found,) = warp("redux.sync.max.f32 %f0, %f1, 3", bits(-3.5, -2.0, 9.0), active=active)
    assert int(found[0][0]) == bits(-2.0)[0]


def test_who_is_there() -> None:
    active = [[lane in {3, 5, 31} for lane in LANES], [True] * 32]
    (found,) = warp("activemask.b32 %r0", active=active[:1])
    assert int(found[0][3]) == 1 << 3 | 1 << 5 | 1 << 31
    leader, truth = warp("elect.sync %r0|%p0, %r1", [0xA0000028] * 32, active=active[:1])
    assert int(leader[0][3]) == 3
    assert [lane for lane in LANES if truth[0][lane]] == [3]
    _, truth = warp("elect.sync _|%p0, -1", active=active[1:])
    assert [lane for lane in LANES if truth[0][lane]] == [0]


def test_a_matrix_is_transposed() -> None:
    # Row r, column c of an 8 x 8 matrix of 16 bits: lane 4 r + c / 2, the low half for even c.
    matrix = np.arange(64, dtype=np.uint32).reshape(8, 8) + 100
    words = [0] * 32
    for row in range(8):
        for column in range(8):
            words[4 * row + column // 2] |= int(matrix[row, column]) << 16 * (column % 2)
    (found,) = warp("movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1", words)
    for row in range(8):
        for column in range(8):
            word = int(found[0][4 * row + column // 2])
            assert word >> 16 * (column % 2) & 0xFFFF == matrix[column, row]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("shfl.sync.up.b32 %r0, %r1, 1, 0, %r2", 3),
        ("shfl.sync.idx.b32 %r0, %r1, %r3, 31, %r2", 3),
        ("vote.sync.any.pred %p0, %p1, %r2", 1),
        ("match.all.sync.b32 %r0|%p0, %r1, %r2", 1),
        ("redux.sync.add.u32 %r0, %r1, %r2", 1),
        ("elect.sync _|%p0, %r2", 0),
        ("movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1", None),
    ],
)
def test_which_source_names_the_members(text: str, place: int | None) -> None:
    op = decode(instruction(text))
    assert isinstance(op, WarpOp)
    assert op.member_mask == place
    assert op.destinations == 1
