"""Pieces of linear attention: the short convolution, running sums, triangles.

ssm-conv.cu, cumsum.cu, tri.cu, solve_tri.cu, diag.cu.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.activations import silu
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import FLOAT, Type, template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    fastdiv,
    generator,
    ints,
    longs,
    output,
    read,
    rough,
    short,
    sizes,
    whole,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Argument, Launch

UNIT = "delta_net"
_CHANNELS, _WIDTH = 128, 4
_WHY_CONV = (
    "products of values with f16's bits have no rounding in f32, sums are rounded in the kernel's "
    "order, so one f32 for certain; silu adds ex2.approx (2 ulp) and div.approx (2 ulp)"
)
_WHY_SUM = "sums are rounded in the kernel's order: one f32 for certain"
_WHY_SOLVE = "a product, a warp's sum, a difference and div.approx (2 ulp) for every row before"
_PAST = 64
"""The long kernel stages 32 tokens even where fewer are left: it reads past the tensor's end."""


def convolved(x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None) -> Bounded:
    """Each channel's tokens with the three before them, by its weights, plus its bias.

    x: (sequences, channels, 3 + tokens); weight: (channels, 4). Gives (sequences, tokens,
    channels).
    """
    windows = np.lib.stride_tricks.sliding_window_view(x, _WIDTH, axis=-1)
    sums = (exactly(windows) * weight[:, None, :]).summed()
    if bias is not None:
        sums += bias[:, None]
    return sums.map(lambda v: v.transpose(0, 2, 1))


def _conv(seed: int, *, entry: str, tokens: int, activated: bool) -> tuple[Case, ...]:
    rng, sequences = generator(seed, entry), 2
    x = short(rng, sequences, _CHANNELS, tokens + _WIDTH - 1)
    weight, bias = short(rng, _CHANNELS, _WIDTH), short(rng, _CHANNELS)
    cases = []
    for label, extra in (("with bias", bias), ("without bias", None)):
        found = convolved(x, weight, extra)
        long = tokens > 32
        launch = Launch(
            entry=entry,
            grid=(sequences, 1, -(-tokens // 32) if long else 1),
            block=(_CHANNELS, 1, 1),
            arguments=(
                read("x", np.pad(x.ravel(), (0, _PAST))),
                read("weight", weight),
                NULL if extra is None else read("bias", extra),
                *ints(4, *(step for step in reversed(x.strides[:-1])), weight.strides[0]),
                output("dst", *found.value.shape),
                *ints(4, 4 * _CHANNELS, 4 * _CHANNELS * tokens),
                *longs(tokens),
            ),
            shared=_CHANNELS * (_WIDTH - 1 + 32) * 4 if long else 0,
        )
        right = expected(silu(found) if activated else found, _WHY_CONV)
        cases.append(Case(label=f"{tokens} tokens {label}", launch=launch, expected={"dst": right}))
    return tuple(cases)


def running_sums(x: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """Sums from the first on along the last axis: by fours, in a warp, over warps, over rounds."""
    columns = x.shape[-1]
    rounds = -(-columns // (4 * block))
    padded = np.pad(x, [(0, 0), (0, rounds * 4 * block - columns)])
    fours = np.cumsum(padded.reshape(len(x), rounds, block // 32, 32, 4), axis=-1, dtype=np.float32)
    lanes = _scan(fours[..., 3])
    warps = lanes[..., 31]
    before = _scan(np.pad(warps, [(0, 0), (0, 0), (0, 32 - block // 32)]))
    total = before[..., block // 32 - 1]
    carry = np.cumsum(np.pad(total, [(0, 0), (1, 0)]), axis=-1, dtype=np.float32)[:, :-1]
    apart = before[..., : block // 32] - warps
    offset = lanes + apart[..., None] + carry[..., None, None] - fours[..., 3]
    return (fours + offset[..., None]).reshape(len(x), -1)[:, :columns]


def _scan(lanes: NDArray[np.float32]) -> NDArray[np.float32]:
    """A warp's inclusive sums: each step adds what stands 1, 2, 4, 8 and 16 lanes before."""
    for offset in (1, 2, 4, 8, 16):
        moved = np.zeros_like(lanes)
        moved[..., offset:] = lanes[..., :-offset]
        lanes = lanes + moved
    return lanes


def _cumsum(seed: int, *, entry: str) -> tuple[Case, ...]:
    rng, block, columns = generator(seed, entry), 64, 300
    inputs = {"whole numbers": whole(rng, 3, columns), "fractions": rough(rng, 3, columns)}
    cases = []
    for label, x in inputs.items():
        step = (1, columns, columns * 3, columns * 3)
        launch = Launch(
            entry=entry,
            grid=(3, 1, 1),
            block=(block, 1, 1),
            arguments=(
                read("x", x),
                output("dst", *x.shape),
                *longs(columns, 3, 1, 1, *step, *step),
            ),
            shared=4 * (block + block // 32 + 2),
        )
        right = expected(exactly(running_sums(x, block)), _WHY_SUM)
        cases.append(Case(label=f"{columns} {label}", launch=launch, expected={"dst": right}))
    return tuple(cases)


def _triangle(seed: int, *, entry: str, lower: bool) -> tuple[Case, ...]:
    """The lower or the upper triangle with its diagonal."""
    cases = []
    for shape, block in (((2, 2, 37, 37), 256), ((1, 1, 200, 200), 32)):
        x = rough(generator(seed, entry), *shape)
        step = [size // 4 for size in reversed(x.strides)]
        launch = Launch(
            entry=entry,
            grid=(shape[2], shape[1], shape[0]),
            block=(block, 1, 1),
            arguments=(
                read("x", x),
                output("dst", *shape),
                *longs(*reversed(shape), *step, *step),
            ),
        )
        right = {"dst": expected(exactly(np.tril(x) if lower else np.triu(x)), "copies")}
        cases.append(Case(label=f"{shape[2]} by {shape[3]}", launch=launch, expected=right))
    return tuple(cases)


def solved(a: NDArray[Any], b: NDArray[Any]) -> Bounded:
    """X of A X = B, A lower triangular: (batches, n, n), B: (batches, n, k), row after row."""
    rows: list[Bounded] = []
    for row in range(a.shape[1]):
        known = exactly(b[:, row])
        if rows:
            terms = _stack(rows) * a[:, row, :row, None]
            lanes = [terms[:, at : at + 32] for at in range(0, row, 32)]
            first = _across(lanes[0])
            if len(lanes) > 1:
                first = first + _across(lanes[1])
            known = known - first.map(lambda v: np.moveaxis(v, 1, -1)).warp_sum()
        rows.append(known / a[:, row, row, None])
    return _stack(rows)


def _stack(rows: list[Bounded]) -> Bounded:
    return Bounded(
        np.stack([row.value for row in rows], axis=1), np.stack([row.error for row in rows], axis=1)
    )


def _across(terms: Bounded) -> Bounded:
    return terms.map(lambda v: np.pad(v, [(0, 0), (0, 32 - v.shape[1]), (0, 0)]))


def _solve(seed: int, *, entry: str) -> tuple[Case, ...]:
    rng, n, k = generator(seed, entry), 45, 3
    a = np.tril(rough(rng, 2, n, n, scale=0.2)) + np.eye(n, dtype=np.float32) * np.float32(1.5)
    b = rough(rng, 2, n, k)
    launch = Launch(
        entry=entry,
        grid=(2, 1, 1),
        block=(32, k, 1),
        arguments=(
            read("a", a.astype(np.float32)),
            read("b", b),
            output("x", *b.shape),
            fastdiv(2),
            *sizes(n * n, 2 * n * n, n * k, 2 * n * k, n * k, 2 * n * k),
            *ints(n, k),
        ),
    )
    right = expected(solved(a.astype(np.float32), b), _WHY_SOLVE)
    return (Case(label=f"{n} rows, {k} columns", launch=launch, expected={"x": right}),)


def _diagonal(seed: int, *, entry: str) -> tuple[Case, ...]:
    x = rough(generator(seed, entry), 3, 20)
    found = x[:, None, :] * np.eye(20, dtype=np.float32)
    more: tuple[Argument, ...] = longs(20, 20, 3, 1, found.size)
    launch = Launch(
        entry=entry,
        grid=(5, 1, 1),
        block=(256, 1, 1),
        arguments=(output("dst", *found.shape), read("x", x), *more),
    )
    right = expected(exactly(found), "copies and zeros")
    return (Case(label="3 of 20", launch=launch, expected={"dst": right}),)


def probes() -> tuple[Probe, ...]:
    """Of what prepares and what chunked linear attention is made of."""
    wide = Type(f"Lm{_CHANNELS}E"), Type(f"Lm{_WIDTH}E")
    conv = {
        activated: template_entry("ssm_conv_f32", activated, *wide) for activated in (False, True)
    }
    long = template_entry("ssm_conv_long_token_f32", True, *wide, Type("Ll32E"))
    kernels: dict[str, tuple[str, Callable[..., tuple[Case, ...]], dict[str, Any]]] = {
        "ssm_conv_f32": (conv[False], _conv, {"tokens": 11, "activated": False}),
        "ssm_conv_f32 silu": (conv[True], _conv, {"tokens": 3, "activated": True}),
        "ssm_conv_long_token_f32 silu": (long, _conv, {"tokens": 40, "activated": True}),
        "cumsum_kernel": (template_entry("cumsum_kernel", FLOAT), _cumsum, {}),
        "tri_kernel lower": (
            template_entry("tri_kernel", FLOAT, True, 1),
            _triangle,
            {"lower": True},
        ),
        "tri_kernel upper": (
            template_entry("tri_kernel", FLOAT, False, 0),
            _triangle,
            {"lower": False},
        ),
        "solve_tri_f32_fast": (template_entry("solve_tri_f32_fast", 0, 0), _solve, {}),
        "diag_kernel": (template_entry("diag_kernel", FLOAT), _diagonal, {}),
    }
    return tuple(
        Probe(
            name=name,
            unit=UNIT,
            entry=entry,
            kind="linear",
            functions=(name.split()[0],),
            cases=partial(cases, entry=entry, **more),
        )
        for name, (entry, cases, more) in kernels.items()
    )
