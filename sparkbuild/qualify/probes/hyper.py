"""Hyper-connections: streams mixed before and after a layer, and the mixing matrix: dsv4-hc.cu."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.activations import sigmoid
from sparkbuild.qualify.probes.bounded import DIVISION, UNIT, Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    floats,
    generator,
    ints,
    longs,
    output,
    read,
    rough,
    short,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Argument, Launch

_STREAMS = (4, 11)
"""GLM-5.3-Flash's, and more than the compiler unrolls."""
_ITERATIONS = 20
_EPSILON = 1e-6
_WHY = (
    "products of values with f16's bits are exact and sums rounded in order, so one f32 for "
    "certain; sigmoid adds ex2.approx and div.approx (2 ulp each)"
)
_WHY_MATRIX = (
    "soft-max, then in each of the normalisations four sums, a reciprocal (2 ulp) and a product; "
    "each of these errors is carried to the end by the derivatives of what follows"
)


def normalised(matrix: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sums along ``axis`` made one, and how relative errors of 16 elements go through it."""
    total = matrix.sum(axis, keepdims=True) + np.float32(_EPSILON)
    part = (matrix / total).reshape(-1, 16)
    places = np.arange(16).reshape(4, 4)
    group = places % 4 if axis == 1 else places // 4
    same = group.ravel()[:, None] == group.ravel()[None, :]
    return matrix / total, np.eye(16) - same * part[:, None, :]


def mixing(logits: Bounded) -> Bounded:
    """Soft-max of each source's row, then columns and rows made one in turn, the columns last.

    logits: (tokens, source, destination).
    """
    top = Bounded(logits.value.max(-1, keepdims=True), logits.error.max(-1, keepdims=True))
    terms = bounded.exp(logits - top)
    start = terms * bounded.reciprocal(terms.summed()).spread() + np.float32(_EPSILON)
    matrix, steps = start.value, []
    for index in range(2 * _ITERATIONS - 1):
        matrix, step = normalised(matrix, 1 if index % 2 == 0 else 2)
        steps.append(step)
    each = 4 * UNIT + DIVISION + UNIT
    after, error = np.eye(16), np.zeros((len(matrix), 16))
    for step in reversed(steps):
        error += np.abs(after).sum(-1) * each
        after = after @ step
    error += (np.abs(after) * (start.error / start.value).reshape(-1, 1, 16)).sum(-1)
    small = 1 + 1e-3  # products of errors
    return Bounded(matrix, error.reshape(matrix.shape) * matrix * small)


def _matrix(seed: int, *, entry: str) -> tuple[Case, ...]:
    rng, tokens = generator(seed, entry), 70
    mixes, base = rough(rng, tokens, 26)[:, :24], rough(rng, 24)
    scale = rough(rng, 3)
    logits = (exactly(mixes[:, 8:]) * scale[2] + base[8:]).map(lambda v: v.reshape(-1, 4, 4))
    launch = Launch(
        entry=entry,
        grid=(1, 1, 1),
        block=(256, 1, 1),
        arguments=(
            read("mixes", mixes),
            read("scale", scale),
            read("base", base),
            output("dst", tokens, 4, 4),
            *longs(tokens, 1, 26, 1, 1, 1, 4, 16),
            *floats(_EPSILON),
            *ints(_ITERATIONS),
        ),
    )
    right = {"dst": expected(mixing(logits), _WHY_MATRIX)}
    return (Case(label=f"{tokens} tokens", launch=launch, expected=right),)


def _shape(x: NDArray[Any]) -> tuple[np.int64, ...]:
    return longs(*(step // 4 for step in reversed(x.strides)))


def gathered(
    x: NDArray[Any], weights: NDArray[Any], scale: float, *, gated: bool = False
) -> Bounded:
    """Streams summed by weights or, gated, by scale and the sigmoids of theirs.

    x: (tokens, streams, columns); weights: (tokens, streams), gated: as x. Gives (tokens, columns).
    """
    factor = sigmoid(exactly(weights)) if gated else exactly(weights).spread()
    found = (exactly(x) * factor).map(lambda v: np.moveaxis(v, 1, -1)).summed()
    return found.once(np.float32(scale))


def scattered(
    x: NDArray[Any], residual: NDArray[Any], post: NDArray[Any], matrix: NDArray[Any] | None
) -> Bounded:
    """Every stream: x by its weight, plus the residuals mixed, or its own one.

    x: (tokens, columns), residual: (tokens, streams, columns), post: (tokens, streams), matrix:
    (tokens, source, destination).
    """
    found = exactly(x)[:, None] * post[..., None]
    if matrix is None:
        return found + residual
    for source in range(residual.shape[1]):
        found += exactly(residual[:, None, source]) * matrix[:, source, :, None]
    return found


def _before(seed: int, *, entry: str, gated: bool) -> tuple[Case, ...]:
    """Streams summed by their weights: one for each, or one for each element through a sigmoid."""
    rng, tokens, columns, scale = generator(seed, entry), 3, 130, 0.25
    cases = []
    for streams in _STREAMS:
        x = short(rng, tokens, streams, columns + 2)[..., :columns]
        weights = short(rng, tokens, streams, *([columns] if gated else []))
        found = gathered(x, weights, scale, gated=gated)
        strides = _shape(weights) if gated else (*_shape(weights), *longs(0))
        launch = Launch(
            entry=entry,
            grid=(2, 1, 1),
            block=(256, 1, 1),
            arguments=(
                read("x", x),
                read("weights", weights),
                output("dst", tokens, columns),
                *longs(columns, streams, tokens),
                *_shape(x),
                *strides,
                *longs(1, columns),
                *floats(scale),
            ),
        )
        right = {"dst": expected(found, _WHY)}
        cases.append(Case(label=f"{streams} streams", launch=launch, expected=right))
    return tuple(cases)


def _after(seed: int, *, entry: str, mixed: bool) -> tuple[Case, ...]:
    """What a layer gave, added to the mixed streams, or to each stream."""
    rng, tokens, columns, cases = generator(seed, entry), 2, 70, []
    for streams in _STREAMS:
        x, post = short(rng, tokens, columns), short(rng, tokens, streams)
        residual = short(rng, tokens, streams, columns)
        matrix = short(rng, tokens, streams, streams)  # token, source, destination
        found = scattered(x, residual, post, matrix if mixed else None)
        strides: tuple[Argument, ...] = _shape(matrix) if mixed else longs(0, 0, 0)
        launch = Launch(
            entry=entry,
            grid=(-(-residual.size // 256), 1, 1),
            block=(256, 1, 1),
            arguments=(
                read("x", x),
                read("residual", residual),
                read("post", post),
                read("matrix", matrix) if mixed else NULL,
                output("dst", *residual.shape),
                *longs(columns, streams, tokens),
                *_shape(x),
                *_shape(residual),
                *_shape(post),
                *strides,
                *_shape(residual),
            ),
        )
        right = {"dst": expected(found, _WHY)}
        cases.append(Case(label=f"{streams} streams", launch=launch, expected=right))
    return tuple(cases)


def probes() -> tuple[Probe, ...]:
    """Of each kernel in both of its forms."""
    made: dict[str, tuple[str, Callable[..., tuple[Case, ...]]]] = {
        "dsv4_hc_comb": (template_entry("dsv4_hc_comb_f32"), _matrix)
    }
    for name, flag in (("", False), (" gated", True)):
        entry = template_entry("dsv4_hc_pre_f32", flag)
        made[f"dsv4_hc_pre{name}"] = (entry, partial(_before, gated=flag))
    for name, flag in (("", True), (" without matrix", False)):
        entry = template_entry("dsv4_hc_post_f32", flag)
        made[f"dsv4_hc_post{name}"] = (entry, partial(_after, mixed=flag))
    return tuple(
        Probe(
            name=name,
            unit="moe",
            entry=entry,
            kind="hyper",
            functions=(f"{name.split()[0]}_f32",),
            cases=partial(cases, entry=entry),
        )
        for name, (entry, cases) in made.items()
    )
