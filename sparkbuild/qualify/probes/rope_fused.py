"""RMS norm, factor, rotation and rows by index in one kernel: rope.cu."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import Bounded, expected
from sparkbuild.qualify.probes.entries import FLOAT, HALF, template_entry
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
    untouched,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.probes.norms import rms_norm
from sparkbuild.qualify.probes.rope import Rotation, common_arguments, rotated
from sparkbuild.qualify.simt.contract import Launch

_WHY = "as RMS norm's, with the factor's product, then as rope's"
_SHAPE = (2, 2, 2, 48)
"""Samples, tokens, heads, columns."""
_ROWS = (4, 1)


def _launch(
    entry: str, x: NDArray[Any], factor: NDArray[Any], how: Rotation, *, scattered: bool
) -> Launch:
    samples, tokens, heads, columns = x.shape
    shape = (1, 5, heads, columns) if scattered else x.shape
    stride = columns * heads if scattered else 0
    return Launch(
        entry=entry,
        grid=(heads, tokens, 1 if scattered else samples),
        block=(256, 1, 1),
        arguments=(
            read("x", x),
            output("dst", *shape, dtype=np.float16 if scattered else np.float32),
            *ints(columns),
            *longs(*(step // 4 for step in reversed(x.strides[:-1]))),
            *longs(columns, columns * heads, columns * heads * tokens),
            *floats(1e-5),
            read("factor", factor),
            *longs(0, 0, 0),
            *(fastdiv(count) for count in (columns, 1, 1, 1)),
            *ints(how.dims),
            *common_arguments(how),
            read("rows", np.array(_ROWS, np.int64)) if scattered else NULL,
            *ints(stride),
            np.uint8(scattered),  # the layout of neox
        ),
        shared=128,
    )


def _cases(seed: int, *, entry: str, scattered: bool) -> tuple[Case, ...]:
    """Rows of half a block, and rows that go through what the compiler unrolled."""
    rng, cases = generator(seed, entry), []
    for shape, dims in ((_SHAPE, 40), ((1, 2, 1, 2200), 2100)):
        samples, tokens, heads, columns = shape
        x = rough(rng, samples, tokens, heads + 1, columns)[:, :, :heads]
        factor = rough(rng, columns)
        factors = rng.uniform(1.0, 3.0, dims // 2).astype(np.float32) if scattered else None
        how = Rotation(np.array([[3, 47]], np.int32), dims=dims, factors=factors)
        given = x[:1] if scattered else x
        right = rotated(rms_norm(given, 256) * factor, how, "neox" if scattered else "norm")
        dtype: type[Any] = np.float16 if scattered else np.float32
        if scattered:
            value = np.full((1, 5, heads, columns), np.float64(untouched(np.float16)))
            error = np.zeros_like(value)
            value[:, _ROWS], error[:, _ROWS] = right.value, right.error
            right = Bounded(value, error)
        launch = _launch(entry, x, factor, how, scattered=scattered)
        found = {"dst": expected(right, _WHY, dtype)}
        cases.append(Case(label=f"{dims} of {columns} columns", launch=launch, expected=found))
    return tuple(cases)


def probes() -> tuple[Probe, ...]:
    """Of both layouts, to rows in place and to rows of f16 by index."""
    kinds: dict[str, tuple[str, Callable[[int], tuple[Case, ...]]]] = {}
    for name, factors, target in (("", False, FLOAT), (" to f16 rows", True, HALF)):
        entry = template_entry("rms_norm_mul_rope_f32", 256, factors, target)
        kinds[name] = (entry, partial(_cases, entry=entry, scattered=factors))
    return tuple(
        Probe(
            name=f"rms_norm_mul_rope_f32{name}",
            unit="rope",
            entry=entry,
            kind="rope",
            functions=("rms_norm_mul_rope_f32", "rope_yarn"),
            cases=cases,
        )
        for name, (entry, cases) in kinds.items()
    )
