"""Shared memory and what orders the threads that use it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.simt.contract import Buffer

ARRAY = ".shared .align 16 .b8 ours[1024];"
MINE = """
    mov.u32 %r20, ours; mad.lo.s32 %r21, %r0, 4, %r20;
    sub.s32 %r22, %r2, %r0; mad.lo.s32 %r22, %r22, 4, %r20; add.s32 %r22, %r22, -4;
"""
"""%r21 is the address of the thread's own word, %r22 that of its opposite in the block."""

WRITE = "st.shared.u32 [%r21], %r3;"
READ = "ld.shared.u32 %r5, [%r22]; st.global.u32 [%rd1], %r5;"


def kernel(kit: Any, *parts: str) -> str:
    return ARRAY + str(kit.thread) + MINE + "\n".join(parts)


@pytest.mark.parametrize(("grid", "block"), [(1, 32), (1, 256), (5, 64), (3, 40)])
def test_a_barrier_makes_writes_seen(kit: Any, grid: int, block: int) -> None:
    found = kit.words(kernel(kit, WRITE, "bar.sync 0;", READ), grid * block, grid=grid, block=block)
    expected = np.arange(grid * block).reshape(grid, block)[:, ::-1]
    assert (found.reshape(grid, block) == expected).all()


@pytest.mark.parametrize("block", [32, 64, 40])
@pytest.mark.parametrize("grid", [1, 3])
def test_a_lost_barrier_is_a_race(kit: Any, block: int, grid: int) -> None:
    fault = kit.fault(kernel(kit, WRITE, "\n", READ), grid=grid, block=block)
    assert fault.kind == "race"
    assert fault.instruction is not None
    assert fault.instruction.opcode == "ld"
    assert "ours" in str(fault)
    assert "PTX line" in str(fault)


def test_reading_before_another_writes_is_a_race(kit: Any) -> None:
    body = kernel(
        kit, WRITE, "bar.sync 0;", "ld.shared.u32 %r5, [%r22];", "st.shared.u32 [%r21], %r5;"
    )
    fault = kit.fault(body, block=64)
    assert fault.kind == "race"
    assert fault.instruction is not None
    assert fault.instruction.opcode == "st"
    assert "read in PTX line" in str(fault)


@pytest.mark.parametrize("block", [32, 64])
def test_a_reader_that_writes_while_others_may_still_read(kit: Any, block: int) -> None:
    write = f"setp.eq.s32 %p1, %r0, {block - 1}; @%p1 st.shared.u32 [ours], %r0;"
    read = "ld.shared.u32 %r5, [ours];"
    fault = kit.fault(kernel(kit, read, write), block=block)
    assert (fault.kind, fault.lane) == ("race", (0, block - 1))
    assert (kit.words(kernel(kit, read, "bar.sync 0;", write), 1, block=block) == -1).all()


def test_two_writers_of_different_values_are_a_race(kit: Any) -> None:
    fault = kit.fault(kernel(kit, "st.shared.u32 [ours], %r0;"))
    assert fault.kind == "race"
    body = kernel(kit, WRITE, "add.s32 %r3, %r3, 1;", "st.shared.u32 [%r22], %r3;")
    assert kit.fault(body, block=64).kind == "race"


def test_two_writers_of_one_value_are_none(kit: Any) -> None:
    body = kernel(
        kit,
        "st.shared.u32 [ours], 5; st.shared.u32 [ours], 5;",
        "bar.sync 0; ld.shared.u32 %r5, [ours]; st.global.u32 [%rd1], %r5;",
    )
    assert (kit.words(body, 64, block=64) == 5).all()


def test_the_value_counts_not_the_width(kit: Any) -> None:
    equal = "st.shared.u32 [ours+4], 0; st.shared.v2.u16 [ours+4], {%rs1, %rs1};"
    assert kit.fault(kernel(kit, "mov.u16 %rs1, 1;", equal), block=64).kind == "race"
    same = kernel(kit, "mov.u16 %rs1, 0;", equal, "st.global.u32 [%rd1], 1;")
    assert (kit.words(same, 64, block=64) == 1).all()


def test_neighbouring_bytes_are_no_race(kit: Any) -> None:
    body = kernel(
        kit,
        "add.s32 %r6, %r20, %r0; st.shared.u8 [%r6], %r0; ld.shared.u8 %r7, [%r6];",
        "st.global.u32 [%rd1], %r7;",
    )
    assert (kit.words(body, 64, block=64) == np.arange(64)).all()


def test_one_byte_of_a_vector_is_enough_for_a_race(kit: Any) -> None:
    body = kernel(
        kit,
        "mad.lo.s32 %r6, %r0, 16, %r20; st.shared.v4.u32 [%r6], {%r3, %r3, %r3, %r3};",
        "setp.eq.s32 %p1, %r0, 9; @%p1 ld.shared.u8 %r7, [ours+175];",
    )
    fault = kit.fault(body, block=64)
    assert (fault.kind, fault.lane) == ("race", (0, 9))
    assert "byte 175 of ours, which thread 10 wrote" in str(fault)


def test_a_thread_may_use_its_own_word(kit: Any) -> None:
    body = kernel(
        kit, WRITE, "ld.shared.u32 %r5, [%r21]; add.s32 %r5, %r5, 1;",
        "st.shared.u32 [%r21], %r5; ld.shared.u32 %r5, [%r21]; st.global.u32 [%rd1], %r5;",
    )  # fmt: skip
    assert (kit.words(body, 64, block=64) == np.arange(64) + 1).all()


def test_many_may_read(kit: Any) -> None:
    body = kernel(
        kit, WRITE, "bar.sync 0; ld.shared.u32 %r5, [ours+8];",
        "ld.shared.u32 %r6, [%r22]; add.s32 %r5, %r5, %r6; st.global.u32 [%rd1], %r5;",
    )  # fmt: skip
    assert (kit.words(body, 64, block=64) == np.arange(64)[::-1] + 2).all()


SWAP = "mov.b32 %r6, 0x1f; xor.b32 %r7, %r0, %r6; mad.lo.s32 %r7, %r7, 4, %r20;"
"""%r7 is the address of the word of the opposite lane in the warp."""
READ_SWAP = "ld.shared.u32 %r5, [%r7]; st.global.u32 [%rd1], %r5;"


def test_lanes_of_a_warp_are_ordered_by_its_barrier(kit: Any) -> None:
    body = kernel(kit, SWAP, WRITE, "bar.warp.sync -1;", READ_SWAP)
    found = kit.words(body, 64, block=64)
    assert (found == (np.arange(64) ^ 31)).all()
    again = kernel(kit, SWAP, *((WRITE, "bar.warp.sync -1;", READ_SWAP, "bar.warp.sync -1;") * 3))
    assert (kit.words(again, 64, block=64) == found).all()


TOGETHER = [
    "shfl.sync.idx.b32 %r8, %r0, 0, 31, -1;",
    "vote.sync.any.pred %p1, %p1, -1;",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [ours+512];",
]


@pytest.mark.parametrize("between", TOGETHER)
def test_what_lanes_do_together_orders_them(kit: Any, between: str) -> None:
    body = kernel(kit, "setp.eq.s32 %p1, %r0, 0;", SWAP, WRITE, between, READ_SWAP)
    assert (kit.words(body, 64, block=64) == (np.arange(64) ^ 31)).all()
    other = kernel(kit, "setp.eq.s32 %p1, %r0, 0;", WRITE, between, READ)
    assert kit.fault(other, block=64).kind == "race"


@pytest.mark.parametrize("between", ["", "membar.cta;", "activemask.b32 %r8;"])
def test_nothing_else_orders_lanes_of_a_warp(kit: Any, between: str) -> None:
    assert kit.fault(kernel(kit, SWAP, WRITE, between, READ_SWAP)).kind == "race"
    swap = "st.shared.u32 [%r7], %r5;"
    assert kit.fault(kernel(kit, SWAP, "ld.shared.u32 %r5, [%r21];", between, swap)).kind == "race"


def test_writes_of_a_warp_are_in_the_order_of_the_program(kit: Any) -> None:
    body = kernel(kit, SWAP, WRITE, "add.s32 %r5, %r0, 100; st.shared.u32 [%r7], %r5;",
                  "bar.warp.sync -1; ld.shared.u32 %r5, [%r21];",
                  "st.global.u32 [%rd1], %r5;")  # fmt: skip
    assert (kit.words(body, 32) == (np.arange(32) ^ 31) + 100).all()


def test_the_barrier_of_a_warp_orders_no_other_warp(kit: Any) -> None:
    assert kit.fault(kernel(kit, WRITE, "bar.warp.sync -1;", READ), block=64).kind == "race"


def test_the_second_of_two_warp_barriers_is_needed(kit: Any) -> None:
    body = kernel(kit, SWAP, WRITE, "bar.warp.sync -1;", READ_SWAP, "add.s32 %r3, %r3, 9;", WRITE)
    fault = kit.fault(body)
    assert fault.kind == "race"
    assert fault.instruction is not None
    assert fault.instruction.opcode == "st"


def test_a_barrier_of_half_a_warp_orders_that_half(kit: Any) -> None:
    near = "xor.b32 %r7, %r0, 15; mad.lo.s32 %r7, %r7, 4, %r20;"
    mask = "setp.lt.s32 %p1, %r0, 16; selp.b32 %r8, 0xFFFF, 0xFFFF0000, %p1;"
    body = kernel(kit, near, mask, WRITE, "bar.warp.sync %r8;", READ_SWAP)
    assert (kit.words(body, 32) == (np.arange(32) ^ 15)).all()


def test_a_barrier_in_only_some_blocks(kit: Any) -> None:
    """One block goes twice through the loop, the other once; each is judged by its own barriers."""
    loop = """
        mov.u32 %r9, 0;
    AGAIN:
        st.shared.u32 [%r21], %r3; bar.sync 0; ld.shared.u32 %r5, [%r22]; {0}
        add.s32 %r9, %r9, 1; setp.le.s32 %p1, %r9, %r1; @%p1 bra AGAIN;
        st.global.u32 [%rd1], %r5;
    """
    right = kernel(kit, loop.replace("{0}", "bar.sync 0;"))
    found = kit.words(right, 128, grid=2, block=64)
    assert (found.reshape(2, 64) == np.arange(128).reshape(2, 64)[:, ::-1]).all()
    fault = kit.fault(kernel(kit, loop.replace("{0}", "")), grid=2, block=64)
    assert fault.kind == "race"
    assert fault.lane is not None
    assert fault.lane[0] == 1


def test_a_race_after_blocks_have_parted(kit: Any) -> None:
    body = kernel(
        kit,
        "setp.eq.s32 %p1, %r1, 0; @%p1 bra OVER; bar.sync 0; bar.sync 0; OVER:",
        WRITE, "setp.eq.s32 %p1, %r1, 1; @%p1 bra NONE; bar.sync 0; NONE:", READ,
    )  # fmt: skip
    fault = kit.fault(body, grid=2, block=64)
    assert fault.kind == "race"
    assert fault.lane is not None
    assert fault.lane[0] == 1


def test_atomics_are_ordered_among_themselves_only(kit: Any) -> None:
    start = "setp.eq.s32 %p1, %r0, 0; @%p1 st.shared.u32 [ours], 0; bar.sync 0;"
    count = "atom.shared.add.u32 %r5, [ours], 1;"
    after = "ld.shared.u32 %r6, [ours]; st.global.u32 [%rd1], %r6;"
    assert (kit.words(kernel(kit, start, count, "bar.sync 0;", after), 64, block=64) == 64).all()
    assert kit.fault(kernel(kit, start, count, after), block=64).kind == "race"
    assert kit.fault(kernel(kit, start.replace("bar.sync 0;", ""), count), block=64).kind == "race"
    plain = "@%p1 st.shared.u32 [ours], 3;"
    assert kit.fault(kernel(kit, start, count, plain), block=64).kind == "race"


def test_undefined_shared_memory_is_no_small_number(kit: Any) -> None:
    found = kit.words(kernel(kit, "ld.shared.u32 %r5, [%r22]; st.global.u32 [%rd1], %r5;"), 32)
    assert (found.view(np.uint32) == 0xFFF5FFF5).all()


def test_every_block_begins_undefined(kit: Any) -> None:
    body = kernel(kit, "ld.shared.u32 %r5, [%r21]; st.global.u32 [%rd1], %r5;", WRITE)
    found = kit.words(body, 256 * 100, grid=100, block=256)
    assert (found.view(np.uint32) == 0xFFF5FFF5).all()


@pytest.mark.parametrize(
    ("access", "message"),
    [
        ("ld.shared.u32 %r5, [ours+1024];", "4 bytes beyond the end of ours"),
        ("ld.shared.u8 %r5, [%r20+-1];", "1 bytes before ours"),
        ("st.shared.v2.u32 [ours+1020], {%r5, %r5};", "4 bytes beyond the end of ours"),
        ("ld.shared.u32 %r5, [more+32];", "beyond the end of dynamic shared memory"),
    ],
)
def test_bounds_of_shared_memory(kit: Any, access: str, message: str) -> None:
    more = ".extern .shared .align 16 .b8 more[];"
    fault = kit.fault(kernel(kit, access), before=more, shared=32)
    assert fault.kind == "out of bounds"
    assert message in str(fault)


def test_addresses_of_32_bits_wrap(kit: Any) -> None:
    body = kernel(
        kit, ".shared .align 4 .b8 after[4]; st.shared.u32 [after], 0;",
        WRITE, "bar.sync 0; sub.s32 %r6, %r22, 0x40000000;",
        "ld.shared.u32 %r5, [%r6+0x40000000]; st.global.u32 [%rd1], %r5;",
    )  # fmt: skip
    assert (kit.words(body, 64, block=64) == np.arange(64)[::-1]).all()


def test_dynamic_shared_memory_has_many_names(kit: Any) -> None:
    before = ".extern .shared .align 16 .b8 one[];\n.extern .shared .align 16 .b8 other[];"
    body = (
        kit.thread
        + """
        mov.u32 %r20, one; mad.lo.s32 %r21, %r0, 4, %r20; st.shared.u32 [%r21], %r0;
        bar.sync 0; mov.u32 %r22, other; xor.b32 %r5, %r0, 1; mad.lo.s32 %r22, %r5, 4, %r22;
        ld.shared.u32 %r6, [%r22]; mov.u32 %r7, %dynamic_smem_size; add.s32 %r6, %r6, %r7;
        st.global.u32 [%rd1], %r6;
    """
    )
    found = kit.words(body, 32, before=before, shared=128)
    assert (found == (np.arange(32) ^ 1) + 128).all()


def test_generic_addresses_of_shared_memory(kit: Any) -> None:
    generic = "cvt.u64.u32 %rd5, %r22; cvta.shared.u64 %rd5, %rd5; ld.u32 %r5, [%rd5];"
    read = "st.global.u32 [%rd1], %r5;"
    body = kernel(kit, WRITE, "bar.sync 0;", generic, read)
    found = kit.words(body, 128, grid=2, block=64)
    assert (found.reshape(2, 64) == np.arange(128).reshape(2, 64)[:, ::-1]).all()
    assert kit.fault(kernel(kit, WRITE, generic, read), block=64).kind == "race"


HALF = "setp.lt.s32 %p1, %r0, 32; @%p1 bra OVER;"


def test_threads_that_have_exited_are_not_waited_for(kit: Any) -> None:
    body = kernel(kit, WRITE, "setp.ge.s32 %p1, %r0, 40; @%p1 exit;", "bar.sync 0;",
                  "ld.shared.u32 %r5, [ours+4]; st.global.u32 [%rd1], %r5;")  # fmt: skip
    assert kit.words(body, 96, block=96).tolist() == [1] * 40 + [-1] * 56


def test_a_thread_that_exits_lets_waiting_ones_go(kit: Any) -> None:
    body = kernel(
        kit, WRITE, HALF, "mov.u32 %r9, 0; LOOP: add.s32 %r9, %r9, 1;",
        "setp.lt.s32 %p2, %r9, 50; @%p2 bra LOOP; ret;", "OVER: bar.sync 0;", READ,
    )  # fmt: skip
    found = kit.words(body, 64, block=64)
    assert found.tolist() == list(range(63, 31, -1)) + [-1] * 32
    first = kernel(
        kit, WRITE, "setp.ge.s32 %p1, %r0, 32; @%p1 bra LATE; bar.sync 0;", READ, "ret;",
        "LATE: mov.u32 %r9, 0; LOOP: add.s32 %r9, %r9, 1;",
        "setp.lt.s32 %p2, %r9, 50; @%p2 bra LOOP;",
    )  # fmt: skip
    assert (kit.words(first, 64, block=64) == found).all()


def test_barriers_in_different_places_are_one(kit: Any) -> None:
    body = kernel(kit, WRITE, HALF, "bar.sync 0; bra DONE; OVER: bar.sync 0; DONE:", READ)
    assert (kit.words(body, 64, block=64) == np.arange(64)[::-1]).all()


def test_different_barrier_instructions_inside_a_warp(kit: Any) -> None:
    body = kernel(
        kit, "setp.lt.s32 %p1, %r0, 7; @%p1 bra OVER; bar.sync 0; bra DONE; OVER: bar.sync 0; DONE:"
    )
    assert kit.fault(body).kind == "diverged"


def test_a_barrier_that_some_never_reach(kit: Any) -> None:
    body = kernel(kit, HALF, "bar.sync 1; ret; OVER: bar.sync 2;")
    fault = kit.fault(body, block=64)
    assert fault.kind == "deadlock"
    assert "32 threads of a block wait at a barrier for 64" in str(fault)
    assert fault.instruction is not None
    assert fault.instruction.opcode == "bar"


def test_barriers_with_a_count(kit: Any) -> None:
    body = kernel(
        kit, "add.s32 %r3, %r3, 1;", HALF,
        "bar.sync 3, 64; ld.shared.u32 %r5, [%r22]; st.global.u32 [%rd1], %r5; ret;",
        "OVER:", WRITE, "bar.arrive 3, 64; st.global.u32 [%rd1], 0;",
    )  # fmt: skip
    found = kit.words(body, 64, block=64)
    assert found.tolist() == [0] * 32 + list(range(32, 0, -1))


def test_a_counted_barrier_is_used_again(kit: Any) -> None:
    give = "st.shared.u32 [%r21], {0}; bar.arrive 3, 64; bar.sync 4, 64;"
    take = "bar.sync 3, 64; ld.shared.u32 %r{0}, [%r22]; bar.arrive 4, 64;"
    body = kernel(
        kit, HALF, *(take.replace("{0}", each) for each in ("5", "6")),
        "mad.lo.s32 %r5, %r6, 100, %r5; st.global.u32 [%rd1], %r5; ret;", "OVER:",
        *(give.replace("{0}", each) for each in ("%r0", "%r2")), "st.global.u32 [%rd1], 0;",
    )  # fmt: skip
    found = kit.words(body, 64, block=64)
    assert found.tolist() == [0] * 32 + [6400 + at for at in range(31, -1, -1)]


def test_a_counted_barrier_among_some_warps(kit: Any) -> None:
    body = kernel(
        kit, HALF, "st.global.u32 [%rd1], 8; ret; OVER:", WRITE,
        "bar.sync 1, 32; xor.b32 %r7, %r0, 31; mad.lo.s32 %r7, %r7, 4, %r20;", READ_SWAP,
    )  # fmt: skip
    assert kit.words(body, 64, block=64).tolist() == list(range(31, -1, -1)) + [8] * 32


def test_arriving_where_nobody_waits_holds_nobody_up(kit: Any) -> None:
    body = kernel(kit, "bar.arrive 3, 64; st.global.u32 [%rd1], 4;")
    assert (kit.words(body, 32) == 4).all()


def test_a_counted_barrier_for_more_than_come(kit: Any) -> None:
    assert kit.fault(kernel(kit, "bar.sync 1, 64;"), block=32).kind == "deadlock"
    both = kernel(kit, HALF, "bar.sync 1, 64; ret; OVER: bar.sync 1, 96;")
    assert kit.fault(both, block=64).kind == "deadlock"


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("bar.red.popc.u32 %r5, 0, %p1;", [10, 10]),
        ("bar.red.popc.u32 %r5, 0, !%p1;", [54, 54]),
        ("bar.red.and.pred %p2, 0, %p1; selp.b32 %r5, 1, 0, %p2;", [0, 0]),
        ("bar.red.or.pred %p2, 0, %p1; selp.b32 %r5, 1, 0, %p2;", [1, 1]),
        (
            "setp.lt.s32 %p1, %r0, 70; bar.red.and.pred %p2, 0, %p1; selp.b32 %r5, 1, 0, %p2;",
            [1, 1],
        ),
        ("barrier.cta.red.popc.aligned.u32 %r5, 0, %p1;", [10, 10]),
    ],
)
def test_barriers_that_reduce(kit: Any, reduce: str, expected: list[int]) -> None:
    body = kernel(kit, "setp.lt.s32 %p1, %r0, 10;", reduce, "st.global.u32 [%rd1], %r5;")
    found = kit.words(body, 128, grid=2, block=64).reshape(2, 64)
    assert (found == np.array(expected)[:, None]).all()


def test_a_barrier_that_reduces_when_warps_come_one_by_one(kit: Any) -> None:
    slow = "mov.u32 %r9, 0; LOOP: add.s32 %r9, %r9, 1; setp.lt.s32 %p2, %r9, %r0; @%p2 bra LOOP;"
    body = kernel(kit, "setp.lt.s32 %p3, %r0, 10;", HALF, slow, "OVER:",
                  "bar.red.popc.u32 %r5, 0, %p3; st.global.u32 [%rd1], %r5;")  # fmt: skip
    assert (kit.words(body, 64, block=64) == 10).all()


@pytest.mark.parametrize(
    "text",
    [
        "bar.sync %r1;",
        "bar.sync 1, 33;",
        "bar.red.xor.pred %p1, 0, %p2;",
        "barrier.cluster.arrive;",
    ],
)
def test_barriers_that_are_not_known(kit: Any, text: str) -> None:
    with pytest.raises(UnsupportedError):
        kit.words(kernel(kit, text), 32)


def test_a_long_stretch_without_a_barrier_is_judged_all_the_same(
    kit: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("sparkbuild.qualify.simt.races._MOST_BYTES", 5000)
    loop = """
        mov.u32 %r9, 0;
    AGAIN:
        ld.shared.u32 %r5, [%r21]; add.s32 %r9, %r9, 1; setp.lt.s32 %p1, %r9, 40; @%p1 bra AGAIN;
    """
    assert kit.words(kernel(kit, loop, "st.global.u32 [%rd1], 1;"), 64, block=64).all()
    fault = kit.fault(kernel(kit, loop, "st.shared.u32 [%r22], %r3;"), block=64)
    assert fault.kind == "race"
    assert kit.fault(kernel(kit, "st.shared.u32 [%r22], %r3;", loop), block=64).kind == "race"


def test_warps_that_met_apart_before_other_blocks_begin(kit: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sparkbuild.qualify.simt.launch.LANES", 128)
    body = kernel(
        kit, SWAP, WRITE, "setp.lt.s32 %p1, %r0, 32; @%p1 bra OVER; bar.warp.sync -1; OVER:",
        "bar.warp.sync -1;", READ_SWAP,
    )  # fmt: skip
    expected = (np.arange(320).reshape(5, 2, 32)[..., ::-1]).reshape(-1)
    assert (kit.words(body, 320, block=64, grid=5) == expected).all()


def test_where_a_race_is_told_with_its_source(kit: Any) -> None:
    out = Buffer("out", np.zeros(64, dtype=np.int32), writable=True)
    body = kernel(kit, "\n.loc 1 12 0\n", WRITE, "\n.loc 1 34 0\n", READ)
    before = '.file 1 "a.cu"\n'
    fault = kit.fault(body, out, block=64, before=before)
    assert fault.location is not None
    assert (fault.location.file, fault.location.line) == ("a.cu", 34)
    assert "(a.cu:12)" in str(fault)
