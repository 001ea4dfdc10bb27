"""Sums, products and copies with broadcasting, scale and bias: binbcast.cu, scale.cu."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import FLOAT, HALF, Function, Type, template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    fastdiv,
    floats,
    generator,
    longs,
    output,
    read,
    rough,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Argument, Launch

UNIT = "activations"
_ONE = "one operation in f32, rounded to nearest, then to the type that is stored: no other bits"
_WHY = "div.approx 2 ulp"


@dataclass(frozen=True, slots=True, eq=False)
class Broadcast:
    """A kernel of two or more operands; shapes as numpy has them, samples first."""

    name: str
    operation: str
    types: tuple[Type, Type, Type]
    left: tuple[int, int, int, int]
    right: tuple[int, int, int, int]
    count: int = 1
    """Right operands, one after the other; 0: the left one is not read."""
    unravelled: bool = False

    @property
    def entry(self) -> str:
        """The pattern of its name in PTX."""
        name = "k_bin_bcast_unravel" if self.unravelled else "k_bin_bcast"
        pointers = {0: "JE", 1: "JPKfE", 3: "JPKfS?_S?_E"}[self.count]
        return template_entry(name, Function(self.operation), *self.types, Type(pointers))


def _applied(kernel: Broadcast, left: NDArray[Any], rights: Sequence[NDArray[Any]]) -> Bounded:
    repeats = [a // b for a, b in zip(kernel.left, kernel.right, strict=True)]
    result = left.astype(np.float32)
    for one in rights:
        other = np.tile(one, repeats)
        match kernel.operation:
            case "op_add":
                result = result + other
            case "op_sub":
                result = result - other
            case "op_mul":
                result = result * other
            case "op_div":
                return exactly(result) / other
            case _:
                result = other
    return exactly(result)


def _grid(shape: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Blocks and threads as launch_bin_bcast_pack chooses them, half a row a thread."""
    ne3, ne2, ne1, ne0 = shape
    half = max(ne0 // 2, 1)
    x = min(half, 128)
    y = min(ne1, 128 // x)
    z = min(ne2 * ne3, 128 // x // y, 64)
    return (-(-half // x), -(-ne1 // y), -(-(ne2 * ne3) // z)), (x, y, z)


def _counts(shape: Sequence[int]) -> list[int]:
    return list(reversed(shape))


def _elements(array: NDArray[Any]) -> list[np.uint32]:
    return [np.uint32(step // array.itemsize) for step in reversed(array.strides)]


def _launch(kernel: Broadcast, left: NDArray[Any], rights: Sequence[NDArray[Any]]) -> Launch:
    shape = kernel.left
    dtype: type[Any] = np.float16 if kernel.types[0] == HALF else np.float32
    ne0, ne1, ne2, ne3 = _counts(shape)
    sizes: tuple[Argument, ...] = (*(np.uint32(n) for n in (ne0, ne1, ne2)), fastdiv(ne3))
    grid, block = _grid(shape)
    if kernel.unravelled:
        counts = (fastdiv(ne0), fastdiv(ne1), fastdiv(ne2), np.uint32(ne3))
        sizes = (*counts, fastdiv(ne0 * ne1 * ne2), fastdiv(ne0 * ne1))
        grid, block = (-(-int(np.prod(shape)) // 128), 1, 1), (128, 1, 1)
    inner = _elements(left) if kernel.count else _elements(np.empty(shape, dtype))
    operands = [read(f"right{i}", one) for i, one in enumerate(rights)]
    return Launch(
        entry=kernel.entry,
        grid=grid,
        block=block,
        arguments=(
            read("left", left) if kernel.count else NULL,
            operands[0],
            output("dst", *shape, dtype=dtype),
            *sizes,
            *(fastdiv(count) for count in _counts(kernel.right)),
            *_elements(np.empty(shape, dtype))[1:],
            *inner,
            *_elements(rights[0]),
            *(operands if kernel.count else ()),
        ),
    )


def _cases(seed: int, *, kernel: Broadcast) -> tuple[Case, ...]:
    rng = generator(seed, kernel.name)
    left = rough(rng, *kernel.left[:-1], kernel.left[-1] + 3)
    if kernel.types[0] == HALF:
        left = left.astype(np.float16)
    left = left[..., : kernel.left[-1]]
    rights = [rough(rng, *kernel.right) for _ in range(max(kernel.count, 1))]
    dtype: type[Any] = np.float16 if kernel.types[0] == HALF else np.float32
    why = _WHY if kernel.operation == "op_div" else _ONE
    found = expected(_applied(kernel, left, rights), why, dtype)
    label = f"{kernel.left} with {kernel.right}"
    launch = _launch(kernel, left, rights)
    return (Case(label=label, launch=launch, expected={"dst": found}),)


def _scaled(seed: int) -> tuple[Case, ...]:
    """A grid that is too small, so that threads go round."""
    x = rough(generator(seed, "scale"), 5000)
    cases = []
    for scale, bias in ((-1.0, 0.0), (1.0, 1e-6), (0.3, -0.7)):
        launch = Launch(
            entry=template_entry("scale_f32", FLOAT),
            grid=(2, 1, 1),
            block=(256, 1, 1),
            arguments=(read("x", x), output("dst", 5000), *floats(scale, bias), *longs(5000)),
        )
        found = expected(exactly(x) * np.float32(scale) + np.float32(bias), _ONE)
        cases.append(Case(label=f"{scale} x + {bias}", launch=launch, expected={"dst": found}))
    return tuple(cases)


_F32 = (FLOAT, FLOAT, FLOAT)
_KERNELS = (
    Broadcast("op_add broadcast", "op_add", _F32, (2, 3, 4, 50), (1, 3, 1, 25)),
    Broadcast("op_mul to f16", "op_mul", (HALF, FLOAT, Type("S?_")), (1, 2, 5, 9), (1, 2, 5, 1)),
    Broadcast("op_div", "op_div", _F32, (1, 1, 3, 300), (1, 1, 1, 300)),
    Broadcast("op_repeat", "op_repeat", _F32, (2, 4, 3, 20), (2, 1, 3, 10), count=0),
    Broadcast("op_add of three", "op_add", _F32, (1, 1, 6, 33), (1, 1, 2, 33), count=3),
    Broadcast("op_sub unravelled", "op_sub", _F32, (2, 3, 5, 7), (2, 1, 5, 1), unravelled=True),
)


def probes() -> tuple[Probe, ...]:
    """Of each operation, several types, broadcasting along every axis."""
    made = [
        Probe(
            name=kernel.name,
            unit=UNIT,
            entry=kernel.entry,
            kind="arithmetic",
            functions=("k_bin_bcast", kernel.operation, "fastdiv", "fastmodulo"),
            cases=partial(_cases, kernel=kernel),
        )
        for kernel in _KERNELS
    ]
    scale: Callable[[int], tuple[Case, ...]] = _scaled
    entry = template_entry("scale_f32", FLOAT)
    last = Probe(
        name="scale_f32",
        unit=UNIT,
        entry=entry,
        kind="arithmetic",
        functions=("scale_f32",),
        cases=scale,
    )
    return (*made, last)
