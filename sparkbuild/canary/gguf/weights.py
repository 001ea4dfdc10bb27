"""Weights of a GGUF file as float32, by numpy: a reading that shares no code with ggml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from sparkbuild.canary.gguf.layout import TYPES, Layout, Tensor, layout

Array = NDArray[np.float32]


def raw(found: Layout, tensor: Tensor) -> NDArray[np.uint8]:
    """A tensor's bytes, [bytes]; read-only."""
    return np.memmap(found.path, np.uint8, "r", offset=tensor.offset, shape=(tensor.bytes,))


def weights(found: Layout, tensor: Tensor) -> Array:
    """A tensor's weights, in its shape."""
    rows = raw(found, tensor).reshape(-1, tensor.row_bytes)
    return dequantised(rows, tensor.type).reshape(tensor.shape)


def dequantised(rows: NDArray[np.uint8], kind: str) -> Array:
    """Weights that bytes of one type stand for: [rows, bytes] to [rows, weights].

    Q1_0 and Q2_0 are our own reading of ggml-common.h (blocks of 128 and 64: a half-precision
    scale, then signs, or two-bit numbers less one); everything else is gguf-py's.
    """
    if kind == "f32":
        return rows.view("<f4")
    if kind == "f16":
        return rows.view("<f2").astype(np.float32)
    if kind in {"q1_0", "q2_0"}:
        found = _signs(rows) if kind == "q1_0" else _pairs(rows)
        return found.reshape(len(rows), -1)
    return np.asarray(gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(TYPES[kind][0])))


def all_weights(path: Path) -> Iterator[tuple[Tensor, Array]]:
    """Every tensor of a file with its weights, in the file's order."""
    found = layout(path)
    for tensor in found.tensors.values():
        yield tensor, weights(found, tensor)


def nmse(found: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    """Squared error over the expected values' squared deviation from their mean.

    NaN where a value is NaN; where all expected values are equal, over their own square.
    """
    wanted = np.asarray(expected, np.float64)
    error = float(np.square(np.asarray(found, np.float64) - wanted).sum())
    spread = float(np.square(wanted - wanted.mean()).sum()) or float(np.square(wanted).sum())
    if spread == 0:
        return 0.0 if error == 0 else float("inf")
    return error / spread


def _blocks(data: NDArray[np.uint8], size: int) -> tuple[Array, NDArray[np.uint8]]:
    blocks = data.reshape(-1, size)
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    return scale, blocks[:, 2:]


def _signs(data: NDArray[np.uint8]) -> Array:
    scale, body = _blocks(data, TYPES["q1_0"][2])
    bits = np.unpackbits(body, axis=1, bitorder="little").astype(np.float32)
    return np.asarray((2 * bits - 1) * scale, np.float32).reshape(-1)


def _pairs(data: NDArray[np.uint8]) -> Array:
    scale, body = _blocks(data, TYPES["q2_0"][2])
    shifts = np.arange(0, 8, 2, dtype=np.uint8)
    numbers = ((body[:, :, None] >> shifts) & 3).astype(np.float32) - 1
    return np.asarray(numbers.reshape(len(body), -1) * scale, np.float32).reshape(-1)
