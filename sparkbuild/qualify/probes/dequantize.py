"""Probes of the conversions from quantised blocks: whole tensors, and rows by index."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from typing import Any, Final

import numpy as np

from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected, expected_bfloat16
from sparkbuild.qualify.probes.entries import (
    BFLOAT16,
    FLOAT,
    HALF,
    Function,
    Type,
    template_entry,
)
from sparkbuild.qualify.probes.inputs import Blocks, random_blocks
from sparkbuild.qualify.probes.launching import fastdiv, generator, longs, sizes
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts, TensorType, evaluate
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch

CONVERT: Final = "ggml-cuda/convert.cu"
ROWS: Final = "ggml-cuda/getrows.cu"
READ: Final = "ggml-cuda/dequantize.cuh"

UNIT: Final = "dequantize"
_SCOPE: Final = "rows"
"""The namespace that the unit puts getrows.cu in: it and convert.cu include the same header."""
ELEMENTS: Final = 16384
"""Values of a launch: 64 super-blocks, which hold every index of the largest table once."""

_PARAMETERS: Final = {
    (CONVERT, "dequantize_block"): (
        "vx", "y", "ne00", "ne01", "ne0203", "ne02", "s01", "s02", "s03",
    ),
    (ROWS, "k_get_rows"): (
        "src0", "src1", "dst", "ne00", "ne11", "ne12_fdv", "s1", "s2", "s3", "nb01", "nb02",
        "nb03", "s10", "s11", "s12",
    ),
}  # fmt: skip
"""What the launches fill, by file and kernel; ``k_get_rows_kq`` takes what ``k_get_rows`` takes."""

_FORMATS: Final = {"f32": FLOAT, "f16": HALF, "bf16": BFLOAT16}
_WHY: Final = "the products are exact in f32; one rounding where something is added, one to store"

_Launch = Callable[[Blocks, Buffer], Launch]


def _count(kind: TensorType, *, checked: bool) -> int:
    """Values of a launch; fewer than the threads take where the kernel is told how many."""
    return ELEMENTS - 3 * kind.elements if checked else ELEMENTS


def unit_text(facts: SourceFacts) -> str:
    """The unit of conversions and of rows by index, whose instances the source's switch names."""
    lines = [line for kind in facts.types.values() if (line := _rows_line(facts, kind)) is not None]
    units = resources.files("sparkbuild.qualify.probes").joinpath("units")
    return units.joinpath("dequantize.cu").read_text() + "\n".join(lines) + "\n};\n"


def dequantize_probes(facts: SourceFacts, references: References) -> tuple[Probe, ...]:
    """One probe for each type and each format that a tensor is converted to."""
    found = []
    for kind in facts.types.values():
        if not references.can(kind.name):
            continue
        for name, mangled in _FORMATS.items():
            conversion = _conversion(facts, kind, mangled)
            if conversion is not None:
                found.append(_probe(facts, references, kind, name, conversion))
        rows = _rows(facts, kind)
        if rows is not None:
            found.append(_rows_probe(facts, references, kind, rows))
    return tuple(found)


def block_values(references: References, blocks: Blocks) -> Bounded:
    """What blocks stand for: quants times the scale, which f32 holds, and what is added to that."""
    name = blocks.kind.name
    unit = references.values(name, blocks.unit().data)
    scales = blocks.scales().reshape(len(unit), -1)
    found = exactly(unit * np.repeat(scales, unit.shape[1] // scales.shape[1], 1)) * 1.0
    offset = blocks.offset()
    if offset is not None:
        unit = references.values(name, offset.data)
        added = blocks.half("m") if blocks.kind.field("m") else blocks.half("dmin")
        found = found + unit * added[:, None]
    return found


def stored(found: Bounded, name: str) -> Expected:
    """As a buffer of f32, f16 or, as 16-bit words, bf16 must hold it."""
    if name != "bf16":
        return expected(found, _WHY, np.float32 if name == "f32" else np.float16)
    bits = expected_bfloat16(found, _WHY)
    # Bits tell the zeros apart, and a kernel's way to zero decides its sign: f32 judges those.
    judged = found.value != 0 if bits.defined is None else bits.defined & (found.value != 0)
    return replace(bits, defined=judged)


def _probe(
    facts: SourceFacts,
    references: References,
    kind: TensorType,
    name: str,
    conversion: tuple[_Launch, int],
) -> Probe:
    launcher, count = conversion
    dtype: Any = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[name]

    def cases(seed: int) -> tuple[Case, ...]:
        rng = generator(seed, f"dequantize {kind.name}")
        blocks = random_blocks(kind, count // kind.elements, rng, wild=name == "f32")
        dst = Buffer("dst", np.zeros(count, dtype), writable=True)
        launch = launcher(blocks, dst)
        found = block_values(references, blocks).map(np.ravel)
        return (Case(f"{count} values", launch, {"dst": stored(found, name)}),)

    function = f"dequantize_{kind.name}"
    entry = launcher(Blocks(kind, np.zeros((1, kind.size), np.uint8)), Buffer("dst", np.zeros(1)))
    return Probe(
        name=f"dequantize {kind.name} to {name}",
        unit=UNIT,
        entry=entry.entry,
        kind="dequantize",
        functions=(f"dequantize_block_{kind.name}", *facts.callees(READ, function)),
        cases=cases,
        types=(kind.name,),
    )


def _conversion(facts: SourceFacts, kind: TensorType, mangled: Type) -> tuple[_Launch, int] | None:
    """How ``ggml_get_to_fp32_cuda`` has a type converted, and how many values; None if not."""
    switch = facts.body(CONVERT, "ggml_get_to_fp32_cuda")
    found = re.search(rf"case {kind.enumerator}:\s*return (\w+)(<[^>]*>)?;", switch)
    if found is None:
        return None
    if found[1] == "dequantize_block_cont_cuda":
        return _small_conversion(facts, kind, found[2], mangled)
    launch = re.search(
        r"(\w+)<<<nb, (\d+), 0, stream>>>\(vx, y(?:, (\w+))?\)", facts.body(CONVERT, found[1])
    )
    blocks = re.search(r"const int nb\s*= ([^;]+);", facts.body(CONVERT, found[1]))
    if launch is None or blocks is None:
        return None
    kernel, threads, more = launch.groups()
    values = _count(kind, checked=more is not None)
    count = evaluate(blocks[1], lambda name: values if name == "k" else facts.constant(name))

    def launcher(blocks: Blocks, dst: Buffer) -> Launch:
        arguments: list[Argument] = [Buffer("x", blocks.data), dst]
        if more == "nb32":
            arguments.append(np.int32(values // 32))
        elif more == "k":
            arguments.append(np.int64(values))
        entry = template_entry(kernel, mangled)
        return Launch(entry, (count, 1, 1), (int(threads), 1, 1), arguments)

    return launcher, values


def _small_conversion(
    facts: SourceFacts, kind: TensorType, template: str, mangled: Type
) -> tuple[_Launch, int] | None:
    """The kernel of types with small blocks, which reads two values a thread."""
    names = [part.strip() for part in template.strip("<>").split(",")]
    if len(names) != 3 or not _known(facts, CONVERT, "dequantize_block"):
        return None
    qk, qr = (facts.constant(name) for name in names[:2])
    count = _count(kind, checked=True)

    def launcher(blocks: Blocks, dst: Buffer) -> Launch:
        per_row = np.int64(count // qk)
        arguments: list[Argument] = [
            Buffer("x", blocks.data), dst, np.int64(count), np.int64(1), np.int64(1),
            fastdiv(1), per_row, per_row, per_row,
        ]  # fmt: skip
        entry = template_entry("dequantize_block", qk, qr, Function(names[2]), mangled)
        return Launch(entry, (ELEMENTS // 512, 1, 1), (256, 1, 1), arguments)

    return launcher, count


def _known(facts: SourceFacts, file: str, kernel: str, other: str = "") -> bool:
    """Whether a kernel, or another one that is like it, takes what the launches give."""
    return facts.parameters(file, other or kernel) == _PARAMETERS[file, kernel]


def _rows_line(facts: SourceFacts, kind: TensorType) -> str | None:
    """A type's line of the table, from ``ggml_cuda_get_rows_switch_src0_type``."""
    found = _rows_case(facts, kind)
    if found is None:
        return None
    if found[0] == "q":
        return f"    SMALL({', '.join(found[1])})"
    return f"    SUPER({found[1][1]})"


def _rows_case(facts: SourceFacts, kind: TensorType) -> tuple[str, tuple[str, ...]] | None:
    switch = facts.body(ROWS, "ggml_cuda_get_rows_switch_src0_type")
    small = re.search(rf"case {kind.enumerator}:\s*get_rows_cuda_q<(\w+), (\w+), (\w+)>\(", switch)
    if small is not None:
        return ("q", small.groups()) if _known(facts, ROWS, "k_get_rows") else None
    large = re.search(
        rf"case {kind.enumerator}:\s*get_rows_cuda_kq<(\d+), dst_t, (\w+)<dst_t>>\(", switch
    )
    known = _known(facts, ROWS, "k_get_rows", "k_get_rows_kq")
    return ("kq", large.groups()) if large is not None and known else None


def _rows(facts: SourceFacts, kind: TensorType) -> tuple[str, int, int] | None:
    """Entry, threads, and elements that one block in y takes on."""
    found = _rows_case(facts, kind)
    if found is None:
        return None
    shape, names = found
    if shape == "q":
        qk, qr = (facts.constant(name) for name in names[:2])
        entry = template_entry("k_get_rows", qk, qr, Function(names[2]), FLOAT, scope=_SCOPE)
        return entry, 256, 512
    entry = template_entry("k_get_rows_kq", FLOAT, Function(names[1]), scope=_SCOPE)
    return entry, int(names[0]), 256


def _rows_probe(
    facts: SourceFacts, references: References, kind: TensorType, rows: tuple[str, int, int]
) -> Probe:
    entry, threads, part = rows

    def cases(seed: int) -> tuple[Case, ...]:
        rng = generator(seed, f"dequantize {kind.name}")
        return (_rows_case_of(entry, threads, part, references, kind, rng),)

    return Probe(
        name=f"get_rows {kind.name}",
        unit=UNIT,
        entry=entry,
        kind="get_rows",
        functions=(
            "k_get_rows" if part == 512 else "k_get_rows_kq",
            *facts.callees(READ, f"dequantize_{kind.name}"),
        ),
        cases=cases,
        types=(kind.name,),
    )


def _rows_case_of(
    entry: str, threads: int, part: int, references: References, kind: TensorType,
    rng: np.random.Generator,
) -> Case:  # fmt: skip
    """Rows of 1,024 in 2 x 3 matrices of eight; of each five are fetched, some of them twice."""
    width, rows, fetched, outer, inner = 1024, 8, 5, 3, 2
    per_row = width // kind.elements
    blocks = random_blocks(kind, outer * inner * rows * per_row, rng)
    ids = rng.integers(0, rows, (outer, inner, fetched), np.int32)
    dst = Buffer("dst", np.full((*ids.shape, width), np.nan, np.float32), writable=True)
    row = per_row * kind.size
    arguments: list[Argument] = [
        Buffer("x", blocks.data), Buffer("ids", ids), dst, *longs(width, inner), fastdiv(outer),
        *sizes(width, width * fetched, width * fetched * inner),
        *sizes(row, row * rows, row * rows * inner), *sizes(1, fetched, fetched * inner),
    ]  # fmt: skip
    launch = Launch(entry, (fetched, width // part, outer * inner), (threads, 1, 1), arguments)
    shape = (outer, inner, rows, width)
    values = block_values(references, blocks).map(lambda some: some.reshape(shape))
    found = values.map(lambda some: np.take_along_axis(some, ids[..., None], 2))
    label = f"{outer} x {inner} x {fetched} rows of {width}"
    return Case(label, launch, {"dst": stored(found, "f32")})
