"""A probe as data: which kernel, which inputs, what is right, and how near it must come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.simt.contract import Launch

Outputs: TypeAlias = Mapping[str, NDArray[Any]]
"""Buffers by name, as ``Result.buffers`` has them."""


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What one buffer must hold.

    ``values`` has the buffer's dtype and shape. ``bound`` is the largest right difference of each
    element (broadcast, 0 where bits must be equal), from the count and kind of roundings, stated in
    the probe; ``defined`` is False where the kernel leaves an element as it was.
    """

    values: NDArray[Any]
    bound: NDArray[np.float64]
    why: str
    """Where the bound comes from, in words."""
    defined: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One launch with what is right for it; ``label`` tells it from others of its probe."""

    label: str
    launch: Launch
    expected: Mapping[str, Expected]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Judges some device functions of the source.

    ``unit`` is the template in ``probes/units`` that holds the kernel, ``entry`` its name there
    (``extern "C"``). ``cases`` makes the launches from a seed; it may use the references, so it
    runs only when the probe does.
    """

    name: str
    unit: str
    entry: str
    kind: str
    """``vec_dot``, ``load_tiles``, ``dequantize``, ``quantize``, ``norm``, and so on."""
    functions: tuple[str, ...]
    """Device functions of the source that it is there for."""
    cases: Callable[[int], tuple[Case, ...]]
    types: tuple[str, ...] = ()
    """Tensor types, in ggml's own names (``iq3_s``), that a wrong answer would break."""
    urgent: bool = False
    """Run first: what known bad compilers broke."""
