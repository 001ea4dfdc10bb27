"""Copies between layouts and types, rows by index, tensors end to end.

cpy.cu, getrows.cu, concat.cu, fill.cu, arange.cu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import exactly, expected
from sparkbuild.qualify.probes.entries import BFLOAT16, FLOAT, HALF, Type, template_entry
from sparkbuild.qualify.probes.launching import (
    bfloat16,
    fastdiv,
    floats,
    generator,
    ints,
    longs,
    output,
    read,
    rough,
    sizes,
)
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "kv"
_WHY = "a copy, or one conversion rounded as its type is: no other bits"
Cases = Callable[[int], tuple[Case, ...]]


def _same(values: NDArray[Any]) -> Expected:
    return expected(exactly(values), _WHY, values.dtype)


def _bytes(array: NDArray[Any]) -> list[int]:
    return list(reversed(array.strides))


def _permuted(seed: int, *, source: type[Any], target: type[Any], entry: str) -> tuple[Case, ...]:
    """A permuted part of a tensor to one that is whole, of another shape."""
    whole = rough(generator(seed, entry), 2, 5, 4, 11).astype(source)
    x = whole[:, :3].transpose(0, 2, 1, 3)[..., :9]
    shape = (1, 6, 4, 9)
    empty = np.empty(shape, target)
    ne00, ne01, ne02 = x.shape[3], x.shape[2], x.shape[1]
    launch = Launch(
        entry=entry,
        grid=(-(-x.size // 64), 1, 1),
        block=(64, 1, 1),
        arguments=(
            read("x", whole),
            output("dst", *shape, dtype=target),
            *longs(x.size, ne00, ne01, ne02, *_bytes(x), *shape[:0:-1], *_bytes(empty)),
        ),
    )
    found = x.astype(target).reshape(shape)
    return (Case(label=f"{x.shape} permuted", launch=launch, expected={"dst": _same(found)}),)


def _transposed(seed: int, *, dtype: type[Any], entry: str) -> tuple[Case, ...]:
    """Nine matrices of odd sizes by tiles of 32: a block does eight of them."""
    count, rows, columns = 9, 40, 35
    x = rough(generator(seed, entry), count, rows, columns).astype(dtype)
    launch = Launch(
        entry=entry,
        grid=(-(-columns // 32), -(-rows // 32), 2),
        block=(32, 8, 1),
        arguments=(
            read("x", x),
            output("dst", count, columns, rows, dtype=dtype),
            *longs(x.size, rows, columns, count, *([0] * 11)),
        ),
    )
    found = {"dst": _same(x.transpose(0, 2, 1))}
    return (Case(label="9 of 40 by 35", launch=launch, expected=found),)


def _cast(seed: int, *, kind: str, entry: str) -> tuple[Case, ...]:
    rng, count = generator(seed, entry), 100
    if kind == "i32 to f32":
        x: NDArray[Any] = rng.integers(-(2**31), 2**31, count).astype(np.int32)
        found: NDArray[Any] = x.astype(np.float32)
    else:
        x = rough(rng, count, scale=1000.0)
        x[:4] = (2.5, -2.5, 0.999, 70000.75)
        found = np.trunc(x).astype(np.int32) if kind == "f32 to i32" else bfloat16(x)
    launch = Launch(
        entry=entry,
        grid=(2, 1, 1),
        block=(64, 1, 1),
        arguments=(read("x", x), output("dst", count, dtype=found.dtype), *longs(count)),
    )
    return (Case(label="100 values", launch=launch, expected={"dst": _same(found)}),)


def _rows(seed: int, *, kind: Type, vector: bool, entry: str) -> tuple[Case, ...]:
    """Rows by index, channel by channel; the grid is too small, so that blocks go round."""
    rng, columns = generator(seed, entry), 9400 if vector else 2400
    dtype: type[Any] = np.float32 if kind == FLOAT else np.float16
    x: NDArray[Any] = rough(rng, 2, 3, 6, columns).astype(dtype)
    values = x.astype(np.float32)
    if kind == BFLOAT16:
        x = bfloat16(values)
        values = (x.astype(np.uint32) << 16).view(np.float32)
    index = rng.integers(0, 6, (2, 3, 4)).astype(np.int32)
    found = np.take_along_axis(values, index[..., None].astype(np.int64), axis=2)
    width = columns // 4 if vector else columns
    step = (columns, columns * 4, columns * 12)
    launch = Launch(
        entry=entry,
        grid=(4, 1, 2),
        block=(256, 1, 1),
        arguments=(
            read("x", x),
            read("rows", index),
            output("dst", *found.shape),
            *longs(width, 3),
            fastdiv(2),
            *sizes(*step, *_bytes(x)[1:], 1, 4, 12),
        ),
    )
    return (Case(label=f"4 rows of {columns}", launch=launch, expected={"dst": _same(found)}),)


def _joined(seed: int, *, dim: int, entry: str) -> tuple[Case, ...]:
    rng = generator(seed, entry)
    one, two = [2, 3, 800], [2, 3, 800]
    two[-1 - dim] = 5
    x, y = rough(rng, *one).view(np.uint32), rough(rng, *two).view(np.uint32)
    found = np.concatenate([x, y], axis=-1 - dim)
    launch = Launch(
        entry=entry,
        grid=(2, 1, 1),
        block=(256, 1, 1),
        arguments=(
            read("x", x),
            read("y", y),
            output("dst", *found.shape, dtype=np.uint32),
            *longs(*reversed(x.shape), *reversed(found.shape)),
        ),
    )
    return (Case(label=f"along axis {dim}", launch=launch, expected={"dst": _same(found)}),)


def _joined_apart(seed: int, *, entry: str) -> tuple[Case, ...]:
    """What the convolution's window gets: state, and a transposed tensor."""
    rng = generator(seed, entry)
    state = rough(rng, 2, 1, 9, 3).view(np.uint32)
    x = rough(rng, 2, 1, 2300, 9).view(np.uint32)
    new = x.transpose(0, 1, 3, 2)
    found = np.concatenate([state, new], axis=-1)
    ne0, ne1, ne2, ne3 = found.shape[::-1]
    launch = Launch(
        entry=entry,
        grid=(ne1, ne2, ne3),
        block=(256, 1, 1),
        arguments=(
            read("x", state),
            read("y", x),
            output("dst", *found.shape, dtype=np.uint32),
            *_with_strides(state),
            *_with_strides(new),
            *_with_strides(found),
        ),
    )
    return (Case(label=f"{ne0} columns", launch=launch, expected={"dst": _same(found)}),)


def _with_strides(array: NDArray[Any]) -> Sequence[np.int64 | np.uint64]:
    return [*longs(*reversed(array.shape)), *sizes(*_bytes(array))]


def _filled(seed: int, *, entry: str) -> tuple[Case, ...]:
    value = np.float16(generator(seed, entry).standard_normal())
    launch = Launch(
        entry=entry,
        grid=(2, 1, 1),
        block=(256, 1, 1),
        arguments=(output("dst", 300, dtype=np.float16), *longs(300), value.tobytes()),
    )
    found = {"dst": _same(np.full(300, value))}
    return (Case(label="300 values", launch=launch, expected=found),)


def _counted(seed: int, *, entry: str) -> tuple[Case, ...]:
    start = float(generator(seed, entry).integers(1000))
    launch = Launch(
        entry=entry,
        grid=(2, 1, 1),
        block=(256, 1, 1),
        arguments=(output("dst", 300), *ints(300), *floats(start, 0.5)),
    )
    found = {"dst": _same((start + 0.5 * np.arange(300)).astype(np.float32))}
    return (Case(label="300 values", launch=launch, expected=found),)


def _one_to_one(source: str, target: str) -> Type:
    return Type(f"XadL*12cpy_1_scalarI{source}{target}E*E")


def _kernels() -> dict[str, tuple[str, str, Cases]]:
    """Name to (function, entry, cases)."""
    made: dict[str, tuple[str, str, Cases]] = {}

    def add(name: str, function: str, entry: str, cases: Callable[..., Any], **more: Any) -> None:
        made[name] = (function, entry, partial(cases, entry=entry, **more))

    f, h, b, u = np.float32, np.float16, BFLOAT16, Type("j")
    for name, kinds, source, target in (
        ("f32", ("f", "f"), f, f),
        ("f32 to f16", ("f", "6__half"), f, h),
        ("f16 to f32", ("6__half", "f"), h, f),
    ):
        entry = template_entry("cpy_scalar", _one_to_one(*kinds))
        add(f"cpy_scalar {name}", "cpy_scalar", entry, _permuted, source=source, target=target)
    for kind, dtype in ((FLOAT, f), (HALF, h)):
        entry = template_entry("cpy_scalar_transpose", kind)
        name = f"cpy_scalar_transpose of {np.dtype(dtype).itemsize} bytes"
        add(name, "cpy_scalar_transpose", entry, _transposed, dtype=dtype)
    for name, one, two in (
        ("f32 to i32", FLOAT, Type("i")),
        ("i32 to f32", Type("i"), FLOAT),
        ("f32 to bf16", FLOAT, b),
    ):
        entry = template_entry("cpy_scalar_contiguous", one, two)
        add(f"cpy_scalar_contiguous {name}", "cpy_scalar_contiguous", entry, _cast, kind=name)
    for name, kind in (("f32", FLOAT), ("f16", HALF), ("bf16", b)):
        entry = f"_ZN4rows16k_get_rows_floatI{kind.mangled}fE*"
        add(f"k_get_rows_float {name}", "k_get_rows_float", entry, _rows, kind=kind, vector=False)
    entry = "_ZN4rows20k_get_rows_float_vecIfE*"
    add("k_get_rows_float_vec", "k_get_rows_float_vec", entry, _rows, kind=FLOAT, vector=True)
    for dim in (0, 1):
        entry = template_entry("concat_cont", u, dim)
        add(f"concat_cont axis {dim}", "concat_cont", entry, _joined, dim=dim)
    add(
        "concat_non_cont", "concat_non_cont", template_entry("concat_non_cont", u, 0), _joined_apart
    )
    add("fill_kernel f16", "fill_kernel", template_entry("fill_kernel", HALF), _filled)
    add("arange_f32", "arange_f32", template_entry("arange_f32"), _counted)
    return made


def probes() -> tuple[Probe, ...]:
    """Of copies that the cache, the convolution's window and the indexer's selection go through."""
    return tuple(
        Probe(name=name, unit=UNIT, entry=entry, kind="copy", functions=(function,), cases=cases)
        for name, (function, entry, cases) in _kernels().items()
    )
