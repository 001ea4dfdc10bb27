"""Norms of rows and sums over them: norm.cu, sumrows.cu."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
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
    uint3,
    whole,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Argument, Launch

UNIT = "norms"
_EPSILON = 1e-5
_WHY = (
    "sums over rows are exact products added up in the block's order, so one f32 for certain; then "
    "div.approx 2 ulp, rsqrt.approx 2^-22.9, one rounding for each product and sum after it"
)


def _scaled(square: Bounded, columns: int) -> Bounded:
    return bounded.rsqrt(square / columns + floats(_EPSILON)[0])


def rms_norm(x: NDArray[Any], block: int) -> Bounded:
    """Each row of x, shape (..., columns), by the root of its mean square."""
    rows = exactly(x)
    square = (rows * rows).block_sum(block)
    return rows * _scaled(square, x.shape[-1]).spread()


def layer_norm(x: NDArray[Any], block: int) -> Bounded:
    """Each row less its mean, by its deviation, which is mean square less squared mean."""
    rows, columns = exactly(x), int(x.shape[-1])
    mean = rows.block_sum(block) / columns
    variance = (rows * rows).block_sum(block) / columns - mean * mean
    scale = bounded.rsqrt(variance + floats(_EPSILON)[0])
    return (rows - mean.spread()) * scale.spread()


def l2_norm(x: NDArray[Any], epsilon: float, block: int) -> Bounded:
    """Each row by its length, or by epsilon where that is longer."""
    rows, limit = exactly(x), exactly(np.float32(epsilon))
    square = (rows * rows).block_sum(block)
    scale = bounded.rsqrt(bounded.largest(square, limit * limit))
    return rows * scale.spread()


def group_norm(x: NDArray[Any], size: int) -> Bounded:
    """Groups of ``size`` elements, the last one shorter, each less its mean, by its deviation."""
    parts = []
    for start in range(0, len(x), size):
        group = exactly(x[start : start + size])
        away = group - group.block_sum(32) / size
        variance = (away * away).block_sum(32) / size
        parts.append(away * bounded.rsqrt(variance + floats(_EPSILON)[0]))
    return Bounded(
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.error for part in parts]),
    )


def row_sum(x: NDArray[Any], block: int) -> Bounded:
    """The sum of each row: every thread has eight sums of its own, which it adds up first."""
    rounds = -(-x.shape[-1] // (8 * block))
    padded = np.pad(x, [(0, 0), (0, rounds * 8 * block - x.shape[-1])])
    eight = exactly(padded.reshape(-1, rounds, 8, block)).map(lambda v: np.moveaxis(v, 1, -1))
    return eight.summed().map(lambda v: np.moveaxis(v, 1, -1)).summed().block_sum(block)


Shape: TypeAlias = tuple[int, int, int, int]
"""Samples, channels, rows, columns."""


def _padded(name: str, shape: Shape, seed: int) -> NDArray[Any]:
    """Rows that do not begin where the last one ended: five more columns than the kernel's."""
    return short(generator(seed, name), *shape[:-1], shape[-1] + 5, middle=0.25)


def _row_strides(x: NDArray[Any]) -> tuple[np.int64, ...]:
    return longs(*(step // 4 for step in reversed(x.strides[:-1])))


def _launch(
    entry: str, x: NDArray[Any], shape: Shape, block: int, epsilon: float, *more: Argument
) -> Launch:
    samples, channels, rows, columns = shape
    return Launch(
        entry=entry,
        grid=(rows, channels, samples),
        block=(block, 1, 1),
        arguments=(
            read("x", x),
            output("dst", *shape),
            *ints(columns),
            *_row_strides(x),
            *floats(epsilon),
            *more,
        ),
        shared=256 if block > 32 else 0,
    )


def _case(launch: Launch, right: Bounded) -> tuple[Case, ...]:
    rows, columns = launch.grid[0], right.value.shape[-1]
    label = f"{rows} rows of {columns}, block of {launch.block[0]}"
    return (Case(label=label, launch=launch, expected={"dst": expected(right, _WHY)}),)


def _layer(seed: int, *, block: int, shape: Shape) -> tuple[Case, ...]:
    x = _padded("norm_f32", shape, seed)
    launch = _launch(template_entry("norm_f32", block), x, shape, block, _EPSILON)
    return _case(launch, layer_norm(x[..., : shape[-1]], block))


def _length(seed: int, *, block: int, shape: Shape) -> tuple[Case, ...]:
    x, epsilon = _padded("l2_norm_f32", shape, seed), 1.5
    x[..., 0, :] *= np.float32(0.01)  # a row that is shorter than epsilon
    launch = _launch(template_entry("l2_norm_f32", block), x, shape, block, epsilon)
    return _case(launch, l2_norm(x[..., : shape[-1]], epsilon, block))


_NO_OPERAND: Final[tuple[Argument, ...]] = (NULL, *longs(0, 0, 0), *([uint3(0, 0, 0)] * 4))


def _operand(name: str, data: NDArray[Any]) -> tuple[Argument, ...]:
    """A factor or summand that is repeated: pointer, strides, divisors."""
    divisors = (fastdiv(count) for count in reversed(data.shape))
    return (read(name, data), *_row_strides(data), *divisors)


def _rms_scaled(seed: int, *, shape: Shape) -> tuple[Case, ...]:
    scale = 0.3
    x = _padded("rms_norm_f32 scaled", shape, seed)
    entry = template_entry("rms_norm_f32", 256, False, False, True)
    more = (*_NO_OPERAND, *_NO_OPERAND, *floats(scale))
    launch = _launch(entry, x, shape, 256, _EPSILON, *more)
    return _case(launch, rms_norm(x[..., : shape[-1]], 256) * np.float32(scale))


def _rms_fused(seed: int, *, block: int, shape: Shape, plus: bool) -> tuple[Case, ...]:
    samples, channels, rows, columns = shape
    x, rng = _padded("rms_norm_f32", shape, seed), generator(seed, "rms_norm_f32 operands")
    factor = short(rng, *((1, 1, rows) if plus else (samples, channels, 1)), columns // 4)
    summand = short(rng, samples, channels, 1, columns)
    second = _operand("add", summand) if plus else _NO_OPERAND
    entry = template_entry("rms_norm_f32", block, True, plus, False)
    more = (*_operand("mul", factor), *second, *floats(1.0))
    right = rms_norm(x[..., :columns], block) * np.tile(factor, (1, 1, 1, 4))
    return _case(
        _launch(entry, x, shape, block, _EPSILON, *more), right + summand if plus else right
    )


def _group(seed: int) -> tuple[Case, ...]:
    cases = []
    for count, size in ((200, 70), (900, 590)):
        x = short(generator(seed, "group_norm_f32"), count, middle=0.25)
        launch = Launch(
            entry=template_entry("group_norm_f32", 32),
            grid=(-(-count // size), 1, 1),
            block=(32, 1, 1),
            arguments=(read("x", x), output("dst", count), *ints(size, count), *floats(_EPSILON)),
        )
        right = {"dst": expected(group_norm(x, size), _WHY)}
        cases.append(Case(label=f"groups of {size}", launch=launch, expected=right))
    return tuple(cases)


def _sums(seed: int, *, mean: bool) -> tuple[Case, ...]:
    rng = generator(seed, "reduce_rows_f32")
    inputs = {
        "300 columns, whole numbers": (whole(rng, 3, 300, limit=100), 32),
        "300 columns": (short(rng, 3, 300), 32),
        "1000 columns, block of 512": (short(rng, 2, 1000), 512),
        "4 columns": (short(rng, 5, 4), 32),
        "900 columns": (short(rng, 1, 900), 32),
    }
    cases = []
    for label, (x, block) in inputs.items():
        rows, columns = x.shape
        right = row_sum(x, block)
        launch = Launch(
            entry=template_entry("reduce_rows_f32", mean),
            grid=(rows, 1, 1),
            block=(block, 1, 1),
            arguments=(read("x", x), output("dst", rows), *ints(columns)),
        )
        right = right / columns if mean else right
        cases.append(Case(label=label, launch=launch, expected={"dst": expected(right, _WHY)}))
    return tuple(cases)


def _each(
    cases: Callable[..., tuple[Case, ...]], shapes: tuple[Shape, ...]
) -> Callable[[int], tuple[Case, ...]]:
    """The cases of several shapes; long rows go through what the compiler unrolled."""

    def made(seed: int) -> tuple[Case, ...]:
        return tuple(case for shape in shapes for case in cases(seed, shape=shape))

    return made


def _probe(name: str, entry: str, cases: Callable[[int], tuple[Case, ...]]) -> Probe:
    return Probe(
        name=name,
        unit=UNIT,
        entry=entry,
        kind="norm",
        functions=(name.split(maxsplit=1)[0], "block_reduce", "warp_reduce_sum"),
        cases=cases,
    )


def probes() -> tuple[Probe, ...]:
    """Of every norm kernel, at a block of one warp and of several."""
    few: tuple[Shape, ...] = ((2, 2, 2, 75), (1, 1, 1, 1015))
    many: tuple[Shape, ...] = ((1, 1, 2, 1100), (1, 1, 1, 9300))
    made = []
    for name, cases in (("norm_f32", _layer), ("l2_norm_f32", _length)):
        for block, shapes in ((32, few), (1024, many)):
            entry, label = template_entry(name, block), f"{name} block of {block}"
            made.append(_probe(label, entry, _each(partial(cases, block=block), shapes)))
    rms = partial(template_entry, "rms_norm_f32")
    sums = partial(template_entry, "reduce_rows_f32")
    scaled = _each(_rms_scaled, ((1, 2, 3, 300), (1, 1, 1, 8800)))
    fused = _each(partial(_rms_fused, block=256, plus=True), ((2, 2, 3, 100), (1, 1, 1, 8800)))
    times = _each(partial(_rms_fused, block=1024, plus=False), ((2, 2, 1, 1100), (1, 1, 1, 9300)))
    return (
        *made,
        _probe("rms_norm_f32 scaled", rms(256, False, False, True), scaled),
        _probe("rms_norm_f32 times, plus", rms(256, True, True, False), fused),
        _probe("rms_norm_f32 times", rms(1024, True, False, False), times),
        _probe("group_norm_f32", template_entry("group_norm_f32", 32), _group),
        _probe("reduce_rows_f32 sum", sums(False), partial(_sums, mean=False)),
        _probe("reduce_rows_f32 mean", sums(True), partial(_sums, mean=True)),
    )
