"""Loads and stores: widths, signs, vectors, spaces, and every way to be out of bounds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.simt.contract import Buffer, Launch
from sparkbuild.qualify.simt.launch import execute

INPUT = ("u64 out", "u64 given")
POISON = 0xFFF5FFF5


def source(values: Any) -> Buffer:
    return Buffer("given", np.asarray(values))


@pytest.mark.parametrize(
    ("kind", "register", "dtype"),
    [
        ("u8", "%rs", np.uint8),
        ("s8", "%rs", np.int8),
        ("s8", "%r", np.int8),
        ("u8", "%r", np.uint8),
        ("b8", "%rd", np.uint8),
        ("s8", "%rd", np.int8),
        ("u16", "%r", np.uint16),
        ("s16", "%r", np.int16),
        ("s16", "%rd", np.int16),
        ("b16", "%rs", np.uint16),
        ("s32", "%rd", np.int32),
        ("u32", "%rd", np.uint32),
        ("b32", "%r", np.uint32),
        ("u64", "%rd", np.uint64),
        ("f32", "%f", np.uint32),
        ("f64", "%rd", np.uint64),
    ],
)
def test_a_load_extends_as_its_type_says(kit: Any, kind: str, register: str, dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    values = np.random.default_rng(1).integers(0, 256, 64 * size, dtype=np.uint8).view(dtype)
    width = {"%rs": 2, "%r": 4, "%f": 4, "%rd": 8}[register]
    body = (
        kit.thread
        + f"""
        ld.param.u64 %rd2, [given]; mul.wide.s32 %rd3, %r3, {size}; add.s64 %rd2, %rd2, %rd3;
        ld.global.nc.{kind} {register}9, [%rd2];
        mul.wide.s32 %rd3, %r3, {width}; add.s64 %rd3, %rd0, %rd3;
        st.global.b{8 * width} [%rd3], {register}9;
    """
    )
    out = Buffer("out", np.zeros(64, dtype=f"<u{width}"), writable=True)
    found = kit.run(body, out, source(values), block=64, parameters=INPUT).buffers["out"]
    wide = {2: np.int16, 4: np.int32, 8: np.int64}[width]
    signed = np.issubdtype(dtype, np.signedinteger)
    expected = values.astype(wide).view(f"<u{width}") if signed else values.astype(f"<u{width}")
    assert (found == expected).all()


@pytest.mark.parametrize(("kind", "size"), [("b8", 1), ("b16", 2), ("b32", 4), ("b64", 8)])
def test_a_store_takes_the_low_bits(kit: Any, kind: str, size: int) -> None:
    body = (
        kit.thread
        + f"""
        mov.b64 %rd9, 0x1122334455667788; mul.wide.s32 %rd3, %r3, 8; add.s64 %rd3, %rd0, %rd3;
        st.global.{kind} [%rd3+{8 - size}], %rd9;
    """
    )
    out = Buffer("out", np.zeros((8, 8), dtype=np.uint8), writable=True)
    found = kit.run(body, out, block=8).buffers["out"]
    raw = (0x1122334455667788).to_bytes(8, "little")[:size]
    assert (found[:, 8 - size :] == np.frombuffer(raw, dtype=np.uint8)).all()
    assert (found[:, : 8 - size] == 0).all()


@pytest.mark.parametrize(
    ("vector", "kind", "size"),
    [
        ("v2", "u8", 1),
        ("v4", "u8", 1),
        ("v2", "b16", 2),
        ("v4", "u32", 4),
        ("v8", "f32", 4),
        ("v2", "u64", 8),
        ("v4", "b64", 8),
        ("v2", "f32", 4),
        ("v4", "u16", 2),
    ],
)
def test_vectors_come_and_go_in_order(kit: Any, vector: str, kind: str, size: int) -> None:
    count = int(vector[1])
    base = {1: "%rs", 2: "%rs", 4: "%r", 8: "%rd"}[size]
    names = ", ".join(f"{base}{20 + at}" for at in range(count))
    back = ", ".join(f"{base}{20 + at}" for at in reversed(range(count)))
    body = (
        kit.thread
        + f"""
        ld.param.u64 %rd2, [given]; mul.wide.s32 %rd3, %r3, {size * count};
        add.s64 %rd2, %rd2, %rd3; add.s64 %rd3, %rd0, %rd3;
        ld.global.{vector}.{kind} {{{names}}}, [%rd2];
        st.global.{vector}.{kind} [%rd3], {{{back}}};
    """
    )
    values = np.random.default_rng(2).integers(0, 256, 40 * count * size, dtype=np.uint8)
    values = values.view(f"<u{size}").reshape(40, count)
    out = Buffer("out", np.zeros_like(values), writable=True)
    found = kit.run(body, out, source(values), block=40, parameters=INPUT).buffers["out"]
    assert (found == values[:, ::-1]).all()


def test_elements_that_nobody_wants(kit: Any) -> None:
    body = (
        kit.thread
        + """
        ld.param.u64 %rd2, [given]; ld.global.v4.u32 {_, %r20, _, %r21}, [%rd2];
        mov.b64 {%r22, _}, %rd2; add.s32 %r20, %r20, %r21; st.global.u32 [%rd1], %r20;
    """
    )
    found = kit.words(body, 32, source(np.array([1, 20, 300, 4000], np.int32)), parameters=INPUT)
    assert (found == 4020).all()


LOAD = "ld.param.u64 %rd2, [given]; cvt.s64.s32 %rd3, %r3; add.s64 %rd2, %rd2, %rd3;"


@pytest.mark.parametrize(
    ("access", "message", "thread"),
    [
        ("ld.global.u8 %r4, [%rd2+98];", "1 bytes beyond the end of given, which has 100", 2),
        ("ld.global.u8 %r4, [%rd2+-1];", "1 bytes before given", 0),
        ("ld.global.u8 %r4, [%rd2-2];", "2 bytes before given", 0),
        ("ld.u8 %r4, [%rd2+100];", "1 bytes beyond the end of given", 0),
        ("ld.global.u32 %r4, [%rd2+97];", "1 bytes beyond the end of given", 0),
        ("ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2+96];", "12 bytes beyond", 0),
        ("mov.b64 %rd2, 0; ld.global.u32 %r4, [%rd2];", "where nothing is", 0),
        ("mov.b64 %rd2, 16; ld.u32 %r4, [%rd2];", "where nothing is", 0),
        ("shl.b64 %rd2, %rd3, 31; add.s64 %rd2, %rd2, %rd0; ld.u8 %r4, [%rd2+4];", "beyond", 1),
        ("ld.shared.u8 %r4, [4];", "where nothing is", 0),
    ],
)
def test_out_of_bounds(kit: Any, access: str, message: str, thread: int) -> None:
    out = Buffer("out", np.zeros(100, dtype=np.int32), writable=True)
    given_ = source(np.zeros(100, dtype=np.uint8))
    fault = kit.fault(kit.thread + LOAD + "\n" + access, out, given_, parameters=INPUT)
    assert fault.kind == "out of bounds"
    assert message in str(fault)
    assert fault.lane == (0, thread)
    assert fault.address is not None
    assert f"{fault.address:#x}" in str(fault)
    assert fault.instruction is not None
    assert fault.instruction.opcode == "ld"


def test_the_last_byte_is_in_bounds(kit: Any) -> None:
    out = Buffer("out", np.zeros(32, dtype=np.int32), writable=True)
    body = kit.thread + LOAD + "ld.global.u8 %r4, [%rd2+68]; st.global.u32 [%rd1], %r4;"
    result = kit.run(body, out, source(np.arange(100, dtype=np.uint8)), parameters=INPUT)
    assert (result.buffers["out"] == np.arange(68, 100)).all()


def test_an_empty_buffer_has_no_byte(kit: Any) -> None:
    out = Buffer("out", np.zeros(32, dtype=np.int32), writable=True)
    fault = kit.fault(
        kit.thread + LOAD + "ld.global.u8 %r4, [%rd2];",
        out,
        source(np.zeros(0, dtype=np.uint8)),
        parameters=INPUT,
    )
    assert fault.kind == "out of bounds"


@pytest.mark.parametrize(
    ("access", "thread"),
    [
        ("ld.global.u16 %rs1, [%rd2];", 1),
        ("ld.global.u32 %r4, [%rd2+4];", 1),
        ("ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2+8];", 0),
        ("mul.lo.s64 %rd3, %rd3, 8; add.s64 %rd2, %rd0, %rd3; st.v2.u64 [%rd2], {%rd3, %rd3};", 1),
    ],
)
def test_misaligned(kit: Any, access: str, thread: int) -> None:
    out = Buffer("out", np.zeros(100, dtype=np.int32), writable=True)
    given_ = source(np.zeros(100, dtype=np.uint8))
    fault = kit.fault(kit.thread + LOAD + access, out, given_, parameters=INPUT)
    assert fault.kind == "misaligned"
    assert fault.lane == (0, thread)


@pytest.mark.parametrize(
    ("access", "kind", "thread"),
    [
        ("ld.global.u32 %r4, [%rd2];", "misaligned", 9),
        ("st.global.u8 [%rd2], %r4;", "read-only", 8),
        ("ld.global.u8 %r4, [%rd2+70];", "out of bounds", 30),
    ],
)
def test_the_lane_is_told_where_only_some_are_there(
    kit: Any, access: str, kind: str, thread: int
) -> None:
    out = Buffer("out", np.zeros(100, dtype=np.int32), writable=True)
    body = kit.thread + LOAD + "setp.ge.s32 %p1, %r0, 8;\n@%p1 " + access
    fault = kit.fault(body, out, source(np.zeros(100, dtype=np.uint8)), parameters=INPUT)
    assert (fault.kind, fault.lane) == (kind, (0, thread))


def test_what_may_not_be_written(kit: Any) -> None:
    out = Buffer("out", np.zeros(100, dtype=np.int32), writable=True)
    given_ = source(np.zeros(100, dtype=np.uint8))
    fault = kit.fault(
        kit.thread + LOAD + "st.global.u8 [%rd2], %r3;", out, given_, parameters=INPUT
    )
    assert fault.kind == "read-only"
    table = ".const .align 4 .b8 table[8] = {1, 2, 3};"
    const = "mov.u64 %rd2, table; cvta.const.u64 %rd2, %rd2; st.u8 [%rd2], %r3;"
    assert kit.fault(kit.thread + const, before=table).kind == "read-only"


def test_an_instruction_of_another_space(kit: Any) -> None:
    table = ".const .align 4 .b8 table[8] = {1, 2, 3};"
    fault = kit.fault(kit.thread + "mov.u64 %rd2, table; ld.global.u8 %r4, [%rd2];", before=table)
    assert fault.kind == "out of bounds"
    assert "which is const memory" in str(fault)


def test_buffers_keep_their_distance(kit: Any) -> None:
    """No offset of a word's size leads from one buffer into another."""
    out = Buffer("out", np.zeros(64, dtype=np.int32), writable=True)
    body = kit.thread + "ld.param.u64 %rd2, [given]; sub.s64 %rd4, %rd2, %rd0;"
    body += "abs.s64 %rd4, %rd4; shr.u64 %rd4, %rd4, 31; st.global.u64 [%rd0], %rd4;"
    found = kit.run(body, out, source(np.zeros(4, np.uint8)), parameters=INPUT).buffers["out"]
    assert found[0] >= 1


def test_one_instruction_may_meet_several_buffers(kit: Any) -> None:
    body = (
        kit.thread
        + """
        ld.param.u64 %rd2, [given]; mul.wide.s32 %rd3, %r3, 4; add.s64 %rd2, %rd2, %rd3;
        and.b32 %r5, %r0, 1; setp.eq.s32 %p1, %r5, 0; selp.b64 %rd4, %rd1, %rd2, %p1;
        ld.global.u32 %r4, [%rd4]; add.s32 %r4, %r4, 1; st.global.u32 [%rd1], %r4;
    """
    )
    found = kit.words(body, 32, source(np.arange(32, dtype=np.int32)), parameters=INPUT)
    thread = np.arange(32)
    assert (found == np.where(thread % 2, thread + 1, 0)).all()


def test_the_first_bad_lane_is_told_whatever_the_buffer(kit: Any) -> None:
    body = (
        kit.thread
        + """
        ld.param.u64 %rd2, [given]; and.b32 %r5, %r0, 1; setp.eq.s32 %p1, %r5, 0;
        selp.b64 %rd4, %rd0, %rd2, %p1; mul.wide.s32 %rd3, %r3, 4; add.s64 %rd4, %rd4, %rd3;
        ld.global.u32 %r4, [%rd4];
    """
    )
    out = Buffer("out", np.zeros(9, dtype=np.int32), writable=True)
    fault = kit.fault(body, out, source(np.arange(32, dtype=np.int32)), parameters=INPUT)
    assert fault.lane == (0, 10)
    assert re.search(r"8 bytes beyond the end of out", str(fault))


def test_the_same_buffer_twice_is_one_and_an_offset_counts(kit: Any) -> None:
    values = np.arange(8, dtype=np.int32)
    both = Buffer("out", values, writable=True, offset=8)
    body = (
        kit.thread
        + """
        ld.param.u64 %rd2, [given]; ld.global.u32 %r4, [%rd2]; setp.eq.s32 %p1, %r0, 0;
        @%p1 st.global.u32 [%rd0+-8], %r4;
    """
    )
    assert kit.run(body, both, both, parameters=INPUT).buffers["out"].tolist() == [
        2, 1, 2, 3, 4, 5, 6, 7,
    ]  # fmt: skip
    assert values[0] == 0, "the launch's own array stays as it was"


def test_a_result_has_shape_and_type_of_its_buffer(kit: Any) -> None:
    out = Buffer("out", np.zeros((4, 2), dtype=np.float64), writable=True)
    found = kit.run("ret;", out).buffers["out"]
    assert found.shape == (4, 2)
    assert found.dtype == np.float64


MIXED = ("u64 out", "u8 a", "s16 b", "f32 c", "align 8 .b8 d[24]")


def test_parameters_of_every_kind(kit: Any) -> None:
    body = (
        kit.thread
        + """
        ld.param.u8 %r4, [a]; ld.param.s16 %r5, [b]; ld.param.f32 %f1, [c];
        ld.param.u32 %r6, [d+4]; ld.param.v2.u32 {%r7, %r8}, [d+8]; ld.param.u64 %rd4, [d+16];
        st.global.u32 [%rd0], %r4; st.global.u32 [%rd0+4], %r5; st.global.f32 [%rd0+8], %f1;
        st.global.u32 [%rd0+12], %r6; st.global.v2.u32 [%rd0+16], {%r7, %r8};
        ld.global.u32 %r9, [%rd4+4]; st.global.u32 [%rd0+24], %r9;
    """
    )
    struct = np.array([1, 2, 3, 4, 0, 0], dtype=np.int32)
    given_ = source(np.array([70, 71], dtype=np.int32))
    out = Buffer("out", np.zeros(8, dtype=np.int32), writable=True)
    arguments = (out, np.uint8(250), np.int16(-5), np.float32(1.5), struct.tobytes())
    launch = Launch("k", (1, 1, 1), (1, 1, 1), arguments, pointers={(4, 16): given_})
    found = execute(kit.module(body, MIXED), launch).buffers["out"]
    assert found[:2].tolist() == [250, -5]
    assert found[2:3].view(np.float32)[0] == 1.5
    assert found[3:7].tolist() == [2, 3, 4, 71]


def test_a_parameter_by_its_address(kit: Any) -> None:
    body = (
        kit.thread
        + """
        mov.b64 %rd2, given; and.b32 %r4, %r0, 3; mul.wide.s32 %rd3, %r4, 4;
        add.s64 %rd2, %rd2, %rd3; ld.param.u32 %r5, [%rd2]; cvta.param.u64 %rd2, %rd2;
        ld.u32 %r6, [%rd2];
        add.s32 %r5, %r5, %r6; st.global.u32 [%rd1], %r5;
    """
    )
    raw = np.array([5, 6, 7, 8], dtype=np.int32).tobytes()
    found = kit.words(body, 32, raw, parameters=("u64 out", "align 4 .b8 given[16]"))
    assert found[:5].tolist() == [10, 12, 14, 16, 10]


TABLES = """
.global .align 4 .b8 bytes[6] = {1, 2, 250};
.global .align 4 .u32 word = 77;
.const .align 4 .f32 numbers[3] = {0f3F800000, 2, 0f40400000};
.global .align 8 .u64 pointer = generic(bytes)+2;
.global .align 8 .u64 places[2] = {word, numbers};
.const .align 4 .b8 filled[8];
"""


def test_variables_of_the_module(kit: Any) -> None:
    body = (
        kit.thread
        + """
        ld.global.u32 %r4, [bytes]; st.global.u32 [%rd0], %r4;
        ld.global.u16 %rs4, [bytes+4]; cvt.u32.u16 %r4, %rs4; st.global.u32 [%rd0+4], %r4;
        ld.global.u32 %r4, [word]; st.global.u32 [%rd0+8], %r4;
        ld.const.f32 %f4, [numbers+4]; cvt.rzi.s32.f32 %r4, %f4; st.global.u32 [%rd0+12], %r4;
        ld.global.u64 %rd4, [pointer]; ld.u8 %r4, [%rd4]; st.global.u32 [%rd0+16], %r4;
        ld.global.u64 %rd4, [places]; ld.u32 %r4, [%rd4]; st.global.u32 [%rd0+20], %r4;
        ld.global.u64 %rd4, [places+8]; ld.f32 %f4, [%rd4+8]; cvt.rzi.s32.f32 %r4, %f4;
        st.global.u32 [%rd0+24], %r4;
        ld.const.u32 %r4, [filled+4]; st.global.u32 [%rd0+28], %r4;
        mov.u64 %rd5, word; add.s64 %rd5, %rd5, 0; st.global.u32 [%rd5], 5;
        ld.global.u32 %r4, [word]; st.global.u32 [%rd0+32], %r4;
    """
    )
    filled = np.array([8, 9], dtype=np.int32).tobytes()
    found = kit.words(body, 9, block=1, before=TABLES, constants={"filled": filled})
    assert found.tolist() == [0x00FA0201, 0, 77, 2, 250, 77, 3, 9, 5]


def test_an_index_beyond_a_table_of_the_module(kit: Any) -> None:
    body = kit.thread + "mov.u64 %rd2, bytes; cvt.s64.s32 %rd3, %r0; add.s64 %rd2, %rd2, %rd3;"
    fault = kit.fault(body + "ld.global.nc.u8 %r4, [%rd2];", before=TABLES)
    assert fault.lane == (0, 6)
    assert "1 bytes beyond the end of bytes, which has 6" in str(fault)


def test_constants_must_fit_and_names_must_be_known(kit: Any) -> None:
    with pytest.raises(ValueError, match="filled has 8 bytes, not 12"):
        kit.words("ld.const.u32 %r4, [filled];", 1, before=TABLES, constants={"filled": bytes(12)})
    with pytest.raises(UnsupportedError, match="the name nowhere"):
        kit.words("ld.global.u32 %r4, [nowhere];", 1)


def test_local_memory_is_a_thread_s_own(kit: Any) -> None:
    body = (
        """
        .local .align 16 .b8 depot[64];
        .reg .b64 %SP; .reg .b64 %SPL;
        mov.b64 %SPL, depot; cvta.local.u64 %SP, %SPL;
    """
        + kit.thread
        + """
        st.local.u32 [%SPL+8], %r3; st.local.v2.u32 [depot+16], {%r3, %r0};
        and.b32 %r4, %r0, 7; mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %SP, %rd3;
        st.u32 [%rd4+32], %r3;
        ld.local.u32 %r5, [depot+8]; ld.local.u32 %r6, [%SPL+20];
        cvta.to.local.u64 %rd5, %rd4; ld.local.u32 %r7, [%rd5+32];
        add.s32 %r5, %r5, %r6; add.s32 %r5, %r5, %r7; st.global.u32 [%rd1], %r5;
    """
    )
    found = kit.words(body, 96, grid=3)
    assert (found == np.arange(96) * 2 + np.arange(96) % 32).all()


@pytest.mark.parametrize(
    ("access", "kind"),
    [
        ("ld.local.u32 %r5, [depot+64];", "out of bounds"),
        ("ld.local.u32 %r5, [depot+61];", "out of bounds"),
        ("ld.local.v2.u32 {%r5, %r6}, [depot+4];", "misaligned"),
        ("mov.u64 %rd4, depot; cvta.local.u64 %rd4, %rd4; st.u8 [%rd4+-1], %r1;", "out of bounds"),
    ],
)
def test_bounds_of_local_memory(kit: Any, access: str, kind: str) -> None:
    assert kit.fault(".local .align 16 .b8 depot[64];" + access).kind == kind


def test_undefined_local_memory_is_no_small_number(kit: Any) -> None:
    body = ".local .align 16 .b8 depot[64];" + kit.thread
    body += "ld.local.u32 %r5, [depot+4]; st.global.u32 [%rd1], %r5;"
    assert (kit.words(body, 32).view(np.uint32) == POISON).all()


def test_where_a_generic_address_points(kit: Any) -> None:
    body = (
        """
        .local .align 4 .b8 mine[4]; .shared .align 4 .b8 ours[4];
    """
        + kit.thread
        + """
        mov.u64 %rd2, mine; cvta.local.u64 %rd2, %rd2;
        mov.u64 %rd3, ours; cvta.shared.u64 %rd3, %rd3;
        mov.u32 %r4, 0;
        isspacep.local %p1, %rd2; @%p1 add.s32 %r4, %r4, 1;
        isspacep.local %p1, %rd3; @%p1 add.s32 %r4, %r4, 2;
        isspacep.shared %p1, %rd3; @%p1 add.s32 %r4, %r4, 4;
        isspacep.global %p1, %rd3; @%p1 add.s32 %r4, %r4, 8;
        isspacep.global %p1, %rd0; @%p1 add.s32 %r4, %r4, 16;
        cvta.to.shared.u64 %rd4, %rd3; mov.u64 %rd5, ours; setp.eq.s64 %p1, %rd4, %rd5;
        @%p1 add.s32 %r4, %r4, 32;
        st.global.u32 [%rd1], %r4;
    """
    )
    assert (kit.words(body, 32) == 1 + 4 + 16 + 32).all()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mov.b32 %r4, {%rs1, %rs2};", 0x4321_8765),
        ("mov.b64 %rd4, {%r5, %r6}; shr.u64 %rd4, %rd4, 16; cvt.u32.u64 %r4, %rd4;", 0xDDDD_AAAA),
        ("mov.b64 %rd4, {%rs1, %rs2, %rs1, %rs2}; cvt.u32.u64 %r4, %rd4;", 0x4321_8765),
        ("mov.b32 {%rs3, %rs4}, %r6; mov.b32 %r4, {%rs4, %rs3};", 0xDDDD_CCCC),
        ("mov.b64 %rd4, {%r5, %r6}; mov.b64 {%r7, %r4}, %rd4;", 0xCCCC_DDDD),
        ("mov.u16 %rs3, %rs1; cvt.u32.u16 %r4, %rs3;", 0x8765),
        ("mov.f32 %f1, 0f40490FDB; mov.b32 %r4, %f1;", 0x4049_0FDB),
        ("mov.b32 %r4, -2;", 0xFFFF_FFFE),
        ("setp.eq.s32 %p1, 1, 1; mov.pred %p2, %p1; selp.b32 %r4, 3, 4, %p2;", 3),
    ],
)
def test_moves(kit: Any, text: str, value: int) -> None:
    body = (
        kit.thread
        + """
        mov.u16 %rs1, 0x8765; mov.u16 %rs2, 0x4321;
        mov.u32 %r5, 0xAAAABBBB; mov.u32 %r6, 0xCCCCDDDD;
    """
        + text
        + "st.global.u32 [%rd1], %r4;"
    )
    assert kit.words(body, 1, block=1).view(np.uint32)[0] == value


@pytest.mark.parametrize(
    "hint",
    [
        "volatile.global",
        "relaxed.gpu.global",
        "acquire.sys.global",
        "global.nc.L1::no_allocate",
        "global.L2::128B",
        "global.cs",
        "weak.global",
        "global.nc.L1::evict_last.L2::256B",
    ],
)
def test_hints_change_nothing(kit: Any, hint: str) -> None:
    body = (
        kit.thread + f"ld.{hint}.u32 %r4, [%rd0+8]; membar.gl; fence.acq_rel.gpu; nanosleep.u32 5;"
    )
    body += "prefetch.global.L1 [%rd0]; griddepcontrol.wait; griddepcontrol.launch_dependents;"
    assert (kit.words(body + "st.global.u32 [%rd1], %r4;", 32) == -1).all()


@pytest.mark.parametrize(
    "text",
    [
        "ld.global.b128 %rd4, [%rd0];",
        "ld.global.L2::cache_hint.u32 %r4, [%rd0], %rd4;",
        "ld.shared::cluster.u32 %r4, [%rd0];",
        "mov.b128 %rd1, {%rd2, %rd3};",
    ],
)
def test_forms_that_are_not_known(kit: Any, text: str) -> None:
    with pytest.raises(UnsupportedError):
        kit.words(kit.thread + text, 32)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-40, 140), min_size=32, max_size=32),
    st.sampled_from([1, 2, 4, 8]),
)
def test_exactly_the_bytes_of_a_buffer(kit: Any, offsets: list[int], size: int) -> None:
    """Right where every access is inside and aligned, else a fault for the first that is not."""
    values = np.random.default_rng(0).integers(0, 256, 100, dtype=np.uint8)
    at = np.array(offsets, dtype=np.int32)
    inside = (at >= 0) & (at + size <= 100)
    body = (
        kit.thread
        + f"""
        ld.param.u64 %rd2, [given]; ld.param.u64 %rd5, [at]; mul.wide.s32 %rd3, %r3, 4;
        add.s64 %rd5, %rd5, %rd3; ld.global.s32 %rd6, [%rd5]; add.s64 %rd2, %rd2, %rd6;
        ld.global.u{8 * size} %rd7, [%rd2]; mul.wide.s32 %rd3, %r3, 8; add.s64 %rd1, %rd0, %rd3;
        st.global.u64 [%rd1], %rd7;
    """
    )
    out = Buffer("out", np.zeros(32, dtype=np.uint64), writable=True)
    arguments = (out, source(values), Buffer("at", at))
    parameters = (*INPUT, "u64 at")
    if inside.all() and not (at % size).any():
        found = kit.run(body, *arguments, parameters=parameters).buffers["out"]
        expected = [int.from_bytes(values[o : o + size].tobytes(), "little") for o in offsets]
        assert found.tolist() == expected
        return
    fault = kit.fault(body, *arguments, parameters=parameters)
    if inside.all():
        assert (fault.kind, fault.lane) == ("misaligned", (0, int((at % size != 0).argmax())))
    else:
        assert (fault.kind, fault.lane) == ("out of bounds", (0, int((~inside).argmax())))
