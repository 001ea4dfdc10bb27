"""Threads, branches, loops, guards, calls: what runs, and for which lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.qualify.simt.contract import Buffer, Launch
from sparkbuild.qualify.simt.launch import execute
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.special import Shape

INPUT = ("u64 out", "u64 given")
LOADED = """
    ld.param.u64 %rd2, [given];
    mul.wide.s32 %rd3, %r3, 4;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.u32 %r10, [%rd2];
"""


def given_words(values: Any) -> Buffer:
    return Buffer("given", np.asarray(values, dtype=np.int32))


@pytest.mark.parametrize(("grid", "block"), [(1, 1), (1, 32), (3, 40), (2, 1024), (70, 256)])
def test_every_thread_runs_once(kit: Any, grid: int, block: int) -> None:
    body = kit.thread + "mad.lo.s32 %r4, %r3, 3, 1; st.global.u32 [%rd1], %r4;"
    count = grid * block
    found = kit.words(body, count + 7, grid=grid, block=block)
    assert (found[:count] == np.arange(count) * 3 + 1).all()
    assert (found[count:] == -1).all()


def test_three_dimensions_have_cuda_order(kit: Any) -> None:
    body = """
        mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z;
        mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y; mov.u32 %r5, %ntid.z;
        mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z;
        mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y;
        mad.lo.s32 %r11, %r2, %r4, %r1; mad.lo.s32 %r11, %r11, %r3, %r0;
        mad.lo.s32 %r12, %r8, %r10, %r7; mad.lo.s32 %r12, %r12, %r9, %r6;
        mul.lo.s32 %r13, %r3, %r4; mul.lo.s32 %r13, %r13, %r5;
        mad.lo.s32 %r14, %r12, %r13, %r11;
        mul.lo.s32 %r15, %r2, 100; mad.lo.s32 %r15, %r1, 10, %r15; add.s32 %r15, %r15, %r0;
        mul.lo.s32 %r16, %r8, 100; mad.lo.s32 %r16, %r7, 10, %r16; add.s32 %r16, %r16, %r6;
        mad.lo.s32 %r15, %r16, 1000, %r15;
        ld.param.u64 %rd0, [out]; mul.wide.s32 %rd1, %r14, 4; add.s64 %rd0, %rd0, %rd1;
        st.global.u32 [%rd0], %r15;
    """
    found = kit.words(body, 5 * 3 * 2 * 4 * 3 * 2, grid=(4, 3, 2), block=(5, 3, 2))
    z, y, x, tz, ty, tx = np.indices((2, 3, 4, 2, 3, 5))
    expected = (z * 100 + y * 10 + x) * 1000 + tz * 100 + ty * 10 + tx
    assert (found == expected.reshape(-1)).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("%laneid", lambda t: t % 32),
        ("%warpid", lambda t: t // 32),
        ("%lanemask_eq", lambda t: 1 << (t % 32)),
        ("%lanemask_lt", lambda t: (1 << (t % 32)) - 1),
        ("%lanemask_le", lambda t: (2 << (t % 32)) - 1),
        ("%lanemask_gt", lambda t: 0xFFFFFFFF ^ ((2 << (t % 32)) - 1)),
        ("%lanemask_ge", lambda t: 0xFFFFFFFF ^ ((1 << (t % 32)) - 1)),
        ("%nwarpid", lambda t: t * 0 + 3),
        ("%cluster_nctarank", lambda t: t * 0 + 1),
    ],
)
def test_registers_of_the_machine(kit: Any, name: str, expected: Any) -> None:
    found = kit.words(kit.thread + f"mov.u32 %r4, {name}; st.global.u32 [%rd1], %r4;", 96, block=96)
    assert (found.view(np.uint32) == expected(np.arange(96, dtype=np.int64))).all()


def test_a_clock_is_not_made_up(kit: Any) -> None:
    with pytest.raises(UnsupportedError, match="clock"):
        kit.words("mov.u32 %r0, %clock;", 1)


def test_both_sides_of_a_branch_and_what_follows(kit: Any) -> None:
    body = (
        kit.thread
        + """
        and.b32 %r4, %r0, 1; setp.eq.s32 %p1, %r4, 0; mov.u32 %r5, 7;
        @%p1 bra EVEN;
        add.s32 %r5, %r5, 100; bra.uni DONE;
    EVEN:
        add.s32 %r5, %r5, 200;
    DONE:
        add.s32 %r5, %r5, %r0; st.global.u32 [%rd1], %r5;
    """
    )
    thread = np.arange(64)
    found = kit.words(body, 64, block=64)
    assert (found == np.where(thread % 2, 107, 207) + thread).all()


def test_nested_branches(kit: Any) -> None:
    body = (
        kit.thread
        + LOADED
        + """
        mov.u32 %r5, 0;
        setp.lt.s32 %p1, %r10, 0; @%p1 bra OUTER;
        and.b32 %r4, %r10, 1; setp.ne.s32 %p2, %r4, 0; @%p2 bra ODD;
        and.b32 %r4, %r10, 2; setp.ne.s32 %p3, %r4, 0; @!%p3 bra INNER;
        add.s32 %r5, %r5, 1;
    INNER:
        add.s32 %r5, %r5, 10;
    ODD:
        add.s32 %r5, %r5, 100;
    OUTER:
        add.s32 %r5, %r5, 1000; st.global.u32 [%rd1], %r5;
    """
    )
    values = np.random.default_rng(3).integers(-8, 8, 256)
    found = kit.words(body, 256, given_words(values), grid=2, block=128, parameters=INPUT)
    even = np.where(values & 2, 11, 10)
    inside = 100 + np.where(values % 2, 0, even)
    assert (found == 1000 + np.where(values < 0, 0, inside)).all()


COLLATZ = """
    mov.u32 %r5, 0;
LOOP:
    setp.le.s32 %p1, %r10, 1; @%p1 bra DONE;
    and.b32 %r6, %r10, 1; setp.eq.s32 %p2, %r6, 0; @%p2 bra HALF;
    mad.lo.s32 %r10, %r10, 3, 1; bra NEXT;
HALF:
    shr.u32 %r10, %r10, 1;
NEXT:
    add.s32 %r5, %r5, 1; bra LOOP;
DONE:
    st.global.u32 [%rd1], %r5;
"""


def collatz(value: int) -> int:
    steps = 0
    while value > 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    return steps


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=96))
def test_loops_with_trips_of_their_own(kit: Any, values: list[int]) -> None:
    found = kit.words(
        kit.thread + LOADED + COLLATZ,
        len(values),
        given_words(values),
        block=len(values),
        parameters=INPUT,
    )
    assert found.tolist() == [collatz(value) for value in values]


def test_blocks_with_trips_of_their_own(kit: Any) -> None:
    values = np.random.default_rng(5).integers(1, 5000, 300)
    found = kit.words(
        kit.thread + LOADED + COLLATZ, 300, given_words(values), grid=75, block=4, parameters=INPUT
    )
    assert found.tolist() == [collatz(int(value)) for value in values]


def test_guards_keep_the_registers_of_others(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.lt.s32 %p1, %r0, 5; mov.u32 %r4, 50;
        @%p1 add.s32 %r4, %r0, 1;
        @!%p1 st.global.u32 [%rd1], %r4;
        @%p1 st.global.u32 [%rd1], 9;
    """
    )
    assert kit.words(body, 32).tolist() == [9] * 5 + [50] * 27


def test_a_guard_that_is_the_same_for_all(kit: Any) -> None:
    body = (
        kit.thread
        + """
        mov.u32 %r5, 3; setp.eq.s32 %p1, %r5, 3; mov.u32 %r4, 1;
        @%p1 mov.u32 %r4, 2;
        @!%p1 mov.u32 %r4, 4;
        st.global.u32 [%rd1], %r4;
    """
    )
    assert (kit.words(body, 32) == 2).all()


@pytest.mark.parametrize(("guard", "expected"), [("%p1", 2), ("!%p1", 1), ("%p2", 1), ("!%p2", 2)])
def test_a_branch_that_is_the_same_for_all(kit: Any, guard: str, expected: int) -> None:
    body = (
        kit.thread
        + f"""
        mov.u32 %r5, 3; setp.eq.s32 %p1, %r5, 3; setp.eq.s32 %p2, %r5, 4; mov.u32 %r4, 2;
        @{guard} bra OVER;
        mov.u32 %r4, 1;
    OVER:
        st.global.u32 [%rd1], %r4;
    """
    )
    assert (kit.words(body, 32) == expected).all()


def test_a_guard_inside_of_a_branch(kit: Any) -> None:
    """The predicate is true of lanes as well that are elsewhere."""
    body = (
        kit.thread
        + """
        mov.u32 %r4, 50; setp.lt.s32 %p1, %r0, 20; setp.lt.s32 %p2, %r0, 10; @%p2 bra OVER;
        @%p1 add.s32 %r4, %r4, 1; @%p1 st.global.u32 [%rd1], 7; bra.uni DONE;
    OVER:
        add.s32 %r4, %r4, 2;
    DONE:
        @!%p1 st.global.u32 [%rd1], %r4; @%p2 st.global.u32 [%rd1], %r4;
    """
    )
    assert kit.words(body, 32).tolist() == [52] * 10 + [7] * 10 + [50] * 12


def test_the_last_lane_wins_where_all_write_to_one_place(kit: Any) -> None:
    found = kit.words(kit.thread + "st.global.u32 [%rd0], %r0;", 2)
    assert found.tolist() == [31, -1]
    body = kit.thread + "st.global.v2.u32 [%rd0], {%r0, %r3};"
    assert kit.words(body, 2, grid=2).tolist() == [31, 63]


def test_a_guarded_load_leaves_bad_addresses_of_others_alone(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.lt.s32 %p1, %r0, 3; mov.u32 %r4, 8; selp.b64 %rd5, %rd0, 0, %p1;
        @%p1 ld.global.u32 %r4, [%rd5];
        st.global.u32 [%rd1], %r4;
    """
    )
    assert kit.words(body, 32).tolist() == [-1] * 3 + [8] * 29


def test_lanes_exit_early(kit: Any) -> None:
    body = (
        kit.thread
        + """
        setp.ge.s32 %p1, %r0, 37; @%p1 exit;
        setp.lt.s32 %p2, %r0, 3; @%p2 ret;
        st.global.u32 [%rd1], %r0;
    """
    )
    found = kit.words(body, 64, block=64)
    assert found.tolist() == [-1] * 3 + list(range(3, 37)) + [-1] * 27


def test_a_branch_table(kit: Any) -> None:
    body = (
        kit.thread
        + """
        and.b32 %r4, %r0, 3; mov.u32 %r5, 0;
    TABLE: .branchtargets A, B, C, A;
        brx.idx %r4, TABLE;
    A:  add.s32 %r5, %r5, 1;
    B:  add.s32 %r5, %r5, 10;
    C:  add.s32 %r5, %r5, 100;
        st.global.u32 [%rd1], %r5;
    """
    )
    assert kit.words(body, 32)[:4].tolist() == [111, 110, 100, 111]


def test_an_index_beyond_a_branch_table(kit: Any) -> None:
    body = kit.thread + "TABLE: .branchtargets A; brx.idx %r0, TABLE;\nA: st.global.u32 [%rd1], 1;"
    fault = kit.fault(body)
    assert fault.kind == "trap"
    assert fault.lane == (0, 1)


FUNCTIONS = """
.func (.param .b32 result) twice_or_less(.param .b32 value)
{
    .reg .pred %p<2>; .reg .b32 %r<4>;
    ld.param.u32 %r1, [value];
    setp.gt.s32 %p1, %r1, 9; @%p1 bra BIG;
    add.s32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret;
BIG:
    sub.s32 %r2, %r1, 1; st.param.b32 [result], %r2;
    ret;
}
.func (.param .b32 result) four_times(.param .b32 value)
{
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [value];
    { .param .b32 a; st.param.b32 [a], %r1; .param .b32 b;
      call.uni (b), twice_or_less, (a); ld.param.b32 %r2, [b]; }
    { .param .b32 a; st.param.b32 [a], %r2; .param .b32 b;
      call.uni (b), twice_or_less, (a); ld.param.b32 %r2, [b]; }
    st.param.b32 [result], %r2;
    ret;
}
"""
CALL = """
    { .param .b32 given; st.param.b32 [given], %r0; .param .b32 back;
      call.uni (back), four_times, (given); ld.param.b32 %r4, [back]; }
"""


def less(value: int) -> int:
    return value - 1 if value > 9 else 2 * value


def test_functions_that_call_functions(kit: Any) -> None:
    body = kit.thread + CALL + "st.global.u32 [%rd1], %r4;"
    found = kit.words(body, 32, before=FUNCTIONS)
    assert found.tolist() == [less(less(thread)) for thread in range(32)]


def test_a_call_that_some_lanes_make(kit: Any) -> None:
    body = (
        kit.thread
        + "mov.u32 %r4, 77; setp.lt.s32 %p1, %r0, 20; @!%p1 bra OVER;"
        + CALL
        + "OVER: st.global.u32 [%rd1], %r4;"
    )
    found = kit.words(body, 32, before=FUNCTIONS)
    assert found.tolist() == [less(less(thread)) for thread in range(20)] + [77] * 12


def test_a_guarded_call(kit: Any) -> None:
    body = (
        kit.thread
        + "mov.u32 %r4, 77; setp.lt.s32 %p1, %r0, 4;"
        + CALL.replace("call.uni", "@%p1 call").replace("ld.param.b32 %r4", "@%p1 ld.param.b32 %r4")
    )
    found = kit.words(body + "st.global.u32 [%rd1], %r4;", 32, before=FUNCTIONS)
    assert found.tolist() == [0, 4, 8, 12] + [77] * 28


def test_a_function_that_hands_its_parameter_on(kit: Any) -> None:
    on = (
        FUNCTIONS
        + """
    .func (.param .b32 result) on(.param .b32 value)
    { call.uni (result), twice_or_less, (value); ret; }
    """
    )
    body = kit.thread + CALL.replace("four_times", "on") + "st.global.u32 [%rd1], %r4;"
    assert kit.words(body, 32, before=on).tolist() == [less(thread) for thread in range(32)]


def test_recursion_is_unsupported(kit: Any) -> None:
    loop = """
    .func again() { call.uni again; ret; }
    """
    with pytest.raises(UnsupportedError, match="recursion in again"):
        kit.words("call.uni again;", 1, before=loop)


def test_a_missing_function_is_unsupported(kit: Any) -> None:
    with pytest.raises(UnsupportedError, match="elsewhere"):
        kit.words("call.uni elsewhere;", 1)


def test_assertions_trap_and_printing_is_silent(kit: Any) -> None:
    before = """
    .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
    .extern .func __assertfail (.param .b64 a);
    """
    prints = """
    { .param .b64 a; st.param.b64 [a], 0; .param .b64 b; st.param.b64 [b], 0; .param .b32 r;
      call.uni (r), vprintf, (a, b); ld.param.b32 %r20, [r]; }
    """
    fails = "{ .param .b64 a; st.param.b64 [a], 0; call.uni __assertfail, (a); }"
    stored = kit.thread + prints + "st.global.u32 [%rd1], 4;"
    assert (kit.words(stored, 32, before=before) == 4).all()
    fault = kit.fault(
        kit.thread + f"setp.lt.s32 %p1, %r0, 8; @%p1 bra OVER; {fails} OVER:", before=before
    )
    assert fault.kind == "trap"
    assert fault.lane == (0, 8)


def test_trap_tells_thread_and_line(kit: Any) -> None:
    fault = kit.fault(kit.thread + "setp.eq.s32 %p1, %r3, 70;\n@%p1 trap;", grid=3)
    assert fault.kind == "trap"
    assert fault.lane == (2, 6)
    assert fault.instruction is not None
    assert fault.instruction.opcode == "trap"


def test_an_endless_loop_ends(kit: Any) -> None:
    fault = kit.fault("LOOP: add.s32 %r0, %r0, 1; bra LOOP;", limit=5000)
    assert fault.kind == "endless"
    assert fault.instruction is not None


def test_one_thread_waits_for_another_through_memory(kit: Any) -> None:
    """The lane that waits stands before the one that it waits for: that one must get its turn."""
    body = (
        kit.thread
        + """
        setp.ne.s32 %p1, %r3, 0; @%p1 bra GIVE;
    WAIT:
        ld.acquire.gpu.u32 %r4, [%rd0+4]; setp.ne.s32 %p2, %r4, 5; @%p2 bra WAIT;
        st.global.u32 [%rd0], 6; ret;
    GIVE:
        setp.ne.s32 %p1, %r3, 1; @%p1 ret;
        st.release.gpu.global.u32 [%rd0+4], 5;
    """
    )
    assert kit.words(body, 2).tolist() == [6, 5]


def test_unknown_instructions_are_named(kit: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"tcgen05\.alloc") as caught:
        kit.words("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%rd1], %r1;", 1)
    assert caught.value.instruction is not None


def test_what_is_not_reached_need_not_be_known(kit: Any) -> None:
    body = kit.thread + "bra OVER; tcgen05.fence; OVER: st.global.u32 [%rd1], 1;"
    assert (kit.words(body, 32) == 1).all()


def test_undefined_registers_are_no_small_number(kit: Any) -> None:
    found = kit.words(kit.thread + "st.global.u32 [%rd1], %r40;", 32)
    assert np.isnan(found.view(np.float32)).all()


def test_coverage_tells_what_ran(kit: Any) -> None:
    body = """
        mov.u32 %r0, %tid.x; setp.gt.s32 %p1, %r0, 99;
        @%p1 mov.u32 %r1, 1;
        @%p1 bra NEVER;
        mov.u32 %r1, 2; ret;
    NEVER:
        mov.u32 %r1, 3;
    """
    out = Buffer("out", np.zeros(1, dtype=np.int32), writable=True)
    result = kit.run(body, out)
    assert result.executed == {0, 1, 3, 4, 5}
    assert result.steps == 6
    assert result.lane_steps == 6 * 32


def test_a_body_may_end_without_a_return(kit: Any) -> None:
    text = ".version 9.0\n.target sm_121a\n.entry k() { .reg .b32 %r<2>; mov.u32 %r1, 0; }"
    result = execute(read_module(text), Launch("k", (1, 1, 1), (32, 1, 1), ()))
    assert result.executed == {0}


def test_blocks_with_much_memory_of_their_own_run_in_turn(kit: Any, monkeypatch: Any) -> None:
    body = (
        ".local .align 4 .b8 depot[4096];"
        + kit.thread
        + """
        st.local.u32 [depot+4092], %r3; ld.local.u32 %r4, [depot+4092]; st.global.u32 [%rd1], %r4;
    """
    )
    seen: list[int] = []
    start = Machine.start

    def watch(self: Machine, shape: Shape) -> None:
        seen.append(shape.blocks)
        start(self, shape)

    monkeypatch.setattr(Machine, "start", watch)
    monkeypatch.setattr("sparkbuild.qualify.simt.launch.OWN_BYTES", 300_000)
    assert (kit.words(body, 160, grid=5) == np.arange(160)).all()
    assert seen == [2, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "takes 1 arguments, not 0"), ((np.int32(4),), "has 4 bytes, its parameter 8")],
)
def test_arguments_must_fit(kit: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kit.run("ret;", *arguments)


def test_a_kernel_must_be_there_and_a_block_must_be_possible(kit: Any) -> None:
    out = Buffer("out", np.zeros(1, dtype=np.int32))
    with pytest.raises(ValueError, match="k with 2048 threads a block, of 1024 at most"):
        kit.run("ret;", out, block=2048)
    text = ".version 9.0 .target sm_121a .entry k() .maxntid 32, 2 { ret; }".replace(" .", "\n.")
    bounded = read_module(text)
    execute(bounded, Launch("k", (1, 1, 1), (64, 1, 1), ()))
    with pytest.raises(ValueError, match="of 64 at most"):
        execute(bounded, Launch("k", (1, 1, 1), (65, 1, 1), ()))
    module = kit.module("ret;")
    with pytest.raises(UnsupportedError, match="no kernel other"):
        execute(module, Launch("other", (1, 1, 1), (1, 1, 1), ()))
