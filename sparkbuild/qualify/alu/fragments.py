"""How the lanes of a warp hold the matrices of ``mma.sync``, and of ``wmma``.

All shapes of ``mma.sync`` follow one rule. Lane l belongs to group l / 4 and is number l % 4 in
it. A register holds neighbours along k, the lowest bits first. For A, the group is the row, and
registers come in the order (rows 0-7, rows 8-15) for the first half of k, then for the second; for
B the group is the column, its registers halves of k; for C and D, a lane holds columns 2 (l % 4)
and the next of row l / 4, then of the row eight below.

``wmma`` leaves its layout open, so one is chosen here, for the loads and stores as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.types import F16, F32, U16, U32

GROUPS, MEMBERS = 8, 4


def gather(registers: Sequence[Bits], warps: int) -> Any:
    """Registers, each (warps, 32) or the same for all, as one array (registers, warps, 32)."""
    words = np.empty((len(registers), warps, GROUPS * MEMBERS), U32)
    for index, register in enumerate(registers):
        words[index] = register
    return words


def lay_a(words: Any, rows: int) -> Any:
    """Registers of A as words of shape (warps, rows, words along k)."""
    registers, warps, _ = words.shape
    high = rows // GROUPS
    parts = words.reshape(registers // high, high, warps, GROUPS, MEMBERS)
    return np.ascontiguousarray(parts.transpose(2, 1, 3, 0, 4)).reshape(warps, rows, -1)


def lay_b(words: Any) -> Any:
    """Registers of B as words of shape (warps, 8 columns, words along k)."""
    return lay_a(words, GROUPS)


def lay_c(words: Any, rows: int, dtype: np.dtype[Any]) -> Any:
    """Registers of C as numbers of shape (warps, rows, 8); two f16 share a register."""
    registers, warps, _ = words.shape
    high = rows // GROUPS
    parts = words.reshape(high, registers // high, warps, GROUPS, MEMBERS)
    dense = np.ascontiguousarray(parts.transpose(2, 0, 3, 4, 1))
    return dense.view(dtype).reshape(warps, rows, GROUPS)


def scatter_d(numbers: Any) -> tuple[Bits, ...]:
    """Numbers of shape (warps, rows, 8), of 16 or 32 bits, as the registers of D."""
    warps, rows, _ = numbers.shape
    high = rows // GROUPS
    parts = np.ascontiguousarray(numbers).view(U32).reshape(warps, high, GROUPS, MEMBERS, -1)
    dense = np.ascontiguousarray(parts.transpose(1, 4, 0, 2, 3))
    return tuple(dense.reshape(-1, warps, GROUPS * MEMBERS))


# The elements that a lane holds of each wmma matrix, in order: 16 for A and B of 16 bits (some
# elements twice or four times), 8 for C and D.
WMMA_SHAPES: dict[str, tuple[int, int, int]] = {
    "m16n16k16": (16, 16, 16),
    "m32n8k16": (32, 8, 16),
    "m8n32k16": (8, 32, 16),
}


def wmma_elements(shape: str, matrix: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns, each (32, elements), of what a lane holds of ``a``, ``b``, ``c`` or ``d``.

    Element e of a lane's ``.f16`` fragment is half e % 2 of its register e / 2.
    """
    rows, columns, depth = WMMA_SHAPES[shape]
    if matrix in {"c", "d"}:
        place = np.arange(32 * 8).reshape(32, 8) % (rows * columns)
        return place // columns, place % columns
    lines = rows if matrix == "a" else columns
    place = np.arange(32 * 16).reshape(32, 16) % (lines * depth)
    line, along = place // depth, place % depth
    return (line, along) if matrix == "a" else (along, line)


def wmma_lay(words: Any, shape: str, matrix: str) -> Any:
    """Registers of a wmma fragment as numbers: (warps, lines, k) for A and B, (warps, m, n)."""
    rows, columns, depth = WMMA_SHAPES[shape]
    short = matrix in {"a", "b"} or len(words) == 4
    dense = np.ascontiguousarray(words.transpose(1, 2, 0))
    numbers = dense.view(F16 if short else F32).reshape(len(dense), -1)
    if matrix in {"c", "d"}:
        return numbers.reshape(-1, rows, columns)
    lines = rows if matrix == "a" else columns
    return numbers[:, : lines * depth].reshape(-1, lines, depth)


def wmma_scatter(bits: Any) -> tuple[Bits, ...]:
    """Codes of shape (warps, m, n), of 16 or 32 bits, as the registers of a wmma fragment."""
    lanes = np.ascontiguousarray(bits).reshape(len(bits), 32, 8)
    words = lanes.view(U32) if lanes.dtype == U16 else lanes
    return tuple(np.ascontiguousarray(words[:, :, index]) for index in range(words.shape[2]))
