"""The PTX reader: modules, variables, functions, instructions, and where things stand."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.qualify.fault import PtxError
from sparkbuild.qualify.ptx.model import (
    Address,
    Guard,
    Immediate,
    Label,
    Location,
    Module,
    Negated,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from sparkbuild.qualify.ptx.read import read_module

DATA = Path(__file__).parents[3] / "data" / "ptx"
HEAD = ".version 8.8\n.target sm_121a, texmode_independent\n.address_size 64\n"


def function(body: str, before: str = "") -> Any:
    """A kernel with that body, which begins in line 2 of the text behind the header."""
    return read_module(f"{HEAD}{before}.entry k()\n{{{body}}}\n").functions["k"]


DECLARED = ".reg .pred %p<3>; .reg .b32 %r<9>, %x; .reg .f32 %f<3>; .reg .b64 %rd<4>;\n"


def operands(text: str) -> Any:
    return function(f"{DECLARED}{text};").body[0].operands


R1, R2, P1, P2 = (
    Register("%r1", "b32"), Register("%r2", "b32"),
    Register("%p1", "pred"), Register("%p2", "pred"),
)  # fmt: skip


def test_the_frame_of_a_module() -> None:
    module = read_module(HEAD)
    assert module.version == (8, 8)
    assert module.target == "sm_121a"
    assert not module.functions
    assert not module.variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mov.u32 %r1, %r2", (R1, R2)),
        ("mov.u32 %r1, %tid.x", (R1, Special("%tid.x"))),
        ("mov.u32 %r1, %lanemask_lt", (R1, Special("%lanemask_lt"))),
        ("mov.u32 %r1, -5", (R1, Immediate(-5))),
        ("mov.u32 %r1, 0x1fU", (R1, Immediate(31))),
        ("mov.u32 %r1, 0b101", (R1, Immediate(5))),
        ("mov.u32 %r1, 017", (R1, Immediate(15))),
        ("mov.u32 %r1, 0", (R1, Immediate(0))),
        ("mov.u32 %r1, WARP_SZ", (R1, Immediate(32))),
        ("mov.u64 %r1, 18446744073709551615U", (R1, Immediate(2**64 - 1))),
        ("mov.f32 %r1, 0f3F800000", (R1, Immediate(0x3F800000, "f32"))),
        ("mov.f32 %r1, 0FBf800000", (R1, Immediate(0xBF800000, "f32"))),
        ("mov.f32 %r1, -0f3F800000", (R1, Immediate(0xBF800000, "f32"))),
        ("mov.f64 %r1, 0d3FF0000000000000", (R1, Immediate(0x3FF0000000000000, "f64"))),
        ("mov.f64 %r1, 1.5", (R1, Immediate(0x3FF8000000000000, "f64"))),
        ("mov.u64 %r1, table", (R1, Symbol("table"))),
        ("mov.u64 %r1, table+8", (R1, Address(Symbol("table"), 8))),
        ("ld.u32 %r1, [%rd1]", (R1, Address(Register("%rd1", "b64")))),
        ("ld.u32 %r1, [%rd1+12]", (R1, Address(Register("%rd1", "b64"), 12))),
        ("ld.u32 %r1, [ %rd1 + -12 ]", (R1, Address(Register("%rd1", "b64"), -12))),
        ("ld.u32 %r1, [%rd1-12]", (R1, Address(Register("%rd1", "b64"), -12))),
        ("ld.u32 %r1, [table+0x10]", (R1, Address(Symbol("table"), 16))),
        ("ld.u32 %r1, [64]", (R1, Address(Immediate(64)))),
        ("ld.v2.u32 {%r1, _}, [64]", (Vector((R1, Sink())), Address(Immediate(64)))),
        ("st.v2.u32 [64], {%r1, 7}", (Address(Immediate(64)), Vector((R1, Immediate(7))))),
        ("setp.lt.s32 %p1|%p2, %r1, 4", (Pair(P1, P2), R1, Immediate(4))),
        ("setp.lt.s32 _|%p2, %r1, 4", (Pair(Sink(), P2), R1, Immediate(4))),
        ("and.pred %p1, %p2, !%p1", (P1, P2, Negated(P1))),
        ("bra.uni END", (Label("END"),)),
        ("brx.idx %r1, TABLE", (R1, Label("TABLE"))),
        ("mma.x {%r1,%r2},{%r1}", (Vector((R1, R2)), Vector((R1,)))),
        ("ret", ()),
    ],
)
def test_operands(text: str, expected: Any) -> None:
    assert operands(text) == expected


def test_opcodes_and_modifiers() -> None:
    text = """
        .reg .pred %p<2>; .reg .b32 %r<5>;
        @%p1 ld.global.nc.L2::128B.v2.u32 {%r1, %r2}, [%r3];
        @!%p1 mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64 %r1, %r2;
        exit;
    """
    load, mma, end = function(text).body
    assert load.opcode == "ld"
    assert load.modifiers == ("global", "nc", "L2::128B", "v2", "u32")
    assert load.guard == Guard(P1)
    assert mma.guard == Guard(P1, negated=True)
    assert mma.name == "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64"
    assert (end.name, end.guard) == ("exit", None)


def test_labels_and_lines() -> None:
    body = "\n.reg .b32 %r<3>;\nA:\nmov.u32 %r1, 1; // one\n"
    body += "/* two\n lines */ B: C: mov.u32 %r2,\n 2;\nEND:\n"
    found = function(body)
    assert found.labels == {"A": 0, "B": 1, "C": 1, "END": 2}
    assert [each.line for each in found.body] == [8, 10]


def test_comments_may_hold_anything() -> None:
    body = "\n// mov }; {{{\n.reg .b32 %r<3>; /* } ; */ mov.u32 %r1, // ; }\n 4;\n"
    (found,) = function(body, "// .entry no() {\n/* } */\n").body
    assert found.operands == (R1, Immediate(4))


def test_statements_of_inline_assembly_have_scopes() -> None:
    body = """
        .reg .b32 %r<3>;
        {.reg .b16 low, high;
         mov.b32 {low, high}, %r1; mov.b32 %r2, {high, low};}
        { .reg .b32 low; { .reg .b16 low; mov.u16 low, 1; } mov.u32 low, 2; }
    """
    found = function(body)
    first, second, third, fourth = found.body
    low, high = Register("low", "b16"), Register("high", "b16")
    assert first.operands[0] == Vector((low, high))
    assert second.operands[1] == Vector((high, low))
    assert third.operands[0].type == "b16"
    assert fourth.operands[0].type == "b32"
    names = [register.name for register in found.registers]
    assert len(set(names)) == len(names)
    assert len({"low", third.operands[0].name, fourth.operands[0].name}) == 3


def test_labels_of_a_scope_are_its_own() -> None:
    loop = "{ .reg .pred done; AGAIN: @!done bra AGAIN; }\n"
    found = function(loop * 3)
    targets = [each.operands[0].name for each in found.body]
    assert [found.labels[target] for target in targets] == [0, 1, 2]


def test_a_name_of_a_scope_ends_with_it() -> None:
    with pytest.raises(PtxError, match=r"line 7: .*no register 'low'"):
        function("\n{ .reg .b16 low; }\n@low exit;")


CALL = """
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    { // callseq 0, 0
    .param .b64 param0;
    st.param.b64 [param0], %rd1;
    .param .b32 retval0;
    call.uni (retval0),
    vprintf,
    (
    param0,
    param0
    );
    ld.param.b32 %r1, [retval0];
    } // callseq 0
    { .param .b64 param0; st.param.b64 [param0], %rd2; call.uni other, (param0); }
    call.uni nothing;
    P: .callprototype (.param .b32 _) _ (.param .b64 _);
    call %rd1, P;
"""


def test_calls() -> None:
    found = function(CALL)
    call, other, nothing = (each for each in found.body if each.name == "call.uni")
    results, name, arguments = call.operands
    assert results == Vector((Symbol("retval0"),))
    assert name == Symbol("vprintf")
    assert arguments == Vector((Symbol("param0"), Symbol("param0")))
    assert other.operands[0] == Symbol("other")
    assert nothing.operands == (Symbol("nothing"),)
    assert {each.name: each.size for each in found.variables if "'" not in each.name} == {
        "param0": 8,
        "retval0": 4,
    }
    second = other.operands[1].items[0]
    assert second != Symbol("param0")
    store = next(each for each in found.body if each.operands[1:] == (Register("%rd2", "b64"),))
    assert store.operands[0] == Address(second)


def test_functions_with_parameters_and_results() -> None:
    text = (
        HEAD
        + """
    .extern .func (.param .b32 func_retval0) vprintf
    (
        .param .b64 vprintf_param_0,
        .param .b64 vprintf_param_1
    )
    ;
    .weak .func (.param .align 8 .b8 back[24]) _Z3fooif(.param .b32 a, .param .f32 b)
    { ret; }
    .visible .entry kernel(
        .param .u64 .ptr .global .align 16 one,
        .param .align 4 .b8 two[12],
        .param .u8 three
    )
    .maxntid 256, 2
    .minnctapersm 1
    .reqntid 32, 1, 1
    { exit; }
    .func empty()
    { }
    """
    )
    functions = read_module(text).functions
    assert list(functions) == ["vprintf", "_Z3fooif", "kernel", "empty"]
    assert [each.size for each in functions["vprintf"].parameters] == [8, 8]
    assert not functions["vprintf"].body
    foo = functions["_Z3fooif"]
    assert not foo.entry
    assert [(each.name, each.size, each.align) for each in foo.results] == [("back", 24, 8)]
    kernel = functions["kernel"]
    assert kernel.entry
    assert [(each.name, each.size, each.align) for each in kernel.parameters] == [
        ("one", 8, 8), ("two", 12, 4), ("three", 1, 1),
    ]  # fmt: skip
    assert {each.space for each in kernel.parameters} == {"param"}
    assert kernel.directives == {"maxntid": (256, 2), "minnctapersm": (1,), "reqntid": (32, 1, 1)}
    assert functions["empty"].body == ()


def test_a_definition_counts_more_than_a_declaration() -> None:
    text = (
        HEAD + ".func f(.param .b32 a);\n.func f(.param .b32 a) { ret; }\n.func f(.param .b32 a);"
    )
    assert len(read_module(text).functions["f"].body) == 1


@pytest.mark.parametrize(
    ("text", "space", "size", "align", "data"),
    [
        (".global .align 1 .b8 v[4] = {1, 2, 255};", "global", 4, 1, b"\1\2\xff"),
        (".global .u32 v = 0x01020304;", "global", 4, 4, b"\4\3\2\1"),
        (".visible .const .align 16 .s16 v[] = {-1, 2};", "const", 4, 16, b"\xff\xff\2\0"),
        (".global .f32 v[2] = {0f3F800000, 2};", "global", 8, 4, struct.pack("<2f", 1, 2)),
        (".global .f64 v = 0d3FF0000000000000;", "global", 8, 8, struct.pack("<d", 1)),
        (".global .f64 v = 0.25;", "global", 8, 8, struct.pack("<d", 0.25)),
        (".const .b32 v = 0f40000000;", "const", 4, 4, struct.pack("<f", 2)),
        (".global .u16 v[2][3] = {{1, 2}, {3}};", "global", 12, 2,
         struct.pack("<6H", 1, 2, 0, 3, 0, 0)),
        (".global .v2 .u32 v[2] = {{1, 2}, {3, 4}};", "global", 16, 8,
         struct.pack("<4I", 1, 2, 3, 4)),
        (".shared .align 4 .b8 v[12];", "shared", 12, 4, b""),
        (".extern .shared .align 16 .b8 v[];", "shared", 0, 16, b""),
        (".global .align 8 .b64 v;", "global", 8, 8, b""),
        (".global .attribute(.managed) .b32 v;", "global", 4, 4, b""),
    ],
)  # fmt: skip
def test_variables(text: str, space: str, size: int, align: int, data: bytes) -> None:
    found = read_module(HEAD + text).variables["v"]
    assert (found.space, found.size, found.align, found.data) == (space, size, align, data)


def test_variables_that_hold_addresses() -> None:
    text = HEAD + ".global .u64 v[4] = {a, generic(b)+8, 5, c-4};"
    found = read_module(text).variables["v"]
    assert found.references == ((0, "a", 0), (8, "b", 8), (24, "c", -4))
    assert found.data == struct.pack("<4Q", 0, 0, 5, 0)


@given(st.lists(st.integers(-(2**31), 2**32 - 1), min_size=1, max_size=50))
def test_numbers_of_a_variable(values: list[int]) -> None:
    text = f"{HEAD}.global .b32 v[{len(values)}] = {{{', '.join(map(str, values))}}};"
    found = read_module(text).variables["v"].data
    assert np.frombuffer(found, "<u4").tolist() == [value % 2**32 for value in values]


@given(st.lists(st.integers(0, 255), max_size=60), st.integers(0, 4))
def test_bytes_of_a_variable(values: list[int], more: int) -> None:
    text = f"{HEAD}.const .b8 v[{len(values) + more}] = {{{', '.join(map(str, values))}}};"
    assert read_module(text).variables["v"].data == bytes(values)


def test_variables_inside_a_function() -> None:
    found = function(".local .align 8 .b8 __local_depot0[16]; .shared .align 4 .f32 tile[8][4];")
    assert [(each.name, each.space, each.size, each.align) for each in found.variables] == [
        ("__local_depot0", "local", 16, 8), ("tile", "shared", 128, 4),
    ]  # fmt: skip


def test_branch_tables() -> None:
    found = function("A: T: .branchtargets A, B; .reg .b32 %r<2>; brx.idx.uni %r1, T; B: ret;")
    assert found.branch_targets == {"T": ("A", "B")}


LOCATED = (
    HEAD
    + """
.entry k()
{
    .reg .b32 %r<3>;
    mov.u32 %r1, 0;
    .loc 1 10 0
    mov.u32 %r1, 1;
    .loc 2 20 5, function_name $L__info_string0, inlined_at 1 11 3
    .loc 2 30 5, function_name $L__info_string1+4, inlined_at 2 20 5
    mov.u32 %r1, 2;
    .loc 1 12 0
    mov.u32 %r1, 3;
    .loc 2 21 7, function_name $L__info_string0, inlined_at 1 12 0
    mov.u32 %r1, 4;
    .loc 9 1 1
    mov.u32 %r1, 5;
}
    .file 1 "dir/a.cu"
    .file 2 "b.cuh", 1700000000, 12
    .section .debug_str
    {
$L__info_string0:
.b8 111
.b8 0x6E, 101
.b8 0
$L__info_string1:
.b8 95
.b8 95
.b8 95
.b8 95
.b8 116
.b8 0
    }
    .section .debug_line { .b8 1 }
"""
)


def test_locations_with_what_they_were_inlined_into() -> None:
    none, top, inner, again, other, unknown = (
        each.location for each in read_module(LOCATED).functions["k"].body
    )
    assert none is None
    assert top == Location("dir/a.cu", 10, "k")
    one = Location("b.cuh", 20, "one", Location("dir/a.cu", 11))
    assert inner == Location("b.cuh", 30, "t", one)
    assert again == Location("dir/a.cu", 12, "k")
    assert other == Location("b.cuh", 21, "one", again)
    assert unknown is not None
    assert unknown.file == "file 9"


def test_what_nvcc_wrote() -> None:
    """A kernel of nvcc 13.0.88, as it came but for its paths."""
    module = read_module((DATA / "q2_K-13.0.88.ptx").read_text())
    assert module.target == "sm_121a"
    assert module.variables["kvalues_iq4nl"].size == 16
    kernel = module.functions["probe_q2_K"]
    assert [each.size for each in kernel.parameters] == [8, 8, 8]
    assert len(kernel.body) == 126
    assert kernel.body[0].line == 29
    assert Counter(each.name for each in kernel.body) == dict(module.opcodes)
    assert module.opcodes["dp4a.s32.s32"] == 8
    assert "not.there" not in module.opcodes
    dots = [each.location for each in kernel.body if each.opcode == "dp4a"]
    assert {location.function for location in dots if location} == {
        "_ZN43_INTERNAL_ddd4decc_8_probe_cu_f76fc6e3_10706__dp4aEiii"
    }
    outermost = dots[0]
    while outermost is not None and outermost.inlined is not None:
        outermost = outermost.inlined
    assert outermost is not None
    assert (outermost.file, outermost.line) == ("probe.cu", 12)


def test_counts_are_of_instructions() -> None:
    module = read_module(
        HEAD + f".entry k() {{{CALL}}}\n.entry l() {{ @%p1 ret; {{exit;}} A: ret; }}"
    )
    assert dict(module.opcodes) == {
        "call.uni": 3, "call": 1, "st.param.b64": 2, "ld.param.b32": 1, "ret": 2, "exit": 1,
    }  # fmt: skip


def test_only_what_is_asked_for_is_read() -> None:
    bad = (
        HEAD + ".global .b32 v = what(); .entry bad() { mov.u32 %none, 1; }\n.entry good() { ret; }"
    )
    module: Module = read_module(bad)
    assert module.functions["good"].name == "good"
    assert module.functions["good"] is module.functions["good"]
    assert module.functions.get("nobody") is None
    assert "bad" in module.functions
    with pytest.raises(PtxError, match="no"):
        module.functions["bad"]
    with pytest.raises(PtxError):
        module.functions.items()
    with pytest.raises(PtxError):
        module.variables["v"]


def test_copies_hold_what_was_asked_for() -> None:
    module = read_module(HEAD + ".global .b32 v = 4; .entry k() { ret; }")
    for copied in (dict(module.functions), {**module.functions}, module.functions.copy()):
        assert copied["k"] is module.functions["k"]
    assert {**module.variables}["v"].data == b"\4\0\0\0"
    assert dict(module.opcodes) == {**module.opcodes} == {"ret": 1}
    assert "k" in list(module.functions)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "no .version"),
        (HEAD + "\nnonsense here\n", 5, "unknown: 'nonsense here'"),
        (HEAD.replace("64", "32"), 3, "addresses of 32 bits"),
        (HEAD.replace("8.8", "eight"), 1, "not a version"),
        (HEAD + "\n.entry k() {\n", 5, "never closed"),
        (HEAD + "\n}\n", 5, "closes nothing"),
        (HEAD + ".global .b32 v", 4, "without its semicolon"),
        (HEAD + ".global .b99 v;", 4, "unknown in a declaration: .b99"),
        (HEAD + ".global .align 4 v;", 4, "without a type"),
        (HEAD + ".global .b8 v[1] = {1, 2};", 4, "does not fit"),
        (HEAD + ".global .b8 v[2] = {300, 2};", 4, "does not fit"),
        (HEAD + ".global .u32 v = 0x123456789;", 4, "does not fit"),
        (HEAD + ".global .b8 v[x];", 4, "not a size"),
        (HEAD + ".global .u32 v = 1 2;", 4, "not a constant"),
        (HEAD + ".entry ()\n{ }", 4, "not the head of a function"),
        (HEAD + ".entry k(.param .q a)\n{ }", 4, "unknown in a declaration"),
    ],
)
def test_malformed_modules(text: str, line: int, message: str) -> None:
    with pytest.raises(PtxError) as caught:
        _everything(text)
    assert message in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.u32 %r1, 1", "without its semicolon"),
        ("mov.u32 %q1, 1;", "not an operand: '%q1'"),
        ("mov.u32 %r9, 1;", "not an operand: '%r9'"),
        ("mov.u32 %r1, 0f3F80;", "not an operand"),
        ("mov.u32 %r1, 099;", "not an operand"),
        ("ld.u32 %r1, [%rd1+x];", "not an address"),
        ("ld.u32 %r1, [%rd1*4];", "not an address"),
        ("ld.u32 %r1, [];", "not an address"),
        ("MOV %r1;", "not an instruction"),
        ("@%r99 ret;", "no register '%r99'"),
        ("setp.x %p1|%r|%p2, 1, 2;", "no register '%r'"),
        (".reg .b99 %z<3>;", "not a declaration of registers"),
        (".reg .b32 %r1;", "%r1 is declared twice"),
        (".reg .b32 %z<x>;", "not a register"),
        (".whatever 5;", "unknown directive .whatever"),
        ("A: ret; A: ret;", "label A is set twice"),
        ("bra;", "a branch to nowhere"),
        ("bra %r1;", "a branch to what is no label"),
        (".loc 1 2;\n", "not a location"),
        ("and.pred %p1, %p2, !5;", "no register '5'"),
        (".local .b8 a[4]; .local .b8 a[4];", "a is declared twice"),
    ],
)
def test_malformed_bodies(body: str, message: str) -> None:
    text = f"{HEAD}.entry k()\n{{\n{DECLARED}{body}\n}}\n"
    with pytest.raises(PtxError) as caught:
        _everything(text)
    assert message in str(caught.value)
    assert caught.value.line == 7


def _everything(text: str) -> None:
    module = read_module(text)
    module.functions.items()
    module.variables.items()


@given(st.text(alphabet='%r1{}[]();:,.@!|_ +-\n\t/*0xf"$mov', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    whole = f"{HEAD}.entry k()\n{{\n{DECLARED}{text}\n}}\n"
    line = 1
    try:
        _everything(whole)
    except PtxError as error:
        line = error.line
    assert 1 <= line <= whole.count("\n") + 1
