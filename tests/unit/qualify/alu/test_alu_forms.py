"""What is decoded: all that llama.cpp's kernels contain, and nothing that is not exact.

``forms.txt`` has one line for each form of a computing instruction (its modifiers, the types of
its registers, where constants stand) in the PTX that nvcc 13.0.88 makes for sm_121a of b11434's
mmvq, mmq (iq3_s, mxfp4), flash attention (vector), get_rows, convert, quantize, rope, norm,
soft-max, set_rows, unary, gated delta-net and indexer files.
"""

from pathlib import Path

import numpy as np
import pytest

from sparkbuild.qualify.alu.contract import LaneOp
from sparkbuild.qualify.alu.decode import decode
from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction, Negated, Register, Special

from .lanes import flat, instruction, run, stored, warp

FORMS = (Path(__file__).parent / "forms.txt").read_text().splitlines()


def random_source(register: Register | Negated, lanes: int, seed: int) -> list[int]:
    generator = np.random.default_rng(seed)
    inner = register.register if isinstance(register, Negated) else register
    high = 2 if inner.type == "pred" else 1 << 16 if inner.type in {"b8", "b16", "f16"} else 1 << 32
    return [int(each) for each in generator.integers(0, high, lanes)]


@pytest.mark.parametrize("text", FORMS)
def test_a_form_runs_on_any_bits(text: str) -> None:
    """In both modes of the processor alike, with results of the right kind and shape."""
    decoded = instruction(text)
    op = decode(decoded)
    wanted = flat(decoded.operands[op.destinations :])
    registers = [each for each in wanted if isinstance(each, Register | Negated)]
    lanes = 64
    sources = [random_source(each, lanes, seed) for seed, each in enumerate(registers)]
    if isinstance(op, LaneOp):
        run(text, *sources, raw=True)
        return
    mask = None if op.member_mask is None else wanted[op.member_mask]
    everyone = [0xFFFFFFFF] * lanes
    pairs = zip(registers, sources, strict=True)
    warp(text, *[everyone if register is mask else source for register, source in pairs])


REFUSED = [
    # No such opcode here.
    "popcount.b32 %r0, %r1",
    # Modifiers, types and operands that the instruction has not, or that are not exact here.
    "add.sat.u32 %r0, %r1, %r2",
    "add.cc.u32 %r0, %r1, %r2",
    "addc.u32 %r0, %r1, %r2",
    "add.rn.sat.f64 %fd0, %fd1, %fd2",
    "add.ftz.bf16 %rs0, %rs1, %rs2",
    "add.s8 %rs0, %rs1, %rs2",
    "add.s32 %r0, %r1",
    "add.s32.volatile %r0, %r1, %r2",
    "mul.s32 %r0, %r1, %r2",
    "mul.wide.s64 %rd0, %rd1, %rd2",
    "mad.lo.sat.s32 %r0, %r1, %r2, %r3",
    "fma.f32 %f0, %f1, %f2, %f3",
    "fma.rn.f32 %f0, %f1, %f2",
    "div.f32 %f0, %f1, %f2",
    "div.approx.f64 %fd0, %fd1, %fd2",
    "min.relu.u32 %r0, %r1, %r2",
    "min.xorsign.f32 %f0, %f1, %f2",
    "max.abs.f64 %fd0, %fd1, %fd2",
    "setp.lo.s32 %p0, %r1, %r2",
    "setp.lt.b32 %p0, %r1, %r2",
    "setp.equ.u32 %p0, %r1, %r2",
    "setp.lt.f16x2 %p0, %r1, %r2",
    "setp.lt.and.f32 %p0, %f1, %f2",
    "set.lt.u16.u32 %rs0, %r1, %r2",
    "slct.ftz.u32.s32 %r0, %r1, %r2, %r3",
    "selp.b32 %r0, %r1, %r2, %r3",
    "and.u32 %r0, %r1, %r2",
    "lop3.b32 %r0, %r1, %r2, %r3, %r4",
    "lop3.b32 %r0, %r1, %r2, %r3, 256",
    "lop3.or.b32 %r0, %r1, %r2, %r3, 3, %p1",
    "shl.s32 %r0, %r1, %r2",
    "shf.l.b32 %r0, %r1, %r2, %r3",
    "prmt.b32.f5e %r0, %r1, %r2, %r3",
    "dp4a.s32 %r0, %r1, %r2, %r3",
    "dp2a.s32.s32 %r0, %r1, %r2, %r3",
    "vadd4.u32.u32.u32.sat.add %r0, %r1, %r2, %r3",
    "vadd4.u32.u32.u32 %r0, %r1, %r2",
    "cvt.f16.f32 %rs0, %f1",
    "cvt.s32.f32 %r0, %f1",
    "cvt.rn.s32.f32 %r0, %f1",
    "cvt.f32.s32 %f0, %r1",
    "cvt.rn.e4m3x2.f32 %rs0, %f1, %f2",
    "cvt.rz.satfinite.e4m3x2.f32 %rs0, %f1, %f2",
    "cvt.rn.satfinite.e2m1x2.f16x2 %b0, %r1",
    "cvt.rs.satfinite.e4m3x4.f32 %r0, {%f1, %f2, %f3, %f4}, %r5",
    "cvt.rn.f16x2.f32 %r0, %f1",
    "cvt.rn.ftz.bf16.f16 %rs0, %rs1",
    "cvt.rn.b32.f32 %r0, %f1",
    "cvt.pack.sat.u32.s32 %r0, %r1, %r2",
    "cvt.pack.sat.u8.s32 %r0, %r1, %r2",
    "cvt.pack.u16.s32 %r0, %r1, %r2",
    "ex2.approx.ftz.f16 %rs0, %rs1",
    "ex2.approx.bf16 %rs0, %rs1",
    "tanh.f32 %f0, %f1",
    "sin.rn.f32 %f0, %f1",
    "sqrt.approx.f64 %fd0, %fd1",
    "mov.f32 %f0, 1",
    "mov.b32 %r0, {%r1, %r2}",
    "mov.b128 %rd0, %rd1",
    "shfl.bfly.b32 %r0, %r1, 1, 31",
    "shfl.sync.bfly.b64 %rd0, %rd1, 1, 31, -1",
    "vote.all.pred %p0, %p1",
    "redux.sync.add.f32 %f0, %f1, -1",
    "redux.sync.min.b32 %r0, %r1, -1",
    "redux.sync.min.abs.s32 %r0, %r1, -1",
    "elect.sync %r0, -1",
    "movmatrix.sync.aligned.m8n8.b16 %r0, %r1",
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3}",
]  # fmt: skip


FOUR = "{%r0, %r1, %r2, %r3}"
CLAMPED = "mma.sync.aligned.m16n8k8.row.col.satfinite.f32.f16.f16.f32"
PRODUCTS = [
    f"{CLAMPED} {FOUR}, {{%r4, %r5}}, {{%r6}}, {FOUR}",
    f"mma.sync.aligned.m16n8k8.col.col.f32.f16.f16.f32 {FOUR}, {{%r4, %r5}}, {{%r6}}, {FOUR}",
    f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16 {FOUR}, {{%r4, %r5}}, {{%r6}}, {{%r7, %r8}}",
    f"mma.sync.aligned.m16n8k8.row.col.f32.f16.bf16.f32 {FOUR}, {{%r4, %r5}}, {{%r6}}, {FOUR}",
    f"mma.sync.aligned.m16n8k16.row.col.s32.s8.s4.s32 {FOUR}, {{%r4, %r5}}, {{%r6}}, {FOUR}",
    f"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {FOUR}, {FOUR}, {{%r6}}, {FOUR}",
    f"wmma.mma.sync.aligned.row.col.m16n16k8.f32.f32 {FOUR}, {FOUR}, {FOUR}, {FOUR}",
]


@pytest.mark.parametrize("text", REFUSED + PRODUCTS)
def test_what_is_not_exact_is_refused_by_name(text: str) -> None:
    decoded = instruction(text)
    with pytest.raises(UnsupportedError) as caught:
        decode(decoded)
    assert caught.value.instruction is decoded
    assert decoded.name in caught.value.what


SCALED = ("mma.sync.aligned.kind::{}.block_scale{}.m16n8k64.row.col.f32.e2m1.e2m1.f32.{}"
          " {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}},"
          " {{%r10, %r11, %r12, %r13}}, %r14, {{{}, {}}}, %r15, {{0, 0}}")  # fmt: skip


@pytest.mark.parametrize(
    "parts",
    [
        ("mxf4", ".scale_vec::4X", "ue8m0", 0, 0),
        ("mxf4", ".scale_vec::2X", "ue4m3", 0, 0),
        ("mxf4", ".scale_vec::2X", "ue8m0", 1, 0),
        ("mxf4", ".scale_vec::2X", "ue8m0", 0, 2),
        ("mxf4", ".scale_vec::2X", "ue8m0", "%r1", 0),
        ("mxf4nvf4", "", "ue4m3", 0, 0),
        ("mxf4nvf4", ".scale_vec::2X", "ue4m3", 0, 0),
        ("mxf4nvf4", ".scale_vec::4X", "ue4m3", 2, 0),
        ("mxf5", ".scale_vec::2X", "ue8m0", 0, 0),
    ],
)
def test_scales_and_selectors_that_do_not_exist_are_refused(parts: tuple[object, ...]) -> None:
    decode(instruction(SCALED.format("mxf4", "", "ue8m0", 2, 1)))
    with pytest.raises(UnsupportedError):
        decode(instruction(SCALED.format(*parts)))


def test_a_register_that_is_too_narrow_is_refused() -> None:
    for text in ("add.s32 %r0, %rs1, %r2", "add.f32 %f0, %rd1, %f2", "cvt.f32.f16 %f0, %r1",
                 "add.s32 %r0, %p1, %r2", "selp.b64 %rd0, %r1, %rd2, %p1"):  # fmt: skip
        with pytest.raises(UnsupportedError):
            decode(instruction(text))


def test_constants_of_the_wrong_kind_are_refused() -> None:
    for text in ("add.f32 %f0, %f1, 1", "add.f32 %f0, %f1, 0d3FF0000000000000",
                 "add.f64 %fd0, %fd1, 0f3F800000", "add.s64 %rd0, %rd1, 0f3F800000"):  # fmt: skip
        with pytest.raises(UnsupportedError):
            decode(instruction(text))


def test_special_registers_may_be_sources() -> None:
    """Their width is not known beforehand; the executor gives what they are."""
    form = instruction("add.s32 %r0, %r1, %r2")
    given = Instruction("add", ("s32",), (form.operands[0], Special("%tid.x"), form.operands[2]),
                        None, 1)  # fmt: skip
    op = decode(given)
    assert isinstance(op, LaneOp)
    for width in ("u4", "u8", "u2"):
        (found,) = op.run(np.array([5, 6], width), stored([1, 2], form.operands[2]))
        assert found.astype(np.uint32).tolist() == [6, 8]
