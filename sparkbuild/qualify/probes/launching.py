"""What the arguments of ggml's kernels are made of."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.simt.contract import Buffer

NULL: Final = np.uint64(0)
"""A pointer to nothing."""
_UNTOUCHED: Final = 0xA5
"""What an output is filled with, so that what a kernel leaves as it was can be told."""


def generator(seed: int, name: str) -> np.random.Generator:
    """Random numbers of one probe: others do not shift them."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def rough(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> NDArray[np.float32]:
    """Normally distributed values with all their bits."""
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def short(
    rng: np.random.Generator, *shape: int, scale: float = 1.0, middle: float = 0.0
) -> NDArray[np.float32]:
    """Normally distributed values with f16's bits: a product of two has no rounding in f32."""
    values = rng.standard_normal(shape) * scale + middle
    return values.astype(np.float16).astype(np.float32)


def powers(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Zero and powers of two of either sign: a product with one has no rounding."""
    values = np.array([0, 0.5, 1, 2, -0.5, -1, -2], np.float32)
    return rng.choice(values, shape).astype(np.float32)


def whole(rng: np.random.Generator, *shape: int, limit: int = 8) -> NDArray[np.float32]:
    """Whole numbers within ``limit``, so that sums of products are exact in any order."""
    return rng.integers(-limit, limit, shape, endpoint=True).astype(np.float32)


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of bf16, rounded to nearest even; no NaN."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read(name: str, data: NDArray[Any], offset: int = 0) -> Buffer:
    """An array that the kernel reads; of a part of a larger array, all of that array."""
    whole = data if data.flags.c_contiguous else data.base
    if whole is None or whole.ctypes.data != data.ctypes.data:
        raise ValueError(f"{name} does not begin where its array begins")
    return Buffer(name=name, data=np.asarray(whole), offset=offset)


def output(name: str, *shape: int, dtype: Any = np.float32) -> Buffer:
    """An array that the kernel fills, of this shape."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = np.full(size, _UNTOUCHED, np.uint8).view(dtype).reshape(shape)
    return Buffer(name=name, data=data, writable=True)


def untouched(dtype: Any) -> Any:
    """What an element of an ``output`` holds as long as nothing is written."""
    return np.full(np.dtype(dtype).itemsize, _UNTOUCHED, np.uint8).view(dtype)[0]


def fastdiv(divisor: int) -> bytes:
    """``uint3`` by which ``fastdiv`` of common.cuh divides: (multiplier, shift, divisor)."""
    shift = (divisor - 1).bit_length()
    multiplier = (2**32 * (2**shift - divisor)) // divisor + 1
    return struct.pack("<3I", multiplier, shift, divisor)


def uint3(*values: int) -> bytes:
    """A ``uint3``."""
    return struct.pack("<3I", *values)


def ints(*values: int) -> tuple[np.int32, ...]:
    """Parameters of type int."""
    return tuple(np.int32(value) for value in values)


def longs(*values: int) -> tuple[np.int64, ...]:
    """Parameters of type int64_t."""
    return tuple(np.int64(value) for value in values)


def sizes(*values: int) -> tuple[np.uint64, ...]:
    """Parameters of type size_t."""
    return tuple(np.uint64(value) for value in values)


def floats(*values: float) -> tuple[np.float32, ...]:
    """Parameters of type float."""
    return tuple(np.float32(value) for value in values)


def strides(shape: Sequence[int], dtype: Any = np.float32) -> tuple[int, ...]:
    """Bytes from one element to the next along each axis of ggml, the innermost first.

    ``shape`` is numpy's, the innermost last.
    """
    size = np.dtype(dtype).itemsize
    steps = [size]
    for count in reversed(shape[1:]):
        steps.append(steps[-1] * count)
    return tuple(steps)
