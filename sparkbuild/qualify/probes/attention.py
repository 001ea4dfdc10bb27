"""Flash attention for one or two queries: fattn-vec.cuh."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import EX2, UNIT, Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import Enum, Type, template_entry
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

KEYS, SEQUENCES, HEADS, SHARED = 256, 2, 4, 2
"""Keys, sequences, heads of queries and of keys."""
_TILE = 128
"""Keys that a block takes at once."""
_SCALE = 0.125
_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}
_OFFSET = float(np.float32(3.0) * np.float32(0.6931))
"""``FATTN_KQ_MAX_OFFSET``, by which the largest logit is taken to be larger."""
_WHY = (
    "logits of f16 are exact products added up in order, quantised ones have a rounding for each "
    "scale; a weight is ex2.approx (2 ulp) of a logit, rescaled by tile, by warp and by sink (2 "
    "ulp, a rounded difference, a product); then products and sums in f32, div.approx (2 ulp)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Cache:
    """Keys or values, (sequences, shared heads, keys, size): as stored, as numbers, as quants.

    ``scales`` has one element for each block of 32; q4_0's ``quants`` are still 8 too large.
    """

    stored: NDArray[Any]
    values: NDArray[np.float32]
    quants: NDArray[np.int64]
    scales: NDArray[np.float32]


def cache(rng: np.random.Generator, kind: str, size: int) -> Cache:
    """Random contents of a type."""
    shape = (SEQUENCES, SHARED, KEYS, size)
    if kind == "f16":
        half = short(rng, *shape).astype(np.float16)
        return Cache(half, half.astype(np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32))
    small, large = (0.005, 0.02) if kind == "q8_0" else (0.05, 0.3)
    blocks = (*shape[:-1], size // 32)
    scales = rng.uniform(small, large, blocks).astype(np.float16)
    raw = rng.integers(0, 256, (*blocks, 32 if kind == "q8_0" else 16), np.uint8)
    quants = raw.view(np.int8) if kind == "q8_0" else np.concatenate([raw & 15, raw >> 4], -1)
    wide = scales.astype(np.float32)
    values = wide[..., None] * (quants.astype(np.float32) - (8 if kind == "q4_0" else 0))
    stored = np.concatenate([scales[..., None].view(np.uint8), raw], axis=-1)
    return Cache(
        stored.reshape(*shape[:-1], -1),
        values.astype(np.float32).reshape(shape),
        quants.astype(np.int64).reshape(shape),
        wide,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """q: (sequences, queries, heads, size); mask: (queries, keys); sinks: (heads).

    ``quants`` are what q times the scale is quantised to, ``scales`` those of its blocks of 32.
    """

    kind: str
    q: NDArray[np.float32]
    quants: NDArray[np.int64]
    scales: NDArray[np.float32]
    k: Cache
    v: Cache
    mask: NDArray[np.float16]
    sinks: NDArray[np.float32] | None
    max_bias: float


def inputs(rng: np.random.Generator, kernel: Kernel) -> Inputs:
    """Random ones.

    Queries are no nearer than a tenth to where a quant changes; their largest is 127 times an f16.
    """
    shape = (SEQUENCES, kernel.queries, HEADS, kernel.size)
    blocks = (*shape[:-1], kernel.size // 32)
    quants = rng.integers(-126, 127, (*blocks, 32))
    quants[..., 5] = 127
    part = rng.uniform(-0.4, 0.4, quants.shape)
    part[..., 5] = 0
    scales = rng.uniform(0.002, 0.008, blocks).astype(np.float16).astype(np.float32)
    q = ((quants + part) * scales[..., None] / _SCALE).astype(np.float32).reshape(shape)
    if kernel.type == "f16":
        q = short(rng, *shape)
        q[:, :, -1] *= 64  # logits so far apart that exponentials of what is left would overflow
    mask = whole(rng, kernel.queries + 1, KEYS, limit=4) / np.float32(4)
    mask[rng.random(mask.shape) < 0.3] = -np.inf
    return Inputs(
        kind=kernel.type,
        q=q,
        quants=quants.reshape(shape),
        scales=scales,
        k=cache(rng, kernel.type, kernel.size),
        v=cache(rng, kernel.type, kernel.size),
        mask=mask.astype(np.float16),
        sinks=short(rng, HEADS, scale=3.0) if kernel.sinks else None,
        max_bias=kernel.max_bias,
    )


def _products(given: Inputs) -> Bounded:
    """Of queries and keys, (sequences, queries, heads, keys)."""

    def of_key(x: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(x, HEADS // SHARED, axis=1)[:, None]

    if given.kind == "f16":  # eight lanes of eight
        terms = exactly(given.q[:, :, :, None] * np.float32(_SCALE)) * of_key(given.k.values)
        return terms.map(lambda v: v.reshape(*v.shape[:-1], 8, 8)).summed().warp_sum(8)
    sums = of_key(given.k.quants) * given.quants[:, :, :, None]
    lanes = exactly(sums.reshape(*sums.shape[:-1], -1, 4).sum(-1))
    theirs = of_key(np.repeat(given.k.scales, 8, axis=-1))
    ours = exactly(np.float32(127) * given.scales) / 127.0
    ours = ours.map(lambda v: np.repeat(v, 8, axis=-1)[:, :, :, None])
    if given.kind == "q8_0":
        return (ours * theirs * lanes).warp_sum()
    scaled = exactly(given.q * np.float32(_SCALE)).map(lambda v: v.reshape(*v.shape[:-1], -1, 8, 4))
    total = scaled.summed().warp_sum(8)
    total = total.map(lambda v: np.repeat(v, 8, axis=-1)[:, :, :, None])
    return ((lanes * ours - total) * theirs).warp_sum()


def _logits(given: Inputs) -> Bounded:
    slope = exactly(np.ones(HEADS))
    if given.max_bias:
        base = exactly(np.float32(2.0 ** (-given.max_bias / HEADS)))
        slope = bounded.power(base, np.arange(1.0, HEADS + 1))
    mask = given.mask[: given.q.shape[1]].astype(np.float64)
    weighted = slope.spread() * np.where(np.isinf(mask), 0, mask)[:, None]
    return bounded.where(np.isinf(mask)[:, None], -np.inf, _products(given) + weighted)


def attended(given: Inputs, keys: slice, *, sinks: bool) -> tuple[Bounded, Bounded, Bounded]:
    """Weighted values, sum of weights and largest logit of some keys, not yet divided."""
    logits = _logits(given)[..., keys]
    top = Bounded(logits.value.max(-1), logits.error.max(-1)) + _OFFSET
    if sinks and given.sinks is not None:
        top = bounded.largest(top, given.sinks)
    weights = bounded.exp(logits - top.spread())
    weights = Bounded(weights.value, weights.error + weights.value * _rescaled(logits, top, given))
    v = np.repeat(given.v.values, HEADS // SHARED, axis=1)[:, None, :, keys]
    terms = (weights.spread() * v).map(lambda t: np.moveaxis(t, -2, -1))
    values, total = terms.total(48), weights.total(12)  # a lane's keys, then lanes and warps
    if sinks and given.sinks is not None:
        total += bounded.exp(exactly(given.sinks) - top)
    return values, total, top


def _rescaled(logits: Bounded, top: Bounded, given: Inputs) -> NDArray[Any]:
    """What a weight loses each time that a largest logit of 32 keys gives way to a larger one."""
    own = logits.value.reshape(*logits.value.shape[:-1], -1, 32).max(-1)
    apart = (top.value[..., None] - own).max(-1)[..., None]
    times = 2 if given.sinks is None else 3
    return np.asarray(times * (EX2 + 3 * apart * UNIT + UNIT))


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance, and what it is given."""

    name: str
    type: str
    size: int
    columns: int
    queries: int
    parts: int = 1
    sinks: bool = False
    max_bias: float = 0.0
    limit: int = KEYS
    """``KV_max``: later keys are not looked at."""

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        value = _TYPES[self.type]
        kinds = (Enum("ggml_type", value), Type(f"LS?_{value}E"))
        return template_entry("flash_attn_ext_vec", self.size, self.columns, *kinds, False)


def _launch(kernel: Kernel, given: Inputs) -> Launch:
    tiles = -(-kernel.queries // kernel.columns)
    limits = np.full((SEQUENCES, tiles), kernel.limit, np.int32)
    base = 2.0 ** (-given.max_bias / HEADS)
    k, v, mask = given.k.stored.strides, given.v.stored.strides, given.mask
    sinks: Argument = NULL if given.sinks is None else read("sinks", given.sinks)
    found = (SEQUENCES, kernel.queries, HEADS, kernel.parts)
    return Launch(
        entry=kernel.entry,
        grid=(tiles, kernel.parts, HEADS * SEQUENCES),
        block=(32, 4, 1),
        arguments=(
            read("q", given.q),
            read("k", given.k.stored),
            read("v", given.v.stored),
            read("mask", mask),
            sinks,
            read("limits", limits),
            output("dst", *found, kernel.size),
            output("meta", *found, 2),
            *floats(_SCALE, given.max_bias, base, base),
            np.uint32(HEADS),
            *floats(0.0),
            *ints(kernel.size),
            fastdiv(kernel.queries),
            *ints(HEADS, SEQUENCES),
            *ints(given.q.strides[1], given.q.strides[2], given.q.strides[0]),
            *ints(kernel.size, KEYS, SHARED, SEQUENCES),
            *ints(k[2], k[1]),
            *longs(k[0]),
            *ints(v[2], v[1]),
            *longs(v[0]),
            *ints(mask.shape[0], 1, 1, mask.strides[0], mask.nbytes),
            *longs(mask.nbytes),
        ),
    )


def _cases(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    given = inputs(generator(seed, kernel.name), kernel)
    step = KEYS // kernel.parts
    slices = [slice(at, at + min(step, kernel.limit)) for at in range(0, KEYS, step)]
    found = [attended(given, keys, sinks=part == 0) for part, keys in enumerate(slices)]
    meta = exactly(np.full((*found[0][1].value.shape, 1, 2), float(untouched(np.float32))))
    if kernel.parts == 1:
        values, total, _ = found[0]
        dst = _joined([values / total.spread()], 3)
    else:
        dst = _joined([values for values, _, _ in found], 3)
        meta = _joined([_joined([top, total], -1) for _, total, top in found], 3)
    right = {"dst": expected(dst, _WHY), "meta": expected(meta, _WHY)}
    label = f"{kernel.queries} queries, {kernel.limit} keys"
    return (Case(label=label, launch=_launch(kernel, given), expected=right),)


def _joined(parts: list[Bounded], axis: int) -> Bounded:
    return Bounded(
        np.stack([one.value for one in parts], axis), np.stack([one.error for one in parts], axis)
    )


KERNELS = (
    Kernel("f16", "f16", 64, 1, 1, sinks=True),
    Kernel("f16, in two parts", "f16", 64, 1, 2, parts=2),
    Kernel("q8_0, slopes", "q8_0", 128, 2, 3, max_bias=8.0),
    Kernel("q4_0, half of the keys", "q4_0", 128, 1, 1, limit=_TILE),
)


def probes() -> tuple[Probe, ...]:
    """Of f16, q8_0 and q4_0 for keys and values."""
    return tuple(
        Probe(
            name=f"flash_attn_ext_vec {kernel.name}",
            unit="attention",
            entry=kernel.entry,
            kind="attention",
            functions=(
                "flash_attn_ext_vec",
                f"vec_dot_fattn_vec_KQ_{kernel.type}",
                f"dequantize_V_{kernel.type}",
                *(("quantize_q8_1_to_shared",) if kernel.type != "f16" else ()),
            ),
            cases=partial(_cases, kernel=kernel),
            types=(kernel.type,) if kernel.type != "f16" else (),
        )
        for kernel in KERNELS
    )
