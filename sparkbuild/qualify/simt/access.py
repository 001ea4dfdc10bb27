"""An access to shared memory as it is noted, and the places that it touches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.memory import Region
from sparkbuild.qualify.simt.op import Values, spread

Kind = Literal["read", "write", "atomic"]
Epochs = NDArray[np.int64] | int
"""How often the lanes of a warp had met: of each lane, or of all."""


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """What lanes did with one region in one instruction.

    ``index`` counts elements of ``size`` bytes, one a lane or one for all; ``values`` are those
    written, the elements of a vector one after the other.
    """

    kind: Kind
    instruction: Instruction
    region: Region
    index: NDArray[Any]
    size: int
    lanes: NDArray[np.intp]
    values: Sequence[Values]
    epochs: Epochs


def grains(access: Access, grain: int) -> Iterator[tuple[NDArray[Any], NDArray[np.intp]]]:
    """Places of ``grain`` bytes with the lane that touches each, part after part of the element."""
    ratio = access.size // grain
    first = access.index * ratio if ratio > 1 else access.index
    first = spread(first, access.lanes.size)
    for part in range(ratio):
        yield first + part if part else first, access.lanes


def grain_values(access: Access, grain: int) -> Iterator[Values]:
    """The written values, part after part as ``grains`` gives the places."""
    if not access.values:
        return
    width = access.size // len(access.values)
    dtype = np.dtype(f"<u{grain}")
    for values in access.values:
        whole = spread(values, access.lanes.size)
        if width == grain:
            yield whole
            continue
        for part in range(width // grain):
            yield (whole >> whole.dtype.type(8 * grain * part)).astype(dtype)
