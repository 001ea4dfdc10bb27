"""What a warp does together: shuffles, votes, matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.simt.contract import Buffer

STORE = "st.global.u32 [%rd1], %r5;"
THREADS = np.arange(64)


def test_a_shuffle_of_whole_warps(kit: Any) -> None:
    body = kit.thread + "shfl.sync.bfly.b32 %r5, %r3, 5, 31, -1;" + STORE
    assert (kit.words(body, 64, block=64) == (THREADS ^ 5)).all()


def test_a_shuffle_with_its_predicate(kit: Any) -> None:
    body = kit.thread + "shfl.sync.up.b32 %r5|%p1, %r3, 3, 0, -1; @!%p1 add.s32 %r5, %r5, 100;"
    lane = THREADS % 32
    expected = np.where(lane >= 3, THREADS - 3, THREADS + 100)
    assert (kit.words(body + STORE, 64, block=64) == expected).all()


def test_a_shuffle_in_a_branch_of_whole_warps(kit: Any) -> None:
    body = (
        kit.thread
        + """
        mov.u32 %r5, 7; setp.lt.s32 %p1, %r0, 32; @%p1 bra OVER;
        shfl.sync.idx.b32 %r5, %r3, 2, 31, -1;
    OVER:
    """
        + STORE
    )
    assert (kit.words(body, 64, block=64) == np.where(THREADS < 32, 7, 34)).all()


def test_a_shuffle_of_some_lanes(kit: Any) -> None:
    body = (
        kit.thread
        + """
        mov.u32 %r5, 7; and.b32 %r6, %r0, 1; setp.eq.s32 %p1, %r6, 0; @%p1 bra OVER;
        shfl.sync.bfly.b32 %r5, %r3, 2, 31, 0xAAAAAAAA;
    OVER:
    """
        + STORE
    )
    assert (kit.words(body, 64, block=64) == np.where(THREADS % 2, THREADS ^ 2, 7)).all()


def test_lanes_wait_for_those_of_their_mask(kit: Any) -> None:
    """Odd lanes come late, by a way of their own; even lanes must wait for them."""
    body = (
        kit.thread
        + """
        mov.u32 %r8, %r3; and.b32 %r6, %r0, 1; setp.eq.s32 %p1, %r6, 0; @%p1 bra MEET;
        bra LATE;
    MEET:
        shfl.sync.bfly.b32 %r5, %r8, 1, 31, -1;
        st.global.u32 [%rd1], %r5; ret;
    LATE:
        add.s32 %r8, %r3, 1000; bra MEET;
    """
    )
    expected = np.where(THREADS % 2, THREADS ^ 1, (THREADS ^ 1) + 1000)
    assert (kit.words(body, 64, block=64) == expected).all()


def test_a_mask_that_names_lanes_which_are_elsewhere(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.lt.s32 %p1, %r0, 16; @%p1 bra OTHER;
        shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1; bra DONE;
    OTHER:
        shfl.sync.bfly.b32 %r5, %r3, 2, 31, -1;
    DONE:
    """
    )
    fault = kit.fault(body + STORE)
    assert fault.kind == "diverged"
    assert fault.instruction is not None
    assert fault.instruction.opcode == "shfl"


def test_lanes_of_a_mask_that_wait_at_a_barrier(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.lt.s32 %p1, %r0, 16; @%p1 bra OTHER;
        shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1;
    OTHER:
        bar.sync 0;
    """
    )
    assert kit.fault(body + STORE).kind == "diverged"


def test_a_thread_outside_of_its_own_mask(kit: Any) -> None:
    fault = kit.fault(kit.thread + "shfl.sync.bfly.b32 %r5, %r3, 1, 31, 0xFFFFFFF7;" + STORE)
    assert fault.kind == "diverged"
    assert fault.lane == (0, 3)


def test_lanes_that_have_exited_are_not_waited_for(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.ge.s32 %p1, %r0, 20; @%p1 exit;
        setp.lt.s32 %p1, %r0, 10; vote.sync.ballot.b32 %r5, %p1, -1;
    """
    )
    assert kit.words(body + STORE, 32).tolist() == [0x3FF] * 20 + [-1] * 12


def test_exited_lanes_are_not_waited_for_while_others_are_elsewhere(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.ge.s32 %p1, %r0, 20; setp.lt.s32 %p2, %r0, 32; and.pred %p1, %p1, %p2; @%p1 exit;
        @!%p2 bra OVER;
        setp.lt.s32 %p1, %r0, 10; vote.sync.ballot.b32 %r5, %p1, -1; st.global.u32 [%rd1], %r5;
    OVER:
        bar.sync 0;
    """
    )
    assert kit.words(body, 64, block=64).tolist() == [0x3FF] * 20 + [-1] * 44


def test_threads_that_a_warp_lacks_are_not_waited_for(kit: Any) -> None:
    body = kit.thread + "setp.ge.s32 %p1, %r0, 0; vote.sync.ballot.b32 %r5, %p1, -1;"
    assert kit.words(body + STORE, 40, block=40).tolist() == [-1] * 32 + [0xFF] * 8


def test_lanes_that_exit_while_others_wait(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.ge.s32 %p1, %r0, 16; @%p1 bra LATE;
        setp.lt.s32 %p2, %r0, 10; vote.sync.ballot.b32 %r5, %p2, -1;
        st.global.u32 [%rd1], %r5; ret;
    LATE:
        mov.u32 %r9, 0;
    LOOP:
        add.s32 %r9, %r9, 1; setp.lt.s32 %p3, %r9, 9; @%p3 bra LOOP;
    """
    )
    assert kit.words(body, 32).tolist() == [0x3FF] * 16 + [-1] * 16


def test_who_is_active(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.lt.s32 %p1, %r0, 12; @%p1 bra FEW;
        activemask.b32 %r5; bra DONE;
    FEW:
        activemask.b32 %r5;
    DONE:
    """
    )
    found = kit.words(body + STORE, 32).view(np.uint32)
    assert found.tolist() == [0xFFF] * 12 + [0xFFFFF000] * 20


def test_a_guarded_shuffle(kit: Any) -> None:
    body = (
        kit.thread
        + """
        mov.u32 %r5, 7; setp.lt.s32 %p1, %r0, 8;
        @%p1 shfl.sync.idx.b32 %r5, %r3, 3, 31, 0xFF;
    """
    )
    assert kit.words(body + STORE, 32).tolist() == [3] * 8 + [7] * 24


def test_a_matrix_needs_the_whole_warp(kit: Any) -> None:
    """Not even exited lanes may be missing."""
    mma = """
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4},
            {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f1, %f2, %f3, %f4};
    """
    fault = kit.fault(kit.thread + "setp.ge.s32 %p1, %r0, 20; @%p1 exit;" + mma)
    assert fault.kind == "diverged"
    assert "whole warp" in str(fault)
    branch = "setp.ge.s32 %p1, %r0, 20; @%p1 bra OVER;" + mma + "OVER:"
    assert kit.fault(kit.thread + branch).kind == "diverged"


TILE = ".shared .align 16 .b8 tile[1024];"
FILL = """
    mov.u32 %r20, tile; mad.lo.s32 %r21, %r0, 16, %r20; mul.wide.s32 %rd4, %r0, 16;
    ld.param.u64 %rd5, [given]; add.s64 %rd5, %rd5, %rd4;
    ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd5];
    st.shared.v4.u32 [%r21], {%r10, %r11, %r12, %r13}; bar.sync 0;
"""


def fragments(tiles: Any) -> Any:
    """What each lane holds of tiles (tiles, 8, 8), as two halves: (32, tiles, 2)."""
    lanes = np.arange(32)
    pairs = np.stack([2 * (lanes % 4), 2 * (lanes % 4) + 1], axis=1)
    return np.stack([tile[(lanes // 4)[:, None], pairs] for tile in tiles], axis=1)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_matrices_from_shared_memory(kit: Any, count: int, transposed: bool, space: str) -> None:
    names = ", ".join(f"%r{30 + at}" for at in range(count))
    trans = ".trans" if transposed else ""
    moved = "" if space else "cvt.u64.u32 %rd6, %r21; cvta.shared.u64 %rd6, %rd6;"
    address = "%r21" if space else "%rd6"
    stores = "".join(f"st.global.u32 [%rd7+{4 * at}], %r{30 + at};" for at in range(count))
    body = (
        TILE
        + kit.thread
        + FILL
        + moved
        + f"""
        ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {{{names}}}, [{address}];
        mul.wide.s32 %rd7, %r0, {4 * count}; add.s64 %rd7, %rd7, %rd0;
    """
        + stores
    )
    values = np.random.default_rng(4).integers(0, 1 << 16, (4, 8, 8), dtype=np.uint16)
    out = Buffer("out", np.zeros((32, count, 2), dtype=np.uint16), writable=True)
    given = Buffer("given", values)
    found = kit.run(body, out, given, parameters=("u64 out", "u64 given")).buffers["out"]
    tiles = values.swapaxes(1, 2) if transposed else values
    assert (found == fragments(tiles[:count])).all()


def test_rows_of_a_matrix_in_any_order_and_warps_apart(kit: Any) -> None:
    body = (
        TILE
        + kit.thread
        + FILL
        + """
        and.b32 %r22, %r0, 32; xor.b32 %r23, %r0, 7; and.b32 %r23, %r23, 31;
        add.s32 %r23, %r23, %r22; mad.lo.s32 %r23, %r23, 16, %r20; mov.u32 %r30, 0;
        setp.lt.s32 %p1, %r0, 32; @%p1 bra OVER;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r30}, [%r23];
    OVER:
        st.global.u32 [%rd1], %r30;
    """
    )
    values = np.random.default_rng(4).integers(0, 1 << 16, (8, 8, 8), dtype=np.uint16)
    given = Buffer("given", values)
    found = kit.words(body, 64, given, block=64, parameters=("u64 out", "u64 given"))
    halves = found.view(np.uint16).reshape(2, 32, 1, 2)
    assert (halves[0] == 0).all()
    assert (halves[1] == fragments([values[4, ::-1]])).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_into_shared_memory(kit: Any, transposed: bool) -> None:
    trans = ".trans" if transposed else ""
    body = (
        TILE
        + kit.thread
        + f"""
        mov.u32 %r20, tile; mad.lo.s32 %r21, %r0, 16, %r20; add.s32 %r10, %r0, 500;
        stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%r21], {{%r0, %r10}};
        bar.sync 0; mad.lo.s32 %r22, %r0, 8, %r20; ld.shared.v2.u32 {{%r5, %r6}}, [%r22];
        mul.wide.s32 %rd4, %r0, 8; add.s64 %rd4, %rd4, %rd0; st.global.v2.u32 [%rd4], {{%r5, %r6}};
    """
    )
    out = Buffer("out", np.zeros((2, 8, 8), dtype=np.uint16), writable=True)
    found = kit.run(body, out).buffers["out"]
    words = np.array([np.arange(32), np.arange(32) + 500], dtype=np.uint32)
    expected = words.view(np.uint16).reshape(2, 8, 8)
    assert (found == (expected.swapaxes(1, 2) if transposed else expected)).all()


def test_a_matrix_is_read_by_the_lanes_that_hold_it(kit: Any) -> None:
    """Lane 4 r + c touches words of row r, whoever names the row: that is what may race."""
    order = "setp.eq.s32 %p1, %r0, 6; @%p1 st.shared.u32 [tile+24], 1;"
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r30}, [%r21];"
    body = TILE + kit.thread + "mov.u32 %r20, tile; mad.lo.s32 %r21, %r0, 16, %r20;"
    assert kit.words(body + order + load + "st.global.u32 [%rd1], 1;", 32).all()
    fault = kit.fault(body + order.replace("%r0, 6", "%r0, 5") + load)
    assert fault.kind == "race"
    assert fault.lane == (0, 6)


def test_bounds_and_alignment_of_matrix_rows(kit: Any) -> None:
    body = TILE + kit.thread + "mov.u32 %r20, tile; mad.lo.s32 %r21, %r0, 16, %r20;"
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r30, %r31, %r32, %r33}, [%r21+{0}];"
    fault = kit.fault(body + load.replace("{0}", "544"))
    assert (fault.kind, fault.lane) == ("out of bounds", (0, 30))
    assert kit.fault(body + load.replace("{0}", "8")).kind == "misaligned"


WMMA = """
    mov.u32 %r20, tile; mov.u32 %r21, 24;
    wmma.load.{0}.sync.aligned.{1}.m16n16k16.shared.{2} {{3}}, [%r20+4], %r21;
"""


@pytest.mark.parametrize("layouts", [("row", "row"), ("col", "row"), ("row", "col")])
def test_wmma_multiplies_what_lies_in_memory(kit: Any, layouts: tuple[str, str]) -> None:
    """In any layout of the fragments: only the result counts."""
    names = [", ".join(f"%r{base + at}" for at in range(8)) for base in (10, 20)]
    floats = ", ".join(f"%f{at}" for at in range(8))
    body = (
        kit.thread
        + f"""
        ld.param.u64 %rd5, [given]; mov.u32 %r40, 24; mov.f32 %f0, 0f00000000;
        mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.f32 %f4, %f0; mov.f32 %f5, %f0;
        mov.f32 %f6, %f0; mov.f32 %f7, %f0;
        wmma.load.a.sync.aligned.{layouts[0]}.m16n16k16.global.f16 {{{names[0]}}}, [%rd5], %r40;
        wmma.load.b.sync.aligned.{layouts[1]}.m16n16k16.f16 {{{names[1]}}}, [%rd5+768], %r40;
        wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.m16n16k16.f32.f32
            {{{floats}}}, {{{names[0]}}}, {{{names[1]}}}, {{{floats}}};
        wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd0], {{{floats}}}, 20;
    """
    )
    values = np.random.default_rng(6).integers(-8, 9, (2, 16, 24)).astype(np.float16)
    out = Buffer("out", np.zeros((16, 20), dtype=np.float32), writable=True)
    given = Buffer("given", values)
    found = kit.run(body, out, given, parameters=("u64 out", "u64 given")).buffers["out"]
    a, b = (
        each[:, :16].T if layout == "col" else each[:, :16]
        for each, layout in zip(values.astype(np.float32), layouts, strict=True)
    )
    assert (found[:, :16] == a @ b).all()
    assert (found[:, 16:] == 0).all()


def test_wmma_through_shared_memory_is_judged_for_races(kit: Any) -> None:
    names = ", ".join(f"%r{10 + at}" for at in range(8))
    load = f"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {{{names}}}, [tile], 16;"
    body = TILE + kit.thread + "mov.u32 %r20, tile; mad.lo.s32 %r21, %r0, 4, %r20;"
    write = "st.shared.u32 [%r21], %r0;"
    assert kit.fault(body + write + load).kind == "race"
    assert kit.words(body + write + "bar.sync 0;" + load + "st.global.u32 [%rd1], 1;", 32).all()


def test_lanes_that_name_different_matrices(kit: Any) -> None:
    names = ", ".join(f"%r{10 + at}" for at in range(8))
    load = f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{names}}}, [%rd1], 16;"
    assert kit.fault(kit.thread + load).kind == "diverged"


@pytest.mark.parametrize(
    "text",
    [
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r3];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r3];",
        "wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {%r1}, [%r3], 32;",
        "bar.warp.arrive -1;",
    ],
)
def test_forms_that_are_not_known(kit: Any, text: str) -> None:
    with pytest.raises(UnsupportedError):
        kit.words(text, 32)
