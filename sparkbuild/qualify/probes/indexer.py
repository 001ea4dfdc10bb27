"""The lightning indexer: rectified products of every head's query with a key, weighted and summed.

lightning-indexer.cu, in its kernels for few tokens, for many, and for tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import Enum, Type, template_entry
from sparkbuild.qualify.probes.launching import (
    generator,
    longs,
    output,
    read,
    rough,
    short,
    sizes,
    whole,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "indexer"
_SIZE, _STREAMS, _KEYS = 128, 2, 70
_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
"""``ggml_type``."""
_WHY = (
    "whole numbers, and products of values with f16's bits, have no rounding in f32; a lane's sums "
    "and then the warp's, weights that are powers of two: one f32 for certain; else one rounding "
    "for each product and sum"
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance: how many heads, tokens, and what type the keys have."""

    name: str
    heads: int
    tokens: int
    type: str
    keys: int = 64
    """That a block scores."""

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        counts = (8, self.keys, Type(f"Ll{_SIZE}E"), Type(f"Ll{self.heads}E"))
        kind = Enum("ggml_type", _TYPES[self.type])
        return template_entry(f"lightning_indexer_kernel_{self.name}", *counts, kind)


def _products(kernel: Kernel, q: NDArray[Any], k: NDArray[Any]) -> Bounded:
    """Of each head's query with each key, (streams, tokens, heads, keys), summed as it does."""
    if kernel.name == "wmma":
        q = q.astype(np.float16)
    terms = exactly(q[:, :, :, None]) * k[:, None, None]
    if kernel.name == "wmma":  # the order inside of a tensor core is its own
        return terms.total(_SIZE)
    if kernel.name == "tile":
        return terms.summed()
    return terms.map(lambda v: v.reshape(*v.shape[:-1], 32, 4)).summed().warp_sum()


def scores(
    kernel: Kernel, q: NDArray[Any], k: NDArray[Any], w: NDArray[Any], mask: NDArray[Any]
) -> Bounded:
    """Of every key for every token, (streams, tokens, keys).

    q: (streams, tokens, heads, 128), k: (streams, keys, 128), w: (streams, tokens, heads), mask:
    (1, tokens, keys).
    """
    positive = bounded.largest(_products(kernel, q, k), 0.0)
    weighted = (positive * w[..., None]).map(lambda v: np.moveaxis(v, 2, -1))
    return weighted.summed() + mask


def _keys(rng: np.random.Generator, kind: str, *, exact: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys as they are stored, and what a kernel has of them, (streams, keys, 128)."""
    shape = (_STREAMS, _KEYS, _SIZE)
    if kind in {"f16", "f32"}:
        k = short(rng, *shape).astype(np.float16 if kind == "f16" else np.float32)
        return k, k
    count = _STREAMS * _KEYS * _SIZE // 32
    d = np.exp2(rng.integers(-4, 1, count)) if exact else rng.uniform(0.1, 1.0, count)
    d = d.astype(np.float16)
    bytes_ = rng.integers(0, 256, (count, 32 if kind == "q8_0" else 16), np.uint8)
    if kind == "q8_0":
        values = d[:, None].astype(np.float32) * bytes_.view(np.int8)
        values = values.astype(np.float16)  # the kernel for tensor cores has them so
    else:
        nibbles = np.concatenate([bytes_ & 15, bytes_ >> 4], axis=1).astype(np.float32)
        values = d[:, None].astype(np.float32) * (nibbles - 8)
    blocks = np.concatenate([d.view(np.uint8).reshape(-1, 2), bytes_], axis=1)
    return blocks.reshape(_STREAMS, _KEYS, -1), values.reshape(shape)


def _launch(kernel: Kernel, q: NDArray[Any], k: NDArray[Any], *rest: NDArray[Any]) -> Launch:
    w, mask = rest
    per_block = 8 if kernel.name == "tile" else 1
    row = 4 * _KEYS
    return Launch(
        entry=kernel.entry,
        grid=(-(-_KEYS // kernel.keys), -(-kernel.tokens // per_block), _STREAMS),
        block=(32, 8, 1),
        arguments=(
            *(read(name, data) for name, data in zip("qkwm", (q, k, w, mask), strict=True)),
            output("dst", _STREAMS, kernel.tokens, _KEYS),
            *longs(_STREAMS, kernel.tokens, _KEYS),
            *sizes(row, row * kernel.tokens, row * kernel.tokens),
            *sizes(q.strides[2], q.strides[1], q.strides[0]),
            *sizes(k.strides[1], k.strides[1], k.strides[0]),
            *sizes(w.strides[1], w.strides[0], w.strides[0]),
            *sizes(mask.strides[1], mask.strides[0], mask.strides[0]),
            *longs(1),
        ),
    )


def _cases(seed: int, *, kernel: Kernel) -> tuple[Case, ...]:
    rng, cases = generator(seed, kernel.entry), []
    mask = np.where(rng.random((1, kernel.tokens, _KEYS)) < 0.2, -np.inf, 0.5).astype(np.float16)
    shape = (_STREAMS, kernel.tokens, kernel.heads)
    for exact in (True, False) if kernel.name == "wmma" else (True,):
        numbers = whole if kernel.name == "wmma" or kernel.type == "q4_0" else short
        q = numbers(rng, *shape, _SIZE) if exact else rough(rng, *shape, _SIZE)
        stored, k = _keys(rng, kernel.type, exact=exact)
        if kernel.name == "wmma" and kernel.type == "f16" and exact:
            stored = k = whole(rng, *k.shape).astype(np.float16)
        w = rough(rng, *shape)
        w = (np.exp2(np.round(w)) * np.sign(w)).astype(np.float32) if exact else w
        right = expected(scores(kernel, q, k, w, mask), _WHY)
        launch = _launch(kernel, q, stored, w, mask)
        label = "without roundings of products" if exact else "all bits"
        cases.append(Case(label=label, launch=launch, expected={"dst": right}))
    return tuple(cases)


_KERNELS = (
    Kernel("wmma", 32, 1, "f16", keys=32),
    Kernel("wmma", 32, 1, "q8_0", keys=32),
    Kernel("vec", 32, 1, "f32"),
    Kernel("vec", 4, 3, "q4_0"),
    Kernel("tile", 4, 9, "f16"),
)


def probes() -> tuple[Probe, ...]:
    """Of 32 heads, and of 4 with few tokens and with many."""
    return tuple(
        Probe(
            name=f"lightning_indexer {kernel.name} {kernel.heads} heads {kernel.type}",
            unit=UNIT,
            entry=kernel.entry,
            kind="indexer",
            functions=(f"lightning_indexer_kernel_{kernel.name}",),
            cases=partial(_cases, kernel=kernel),
            types=(kernel.type,) if kernel.type[0] == "q" else (),
        )
        for kernel in _KERNELS
    )
