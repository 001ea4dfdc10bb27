"""The rest of ``mul_mat_q``, on one simple type: many tiles, experts, rows short, parts added."""

from __future__ import annotations

from typing import Final

import numpy as np

from sparkbuild.qualify.probes.bounded import exactly, expected
from sparkbuild.qualify.probes.launching import generator
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.probes.tiles import (
    NARROW,
    PLAIN_UNIT,
    WHY,
    random_product,
    tile_entry,
    tile_functions,
    tile_values,
)
from sparkbuild.qualify.probes.tiles_config import MMQ, TileConfig, tile_config
from sparkbuild.qualify.probes.tiles_launch import Shape, fixup_launch, tile_launch
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts

TYPE: Final = "q8_0"
"""Its loader and dot product are the shortest; what is probed here is around them."""

_SHORT: Final = 101
"""Rows that fill no tile: only then is the ``fallback`` taken."""
_PARTS: Final = 3
"""CUDA blocks that share one tile's inner dimension."""
_FIXUP: Final = "mul_mat_q_stream_k_fixup"
_FIXUP_PARAMETERS: Final = (
    "ids_dst", "expert_bounds", "dst", "tmp_last_tile", "blocks_per_ne00", "nrows_x", "ncols_dst",
    "stride_col_dst", "nchannels_y", "stride_channel_dst", "nsamples_y", "stride_sample_dst",
    "ntx",
)  # fmt: skip
"""What the launch fills, in this order."""


def table_lines(facts: SourceFacts) -> tuple[str, ...]:
    """What the unit of plain types holds for these probes."""
    found = _configs(facts)
    if found is None:
        return ()
    full, short = found
    return f"TILE({short.instance})", f"FIXUP({full.instance})"


def more_probes(facts: SourceFacts, references: References) -> tuple[Probe, ...]:
    """The further probes of the one type."""
    found = _configs(facts)
    if found is None:
        return ()
    full, short = found
    entry, fixup = tile_entry(facts, full), tile_entry(facts, full, _FIXUP)

    def tiles(seed: int) -> tuple[Case, ...]:
        return (_tiles(entry, full, references, seed),)

    def experts(seed: int) -> tuple[Case, ...]:
        return (_experts(entry, full, references, seed),)

    def rows(seed: int) -> tuple[Case, ...]:
        return (_rows(tile_entry(facts, short), short, references, seed),)

    def added(seed: int) -> tuple[Case, ...]:
        return (_added(fixup, full, seed),)

    functions = tile_functions(full)
    return tuple(
        Probe(
            name=f"mul_mat_q {TYPE} {name}", unit=PLAIN_UNIT, entry=where, kind="load_tiles",
            functions=named, cases=cases, types=(TYPE,),
        )
        for name, where, named, cases in (
            ("tiles", entry, functions, tiles),
            ("experts", entry, functions, experts),
            ("short", tile_entry(facts, short), functions, rows),
            ("parts added", fixup, (_FIXUP,), added),
        )
    )  # fmt: skip


def _configs(facts: SourceFacts) -> tuple[TileConfig, TileConfig] | None:
    kind = facts.types.get(TYPE)
    if kind is None:
        return None
    if facts.parameters(MMQ, _FIXUP) != _FIXUP_PARAMETERS:
        return None
    full, short = tile_config(facts, kind, NARROW), tile_config(facts, kind, NARROW, fallback=True)
    return None if full is None or short is None else (full, short)


def _tiles(entry: str, config: TileConfig, references: References, seed: int) -> Case:
    """Two tiles each way; one block takes on two of them, one after the other."""
    rng = generator(seed, "tiles")
    shape = Shape(2 * config.rows, 2 * config.columns, config.depth)
    blocks, columns = random_product(config, shape.rows, shape.columns, shape.depth, rng)
    launch = tile_launch(entry, config, shape, blocks.data, columns.data(config.layout))
    found = tile_values(config, references, blocks, columns, shape.rows)
    return Case(f"{shape.rows} x {shape.columns}", launch, {"dst": expected(found, WHY)})


def _experts(entry: str, config: TileConfig, references: References, seed: int) -> Case:
    """Two experts with three and five columns; results go where ``ids`` says."""
    rng = generator(seed, "experts")
    bounds, count = (0, 3, 8), 2
    ids = tuple(int(column) for column in rng.permutation(bounds[-1]))
    shape = Shape(config.rows, bounds[-1], config.depth, bounds=bounds, ids=ids)
    blocks, columns = random_product(config, count * shape.rows, shape.columns, shape.depth, rng)
    launch = tile_launch(entry, config, shape, blocks.data, columns.data(config.layout))
    every = tile_values(config, references, blocks, columns, count * shape.rows)
    expert = np.repeat(np.arange(count), np.diff(bounds))
    rows = expert[:, None] * shape.rows + np.arange(shape.rows)
    order = np.argsort(ids)
    found = every.map(lambda some: np.take_along_axis(some, rows, 1)[order])
    return Case(f"{count} experts", launch, {"dst": expected(found, WHY)})


def _rows(entry: str, config: TileConfig, references: References, seed: int) -> Case:
    """Fewer rows than a tile has: the loader reads the last one again, and nothing behind it."""
    rng = generator(seed, "rows")
    shape = Shape(_SHORT, config.columns - 2, config.depth)
    blocks, columns = random_product(config, _SHORT, shape.columns, shape.depth, rng)
    launch = tile_launch(entry, config, shape, blocks.data, columns.data(config.layout))
    found = tile_values(config, references, blocks, columns, _SHORT)
    return Case(f"{_SHORT} x {shape.columns}", launch, {"dst": expected(found, WHY)})


def _added(entry: str, config: TileConfig, seed: int) -> Case:
    """What three blocks left, whole numbers, added up."""
    rng = generator(seed, "added")
    shape = Shape(config.rows, config.columns, _PARTS * config.depth, blocks=_PARTS)
    fixup = rng.integers(-4096, 4097, (_PARTS, shape.columns, shape.rows)).astype(np.float32)
    dst = rng.integers(-4096, 4097, (shape.columns, shape.rows)).astype(np.float32)
    launch = fixup_launch(entry, config, shape, dst, fixup)
    total = dst.astype(np.float64) + fixup[:-1].sum(0)
    right: Expected = expected(exactly(total), "whole numbers")
    return Case(f"{_PARTS} parts", launch, {"dst": right})
