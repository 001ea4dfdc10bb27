"""What the executor asks of the arithmetic, and what it gets.

Registers hold raw bits: ``bool`` for predicates, else ``uint16``, ``uint32`` or ``uint64``. A
source comes as it is stored, so it may be wider than the instruction's type (PTX relaxes integer
operands): take the low bits. An integer immediate comes as ``uint64``, in two's complement; a
float's as its bits. Arrays of one instruction broadcast against each other (immediates have one
element). A result has the dtype of the instruction's own type, signed where the type is signed
(``int8`` for ``s8``), and bit patterns for floats (``uint32`` for ``f32``); the executor converts
it to the register's width, which extends the sign of signed results and zeros for others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bits: TypeAlias = NDArray[Any]
"""One value a lane, shape (lanes,) or (1,)."""


@dataclass(frozen=True, slots=True)
class LaneOp:
    """An instruction that each lane computes by itself.

    ``run`` takes the sources in their order, the elements of vector operands one after the other,
    and gives one array for each destination register, those of vectors and pairs one by one.
    ``destinations`` counts the leading operands that are destinations (1 for ``add``; 1 for
    ``setp`` with a pair, too).
    """

    run: Callable[..., tuple[Bits, ...]]
    destinations: int = 1


@dataclass(frozen=True, slots=True)
class WarpOp:
    """An instruction of a whole warp: ``shfl``, ``vote``, ``redux``, ``mma``.

    ``run`` takes ``active``, bool of shape (warps, 32), then the sources, each (warps, 32), and
    gives (warps, 32) for each destination; what it gives for inactive lanes is not used. The
    executor has seen to it that every lane of the member mask (an operand of ``shfl.sync`` and its
    like, passed on as a source too) has arrived.
    """

    run: Callable[..., tuple[Bits, ...]]
    destinations: int = 1
    member_mask: int | None = None
    """Which source is the member mask; None: all 32 lanes must be there."""


Matrix: TypeAlias = np.ndarray[Any, Any]
