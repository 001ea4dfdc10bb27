"""Flash attention for one or two queries, and what combines parts of it: fattn-vec.cuh."""

from __future__ import annotations

import struct
from collections.abc import Callable
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
    rough,
    short,
)
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.simt.contract import Argument, Launch

_SIZE, _KEYS, _SEQUENCES, _HEADS, _SHARED = 64, 256, 2, 4, 2
"""Head size, keys, sequences, heads of queries and of keys."""
_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}
_OFFSET = float(np.float32(3.0) * np.float32(0.6931))
"""``FATTN_KQ_MAX_OFFSET``, by which the largest logit is taken to be larger."""
_RESCALED = 3 * (EX2 + 64 * UNIT + UNIT)
"""A part's sums are rescaled when the largest logit changes: by tiles, warps and sinks; ex2.approx
of a difference of up to 32, rounded, and a product."""
_WHY = (
    "a logit has one rounding for each product and sum on its way; a weight is ex2.approx (2 ulp) "
    "of it, rescaled up to three times (2 ulp, a rounded difference, a product); then products and "
    "sums in f32, and div.approx (2 ulp)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """q: (sequences, queries, heads, size); k, v: (sequences, shared heads, keys, size), what the
    kernel has of them, and as they are stored; mask: (queries, keys).
    """

    q: Bounded
    k: NDArray[np.float32]
    v: NDArray[np.float32]
    mask: NDArray[np.float16]
    sums: NDArray[np.float64] | None = None
    """Of each block of 32 of q: q4_0 takes 8 times them off, not of what q was quantised to."""
    sinks: NDArray[np.float32] | None = None
    max_bias: float = 0.0


def _logits(given: Inputs) -> Bounded:
    """(sequences, queries, heads, keys)."""
    repeat = _HEADS // _SHARED
    k = np.repeat(given.k, repeat, axis=1)[:, None]
    q = given.q.map(lambda v: v[:, :, :, None, :])
    found = (q * k).total(12)  # eight or four in a lane, then up to four steps
    base = np.float32(2.0 ** (-given.max_bias / _HEADS))
    slope = exactly(np.ones(_HEADS))
    if given.max_bias:
        slope = bounded.power(exactly(base), np.arange(1.0, _HEADS + 1))
    mask = given.mask.astype(np.float64)
    weighted = slope.map(lambda v: v[:, None]) * np.where(np.isinf(mask), 0, mask)[:, None]
    return bounded.where(np.isinf(mask)[:, None], -np.inf, found + weighted)


def attended(given: Inputs, keys: slice) -> tuple[Bounded, Bounded, Bounded]:
    """Weighted values, sum of weights and largest logit of some keys, not yet divided."""
    logits = _logits(given)[..., keys]
    top = Bounded(logits.value.max(-1), logits.error.max(-1)) + _OFFSET
    if given.sinks is not None:
        top = bounded.largest(top, given.sinks)
    weights = bounded.exp(logits - top.spread())
    weights = Bounded(weights.value, weights.error + weights.value * _RESCALED)
    v = np.repeat(given.v, _HEADS // _SHARED, axis=1)[:, None, :, keys]
    terms = weights.map(lambda w: w[..., None]) * v
    values = terms.map(lambda t: np.moveaxis(t, -2, -1)).total(2 * 32 // 4 + 16)
    total = weights.total(2 + 5 + 5)
    if given.sinks is not None:
        total += bounded.exp(exactly(given.sinks) - top)
    return values, total, top


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance and how many queries it is given."""

    name: str
    type: str
    columns: int
    queries: int
    parts: int = 1
    sinks: bool = False
    max_bias: float = 0.0

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        value = _TYPES[self.type]
        kinds = (Enum("ggml_type", value), Type(f"LS0_{value}E"))
        return template_entry("flash_attn_ext_vec", _SIZE, self.columns, *kinds, False)


def _cache(rng: np.random.Generator, kind: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Keys or values as they are stored and as they are."""
    shape = (_SEQUENCES, _SHARED, _KEYS, _SIZE)
    if kind == "f16":
        stored = rough(rng, *shape).astype(np.float16)
        return stored, stored.astype(np.float32)
    count = int(np.prod(shape)) // 32
    d = rng.uniform(0.005, 0.02, count) if kind == "q8_0" else rng.uniform(0.05, 0.3, count)
    scale = d.astype(np.float16)
    quants = rng.integers(0, 256, (count, 32 if kind == "q8_0" else 16), np.uint8)
    if kind == "q8_0":
        values = scale[:, None].astype(np.float32) * quants.view(np.int8)
    else:
        nibbles = np.concatenate([quants & 15, quants >> 4], axis=1).astype(np.float32)
        values = scale[:, None].astype(np.float32) * (nibbles - 8)
    blocks = np.concatenate([scale.view(np.uint8).reshape(-1, 2), quants], axis=1)
    return blocks.reshape(*shape[:-1], -1), values.astype(np.float32).reshape(shape)
