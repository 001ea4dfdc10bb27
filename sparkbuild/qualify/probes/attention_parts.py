"""What stands around flash attention: how many keys are needed, and parts put together.

fattn-common.cuh.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import template_entry
from sparkbuild.qualify.probes.launching import generator, ints, longs, output, read, rough
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "attention"
_SIZE, _STRIDE = 64, 256
_WHY = "each part's scale is ex2.approx (2 ulp) of a rounded difference; products, sums, div.approx"


def combined(parts: Bounded, largest: Bounded, sums: Bounded) -> Bounded:
    """Parts, (..., part, size), by their weights: each has its largest logit and sum."""
    top = Bounded(largest.value.max(-1, keepdims=True), largest.error.max(-1, keepdims=True))
    scale = bounded.exp(largest - top)
    values = (scale.spread() * parts).map(lambda v: np.moveaxis(v, -2, -1)).summed()
    return values / (scale * sums).summed().spread()


def _combine(seed: int, *, entry: str) -> tuple[Case, ...]:
    rng, shape = generator(seed, entry), (2, 3, 4)  # sequences, queries, heads
    cases = []
    for parts, what in ((1, ""), (24, "one far above the others"), (31, "cancelling"), (150, "")):
        values, meta = rough(rng, *shape, parts, _SIZE), rough(rng, *shape, parts, 2, scale=3.0)
        meta[..., 1] = np.abs(meta[..., 1]) + np.float32(0.1)
        if what == "cancelling":  # what is left shows how sums were rounded
            meta[...] = (0, 1)
            values[..., -1, :] /= 1024
            values[..., -1, :] -= np.cumsum(values[..., :-1, :], axis=-2)[..., -1, :]
        elif what:  # without the largest logit, the others' scales go beyond f32
            meta[..., 0] += 120 * np.eye(parts, dtype=np.float32).reshape(*shape, parts)
        found = combined(exactly(values), exactly(meta[..., 0]), exactly(meta[..., 1]))
        launch = Launch(
            entry=entry,
            grid=(shape[1], shape[2], shape[0]),
            block=(_SIZE, 1, 1),
            arguments=(
                read("parts", values),
                read("meta", meta),
                output("dst", *shape, _SIZE),
                *ints(parts),
            ),
            shared=8 * parts,
        )
        right = {"dst": expected(found, _WHY)}
        label = ", ".join(filter(None, (f"{parts} parts", what)))
        cases.append(Case(label=label, launch=launch, expected=right))
    return tuple(cases)


def _needed(seed: int, *, entry: str) -> tuple[Case, ...]:
    """Two queries a tile; the last key that one of them may see lies in each of four blocks."""
    rng, tiles, blocks = generator(seed, entry), 4, 3
    keys = blocks * _STRIDE
    mask = np.full((2, 2 * tiles, keys), -np.inf, np.float16)
    ends: list[list[int | None]] = [[None, 0, 255, 256], [767, 511, 512, 300]]
    right = np.zeros((2, tiles), np.int32)
    for sequence, row in enumerate(ends):
        for tile, end in enumerate(row):
            if end is not None:
                mask[sequence, 2 * tile + int(rng.integers(2)), end] = 0
                right[sequence, tile] = (end // _STRIDE + 1) * _STRIDE
    launch = Launch(
        entry=entry,
        grid=(tiles, 2, 1),
        block=(_STRIDE // 2, 1, 1),
        arguments=(
            read("mask", mask),
            output("needed", 2, tiles, dtype=np.int32),
            *ints(blocks),
            *longs(keys // 2, keys // 2 * 2 * tiles),
        ),
    )
    found = {"needed": expected(exactly(right), "whole numbers", np.int32)}
    return (Case(label=f"{keys} keys", launch=launch, expected=found),)


def probes() -> tuple[Probe, ...]:
    """Of both."""
    made: list[Probe] = []
    for name, argument, cases in (
        ("flash_attn_combine_results", _SIZE, _combine),
        ("flash_attn_mask_to_KV_max", 2, _needed),
    ):
        entry = template_entry(name, argument)
        bound: Any = partial(cases, entry=entry)
        made.append(
            Probe(
                name=name,
                unit=UNIT,
                entry=entry,
                kind="attention",
                functions=(name,),
                cases=bound,
            )
        )
    return tuple(made)
