"""Rotary position embedding in its layouts, alone and fused with the norm before it: rope.cu."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, Operand, exactly, expected
from sparkbuild.qualify.probes.entries import FLOAT, HALF, Type, template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    floats,
    generator,
    ints,
    output,
    read,
    rough,
    untouched,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Argument, Launch

UNIT = "rope"
_BLOCK = 256
_WHY = (
    "powf is lg2.approx (2^-22), a rounded product and ex2.approx (2 ulp); the angle's products "
    "and quotient rounded; sin.approx and cos.approx 2^-20.5 up to 2 pi, 2^-14.7 up to 100 pi, and "
    "not judged beyond; two products and a sum"
)


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """How pairs are turned; ``positions`` has one row for each axis of positions."""

    positions: NDArray[np.int32]
    dims: int
    offset: int = 0
    base: float = 10000.0
    freq_scale: float = 1.0
    extrapolation: float = 0.0
    magnitude: float = 1.0
    corrections: tuple[float, float] = (0.0, 0.0)
    factors: NDArray[np.float32] | None = None
    sections: tuple[int, int, int, int] = (0, 0, 0, 0)
    forward: bool = True

    @property
    def theta_scale(self) -> np.float32:
        """By which the angle shrinks from one pair to the next."""
        return np.float32(np.float32(self.base) ** np.float32(-2.0 / self.dims))


def turned(how: Rotation, positions: NDArray[Any], exponent: NDArray[Any]) -> tuple[Bounded, ...]:
    """Cosine and sine, shape (tokens, pairs), for positions (tokens, pairs), exponents (pairs)."""
    pairs = np.arange(len(exponent))
    angle = bounded.power(exactly(how.theta_scale), exponent) * positions
    if how.factors is not None:
        angle = angle / how.factors
    theta, magnitude = angle * np.float32(how.freq_scale), exactly(np.float32(how.magnitude))
    if how.extrapolation:
        low, high = floats(*how.corrections)
        ramp = (exactly(pairs) - low) / max(np.float32(0.001), high - low)
        mix = (1.0 - bounded.least(1.0, bounded.largest(0.0, ramp))) * np.float32(how.extrapolation)
        theta = theta * (1.0 - mix) + angle * mix
        growth = bounded.log(bounded.reciprocal(exactly(np.float32(how.freq_scale))))
        magnitude *= growth * np.float32(0.1) + 1.0
    sine = bounded.sine(theta) * magnitude
    return bounded.cosine(theta) * magnitude, sine if how.forward else -sine


def rotated(x: Operand, how: Rotation, layout: str) -> Bounded:
    """x, shape (samples, tokens, heads, columns), with ``dims`` of its columns turned in pairs.

    Pairs are neighbours in ``norm``, else half of what is turned apart.
    """
    given, pairs = exactly(x), np.arange(how.dims if layout == "vision" else how.dims // 2)
    axis, exponent = _axes(how, layout, pairs)
    positions = how.positions[axis, :].T.astype(np.float64)
    cos, sin = (v.map(lambda a: a[:, None, :]) for v in turned(how, positions, exponent))
    if layout == "norm":
        first = how.offset + 2 * pairs
        second = first + 1
    else:
        first = how.offset + pairs
        second = first + len(pairs)
    one, two = given[..., first], given[..., second]
    value, error = given.value.copy(), given.error.copy()
    for place, moved in ((first, one * cos - two * sin), (second, one * sin + two * cos)):
        value[..., place], error[..., place] = moved.value, moved.error
    return Bounded(value, error)


def _axes(how: Rotation, layout: str, pairs: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Which row of positions each pair is turned by, and the power of its frequency."""
    time, height, width, _ = how.sections
    if layout == "vision":
        sector = pairs % (time + height)
        return (sector >= time).astype(int), np.where(sector < time, sector, sector - time)
    if layout not in {"multi", "interleaved"}:
        return np.zeros(len(pairs), int), pairs
    sector = pairs % sum(how.sections)
    if layout == "multi":
        return np.searchsorted(np.cumsum(how.sections[:3]), sector, side="right"), pairs
    third = sector % 3
    within = sector < 3 * np.array([time, height, width])[third]
    return np.where(within, third, 3), pairs


def common_arguments(how: Rotation) -> tuple[Argument, ...]:
    """From the positions to the factors, as every kernel of rope.cu takes them."""
    return (
        read("positions", how.positions),
        *floats(how.freq_scale, how.extrapolation, how.magnitude),
        struct.pack("<2f", *how.corrections),
        how.theta_scale,
        NULL if how.factors is None else read("factors", how.factors),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One instance of a kernel, with how it is launched."""

    name: str
    function: str
    layout: str
    instance: tuple[bool | Type, ...]
    how: Callable[[np.random.Generator], Rotation]
    shape: tuple[int, int, int, int] = (1, 4, 3, 40)
    source: type[Any] = np.float32
    target: type[Any] = np.float32
    scattered: bool = False
    inplace: bool = False

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        return template_entry(self.function, *self.instance)


def _launch(kernel: Kernel, how: Rotation, x: NDArray[Any]) -> Launch:
    samples, tokens, heads, columns = kernel.shape
    shape = (samples, tokens, heads, columns)
    rows = np.array([5, 0, 3, 6][:tokens], np.int64)
    if kernel.scattered:
        shape = (samples, 7, heads, columns)
    inner = ints(*(step // x.itemsize for step in reversed(x.strides[:-1])))
    outer = ints(columns, columns * heads, columns * heads * tokens)
    offset: tuple[Argument, ...] = () if kernel.layout == "vision" else ints(how.offset)
    last: tuple[Argument, ...] = (struct.pack("<4i", *how.sections),)
    if kernel.layout in {"multi", "interleaved"}:
        last += (np.uint8(kernel.layout == "interleaved"), np.uint8(kernel.inplace))
    elif kernel.layout != "vision":
        where: Argument = read("rows", rows) if kernel.scattered else NULL
        stride = np.int32(columns * heads if kernel.scattered else 0)
        last = (where, stride, np.uint8(kernel.inplace))
    return Launch(
        entry=kernel.entry,
        grid=(samples * tokens * heads, -(-columns // (2 * _BLOCK)), 1),
        block=(1, _BLOCK, 1),
        arguments=(
            read("x", x),
            output("dst", *shape, dtype=kernel.target),
            *ints(columns, heads, tokens),
            *inner,
            *outer,
            *ints(how.dims),
            *offset,
            *common_arguments(how),
            *last,
        ),
    )


def _cases(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    """As the kernel's name says, and with YaRN."""
    rng = generator(seed, kernel.name)
    samples, tokens, heads, columns = kernel.shape
    padded = rough(rng, samples, tokens, heads + 1, columns + 2).astype(kernel.source)
    x = padded[:, :, :heads, :columns]
    plain, cases = kernel.how(rng), []
    extended = replace(plain, freq_scale=0.25, extrapolation=0.75, magnitude=1.1)
    corrections = (4.0, 4.0) if kernel.source == np.float16 else (2.0, 6.5)
    for how in (plain, replace(extended, corrections=corrections)):
        right = rotated(x, how, kernel.layout)
        if kernel.inplace:
            kept = np.ones(columns, bool)
            kept[how.offset : how.offset + how.dims] = False
            right = bounded.where(kept, np.float64(untouched(kernel.target)), right)
        if kernel.scattered:
            value = np.full((samples, 7, heads, columns), np.float64(untouched(kernel.target)))
            error = np.zeros_like(value)
            value[:, [5, 0, 3, 6]], error[:, [5, 0, 3, 6]] = right.value, right.error
            right = Bounded(value, error)
        cases.append(
            Case(
                label=f"{how.dims} of {columns} columns, positions to {how.positions.max()}, "
                f"extrapolation {how.extrapolation}",
                launch=_launch(kernel, how, x),
                expected={"dst": expected(right, _WHY, kernel.target)},
            )
        )
    return tuple(cases)


def _near(rng: np.random.Generator) -> Rotation:
    return Rotation(rng.integers(0, 7, (1, 4)).astype(np.int32), dims=24, offset=8)


def _far(rng: np.random.Generator) -> Rotation:
    factors = rng.uniform(1.0, 4.0, 16).astype(np.float32)
    return Rotation(np.array([[0, 300, 77, 131]], np.int32), dims=32, factors=factors)


def _very_far(rng: np.random.Generator) -> Rotation:
    positions = (rng.integers(1, 8, (1, 4)) * [[131072, 1, 131072, 1]]).astype(np.int32)
    return Rotation(positions, dims=40, base=5e6, forward=False)


def _sections(rng: np.random.Generator) -> Rotation:
    positions = rng.integers(0, 40, (4, 4)).astype(np.int32)
    return Rotation(positions, dims=32, offset=4, sections=(4, 3, 2, 1))


def _interleaved(rng: np.random.Generator) -> Rotation:
    factors = rng.uniform(1.0, 2.0, 20).astype(np.float32)
    positions = rng.integers(0, 40, (4, 4)).astype(np.int32)
    return Rotation(positions, dims=40, sections=(8, 6, 6, 0), factors=factors)


def _picture(rng: np.random.Generator) -> Rotation:
    positions = rng.integers(0, 60, (2, 4)).astype(np.int32)
    return Rotation(positions, dims=20, sections=(10, 10, 0, 0))


KERNELS = (
    Kernel("rope_norm", "rope_norm", "norm", (True, False, FLOAT, FLOAT), _near),
    Kernel(
        "rope_norm to f16 rows",
        "rope_norm",
        "norm",
        (True, True, FLOAT, HALF),
        _far,
        target=np.float16,
        scattered=True,
    ),
    Kernel(
        "rope_neox to f16, in place",
        "rope_neox",
        "neox",
        (True, False, FLOAT, HALF),
        _near,
        target=np.float16,
        inplace=True,
    ),
    Kernel("rope_neox", "rope_neox", "neox", (True, True, FLOAT, FLOAT), _far, scattered=True),
    Kernel(
        "rope_neox backwards",
        "rope_neox",
        "neox",
        (False, False, HALF, Type("S0_")),
        _very_far,
        source=np.float16,
        target=np.float16,
    ),
    Kernel("rope_multi", "rope_multi", "multi", (True, False, FLOAT), _sections, inplace=True),
    Kernel(
        "rope_multi interleaved",
        "rope_multi",
        "interleaved",
        (True, True, HALF),
        _interleaved,
        source=np.float16,
        target=np.float16,
    ),
    Kernel("rope_vision", "rope_vision", "vision", (True, False, FLOAT), _picture),
)


def probes() -> tuple[Probe, ...]:
    """Of each layout, with and without factors, YaRN, offsets, and rows by index."""
    return tuple(
        Probe(
            name=kernel.name,
            unit=UNIT,
            entry=kernel.entry,
            kind="rope",
            functions=(kernel.function, "rope_yarn", "rope_yarn_ramp"),
            cases=partial(_cases, kernel=kernel),
        )
        for kernel in KERNELS
    )
