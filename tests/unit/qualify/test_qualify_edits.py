"""Seeded faults: each kind makes the line wrong that it says, and nothing else."""

import pytest

from sparkbuild.qualify.edits import MAKERS, Edit, edits, sample
from sparkbuild.qualify.ptx.read import read_module

HEAD = """.version 8.8
.target sm_121a
.address_size 64
.visible .entry k(.param .u64 k_0)
{
\t.reg .pred %p<4>;
\t.reg .b16 %rs<9>;
\t.reg .b32 %r<9>;
\t.reg .f32 %f<9>;
\t.reg .b64 %rd<9>;
"""


def made(line: str) -> list[Edit]:
    text = f"{HEAD}\t{line}\n\tret;\n}}\n"
    function = read_module(text).functions["k"]
    return list(edits(function, text, range(len(function.body))))


@pytest.mark.parametrize(
    ("line", "kind", "after"),
    [
        ("and.b16 %rs1, %rs2, 255;", "mask dropped", "mov.b16 %rs1, %rs2;"),
        ("@%p1 and.b32 %r1, %r2, 15;", "mask dropped", "@%p1 mov.b32 %r1, %r2;"),
        ("sub.s32 %r1, %r2, %r3;", "operands swapped", "sub.s32 %r1, %r3, %r2;"),
        ("prmt.b32 %r1, %r2, %r3, %r4;", "operands swapped", "prmt.b32 %r1, %r3, %r2, %r4;"),
        ("shr.u32 %r1, %r2, 4;", "shift short", "shr.u32 %r1, %r2, 3;"),
        ("bfe.u32 %r1, %r2, 8, 8;", "shift short", "bfe.u32 %r1, %r2, 7, 8;"),
        ("bfi.b32 %r1, %r2, %r3, 8, 4;", "shift short", "bfi.b32 %r1, %r2, %r3, 7, 4;"),
        ("cvt.s32.s8 %r1, %r2;", "sign", "cvt.s32.u8 %r1, %r2;"),
        ("ld.global.nc.u8 %rs1, [%rd1+3];", "sign", "ld.global.nc.s8 %rs1, [%rd1+3];"),
        ("sub.f32 %f1, %f2, %f3;", "plus for minus", "add.f32 %f1, %f2, %f3;"),
        ("neg.f32 %f1, %f2;", "plus for minus", "mov.b32 %f1, %f2;"),
        ("ld.global.b32 %r1, [%rd1];", "table index", "ld.global.b32 %r1, [%rd1+4];"),
        ("ld.global.nc.v2.b32 {%r1, %r2}, [%rd1+8];", "table index",
         "ld.global.nc.v2.b32 {%r1, %r2}, [%rd1+16];"),
        ("add.s32 %r1, %r2, 6;", "constant", "add.s32 %r1, %r2, 7;"),
        ("add.s32 %r1, %r2, -8;", "constant", "add.s32 %r1, %r2, -7;"),
        ("bar.sync 0;", "barrier dropped", "// bar.sync 0"),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", "rounding", "fma.rz.f32 %f1, %f2, %f3, %f4;"),
        ("cvt.rni.s32.f32 %r1, %f1;", "rounding", "cvt.rzi.s32.f32 %r1, %f1;"),
        ("setp.lt.s32 %p1, %r1, %r2;", "comparison", "setp.le.s32 %p1, %r1, %r2;"),
        ("selp.b32 %r1, %r2, %r3, %p1;", "other choice", "selp.b32 %r1, %r3, %r2, %p1;"),
    ],
)  # fmt: skip
def test_each_kind_makes_its_own_mistake(line: str, kind: str, after: str) -> None:
    found = {edit.kind: edit for edit in made(line)}
    assert found[kind].after == after
    assert found[kind].before == line


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("and.pred %p1, %p2, %p3;", "mask dropped"),
        ("and.b32 %r1, %r2, %r3;", "mask dropped"),
        ("sub.s32 %r1, %r2, %r2;", "operands swapped"),
        ("sub.s32 %r1, %r2, 4;", "operands swapped"),
        ("add.s32 %r1, %r2, %r3;", "operands swapped"),
        ("mul.lo.s32 %r1, %r2, %r3;", "sign"),
        ("ld.global.u32 %r1, [%rd1];", "sign"),
        ("ld.param.u64 %rd1, [k_0];", "table index"),
        ("cvt.s32.s8 %r1, %r2;", "rounding"),
        ("selp.b32 %r1, %r2, %r2, %p1;", "other choice"),
        ("mov.b32 %r1, 5;", "constant"),
    ],
)
def test_what_would_change_nothing_is_left_alone(line: str, kind: str) -> None:
    assert kind not in {edit.kind for edit in made(line)}


def test_every_kind_was_tried_here() -> None:
    assert len(MAKERS) == 11


def test_only_what_was_executed_is_edited_and_the_rest_of_the_text_stays() -> None:
    text = f"{HEAD}\tadd.s32 %r1, %r2, 6;\n\tadd.s32 %r3, %r4, 8;\n\tret;\n}}\n"
    function = read_module(text).functions["k"]
    (edit,) = edits(function, text, [1])
    changed = edit.applied(text).split("\n")
    different = [n for n, line in enumerate(text.split("\n")) if changed[n] != line]
    assert different == [edit.line - 1]
    assert len(changed) == len(text.split("\n"))
    with pytest.raises(ValueError, match="line"):
        edit.applied(edit.applied(text))


def test_a_line_of_two_instructions_is_left_alone() -> None:
    assert made("{ add.s32 %r1, %r2, 6; add.s32 %r1, %r1, 2; }") == []


def test_a_sample_is_even_over_the_kinds_and_the_same_for_its_seed() -> None:
    found = [
        Edit(kind=kind, line=n, index=n, before="a", after="b")
        for kind, count in (("often", 50), ("rare", 2), ("some", 9))
        for n in range(count)
    ]
    chosen = sample(found, 12, 3)
    kinds = [edit.kind for edit in chosen]
    assert kinds.count("rare") == 2
    assert abs(kinds.count("often") - kinds.count("some")) <= 1
    assert chosen == sample(found, 12, 3)
    assert chosen != sample(found, 12, 4)
    assert len(sample(found, 1000, 3)) == len(found)
