"""What is written to the KV cache: rows by index, as f16, bf16 and quantised (set-rows.cu)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import exactly, expected
from sparkbuild.qualify.probes.entries import (
    BFLOAT16,
    FLOAT,
    HALF,
    Function,
    Type,
    template_entry,
)
from sparkbuild.qualify.probes.launching import (
    bfloat16,
    fastdiv,
    generator,
    longs,
    output,
    read,
    rough,
    untouched,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "kv"
_BLOCK = 256
_ROWS = 7
_WHY = "one conversion, rounded to nearest even: no other bits"
_WHY_BLOCK = (
    "inputs are no nearer than a tenth to where a quant changes, and scales are f16 themselves, so "
    "2 ulp of a division change no bit"
)
Quants: TypeAlias = tuple[NDArray[np.float32], NDArray[np.uint8]]
"""Values, shape (blocks, 32), and the blocks' bytes."""
_EDGES: Final = (1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.0, 65520.0, 2.0**-25, -3 * 2.0**-25, 1e-9)
"""Ties, the largest f16 and beyond, subnormal f16."""


def _launch(
    entry: str,
    x: NDArray[Any],
    rows: NDArray[Any],
    shape: tuple[int, int, int, int],
    dtype: Any,
    block: int = 1,
) -> Launch:
    """x: (samples, channels, rows, columns); rows: (channels or 1, rows); dst: ``shape``.

    ``block`` columns are one block of bytes, and strides of dst then count bytes.
    """
    _, channels, count, columns = x.shape
    total = x.size // block
    width = shape[-1]
    return Launch(
        entry=entry,
        grid=(-(-total // _BLOCK), 1, 1),
        block=(_BLOCK, 1, 1),
        arguments=(
            read("x", x),
            read("rows", rows),
            output("dst", *shape, dtype=dtype),
            *longs(total, count, rows.shape[0], 1, 1),
            *longs(*(step // 4 for step in reversed(x.strides[:-1]))),
            *longs(1, count, rows.size),
            *longs(width, width * _ROWS, width * _ROWS * channels),
            *(fastdiv(n) for n in (columns, count, channels, rows.shape[0], 1)),
        ),
    )


def _places(rng: np.random.Generator, channels: int, count: int, kind: Type) -> NDArray[Any]:
    dtype = np.int64 if kind.mangled == "l" else np.int32
    return np.stack([rng.permutation(_ROWS)[:count] for _ in range(channels)]).astype(dtype)


def _scattered(filled: NDArray[Any], values: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """``filled`` with the rows of ``values`` at their places; channels share places in turn."""
    for channel in range(values.shape[1]):
        filled[:, channel, rows[channel % len(rows)]] = values[:, channel]
    return filled


def _floats(seed: int, *, kind: Type, index: Type, entry: str) -> tuple[Case, ...]:
    rng = generator(seed, entry)
    x = rough(rng, 2, 2, 3, 53)
    x.flat[: len(_EDGES)] = _EDGES
    rows = _places(rng, 2 if kind == HALF else 1, 3, index)
    dtype: Any = {FLOAT: np.float32, HALF: np.float16, BFLOAT16: np.uint16}[kind]
    with np.errstate(over="ignore"):
        values = bfloat16(x) if kind == BFLOAT16 else x.astype(dtype)
    shape = (2, 2, _ROWS, 53)
    filled = np.full(shape, untouched(dtype), dtype)
    right = expected(exactly(_scattered(filled, values, rows)), _WHY, dtype)
    launch = _launch(entry, x, rows, shape, dtype)
    return (Case(label="3 rows of 53", launch=launch, expected={"dst": right}),)


def _part(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Up to 0.4 either way."""
    return rng.uniform(-0.4, 0.4, shape).astype(np.float32)


def _scale(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Scales with f16's bits."""
    return rng.uniform(0.01, 2.0, count).astype(np.float16).astype(np.float32)


def q8_0(rng: np.random.Generator, count: int) -> Quants:
    """Values whose largest is 127 times an f16, and what they become; the first block is zero."""
    d, q = _scale(rng, count), rng.integers(-126, 127, (count, 32))
    top = rng.integers(0, 32, count)
    q[np.arange(count), top] = rng.choice([-127, 127], count)
    part = _part(rng, count, 32)
    part[np.arange(count), top] = 0
    d[0] = q[0] = part[0] = 0
    blocks = np.concatenate([_half(d), q.astype(np.int8).view(np.uint8)], axis=1)
    return ((q + part) * d[:, None]).astype(np.float32), blocks


def q4_0(rng: np.random.Generator, count: int) -> Quants:
    """Values from -8 to 8 times an f16, of which the first largest decides the sign."""
    d, q = _scale(rng, count) * rng.choice([-1, 1], count), rng.integers(0, 16, (count, 32))
    part, rows = _part(rng, count, 32), np.arange(count)
    top = rng.integers(0, 31, count)
    q[rows, top], part[rows, top] = 0, 0
    q[rows, top + 1], part[rows, top + 1] = 16, 0  # as large, of the other sign: becomes 15
    part = np.where(q == 0, np.abs(part), part)
    values = ((q - 8 + part) * d[:, None]).astype(np.float32)
    stored = np.minimum(q, 15).astype(np.uint8)
    stored[0] = 8  # all zero: nothing times 0 plus 8.5
    values[0], d[0] = 0, -0.0  # zero by -8
    blocks = np.concatenate([_half(d), stored[:, :16] | stored[:, 16:] << 4], axis=1)
    return values, blocks


def q5_1(rng: np.random.Generator, count: int) -> Quants:
    """Values from an f16 minimum to 31 times an f16 above it; a fifth bit apart."""
    d, q = _scale(rng, count), rng.integers(0, 32, (count, 32))
    low = (d * rng.integers(-40, 10, count)).astype(np.float16).astype(np.float32)
    part, rows = _part(rng, count, 32), np.arange(count)
    ends = rng.permuted(np.tile(np.arange(32), (count, 1)), axis=1)[:, :2]
    q[rows, ends[:, 0]], q[rows, ends[:, 1]] = 0, 31
    part[rows, ends[:, 0]] = part[rows, ends[:, 1]] = 0
    part = np.where(q == 0, np.abs(part), np.where(q == 31, -np.abs(part), part))
    values = (low[:, None] + (q + part) * d[:, None]).astype(np.float32)
    fifth = np.packbits(q >> 4, axis=1, bitorder="little")
    nibbles = ((q[:, :16] & 15) | (q[:, 16:] & 15) << 4).astype(np.uint8)
    return values, np.concatenate([_half(d), _half(low), fifth, nibbles], axis=1)


def _half(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values.astype(np.float16)).view(np.uint8).reshape(-1, 2)


QUANTS: Final[dict[str, Callable[[np.random.Generator, int], Quants]]] = {
    "q8_0": q8_0,
    "q4_0": q4_0,
    "q5_1": q5_1,
}


def _quantised(seed: int, *, kind: str, entry: str) -> tuple[Case, ...]:
    rng, shape = generator(seed, entry), (1, 2, 3, 96)
    values, blocks = QUANTS[kind](rng, int(np.prod(shape)) // 32)
    rows = _places(rng, 2, 3, Type("l"))
    width = blocks.shape[1] * 3
    filled = np.full((1, 2, _ROWS, width), untouched(np.uint8), np.uint8)
    found = _scattered(filled, blocks.reshape(1, 2, 3, width), rows)
    right = expected(exactly(found), _WHY_BLOCK, np.uint8)
    launch = _launch(entry, values.reshape(shape), rows, found.shape, np.uint8, 32)
    return (Case(label="3 rows of 96", launch=launch, expected={"dst": right}),)


def probes() -> tuple[Probe, ...]:
    """Of each type that a cache has, with both kinds of index."""
    made = []
    for name, kind, index in (
        ("f16", HALF, Type("l")),
        ("f32", FLOAT, Type("i")),
        ("bf16", BFLOAT16, Type("l")),
    ):
        entry = template_entry("k_set_rows", FLOAT, index, kind)
        cases = partial(_floats, kind=kind, index=index, entry=entry)
        made.append(_probe(f"k_set_rows {name}", entry, ("k_set_rows", "ggml_cuda_cast"), cases))
    for name in QUANTS:
        function = f"quantize_f32_{name}_block"
        block = Type(f"{len(name) + 6}block_{name}")
        entry = template_entry("k_set_rows_quant", Type("l"), block, 32, Function(function))
        quantised = partial(_quantised, kind=name, entry=entry)
        functions = ("k_set_rows_quant", function)
        made.append(_probe(f"k_set_rows_quant {name}", entry, functions, quantised, (name,)))
    return tuple(made)


def _probe(
    name: str,
    entry: str,
    functions: tuple[str, ...],
    cases: Callable[[int], tuple[Case, ...]],
    types: tuple[str, ...] = (),
) -> Probe:
    return Probe(
        name=name,
        unit=UNIT,
        entry=entry,
        kind="kv",
        functions=functions,
        cases=cases,
        types=types,
    )
