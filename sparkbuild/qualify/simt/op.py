"""One decoded instruction, and how results get into registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.ptx.model import Instruction

Values: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]
Run: TypeAlias = Callable[[], None]

WIDTHS: Final = {
    "pred": np.dtype(np.bool_),
    **{f"{kind}16": np.dtype(np.uint16) for kind in ("b", "u", "s", "f", "bf")},
    **{f"{kind}8": np.dtype(np.uint16) for kind in ("b", "u", "s")},
    **{f"{kind}32": np.dtype(np.uint32) for kind in ("b", "u", "s", "f", "tf")},
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
    **{f"{kind}64": np.dtype(np.uint64) for kind in ("b", "u", "s", "f")},
}
"""What a register of each type is kept in; one of 8 bits may be declared, and holds 16."""

_SIGNED: Final[dict[int, np.dtype[Any]]] = {
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}


class Gate(Protocol):
    """Where lanes may have to wait for others."""

    def arrive(self) -> bool:
        """Bring the current lanes here; False where none of them may go on now."""


class Op:
    """One instruction, ready to run.

    ``full`` is for when all lanes that have not exited are here, so that registers of others need
    not be kept; ``masked`` keeps them, and is made from ``make`` when it is needed. ``hits`` gets
    an entry when a guard lets a lane through, and has one from the start where there is no guard.
    """

    __slots__ = ("_make", "_masked", "full", "gate", "hits", "instruction", "pc")

    def __init__(
        self,
        pc: int,
        instruction: Instruction,
        full: Run,
        make: Callable[[], Run] | None = None,
        gate: Gate | None = None,
        *,
        hits: Sequence[bool] = (True,),
    ) -> None:
        self.pc = pc
        self.instruction = instruction
        self.full = full
        self.gate = gate
        self.hits = hits
        self._make = make
        self._masked: Run | None = full if make is None else None

    @property
    def masked(self) -> Run:
        """The run that keeps the registers of lanes that are elsewhere."""
        if self._masked is None:
            self._masked = self._make() if self._make else self.full
        return self._masked


def spread(values: Values, count: int) -> Values:
    """A value for each of so many lanes, where there was one for all."""
    return values if values.size == count else values.repeat(count)


def fit(values: Values, want: np.dtype[Any]) -> Values:
    """A result as its register keeps it: signed ones extend their sign, others zeros."""
    have = values.dtype
    if have == want:
        return values
    if have.kind == "i" and want.kind == "u":
        if have.itemsize == want.itemsize:
            return values.view(want)
        return values.astype(_SIGNED[want.itemsize]).view(want)
    if have.kind == "f":
        raise TypeError("a result in floating point, where its bits belong")
    fitted: Values = values.astype(want)
    return fitted
