"""gguf's numpy dequantisers, and whether they say what the source's own C code says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as _gguf_dequantize
from numpy.typing import NDArray

from sparkbuild.errors import HostError
from sparkbuild.qualify.reference.library import Library

_SEED = 7
_BLOCKS = 1024
"""Random blocks for each type that the two references must agree on."""


def numpy_can(name: str) -> bool:
    """Whether gguf has a numpy dequantiser of this type."""
    blocks = np.zeros((1, 1), np.uint8)
    try:
        kind = GGMLQuantizationType[name.upper()]
        _gguf_dequantize(blocks, kind)
    except (KeyError, NotImplementedError):
        return False
    except ValueError:  # the type is known, and one byte is no block of it
        return True
    return True


def dequantize(name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The values of blocks, shape (n, block bytes), as float32 of shape (n, elements).

    Raises KeyError for a type that gguf does not know.
    """
    kind = GGMLQuantizationType[name.upper()]
    with np.errstate(invalid="ignore", over="ignore"):
        values: NDArray[Any] = _gguf_dequantize(np.ascontiguousarray(blocks), kind)
    return np.asarray(values, np.float32).reshape(blocks.shape[0], -1)


def disagreements(library: Library, names: Iterable[str]) -> list[str]:
    """What the two references say differently of the same random bytes, one line for each type.

    All bytes are random, scales that are no number included: those must be no number in both.
    """
    found = []
    for name in names:
        if not numpy_can(name):
            continue
        rng = np.random.default_rng(_SEED)
        kind = library.types[name]
        blocks = rng.integers(0, 256, (_BLOCKS, kind.size), np.uint8)
        ours, theirs = library.dequantize(name, blocks), dequantize(name, blocks)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        if not same.all():
            row, column = np.argwhere(~same)[0]
            found.append(
                f"{name}: element {column} of the block {bytes(blocks[row]).hex()} is "
                f"{ours[row, column]!r} by the source's C code, {theirs[row, column]!r} by gguf"
            )
    return found


def require_agreement(library: Library, names: Iterable[str]) -> None:
    """Raise HostError, naming every type, where the two references differ: neither judges then."""
    problems = disagreements(library, names)
    if problems:
        raise HostError(
            "the references disagree with each other, so none of them can judge a compiler",
            problems=problems,
            evidence=[library.path],
            next_step="try another host compiler, or a gguf that is as new as the source",
        )
