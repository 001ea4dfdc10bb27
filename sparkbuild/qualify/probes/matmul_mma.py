"""A matrix by several vectors on tensor cores, dense and with experts: mmf.cuh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.activations import loaded, stored
from sparkbuild.qualify.probes.bounded import Bounded, contracted, expected
from sparkbuild.qualify.probes.entries import BFLOAT16, FLOAT, HALF, Type, template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    generator,
    ints,
    output,
    read,
    rough,
    whole,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "matmul_mma"
_ROWS = 32
_WHY = (
    "whole numbers have no rounding; else products are exact in f32, and as many roundings as "
    "there are columns, since a tensor core's order is its own"
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance; ``pair`` is what the kernel calls two elements in 32 bits."""

    name: str
    kind: Type
    pair: Type
    vectors: int
    warps: int
    experts: bool = False

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        return template_entry("mul_mat_f", self.pair, _ROWS, self.vectors, self.warps, self.experts)

    @property
    def packed(self) -> int:
        """Elements in 32 bits."""
        return 1 if self.kind == FLOAT else 2

    @property
    def columns(self) -> int:
        """Two rounds of all warps and one of the first."""
        return 32 * self.packed * (2 * self.warps + 1)

    @property
    def shared(self) -> int:
        """Bytes of shared memory: tiles, then what warps add up; before them each vector's slot."""
        tiles = self.warps * 16 * 36 * 4
        sums = self.vectors * (self.warps * _ROWS + 4) * 4
        return max(tiles, sums) + (64 if self.experts else 0)


def _numbers(rng: np.random.Generator, *shape: int, exact: bool) -> NDArray[Any]:
    """Of the kernel's type; a tensor core takes f32 with tf32's bits, which f16 has as well."""
    values = whole(rng, *shape) if exact else rough(rng, *shape).astype(np.float16)
    return values.astype(np.float32)


def _product(kernel: Kernel, x: NDArray[Any], y: NDArray[Any]) -> Bounded:
    """x: (..., rows, columns), y: (..., vectors, columns), which is rounded to the type of x."""
    vectors = loaded(stored(y, kernel.kind), kernel.kind).value
    return contracted(vectors, loaded(x, kernel.kind).value, kernel.columns)


def _dense(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    """Two channels of vectors for one of the matrix, two samples, two tiles of rows."""
    rng, rows, columns, cases = generator(seed, kernel.name), 2 * _ROWS, kernel.columns, []
    vectors, packed = kernel.vectors, kernel.packed
    for label, exact in (("whole numbers", True), ("fractions", False)):
        x = stored(_numbers(rng, 2, 1, rows, columns, exact=exact), kernel.kind)
        y = _numbers(rng, 2, 2, vectors, columns, exact=exact)
        launch = Launch(
            entry=kernel.entry,
            grid=(2, 2, 2),
            block=(32, kernel.warps, 1),
            arguments=(
                read("x", x),
                read("y", y),
                NULL,
                output("dst", 2, 2, vectors, rows),
                *ints(columns // packed, vectors, 2, columns // packed, columns // packed, rows),
                *ints(0, 0, 2, rows * columns // packed, vectors * columns, vectors * rows),
                *ints(1, rows * columns // packed, 2 * vectors * columns, 2 * vectors * rows),
            ),
            shared=kernel.shared,
        )
        right = {"dst": expected(_product(kernel, x, y), _WHY)}
        cases.append(Case(label=label, launch=launch, expected=right))
    return tuple(cases)


def _experts(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    """Eleven tokens, in two tiles, each with two of five experts; one expert has no token."""
    rng, columns, tokens, used = generator(seed, kernel.name), kernel.columns, 11, 2
    ids = np.stack([rng.permutation(4)[:used] for _ in range(tokens)]).astype(np.int32)
    ids[ids == 2] = 4
    x = stored(_numbers(rng, 5, _ROWS, columns, exact=True), kernel.kind)
    y = _numbers(rng, tokens, used, columns, exact=True)
    launch = Launch(
        entry=kernel.entry,
        grid=(1, 5 * 2, 1),
        block=(32, kernel.warps, 1),
        arguments=(
            read("x", x),
            read("y", y),
            read("ids", ids),
            output("dst", tokens, used, _ROWS),
            *ints(columns, tokens, used, columns, used * columns, used * _ROWS, 1, used),
            *ints(1, _ROWS * columns, columns, _ROWS),
            *ints(1, 5 * _ROWS * columns, tokens * used * columns, tokens * used * _ROWS),
        ),
        shared=kernel.shared,
    )
    found = _product(kernel, x[ids], y[:, :, None])[..., 0, :]
    right = {"dst": expected(found, _WHY)}
    return (Case(label="11 tokens, 2 of 5 experts", launch=launch, expected=right),)


_KERNELS: tuple[tuple[Kernel, Callable[..., tuple[Case, ...]]], ...] = (
    (Kernel("f16", HALF, Type("7__half2"), 8, 2), _dense),
    (Kernel("f32, experts", FLOAT, FLOAT, 8, 2, experts=True), _experts),
    (Kernel("bf16", BFLOAT16, Type("14__nv_bfloat162"), 16, 4), _dense),
)


def probes() -> tuple[Probe, ...]:
    """Of each type."""
    return tuple(
        Probe(
            name=f"mul_mat_f {kernel.name}",
            unit=UNIT,
            entry=kernel.entry,
            kind="matmul",
            functions=("mul_mat_f", "load_ldmatrix", "mma"),
            cases=partial(cases, kernel=kernel),
        )
        for kernel, cases in _KERNELS
    )
