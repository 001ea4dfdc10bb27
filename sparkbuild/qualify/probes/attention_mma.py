"""Flash attention on tensor cores, dense and over selected keys: fattn-mma-f16.cuh, fattn.cu."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, contracted, exactly, expected
from sparkbuild.qualify.probes.entries import template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    fastdiv,
    floats,
    generator,
    ints,
    longs,
    output,
    read,
    short,
    whole,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Argument, Launch

UNIT: Final = "attention_mma"
_SCALE = 0.125
_OFFSET = float(np.float32(3.0) * np.float32(0.6931))
_HALF: Final = 2.0**-11
"""What rounding to f16 may change, relative."""
_WHY = (
    "keys of equal weight: a weight is an eighth in f16 for certain, sums of values are whole "
    "eighths, so only the sum of the weights in f32 and div.approx are rounded; else weights and "
    "sums of values are rounded to f16 once for each weight, product of tensor cores and rescaling"
)
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance; ``tokens`` queries and ``grouped`` heads make one tile."""

    name: str
    size: int
    tokens: int
    grouped: int
    queries: int
    heads: int
    keys: int
    shared: int
    """Bytes of shared memory, from the source's table of configurations for Ampere and later."""
    selected: int = 0
    """Entries in a list of keys, of which some are none; 0: all keys."""

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        sizes = (self.size, self.size, self.tokens, self.grouped)
        return template_entry("flash_attn_ext_f16", *sizes, False, False, self.selected > 0)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """q: (queries, heads, size), k and v: (keys, size), mask: (queries, keys); lists of keys."""

    q: NDArray[np.float32]
    k: NDArray[np.float16]
    v: NDArray[np.float16]
    mask: NDArray[np.float16]
    lists: NDArray[np.int32]
    counts: NDArray[np.int32]


def inputs(rng: np.random.Generator, kernel: Kernel) -> Inputs:
    """Random ones; every other query is zero, so that all keys that it sees have one weight."""
    q = short(rng, kernel.queries, kernel.heads, kernel.size)
    mask = short(rng, kernel.queries, kernel.keys)
    q[::2], mask[::2] = 0, 0
    mask[rng.random(mask.shape) < 0.3] = -np.inf
    lists = np.full((kernel.queries, max(kernel.selected, 1)), _NONE, np.int32)
    counts = np.full(kernel.queries, kernel.selected - 7, np.int32)
    for query in range(kernel.queries):
        chosen = np.sort(rng.permutation(kernel.keys)[: max(kernel.selected - 7, 0)])
        lists[query, : len(chosen)] = chosen
    return Inputs(
        q=q,
        k=short(rng, kernel.keys, kernel.size).astype(np.float16),
        v=whole(rng, kernel.keys, kernel.size, limit=6).astype(np.float16),
        mask=mask.astype(np.float16),
        lists=lists,
        counts=counts,
    )


def _seen(kernel: Kernel, given: Inputs) -> NDArray[np.float64]:
    """Masks, with minus infinity for keys that are not in a query's list."""
    mask = given.mask.astype(np.float64)
    if not kernel.selected:
        return mask
    inside = np.zeros(mask.shape, bool)
    for query, chosen in enumerate(given.lists):
        inside[query, chosen[chosen >= 0]] = True
    return np.where(inside, mask, -np.inf)


def attended(kernel: Kernel, given: Inputs) -> Bounded:
    """(queries, heads, size)."""
    mask = _seen(kernel, given)[:, None]
    logits = contracted(given.q * np.float32(_SCALE), given.k, kernel.size)
    hidden = np.broadcast_to(np.isinf(mask), logits.value.shape)
    logits = bounded.where(hidden, -np.inf, logits + np.where(np.isinf(mask), 0, mask))
    top = Bounded(logits.value.max(-1, keepdims=True), logits.error.max(-1, keepdims=True))
    weights = bounded.exp(logits - (top + _OFFSET))
    total = weights.total(16).spread()  # a lane's four a tile, three steps of lanes, two of warps
    values = given.v.astype(np.float64)
    steps = 2 + 2 * -(-kernel.keys // 64)  # a weight, then sums and rescaling for every tile
    half = weights.error + weights.value * _HALF * steps + 2.0**-25
    own = Bounded(weights.value @ values, half @ np.abs(values))
    equal = np.logical_not(np.asarray(given.q.any((1, 2), keepdims=True)))
    eighths = contracted(np.where(hidden, 0.0, 0.125), given.v.T, 0)
    return bounded.where(equal, eighths, own) / total


def _launch(kernel: Kernel, given: Inputs) -> Launch:
    queries, heads, size = kernel.queries, kernel.heads, kernel.size
    tiles = -(-queries // kernel.tokens) * -(-heads // kernel.grouped)
    flat = np.concatenate([given.lists.ravel(), given.counts])
    keys = kernel.selected or kernel.keys
    row = 2 * size
    lists: Argument = read("lists", flat) if kernel.selected else NULL
    return Launch(
        entry=kernel.entry,
        grid=(tiles, 1, 1),
        block=(32, 4, 1),
        arguments=(
            read("q", given.q),
            read("k", given.k),
            read("v", given.v),
            read("mask", given.mask),
            NULL,
            lists,
            output("dst", queries, heads, size),
            NULL,
            *floats(_SCALE, 0.0, 1.0, 1.0),
            np.uint32(heads),
            *floats(0.0),
            *ints(size),
            fastdiv(queries),
            *ints(heads, 1),
            *ints(4 * size * heads, 4 * size, 4 * size * heads * queries),
            *ints(size, keys, 1, 1),
            *ints(row, row * kernel.keys),
            *longs(row * kernel.keys),
            *ints(row, row * kernel.keys),
            *longs(row * kernel.keys),
            *ints(queries, 1, 1, given.mask.strides[0], given.mask.nbytes),
            *longs(given.mask.nbytes),
        ),
        shared=kernel.shared,
    )


def _cases(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    given = inputs(generator(seed, kernel.name), kernel)
    right = {"dst": expected(attended(kernel, given), _WHY)}
    label = f"{kernel.queries} queries, {kernel.selected or kernel.keys} keys"
    return (Case(label=label, launch=_launch(kernel, given), expected=right),)


def _selected(seed: int, *, entry: str) -> tuple[Case, ...]:
    """Which keys are seen: lists that are too short, and some with room."""
    rng, queries, keys, room = generator(seed, entry), 3, 2300, 700
    mask = np.full((queries, keys), -np.inf, np.float16)
    lists = np.full((queries, room), _NONE, np.int32)
    counts = np.zeros(queries, np.int32)
    for query, share in enumerate((0.01, 0.25, 0.6)):
        chosen = np.flatnonzero(rng.random(keys) < share)
        mask[query, chosen] = rng.standard_normal(len(chosen))
        counts[query] = min(len(chosen), room)
        lists[query, : counts[query]] = chosen[:room]
    launch = Launch(
        entry=entry,
        grid=(queries, 1, 1),
        block=(256, 1, 1),
        arguments=(
            read("mask", mask),
            output("lists", queries, room, dtype=np.int32),
            output("counts", queries, dtype=np.int32),
            *ints(keys, queries, room),
            *longs(keys, keys * queries),
        ),
    )
    right = {
        "lists": expected(exactly(lists), "whole numbers", np.int32),
        "counts": expected(exactly(counts), "whole numbers", np.int32),
    }
    return (Case(label=f"{keys} keys", launch=launch, expected=right),)


KERNELS = (
    Kernel("dense, 64", 64, 8, 1, queries=9, heads=2, keys=200, shared=18560),
    Kernel(
        "selected keys, 512", 512, 1, 8, queries=2, heads=8, keys=300, shared=41232, selected=100
    ),
)


def probes() -> tuple[Probe, ...]:
    """Of heads of 64, and of GLM-5.3-Flash's latent attention over keys that its indexer chose."""
    sparse = template_entry("flash_attn_mask_to_sparse_indices", 1, False)
    made: list[tuple[str, str, tuple[str, ...], Any]] = [
        (
            f"flash_attn_ext_f16 {kernel.name}",
            kernel.entry,
            ("flash_attn_ext_f16", "flash_attn_ext_f16_process_tile", "flash_attn_ext_f16_iter"),
            partial(_cases, kernel=kernel),
        )
        for kernel in KERNELS
    ]
    name = "flash_attn_mask_to_sparse_indices"
    made.append((name, sparse, (name,), partial(_selected, entry=sparse)))
    return tuple(
        Probe(name=name, unit=UNIT, entry=entry, kind="attention", functions=functions, cases=cases)
        for name, entry, functions, cases in made
    )
