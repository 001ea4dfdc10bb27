"""A matrix by a few vectors, with gate, biases and activation in the same kernel: mmvf.cu."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.activations import clamped, gelu, loaded, oai, silu, stored
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import BFLOAT16, FLOAT, HALF, Type, template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    fastdiv,
    generator,
    ints,
    output,
    read,
    short,
    uint3,
    whole,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch

UNIT = "matvec"
_WHY = (
    "products of values with f16's or bf16's bits are exact in f32, a thread's sums and a block's "
    "rounded in order, so one f32 for certain; the activation adds ex2.approx and div.approx "
    "(2 ulp each) or tanh.approx (2^-11)"
)
_LIMIT = 1.5
_GLU: dict[str, tuple[int, Callable[[Bounded, Bounded], Bounded]]] = {
    "GEGLU": (1, lambda gate, value: value * gelu(gate)),
    "SWIGLU": (2, lambda gate, value: value * silu(gate)),
    "SWIGLU_OAI": (3, lambda gate, value: oai(gate, value, 7.0)),
    "SWIGLU_CLAMP": (6, lambda gate, value: clamped(gate, value, _LIMIT)),
}
"""``ggml_glu_op`` and what it does."""


def product(x: Bounded, y: Bounded, block: int) -> Bounded:
    """Rows of x by y over the last axis: threads take pairs of columns in turn, then add up."""
    terms = x * y
    columns = terms.value.shape[-1]
    rounds = -(-columns // (2 * block))
    rest = rounds * 2 * block - columns
    padded = terms.map(lambda v: np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, rest)]))
    shape = (*terms.value.shape[:-1], rounds, block, 2)
    each = padded.map(
        lambda v: np.moveaxis(v.reshape(shape), -3, -2).reshape(*shape[:-3], block, -1)
    )
    return each.summed().block_sum(block)


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """What a kernel may have beside its matrix: gate, biases, activation."""

    gate: NDArray[Any] | None = None
    bias: NDArray[Any] | None = None
    gate_bias: NDArray[Any] | None = None
    glu: str = "SWIGLU"

    def struct(self) -> tuple[bytes, dict[int, Buffer]]:
        """``ggml_cuda_mm_fusion_args_device`` and where in it which buffer's address goes."""
        raw = bytearray(80)
        struct.pack_into("<if", raw, 40, _GLU[self.glu][0], _LIMIT)
        given = {0: ("bias", self.bias), 8: ("gate", self.gate), 16: ("gate_bias", self.gate_bias)}
        buffers = {at: read(name, data) for at, (name, data) in given.items() if data is not None}
        return bytes(raw), buffers

    def apply(self, value: Bounded, gate: Bounded) -> Bounded:
        """The kernel's last step."""
        return value if self.gate is None else _GLU[self.glu][1](gate, value)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance; columns of the matrix are chosen so that threads go round unevenly."""

    name: str
    kind: Type
    sums: Type
    vectors: int
    block: int
    fused: bool = False
    tokens: bool = False

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        sums = Type("S?_") if self.sums == HALF else self.sums  # named before
        counts = (self.vectors, self.block, self.fused, self.tokens)
        return template_entry("mul_mat_vec_f", self.kind, sums, *counts)

    @property
    def columns(self) -> int:
        """Pairs for nine rounds of a block, of which four are unrolled, and a part of a tenth."""
        return 18 * self.block + 14


def _launch(
    kernel: Kernel,
    grid: tuple[int, int, int],
    buffers: tuple[Argument, Argument, Argument, Buffer],
    fused: Fused,
    *rest: Argument,
) -> Launch:
    """``rest``: from the number of pairs to the stride of the experts' indices."""
    raw, inside = fused.struct()
    x, y, ids, dst = buffers
    return Launch(
        entry=kernel.entry,
        grid=grid,
        block=(kernel.block, 1, 1),
        arguments=(x, y, ids, raw, dst, *rest),
        shared=256,
        pointers={(3, at): buffer for at, buffer in inside.items()},
    )


def _dense(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    """One channel of the matrix for two of the vectors', two samples of vectors for one of it."""
    rng, rows, columns = generator(seed, kernel.name), 3, kernel.columns
    vectors = kernel.vectors
    numbers = partial(whole, limit=4) if kernel.sums == HALF else short
    x = stored(numbers(rng, 1, 1, rows, columns), kernel.kind)
    y = numbers(rng, 2, 2, vectors, columns)
    value = product(loaded(x, kernel.kind), exactly(y[:, :, :, None]), kernel.block)
    launch = _launch(
        kernel,
        (rows, 2, 2),
        (read("x", x), read("y", y), NULL, output("dst", 2, 2, vectors, rows)),
        Fused(),
        *ints(columns // 2),
        uint3(0, 0, 0) if kernel.tokens else fastdiv(2),
        *ints(columns, columns // 2, rows),
        fastdiv(2),
        *ints(rows * columns, vectors * columns, vectors * rows),
        fastdiv(2),
        *ints(rows * columns, 2 * vectors * columns, 2 * vectors * rows, 0),
    )
    right = {"dst": expected(value, _WHY)}
    return (Case(label=f"{columns} columns", launch=launch, expected=right),)


def _fused(seed: int, *, kernel: Kernel, experts: bool) -> tuple[Case, ...]:
    """One vector for each of two channels, or for each of two chosen experts."""
    rng, rows, columns, cases = generator(seed, kernel.name), 3, kernel.columns, []
    channels = 4 if experts else 2
    chosen = np.array([3, 1], np.int32) if experts else np.arange(2, dtype=np.int32)
    for glu, gated, biased in (
        *((glu, True, True) for glu in _GLU),
        ("SWIGLU", True, False),
        ("SWIGLU", False, True),
    ):
        x, gate = (stored(short(rng, channels, rows, columns), kernel.kind) for _ in range(2))
        bias, gate_bias = short(rng, channels, rows), short(rng, channels, rows)
        y = short(rng, 2, columns, scale=0.1)
        fused = Fused(
            gate if gated else None,
            bias if biased else None,
            gate_bias if gated and biased else None,
            glu,
        )
        sums = [
            product(loaded(one[chosen], kernel.kind), exactly(y[:, None]), kernel.block)
            + (b[chosen] if biased else 0.0)
            for one, b in ((x, bias), (gate, gate_bias))
        ]
        launch = _launch(
            kernel,
            (rows, 2, 1),
            (
                read("x", x),
                read("y", y),
                read("ids", chosen) if experts else NULL,
                output("dst", 2, rows),
            ),
            fused,
            *ints(columns // 2),
            fastdiv(2),
            *ints(columns, columns // 2, rows),
            fastdiv(1),
            *ints(rows * columns, columns, rows),
            fastdiv(1),
            *ints(channels * rows * columns, 2 * columns, 2 * rows, 2),
        )
        right = {"dst": expected(fused.apply(*sums), _WHY)}
        parts = f"{glu if gated else 'no gate'}{', biases' if biased else ''}"
        cases.append(Case(label=parts, launch=launch, expected=right))
    return tuple(cases)


def _tokens(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    """Three tokens, each with two experts of its own."""
    rng, rows, columns, experts = generator(seed, kernel.name), 3, kernel.columns, 4
    ids = np.stack([rng.permutation(experts) for _ in range(3)]).astype(np.int32)
    x = stored(short(rng, experts, rows, columns), kernel.kind)
    y = short(rng, 3, 1, columns)
    value = product(loaded(x[ids[:, :2]], kernel.kind), exactly(y[:, :, None]), kernel.block)
    launch = _launch(
        kernel,
        (rows, 2, 3),
        (read("x", x), read("y", y), read("ids", ids), output("dst", 3, 2, rows)),
        Fused(),
        *ints(columns // 2),
        fastdiv(1),
        *ints(columns, columns // 2, 2 * rows),
        uint3(0, 0, 0),
        *ints(rows * columns, columns, rows),
        fastdiv(1),
        *ints(experts * rows * columns, 3 * columns, 6 * rows, experts),
    )
    right = {"dst": expected(value, _WHY)}
    return (Case(label="3 tokens", launch=launch, expected=right),)


_KERNELS = (
    (Kernel("f32, 3 vectors", FLOAT, FLOAT, 3, 96), _dense),
    (Kernel("f32, fused", FLOAT, FLOAT, 1, 32, fused=True), partial(_fused, experts=False)),
    (Kernel("f16, fused, experts", HALF, FLOAT, 1, 64, fused=True), partial(_fused, experts=True)),
    (Kernel("f16, summed in f16", HALF, HALF, 2, 32), _dense),
    (Kernel("bf16, experts of tokens", BFLOAT16, FLOAT, 1, 64, tokens=True), _tokens),
)


def probes() -> tuple[Probe, ...]:
    """Of each type, with and without what may be fused, and with experts."""
    return tuple(
        Probe(
            name=f"mul_mat_vec_f {kernel.name}",
            unit=UNIT,
            entry=kernel.entry,
            kind="matvec",
            functions=("mul_mat_vec_f", "ggml_cuda_mad", "warp_reduce_sum"),
            cases=partial(cases, kernel=kernel),
        )
        for kernel, cases in _KERNELS
    )
