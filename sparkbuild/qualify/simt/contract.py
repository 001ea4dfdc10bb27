"""How a kernel is launched on the CPU: what a probe gives, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.ptx.model import Location


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Device memory: an array that the kernel gets the address of (plus ``offset`` bytes).

    The executor copies ``data`` in, aligned to 256 bytes as cudaMalloc gives it, with nothing on
    either side: an access outside is a fault with its address. A ``writable`` buffer comes back in
    ``Result.buffers`` under ``name``.
    """

    name: str
    data: NDArray[Any]
    writable: bool = False
    offset: int = 0


Argument: TypeAlias = Buffer | np.generic | bytes
"""A pointer, a scalar of the parameter's very type (``np.int32(4)``), or a struct's bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One launch: dimensions as (x, y, z), arguments in the kernel's order.

    ``shared`` is the dynamic shared memory in bytes. ``pointers`` puts addresses of buffers into
    arguments that are bytes: (argument, offset in bytes) to the buffer. ``constants`` fills
    ``__constant__`` variables of the module.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: Sequence[Argument]
    shared: int = 0
    pointers: Mapping[tuple[int, int], Buffer] = field(default_factory=dict)
    constants: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a launch left behind; ``steps`` counts instructions, ``lane_steps`` those of lanes."""

    buffers: Mapping[str, NDArray[Any]]
    steps: int
    lane_steps: int
    executed: frozenset[int]
    """Indices into the kernel's ``body`` (called functions' lines are in ``locations``)."""
    locations: frozenset[Location]
    """Every source location that was executed by at least one lane."""
