"""Soft-max over rows with scale, mask, ALiBi's slopes and sinks: softmax.cu."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import FLOAT, HALF, Type, template_entry
from sparkbuild.qualify.probes.launching import NULL, generator, output, read, short, whole
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "norms"
_WHY = (
    "x times scale plus slope times mask, rounded; ex2.approx 2 ulp of a rounded exponent; one "
    "rounding for each addition on an element's way through the block; one reciprocal, one product"
)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """x: (samples, heads, rows, columns); mask: the same with fewer heads; sinks: (heads)."""

    x: NDArray[Any]
    scale: float
    mask: NDArray[Any] | None = None
    sinks: NDArray[Any] | None = None
    max_bias: float = 0.0

    @property
    def bases(self) -> tuple[int, float, float]:
        """ALiBi: heads below a power of two, their base, and that of the others."""
        low = 1 << (self.x.shape[1].bit_length() - 1)
        return low, 2.0 ** (-self.max_bias / low), 2.0 ** (-self.max_bias / 2 / low)


def slopes(given: Inputs) -> Bounded:
    """By which each head multiplies its mask, shape (heads, 1, 1)."""
    heads = np.arange(given.x.shape[1], dtype=np.float64)
    if given.max_bias <= 0:
        return exactly(np.ones((len(heads), 1, 1)))
    low, first, second = given.bases
    base = np.where(heads < low, np.float32(first), np.float32(second))
    exponent = np.where(heads < low, heads + 1, 2 * (heads - low) + 1)
    return bounded.power(exactly(base), exponent).map(lambda v: v[:, None, None])


def soft_max(given: Inputs, block: int) -> Bounded:
    """exp(x - largest) by its sum, in which a sink takes part, for every row."""
    logits = exactly(given.x) * np.float32(given.scale)
    if given.mask is not None:
        repeats = given.x.shape[1] // given.mask.shape[1]
        mask = np.tile(given.mask.astype(np.float64), (1, repeats, 1, 1))
        with np.errstate(invalid="ignore"):
            weighted = slopes(given) * np.where(np.isinf(mask), 0, mask)
            logits = bounded.where(np.isinf(mask), -np.inf, logits + weighted)
    top = Bounded(logits.value.max(-1, keepdims=True), logits.error.max(-1, keepdims=True))
    if given.sinks is not None:
        sinks = exactly(given.sinks).map(lambda v: v[:, None, None])
        top = bounded.largest(top, sinks.map(lambda v: np.broadcast_to(v, top.value.shape)))
    terms = bounded.exp(logits - top)
    total = terms.block_sum(block).spread()
    if given.sinks is not None:
        total += bounded.exp(sinks - top)
    return terms * bounded.reciprocal(total)


def _parameters(given: Inputs) -> bytes:
    """``soft_max_params``."""
    samples, heads, rows, columns = given.x.shape
    low, first, second = given.bases
    count = samples * heads * rows
    steps, counts = (1, 1, 1), (1, 1)
    if given.mask is not None:
        steps = (given.mask.strides[2], given.mask.strides[1], given.mask.strides[0])
        counts = (given.mask.shape[1], given.mask.shape[0])
    return struct.pack(
        "<qI4x12q4f",
        *(heads, low, columns, count, rows),
        *(columns, rows, heads, samples),
        *(*steps, *counts),
        *(given.scale, given.max_bias, first, second),
    )


def _launch(entry: str, given: Inputs, *, cached: bool) -> Launch:
    samples, heads, rows, columns = given.x.shape
    block = 32
    while block < columns and block < 1024:
        block *= 2
    return Launch(
        entry=entry,
        grid=(rows, heads, samples),
        block=(block, 1, 1),
        arguments=(
            read("x", given.x),
            NULL if given.mask is None else read("mask", given.mask),
            NULL if given.sinks is None else read("sinks", given.sinks),
            output("dst", *given.x.shape),
            _parameters(given),
        ),
        shared=4 * (32 + (-(-columns // 32) * 32 if cached else 0)),
    )


def _mask(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Biases in quarters, and about a third of minus infinity, never a whole row."""
    mask = whole(rng, *shape, limit=12) / np.float32(4)
    mask[rng.random(shape) < 0.3] = -np.inf
    mask[..., :2] = 0.25
    return mask.astype(dtype)


def _x(
    rng: np.random.Generator, samples: int, heads: int, rows: int, columns: int
) -> NDArray[np.float32]:
    """Random rows; the first of each head has a value that overflows if less is taken off."""
    x = short(rng, samples, heads, rows, columns)
    tops = rng.integers(0, columns, (samples, heads, 1))
    tops[:, 0] = columns - 1
    np.put_along_axis(x[:, :, 0], tops, 2000, axis=-1)
    return x


def _biased(rng: np.random.Generator) -> Inputs:
    mask = _mask(rng, (1, 1, 2, 200), np.float32)
    return Inputs(_x(rng, 1, 3, 2, 200), 0.125, mask, max_bias=8.0)


def _pooled(rng: np.random.Generator) -> Inputs:
    mask = _mask(rng, (2, 3, 2, 4), np.float16)
    mask[0, 0, 0] = -np.inf  # only the sink is left
    return Inputs(_x(rng, 2, 3, 2, 4), 0.7, mask, sinks=short(rng, 3))


def _long(rng: np.random.Generator) -> Inputs:
    return Inputs(_x(rng, 1, 1, 2, 1500), 1.0)


def _warp(rng: np.random.Generator) -> Inputs:
    return Inputs(_x(rng, 1, 2, 3, 32), 0.25, sinks=short(rng, 2))


def _fixed(rng: np.random.Generator) -> Inputs:
    return Inputs(_x(rng, 1, 2, 2, 256), 0.3, _mask(rng, (1, 2, 2, 256), np.float16))


def _cases(
    seed: int, *, name: str, entry: str, inputs: Callable[[np.random.Generator], Inputs]
) -> tuple[Case, ...]:
    given = inputs(generator(seed, name))
    launch = _launch(entry, given, cached="ILb1E" in entry)
    right = expected(soft_max(given, launch.block[0]), _WHY)
    return (Case(label=f"shape {given.x.shape}", launch=launch, expected={"dst": right}),)


_KERNELS: tuple[
    tuple[str, tuple[bool | int | Type, ...], Callable[[np.random.Generator], Inputs]], ...
] = (
    ("any width, slopes and mask", (True, 0, 0, FLOAT), _biased),
    ("4 columns, f16 mask and sinks", (True, 0, 0, HALF), _pooled),
    ("any width, not in shared memory", (False, 0, 0, FLOAT), _long),
    ("32 columns, sinks", (True, 32, 32, FLOAT), _warp),
    ("256 columns, f16 mask", (True, 256, 256, HALF), _fixed),
)


def probes() -> tuple[Probe, ...]:
    """Of soft_max_f32 for widths that it knows and those that it does not."""
    made = []
    for name, arguments, inputs in _KERNELS:
        entry = template_entry("soft_max_f32", *arguments)
        made.append(
            Probe(
                name=f"soft_max_f32 {name}",
                unit=UNIT,
                entry=entry,
                kind="soft_max",
                functions=("soft_max_f32", "get_alibi_slope", "block_reduce", "t2f32"),
                cases=partial(_cases, name=name, entry=entry, inputs=inputs),
            )
        )
    return tuple(made)
