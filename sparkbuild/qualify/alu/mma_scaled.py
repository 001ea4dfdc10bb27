"""``mma.sync`` with block scaling: 4, 6 and 8-bit floats with a scale for each block along k."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, WarpOp
from sparkbuild.qualify.alu.convert_packed import decoded
from sparkbuild.qualify.alu.flush import gradual
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.fragments import gather, lay_a, lay_b, lay_c, scatter_d
from sparkbuild.qualify.alu.mma import (
    SMALL,
    Decoder,
    Shape,
    _nibbles,
    decoder,
    narrow,
    shape_of,
    sources_of,
)
from sparkbuild.qualify.alu.rounding import FORMATS
from sparkbuild.qualify.alu.types import F32, F64, U8
from sparkbuild.qualify.ptx.model import Immediate

# For each kind, the scales a row may have, the shape and the types of scales.
KINDS: dict[str, tuple[dict[str, int], str, set[str]]] = {
    "kind::mxf8f6f4": ({"scale_vec::1X": 1}, "m16n8k32", {"ue8m0"}),
    "kind::mxf4": ({"scale_vec::2X": 2}, "m16n8k64", {"ue8m0"}),
    "kind::mxf4nvf4": ({"scale_vec::2X": 2, "scale_vec::4X": 4}, "m16n8k64", {"ue8m0", "ue4m3"}),
}
DEFAULT = {"kind::mxf8f6f4": "scale_vec::1X", "kind::mxf4": "scale_vec::2X"}


def block_scaled(form: Form, kind: str) -> WarpOp:
    """``.block_scale``: sources A, B, C, scales of A, {byte, thread}, scales of B, {byte, thread}.

    Thread selector t of A: lanes 2 t and 2 t + 1 of each group of four give the scales of rows
    l / 4 and l / 4 + 8; of B: lane t of each group gives those of column l / 4. The byte selector
    says where in their register the scales of that lane begin.
    """
    sizes, shape_name, scale_types = KINDS[kind]
    if not form.flag("block_scale"):
        form.refuse("without .block_scale")
    size = form.pick(*sizes, default=DEFAULT.get(kind))
    if len(form.modifiers) != 6:
        form.refuse("its types")
    _, result, left, right, addend, scale = form.modifiers
    del form.modifiers[1:]
    if (result, addend) != ("f32", "f32") or not {left, right} <= SMALL or scale not in scale_types:
        form.refuse(f"types .{left}, .{right}, .{scale}")
    packed = kind != "kind::mxf8f6f4"
    if packed and (left, right) != ("e2m1", "e2m1"):
        form.refuse(f"types .{left} and .{right}")
    if size == "scale_vec::2X" and scale != "ue8m0":
        form.refuse(f".{size} of .{scale}")
    shape = shape_of(form, 4 if packed else 8)
    form.finish(shape.a_registers + shape.b_registers + 4 + 6)
    if shape.name != shape_name:
        form.refuse(f"shape .{shape.name}")
    if packed:
        # Halves up to 6: a float holds each block's sum exactly.
        values = _nibbles(decoded(FORMATS["e2m1"]))
        return _product(form, shape, (values, values), sizes[size], scale)
    decoders = decoder(left, padded=True), decoder(right, padded=True)
    return _product(form, shape, decoders, sizes[size], scale)


def _selectors(form: Form, first: int, count: int, threads: int) -> tuple[int, int]:
    """The byte and the thread that hold scales, which must be constants in range."""
    byte, thread = (form.sources[first + index] for index in (0, 1))
    if not (isinstance(byte, Immediate) and isinstance(thread, Immediate)):
        form.refuse("a selector that is no constant")
    if byte.value not in range(0, 4, count) or thread.value not in range(threads):
        form.refuse(f"selectors {byte.value} and {thread.value}")
    return byte.value, thread.value


def scale_table(name: str) -> Any:
    """The value of each code of a scale: powers of two, or e4m3 without a sign."""
    if name == "ue8m0":
        table = np.exp2(np.arange(256.0) - 127)
        table[255] = np.nan
        return table
    return decoded(FORMATS["e4m3"]).astype(F64)[np.arange(256) & 127]


def _product(
    form: Form, shape: Shape, decoders: tuple[Decoder, Decoder], count: int, scale: str
) -> WarpOp:
    first, second = shape.a_registers, shape.a_registers + shape.b_registers
    third = second + 4
    byte_a, thread_a = _selectors(form, third + 1, count, 2)
    byte_b, thread_b = _selectors(form, third + 4, count, 4)
    used = [*range(third + 1), third + 3]
    given = sources_of(form, used)
    table, block = scale_table(scale), shape.k // count

    def run(active: Bits, *bits: Bits) -> tuple[Bits, ...]:
        warps = len(active)
        words = gather(given(bits), warps)
        groups = words[third:].view(U8).reshape(2, warps, 8, 4, 4)
        lanes_a = groups[0][:, :, 2 * thread_a : 2 * thread_a + 2, byte_a : byte_a + count]
        lanes_b = groups[1][:, :, thread_b, byte_b : byte_b + count]
        # (warps, blocks, rows, 1) and (warps, blocks, 1, columns).
        scales_a = table.take(lanes_a).transpose(0, 3, 2, 1).reshape(warps, count, 16, 1)
        scales_b = table.take(lanes_b).transpose(0, 2, 1).reshape(warps, count, 1, 8)
        a = decoders[0](lay_a(words[:first], shape.m)).reshape(warps, 16, count, block)
        b = decoders[1](lay_b(words[first:second])).reshape(warps, 8, count, block)
        blocks = np.matmul(a.transpose(0, 2, 1, 3), b.transpose(0, 2, 3, 1)).astype(F64)
        blocks *= scales_a
        blocks *= scales_b
        c = lay_c(words[second:third], shape.m, F32)
        return scatter_d(narrow(blocks.sum(axis=1) + c, "f32"))

    return WarpOp(gradual(run))
