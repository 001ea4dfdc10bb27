"""Probes of MMQ: the tile loaders and dot products, through the source's own ``mul_mat_q``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from typing import Final

import numpy as np

from sparkbuild.qualify.probes.bounded import Bounded, expected
from sparkbuild.qualify.probes.entries import Argument, Enum, template_entry
from sparkbuild.qualify.probes.inputs import Blocks, random_blocks, random_halves
from sparkbuild.qualify.probes.launching import generator
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.probes.tiles_config import (
    MMQ,
    TileConfig,
    always_fp4,
    has_fp4,
    tile_config,
)
from sparkbuild.qualify.probes.tiles_fp4 import fp4_case
from sparkbuild.qualify.probes.tiles_launch import Shape, tile_launch
from sparkbuild.qualify.probes.tiles_split import split_case, split_depth
from sparkbuild.qualify.probes.tiles_sums import Columns, combine_tile, make_tile
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts, TensorType

NARROW: Final = 8
"""Columns of the smallest tile: the loaders and dot products are those of all."""
PLAIN_UNIT: Final = "mmq_plain"
WIDE: Final = 48
"""From here on a warp takes 32 rows of x instead of 16, in two halves."""

_WIDE_TYPES: Final = ("q8_0", "q4_K", "q3_K")
"""One type for each of the dot products that most types share."""

WHY: Final = (
    "every rounding of f32 in the order of the tensor-core dot product, f16 where the loader keeps "
    "f16; zero where all steps are exact"
)


def configs(facts: SourceFacts, arch: str) -> tuple[TileConfig, ...]:
    """The instances that are probed, in the order of their types' numbers."""
    found = []
    for kind in facts.types.values():
        if has_fp4(arch):
            found.append(tile_config(facts, kind, NARROW, fp4=True))
            if always_fp4(facts, kind):
                continue
        found.append(tile_config(facts, kind, NARROW))
        if kind.name in _WIDE_TYPES:
            found.append(tile_config(facts, kind, WIDE))
    return tuple(config for config in found if config is not None)


def unit_of(config: TileConfig) -> str:
    """The unit that an instance is compiled in."""
    if config.columns == WIDE:
        return "mmq_wide"
    super_blocks = config.kind.elements == 256
    return "mmq_super" if super_blocks else PLAIN_UNIT


def table_lines(facts: SourceFacts, arch: str) -> dict[str, list[str]]:
    """What each unit's table must hold."""
    lines: dict[str, list[str]] = {}
    for config in configs(facts, arch):
        lines.setdefault(unit_of(config), []).append(f"TILE({config.instance})")
    return lines


def unit_text(lines: Sequence[str]) -> str:
    """A unit whose table has these lines."""
    template = resources.files("sparkbuild.qualify.probes").joinpath("units/mmq_tiles.cu")
    return template.read_text() + "".join(f"    {line}\n" for line in lines) + "};\n"


def has_tiles(facts: SourceFacts, kind: TensorType) -> bool:
    """Whether MMQ has a type at all, whatever of it is understood here."""
    return f"case {kind.enumerator}:" in facts.body(MMQ, "ggml_cuda_mmq_get_util_funcs")


def tile_entry(facts: SourceFacts, config: TileConfig, kernel: str = "mul_mat_q") -> str:
    """The pattern of an instance's name."""
    arguments: list[Argument] = [
        Enum("ggml_type", config.kind.number),
        config.columns,
        config.fallback,
    ]
    if config.chosen:
        arguments.append(Enum("ggml_prec", facts.enums["ggml_prec"][config.precision]))
    return template_entry(kernel, *arguments)


def tile_probes(facts: SourceFacts, references: References, arch: str) -> tuple[Probe, ...]:
    """One probe for each instance that can be judged."""
    return tuple(
        _probe(facts, references, config)
        for config in configs(facts, arch)
        if references.can(config.kind.name)
    )


def tile_functions(config: TileConfig) -> tuple[str, ...]:
    """The device functions that an instance is made of."""
    return ("mul_mat_q", "mul_mat_q_process_tile", config.load, config.dot, config.write)


def random_columns(config: TileConfig, depth: int, count: int, rng: np.random.Generator) -> Columns:
    """``count`` columns of q8_1; the first half have powers of two for scales, small numbers."""
    plain = count // 2
    q = rng.integers(-128, 128, (depth, count))
    q[:, :plain] = rng.integers(-7, 8, (depth, plain))
    d, s = (
        np.stack([random_halves(count, rng) for _ in range(rows)]).astype(np.float64)
        for rows in (depth // 32, depth // (16 if config.layout == "D2S6" else 32))
    )
    if config.layout == "D2S6":
        d = np.repeat(d[::2], 2, 0)
    if config.layout == "D4":  # all of f32
        low = rng.integers(0, 1 << 23, (depth // 32, count - plain)) / (1 << 23)
        d[:, plain:] = np.ldexp(1 + low, rng.integers(-8, 3, low.shape)).astype(np.float32)
    return Columns(q.astype(np.float64), d, s)


def tile_values(
    config: TileConfig, references: References, blocks: Blocks, columns: Columns, rows: int
) -> Bounded:
    """What a product must be, (columns, rows). Raises KeyError for a dot product without a rule."""
    found = combine_tile(config, make_tile(references, blocks, columns, rows))
    if found is None:
        raise KeyError(f"no rule for {config.dot}")
    return found


def _probe(facts: SourceFacts, references: References, config: TileConfig) -> Probe:
    entry = tile_entry(facts, config)
    precision = " fp4" if config.fp4 else ""
    wide = f" {config.columns} columns" if config.columns != NARROW else ""
    name = f"mul_mat_q {config.kind.name}{precision}{wide}"
    make: Callable[[np.random.Generator], Case] = (
        (lambda rng: fp4_case(entry, config, references, rng))
        if config.fp4
        else (lambda rng: _case(entry, config, references, rng))
    )

    def cases(seed: int) -> tuple[Case, ...]:
        return (make(generator(seed, name)),)

    return Probe(
        name=name,
        unit=unit_of(config),
        entry=entry,
        kind="load_tiles",
        functions=tile_functions(config),
        cases=cases,
        types=(config.kind.name,),
    )


def _case(entry: str, config: TileConfig, references: References, rng: np.random.Generator) -> Case:
    wide = config.columns == WIDE
    depth = 2 * config.depth if wide else split_depth(config)
    blocks, columns = random_product(config, config.rows, config.columns, depth, rng)
    y = columns.data(config.layout)

    def values(start: int, end: int) -> Bounded:
        part = cut_product(blocks, columns, config.rows, start, end)
        return tile_values(config, references, *part, config.rows)

    if not wide:
        return split_case(entry, config, blocks.data, y, values, why=WHY)
    shape = Shape(config.rows, config.columns, depth)
    launch = tile_launch(entry, config, shape, blocks.data, y)
    label = f"{shape.rows} x {shape.columns} x {depth}"
    return Case(label, launch, {"dst": expected(values(0, depth), WHY)})


def random_product(
    config: TileConfig, rows: int, columns: int, depth: int, rng: np.random.Generator
) -> tuple[Blocks, Columns]:
    """Both sides of a product, x without the ends of f16: some loaders multiply in it."""
    count = rows * depth // config.kind.elements
    blocks = random_blocks(config.kind, count, rng, wild=False)
    return blocks, random_columns(config, depth, columns, rng)


def cut_product(
    blocks: Blocks, columns: Columns, rows: int, start: int, end: int
) -> tuple[Blocks, Columns]:
    """Both sides from one element of the inner dimension to another."""
    size, per = blocks.kind.size, blocks.kind.elements
    by_row = blocks.data.reshape(rows, -1, size)[:, start // per : end // per]
    sums = len(columns.q) // len(columns.s)
    cut = Columns(
        columns.q[start:end],
        columns.d[start // 32 : end // 32],
        columns.s[start // sums : end // sums],
    )
    return Blocks(blocks.kind, np.ascontiguousarray(by_row).reshape(-1, size)), cut
