"""``mma.sync`` and ``wmma.mma``: products exact, their sum in double, rounded once.

A GPU aligns the products to the largest exponent and cuts off what lies a few bits below it, adding
in one step or two. ``errors.mma_bound`` says how far its result may be from the one here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, WarpOp
from sparkbuild.qualify.alu.convert_packed import decoded
from sparkbuild.qualify.alu.floats import canonical
from sparkbuild.qualify.alu.flush import gradual
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.fragments import (
    WMMA_SHAPES,
    gather,
    lay_a,
    lay_b,
    lay_c,
    scatter_d,
    wmma_lay,
    wmma_scatter,
)
from sparkbuild.qualify.alu.half import F16_TABLE, bf16_to_float
from sparkbuild.qualify.alu.rounding import FORMATS, encode
from sparkbuild.qualify.alu.types import F16, F32, F64, I8, I32, I64, TYPES, U8, U16, U32
from sparkbuild.qualify.ptx.model import Instruction

SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
    "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8,
}  # fmt: skip
INTEGERS = {"s8", "u8", "s4", "u4"}
SMALL = {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}
# Shapes (m, n, k) of each type; f16 alone may accumulate in f16.
SHAPES: dict[str, set[str]] = {
    "f16": {"m16n8k8", "m16n8k16"},
    "bf16": {"m16n8k8", "m16n8k16"},
    "tf32": {"m16n8k4", "m16n8k8"},
    "s8": {"m8n8k16", "m16n8k16", "m16n8k32"},
    "s4": {"m8n8k32", "m16n8k32", "m16n8k64"},
    "f8": {"m16n8k16", "m16n8k32"},
}
KINDS = {"kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"}
Decoder = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """A product's shape, and the bits of one element of A and B as the registers hold it."""

    name: str
    m: int
    n: int
    k: int
    bits: int

    @property
    def a_registers(self) -> int:
        """Registers of A in each lane."""
        return self.m * self.k * self.bits // 1024

    @property
    def b_registers(self) -> int:
        """Registers of B in each lane."""
        return self.n * self.k * self.bits // 1024


def shape_of(form: Form, bits: int) -> Shape:
    """The shape that the instruction names; it is used up."""
    for name in form.modifiers:
        match = SHAPE.fullmatch(name)
        if match:
            form.modifiers.remove(name)
            return Shape(name, int(match[1]), int(match[2]), int(match[3]), bits)
    raise form.refusal("no shape")


def mma(instruction: Instruction) -> WarpOp:
    """``mma.sync.aligned`` of f16, bf16, tf32, small integers and floats, block scaled too."""
    form = Form(instruction)
    for name in ("sync", "aligned", "row", "col"):
        if not form.flag(name):
            form.refuse(f"without .{name}")
    kind = next((name for name in KINDS if form.flag(name)), "")
    if kind.startswith("kind::mx"):
        # Imported here: block scaling is built on this module.
        from sparkbuild.qualify.alu.mma_scaled import block_scaled  # noqa: PLC0415

        return block_scaled(form, kind)
    satfinite = form.flag("satfinite")
    if len(form.modifiers) != 5:
        form.refuse("its types")
    _, result, left, right, addend = form.modifiers
    del form.modifiers[1:]
    family = _family(form, left, right, kind)
    shape = shape_of(form, BITS[left])
    form.finish(shape.a_registers + shape.b_registers + _c_registers(shape, addend))
    if shape.name not in SHAPES[family]:
        form.refuse(f"shape .{shape.name} of .{left}")
    if family in {"s8", "s4"}:
        if (result, addend) != ("s32", "s32"):
            form.refuse(f"results .{result} from .{addend}")
        return _integer(form, shape, left, right, clamp=satfinite)
    accumulators = {"f16", "f32"} if family in {"f16", "f8"} else {"f32"}
    if satfinite or not {result, addend} <= accumulators or result != addend:
        form.refuse(f"results .{result} from .{addend}")
    decoders = decoder(left, padded=bool(kind)), decoder(right, padded=bool(kind))
    return _floating(form, shape, decoders, result)


def _family(form: Form, left: str, right: str, kind: str) -> str:
    """What both types belong to."""
    if left not in BITS or right not in BITS:
        form.refuse(f"types .{left} and .{right}")
    if left in SMALL and right in SMALL:
        if not kind and not {left, right} <= {"e4m3", "e5m2"}:
            form.refuse(f"types .{left} and .{right}")
        return "f8"
    if left in INTEGERS and right in INTEGERS and left[1:] == right[1:]:
        return f"s{left[1:]}"
    if left != right or kind:
        form.refuse(f"types .{left} and .{right}")
    return left


def _c_registers(shape: Shape, name: str) -> int:
    return shape.m * shape.n // 32 // (2 if name == "f16" else 1)


def decoder(name: str, *, padded: bool = False) -> Decoder:
    """Words along k, shape (warps, lines, words), as doubles of shape (warps, lines, k)."""
    if name == "f16":
        return lambda words: F16_TABLE.take(words.view(U16)).view(F32).astype(F64)
    if name == "bf16":
        return lambda words: bf16_to_float(words.view(U16)).astype(F64)
    if name == "tf32":
        # A register's low 13 bits are no part of a tf32.
        return lambda words: (words & U32.type(0xFFFFE000)).view(F32).astype(F64)
    if name in {"s8", "u8"}:
        return lambda words: words.view(I8 if name == "s8" else U8).astype(F32)
    if name in {"s4", "u4"}:
        nibbles = np.arange(16.0, dtype=F32)
        return _nibbles(np.where(nibbles > 7, nibbles - 16, nibbles) if name == "s4" else nibbles)
    table = np.tile(decoded(FORMATS[name]).astype(F64), 256 >> FORMATS[name].width)
    if name == "e2m1" and padded:
        # Four bits in the middle of their byte.
        table = table[np.arange(256) >> 2]
    return lambda words: table.take(words.view(U8))


def _nibbles(values: Any) -> Decoder:
    """Two values a byte, the low four bits first."""
    codes = np.arange(256)
    table = np.stack([values[codes & 15], values[codes >> 4]], axis=1)

    def run(words: Any) -> Any:
        halves = table.take(words.view(U8), axis=0)
        return halves.reshape(*words.shape[:-1], -1)

    return run


def sources_of(form: Form, used: Iterable[int]) -> Callable[[Sequence[Bits]], list[Bits]]:
    """What takes the words of some sources out of all of them."""
    readers = [(index, form.bits(index, TYPES["b32"]).reader) for index in used]
    return lambda bits: [read(bits[index]) for index, read in readers]


def _integer(form: Form, shape: Shape, left: str, right: str, *, clamp: bool) -> WarpOp:
    given = sources_of(form, range(len(form.sources)))
    read_a, read_b = decoder(left), decoder(right)
    first, second = shape.a_registers, shape.a_registers + shape.b_registers

    def run(active: Bits, *bits: Bits) -> tuple[Bits, ...]:
        words = gather(given(bits), len(active))
        a = read_a(lay_a(words[:first], shape.m))
        b = read_b(lay_b(words[first:second]))
        c = lay_c(words[second:], shape.m, I32)
        # At most 64 products of 16 bits: a float of 24 bits holds the sum exactly.
        product = np.matmul(a, b.transpose(0, 2, 1)).astype(I32)
        if clamp:
            total = np.clip(product.astype(I64) + c, -(1 << 31), (1 << 31) - 1).astype(I32)
        else:
            total = product + c
        return scatter_d(total)

    return WarpOp(run)


def _floating(form: Form, shape: Shape, decoders: tuple[Decoder, Decoder], result: str) -> WarpOp:
    given = sources_of(form, range(len(form.sources)))
    read_a, read_b = decoders
    first, second = shape.a_registers, shape.a_registers + shape.b_registers
    own = F16 if result == "f16" else F32

    def run(active: Bits, *bits: Bits) -> tuple[Bits, ...]:
        words = gather(given(bits), len(active))
        a = read_a(lay_a(words[:first], shape.m))
        b = read_b(lay_b(words[first:second]))
        c = lay_c(words[second:], shape.m, own)
        total = np.matmul(a, b.transpose(0, 2, 1)) + c
        return scatter_d(narrow(total, result))

    return WarpOp(gradual(run))


def narrow(total: Any, result: str) -> Any:
    """Doubles as codes of the accumulator's type."""
    if result == "f16":
        return encode(total, FORMATS["f16"], "rn").astype(U16)
    return canonical(total.astype(F32))


def wmma(instruction: Instruction) -> WarpOp:
    """``wmma.mma.sync.aligned`` of f16, in the layout that ``fragments`` chose.

    The layouts of A and B in memory were seen to when they were loaded.
    """
    form = Form(instruction)
    for name in ("mma", "sync", "aligned"):
        if not form.flag(name):
            form.refuse(f"without .{name}")
    if len(form.modifiers) != 5:
        form.refuse("its types")
    *layouts, shape, result, addend = form.modifiers
    if not set(layouts) <= {"row", "col"} or shape not in WMMA_SHAPES:
        form.refuse(f"shape .{shape}")
    if not {result, addend} <= {"f16", "f32"}:
        form.refuse(f"results .{result} from .{addend}")
    form.modifiers.clear()
    form.finish(16 + (4 if addend == "f16" else 8))
    given = sources_of(form, range(len(form.sources)))

    def run(active: Bits, *bits: Bits) -> tuple[Bits, ...]:
        words = gather(given(bits), len(active))
        a = wmma_lay(words[:8], shape, "a").astype(F64)
        b = wmma_lay(words[8:16], shape, "b").astype(F64)
        c = wmma_lay(words[16:], shape, "c")
        return wmma_scatter(narrow(np.matmul(a, b.transpose(0, 2, 1)) + c, result))

    return WarpOp(gradual(run))
