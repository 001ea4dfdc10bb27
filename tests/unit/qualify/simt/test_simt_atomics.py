"""Atomics and asynchronous copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.simt.contract import Buffer

VALUES = ("u64 out", "u64 cells")


def cells_after(kit: Any, text: str, cells: Any, **options: Any) -> Any:
    """Run ``text`` with %rd2 the address of ``cells``; what they hold then, and ``out``."""
    out = Buffer("out", np.full(64, -1, dtype=np.int32), writable=True)
    buffer = Buffer("cells", np.array(cells), writable=True)
    body = kit.thread + "ld.param.u64 %rd2, [cells];" + text
    found = kit.run(body, out, buffer, parameters=VALUES, **options).buffers
    return found["cells"], found["out"]


def test_each_thread_gets_a_number_of_its_own(kit: Any) -> None:
    text = "atom.global.add.u32 %r5, [%rd2], 2; st.global.u32 [%rd1], %r5;"
    cells, out = cells_after(kit, text, np.array([100], np.uint32), grid=2)
    assert cells[0] == 228
    assert sorted(out.tolist()) == list(range(100, 228, 2))


def test_places_are_told_apart(kit: Any) -> None:
    text = """
        and.b32 %r6, %r0, 3; mul.wide.s32 %rd3, %r6, 4; add.s64 %rd3, %rd2, %rd3;
        atom.global.add.s32 %r5, [%rd3], %r0; st.global.u32 [%rd1], %r5;
    """
    cells, out = cells_after(kit, text, np.zeros(4, np.int32))
    thread = np.arange(32)
    assert cells.tolist() == [int(thread[at::4].sum()) for at in range(4)]
    before = [int(thread[at % 4 : at : 4].sum()) for at in range(32)]
    assert out[:32].tolist() == before


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("red.global.add.u32 [%rd2], %r0;", [5], [5 + 496]),
        ("red.global.min.s32 [%rd2], %r0;", [5], [0]),
        ("red.relaxed.gpu.global.max.s32 [%rd2], %r0;", [5], [31]),
        ("neg.s32 %r5, %r0; red.global.max.u32 [%rd2], %r5;", [5], [-1]),
        ("shl.b32 %r5, 1, %r0; red.global.or.b32 [%rd2], %r5;", [0], [-1]),
        ("shl.b32 %r5, 1, %r0; red.global.xor.b32 [%rd2], %r5;", [1], [-2]),
        ("add.s32 %r5, %r0, 32; red.global.and.b32 [%rd2], %r5;", [-1], [32]),
        ("atom.global.exch.b32 %r5, [%rd2], %r0;", [5], [31]),
        ("atom.global.cas.b32 %r5, [%rd2], %r0, 77;", [9], [77]),
        ("atom.global.cas.b32 %r5, [%rd2], 5, %r0;", [5], [0]),
        ("atom.global.inc.u32 %r5, [%rd2], 9;", [0], [2]),
        ("atom.global.dec.u32 %r5, [%rd2], 9;", [3], [1]),
        ("cvt.s64.s32 %rd4, %r0; atom.add.u64 %rd5, [%rd2], %rd4;", [1, 1], [497, 1]),
    ],
)
def test_operations(kit: Any, text: str, start: list[int], expected: list[int]) -> None:
    assert cells_after(kit, text, np.array(start, np.int32))[0].tolist() == expected


def test_only_lanes_that_are_there(kit: Any) -> None:
    text = "setp.lt.s32 %p1, %r0, 5; @%p1 atom.global.add.u32 %r5, [%rd2], 1;"
    assert cells_after(kit, text, np.zeros(1, np.int32), grid=3, block=64)[0].tolist() == [15]


def test_floats_are_added_in_the_order_of_lanes(kit: Any) -> None:
    values = np.random.default_rng(7).standard_normal(32).astype(np.float32)
    out = Buffer("out", np.zeros(1, dtype=np.float32), writable=True)
    body = """
        mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out]; ld.param.u64 %rd2, [cells];
        mul.wide.s32 %rd3, %r0, 4; add.s64 %rd3, %rd2, %rd3; ld.global.f32 %f1, [%rd3];
        red.global.add.f32 [%rd0], %f1;
    """
    found = kit.run(body, out, Buffer("cells", values), parameters=VALUES).buffers["out"]
    total = np.float32(0)
    for value in values:
        total += value
    assert found[0] == total


def test_subnormal_numbers_vanish_in_global_memory_only(kit: Any) -> None:
    tiny = np.array([1], dtype=np.uint32).view(np.float32)
    text = "mov.f32 %f1, 0f00000001; setp.eq.s32 %p1, %r0, 0; @%p1 red.global.add.f32 [%rd2], %f1;"
    assert cells_after(kit, text, tiny)[0].view(np.uint32)[0] == 0
    shared = """
        .shared .align 4 .b8 one[4];
        mov.f32 %f1, 0f00000001; st.shared.u32 [one], 1; bar.sync 0;
        setp.eq.s32 %p1, %r0, 0; @%p1 red.shared.add.f32 [one], %f1; bar.sync 0;
        ld.shared.u32 %r5, [one]; st.global.u32 [%rd2], %r5;
    """
    assert cells_after(kit, shared, tiny)[0].view(np.uint32)[0] == 2


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_pairs_of_halves(kit: Any, kind: str) -> None:
    one, two = {"f16x2": (0x3C00, 0x4000), "bf16x2": (0x3F80, 0x4000)}[kind]
    text = f"""
        mov.u32 %r5, {two << 16 | one:#x}; setp.lt.s32 %p1, %r0, 4;
        @%p1 atom.global.add.noftz.{kind} %r6, [%rd2], %r5;
    """
    found = cells_after(kit, text, np.zeros(2, np.uint16))[0]
    if kind == "f16x2":
        assert found.view(np.float16).tolist() == [4, 8]
    else:
        assert (found.astype(np.uint32) << 16).view(np.float32).tolist() == [4, 8]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("atom.global.add.u32 %r5, [%rd2+4], 1;", "out of bounds"),
        ("atom.global.add.u32 %r5, [%rd2+2], 1;", "misaligned"),
    ],
)
def test_bounds(kit: Any, text: str, kind: str) -> None:
    out = Buffer("out", np.zeros(64, dtype=np.int32), writable=True)
    cells = Buffer("cells", np.zeros(6 if kind == "misaligned" else 4, np.uint8), writable=True)
    body = kit.thread + "ld.param.u64 %rd2, [cells];" + text
    assert kit.fault(body, out, cells, parameters=VALUES).kind == kind
    readonly = Buffer("cells", np.zeros(4, np.uint8))
    body = kit.thread + "ld.param.u64 %rd2, [cells]; red.global.add.u32 [%rd2], 1;"
    assert kit.fault(body, out, readonly, parameters=VALUES).kind == "read-only"


@pytest.mark.parametrize(
    "text",
    [
        "atom.global.add.v2.f32 {%f1, %f2}, [%rd2], {%f1, %f2};",
        "atom.global.mul.u32 %r5, [%rd2], %r0;",
        "atom.shared::cluster.add.u32 %r5, [%r1], 1;",
        "cp.async.bulk.commit_group;",
        "cp.async.mbarrier.arrive.shared.b64 [%r1];",
    ],
)
def test_forms_that_are_not_known(kit: Any, text: str) -> None:
    with pytest.raises(UnsupportedError):
        kit.words(text, 32)


TILE = ".shared .align 16 .b8 tile[1024];"
COPY = """
    mov.u32 %r20, tile; mad.lo.s32 %r21, %r0, 16, %r20; mul.wide.s32 %rd3, %r0, 16;
    add.s64 %rd3, %rd2, %rd3;
"""
READ = """
    xor.b32 %r6, %r0, 31; mad.lo.s32 %r22, %r6, 16, %r20; ld.shared.u32 %r5, [%r22+4];
    st.global.u32 [%rd1], %r5;
"""
WORDS = np.arange(256, dtype=np.int32).reshape(64, 4)


def copied(kit: Any, *parts: str) -> Any:
    return cells_after(kit, TILE + COPY + "\n".join(parts), WORDS)[1][:32]


ISSUE = "cp.async.cg.shared.global.L2::128B [%r21], [%rd3], 16;"


def test_a_copy_arrives_when_it_is_waited_for(kit: Any) -> None:
    found = copied(kit, ISSUE, "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;", READ)
    assert (found == WORDS[:32, 1][::-1]).all()
    found = copied(kit, ISSUE, "cp.async.wait_all; bar.sync 0;", READ)
    assert (found == WORDS[:32, 1][::-1]).all()


@pytest.mark.parametrize(
    "waits",
    [
        "",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        "cp.async.commit_group; cp.async.wait_group 1;",
    ],
)
def test_a_copy_that_nobody_waits_for_is_undefined(kit: Any, waits: str) -> None:
    assert (copied(kit, ISSUE, waits, "bar.sync 0;", READ).view(np.uint32) == 0xFFF5FFF5).all()


def test_a_copy_makes_what_was_there_undefined(kit: Any) -> None:
    before = "st.shared.u32 [%r21+4], 9; bar.sync 0;"
    found = copied(kit, before, ISSUE, "cp.async.commit_group; bar.sync 0;", READ)
    assert (found.view(np.uint32) == 0xFFF5FFF5).all()


def test_groups_arrive_in_their_order(kit: Any) -> None:
    second = "add.s32 %r21, %r21, 512; add.s64 %rd3, %rd3, 512;" + ISSUE + "cp.async.commit_group;"
    both = """
        cp.async.wait_group {0}; bar.sync 0; ld.shared.u32 %r5, [%r21+-508];
        ld.shared.u32 %r7, [%r21+4]; setp.eq.s32 %p1, %r7, 0xFFF5FFF5; @%p1 mov.u32 %r7, 0;
        mad.lo.s32 %r5, %r7, 1000, %r5; st.global.u32 [%rd1], %r5;
    """
    first = copied(kit, ISSUE, "cp.async.commit_group;", second, both.replace("{0}", "1"))
    assert (first == WORDS[:32, 1]).all()
    all_ = copied(kit, ISSUE, "cp.async.commit_group;", second, both.replace("{0}", "0"))
    assert (all_ == WORDS[:32, 1] + 1000 * WORDS[32:, 1]).all()


def test_lanes_wait_for_their_own_copies_only(kit: Any) -> None:
    some = "setp.lt.s32 %p1, %r0, 16; @%p1 cp.async.wait_all; bar.sync 0;"
    found = copied(kit, ISSUE, some, READ).view(np.uint32)
    assert (found[:16] == 0xFFF5FFF5).all()
    assert (found[16:] == WORDS[:16, 1][::-1]).all()


@pytest.mark.parametrize(
    ("amount", "words"), [("0", 0), ("4", 1), ("6", 1), ("16", 4), ("%r0", -1)]
)
def test_what_is_not_read_is_zero(kit: Any, amount: str, words: int) -> None:
    text = f"""
        cp.async.ca.shared.global [%r21], [%rd3], 16, {amount}; cp.async.wait_all; bar.sync 0;
        mov.u32 %r5, 0; ld.shared.v4.u32 {{%r6, %r7, %r8, %r9}}, [%r21];
        add.s32 %r5, %r6, %r7; add.s32 %r5, %r5, %r8; add.s32 %r5, %r5, %r9;
        st.global.u32 [%rd1], %r5;
    """
    raw = WORDS[:32].copy().view(np.uint8).reshape(32, 16)
    limit = np.minimum(np.arange(32), 16) if words < 0 else np.full(32, int(amount))
    raw[np.arange(16) >= limit[:, None]] = 0
    assert (copied(kit, text) == raw.view(np.int32).sum(1)).all()


def test_bytes_that_are_not_read_need_not_be_there(kit: Any) -> None:
    text = TILE + COPY + "cp.async.ca.shared.global [%r21], [%rd3], 16, {0}; cp.async.wait_all;"
    short = np.zeros(32 * 16 - 10, np.uint8)
    cells_after(kit, text.replace("{0}", "6"), short)
    out = Buffer("out", np.zeros(64, dtype=np.int32), writable=True)
    body = kit.thread + "ld.param.u64 %rd2, [cells];" + text.replace("{0}", "7")
    fault = kit.fault(body, out, Buffer("cells", short), parameters=VALUES)
    assert (fault.kind, fault.lane) == ("out of bounds", (0, 31))


def test_a_copy_that_is_read_without_a_barrier_is_a_race(kit: Any) -> None:
    out = Buffer("out", np.zeros(64, dtype=np.int32), writable=True)
    body = kit.thread + "ld.param.u64 %rd2, [cells];" + TILE + COPY + ISSUE + "cp.async.wait_all;"
    fault = kit.fault(body + READ, out, Buffer("cells", WORDS), parameters=VALUES)
    assert fault.kind == "race"
