"""Flash attention on tensor cores, dense and over selected keys: fattn-mma-f16.cuh, fattn.cu."""

from __future__ import annotations

from collections.abc import Iterator
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
    untouched,
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


_UNTOUCHED: Final = float(untouched(np.float32))
_GRID: Final = 3
"""Blocks: fewer than are needed for whole tiles, so that some do the end of one, some the start."""


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
    step: int
    """Keys at once, and bytes of shared memory: from the source's table for Ampere and later."""
    shared: int
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
    q[1::4, 0] *= 64  # logits so far apart that exponentials overflow if less is taken off
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


def _seen(kernel: Kernel, given: Inputs, start: int, stop: int) -> NDArray[np.float64]:
    """Masks, with minus infinity for keys that are not of these steps, or not in the list."""
    mask = given.mask.astype(np.float64)
    span = slice(start * kernel.step, stop * kernel.step)
    inside = np.zeros(mask.shape, bool)
    if kernel.selected:
        for query, chosen in enumerate(given.lists[:, span]):
            inside[query, chosen[chosen >= 0]] = True
    else:
        inside[:, span] = True
    return np.where(inside, mask, -np.inf)


def attended(kernel: Kernel, given: Inputs, start: int, stop: int) -> tuple[Bounded, ...]:
    """Weighted values, (queries, heads, size), sum of weights and largest logit of some steps."""
    mask = _seen(kernel, given, start, stop)[:, None]
    logits = contracted(given.q * np.float32(_SCALE), given.k, kernel.size)
    hidden = np.broadcast_to(np.isinf(mask), logits.value.shape)
    logits = bounded.where(hidden, -np.inf, logits + np.where(np.isinf(mask), 0, mask))
    top = Bounded(logits.value.max(-1), logits.error.max(-1)) + _OFFSET
    weights = bounded.exp(logits - top.spread())
    total = weights.total(16)  # a lane's four a step, three steps of lanes, two of warps
    values = given.v.astype(np.float64)
    steps = 2 + 2 * -(-kernel.keys // 64)  # a weight, then sums and rescaling for every step
    half = weights.error + weights.value * _HALF * steps + 2.0**-25
    own = Bounded(weights.value @ values, half @ np.abs(values))
    equal = np.logical_not(np.asarray(given.q.any((1, 2), keepdims=True)))
    eighths = contracted(np.where(hidden, 0.0, 0.125), given.v.T, 0)
    return bounded.where(equal, eighths, own), total, top


def _pieces(kernel: Kernel) -> Iterator[tuple[int, int, int, int]]:
    """Block, tile, first step and the one after the last, of whatever blocks do."""
    steps = -(-(kernel.selected or kernel.keys) // kernel.step)
    tiles = -(-kernel.queries // kernel.tokens) * -(-kernel.heads // kernel.grouped)
    for block in range(_GRID):
        at, end = (edge * steps * tiles // _GRID for edge in (block, block + 1))
        while at < end:
            stop = min(end, at - at % steps + steps)
            yield block, at // steps, at % steps, at % steps + stop - at
            at = stop


class _Outputs:
    """What both buffers must hold: attention, and for tiles in parts what puts them together."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.columns = kernel.tokens * kernel.grouped
        size = _GRID * self.columns * (4 + kernel.size)
        self.dst = np.full((kernel.queries, kernel.heads, kernel.size), _UNTOUCHED)
        self.parts = np.full(size, _UNTOUCHED)
        self.dst_error, self.parts_error = np.zeros_like(self.dst), np.zeros_like(self.parts)
        self.judged = np.ones(size, bool)

    def add(self, given: Inputs, block: int, tile: int, start: int, stop: int) -> None:
        """One piece of one block."""
        values, total, top = attended(self.kernel, given, start, stop)
        steps = -(-(self.kernel.selected or self.kernel.keys) // self.kernel.step)
        whole = (start, stop) == (0, steps)
        found = values / total.spread() if whole else values
        rows = -(-self.kernel.queries // self.kernel.tokens)
        for column in range(self.columns):
            token, head = divmod(column, self.kernel.grouped)
            query = tile % rows * self.kernel.tokens + token
            head += tile // rows * self.kernel.grouped
            inside = query < self.kernel.queries
            if stop == steps and inside:
                self.dst[query, head] = found.value[query, head]
                self.dst_error[query, head] = found.error[query, head]
            place = block * self.columns + column
            if not whole:
                first = 0 if stop == steps else _GRID * self.columns
                pair = Bounded(*(np.stack(p, -1) for p in _both(top, total)))
                self._put(2 * (first + place), pair, query, head)
            if stop < steps:
                self._put(4 * _GRID * self.columns + place * self.kernel.size, values, query, head)

    def _put(self, at: int, found: Bounded, query: int, head: int) -> None:
        span = slice(at, at + found.value.shape[-1])
        if query < self.kernel.queries:
            self.parts[span] = found.value[query, head]
            self.parts_error[span] = found.error[query, head]
        else:
            self.judged[span] = False  # of a query that is not there


def _both(one: Bounded, two: Bounded) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    yield one.value, two.value
    yield one.error, two.error


def _launch(kernel: Kernel, given: Inputs) -> Launch:
    queries, heads, size = kernel.queries, kernel.heads, kernel.size
    parts = _GRID * kernel.tokens * kernel.grouped * (4 + size)
    flat = np.concatenate([given.lists.ravel(), given.counts])
    keys = kernel.selected or kernel.keys
    row = 2 * size
    lists: Argument = read("lists", flat) if kernel.selected else NULL
    return Launch(
        entry=kernel.entry,
        grid=(_GRID, 1, 1),
        block=(32, 4, 1),
        arguments=(
            read("q", given.q),
            read("k", given.k),
            read("v", given.v),
            read("mask", given.mask),
            NULL,
            lists,
            output("dst", queries, heads, size),
            output("parts", parts),
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
    given, found = inputs(generator(seed, kernel.name), kernel), _Outputs(kernel)
    for piece in _pieces(kernel):
        found.add(given, *piece)
    right = {
        "dst": expected(Bounded(found.dst, found.dst_error), _WHY),
        "parts": expected(Bounded(found.parts, found.parts_error), _WHY, defined=found.judged),
    }
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
    Kernel("dense, 64", 64, 8, 1, queries=9, heads=2, keys=200, step=128, shared=18560),
    Kernel(
        "selected keys, 512",
        512,
        1,
        8,
        queries=2,
        heads=8,
        keys=300,
        step=64,
        shared=41232,
        selected=100,
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
