"""Probes of the quantisers of activations: q8_1, the layouts of MMQ, MXFP4 and NVFP4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.entries import Enum, template_entry
from sparkbuild.qualify.probes.inputs import Reals
from sparkbuild.qualify.probes.launching import fastdiv, generator, longs
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.probes.quantize_values import (
    NEAR,
    Quants,
    nibbles,
    pack_bytes,
    to_e2m1,
    to_e8m0,
    to_nvfp4,
)
from sparkbuild.qualify.probes.quantize_words import Packed, mmq_words, q8_1_words, with_quants
from sparkbuild.qualify.probes.tiles_config import has_fp4
from sparkbuild.qualify.reference.source import SourceFacts
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch

SOURCE: Final = "ggml-cuda/quantize.cu"
UNIT: Final = "quantize"

_SHARED: Final = ("x", "ids", "vy", "ne00", "s01", "s02", "s03", "ne0", "ne1", "ne2",
                  "n_expert_used")  # fmt: skip
PARAMETERS: Final = {
    "quantize_q8_1": ("x_ptr", "vy_ptr", "ne00", "s01", "s02", "s03", "ne0", "ne1", "ne2"),
    "quantize_mmq_q8_1": _SHARED,
    "quantize_mmq_mxfp4": _SHARED,
    "quantize_mmq_nvfp4": (*_SHARED[:3], "scale", *_SHARED[3:]),
}
"""What the launches fill, by kernel."""

_KEPT: Final = 448
_PADDED: Final = 512
"""Values of a row, and what it is filled up to with zeros (MATRIX_ROW_PADDING)."""
_STRIDE: Final = 480
_OUTER: Final = 2
_INNER: Final = 3
"""Matrices, of which a kernel works out both numbers from one; of rows that are scattered, one."""
_WHY: Final = (
    "whole numbers and codes are exact but where an approximate division leaves two possible; an "
    "f32 scale is within eight steps of the last place"
)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Input rows and where they go: row ``source[i]`` of x to row ``i`` of each of ``layers``."""

    x: NDArray[np.float32]
    """(layers, rows, stride); zero is not stored behind the values that count."""
    source: tuple[int, ...]
    scatter: bool

    @property
    def padded(self) -> Reals:
        """What is quantised: (layers, rows written, padded values)."""
        rows = self.x[:, self.source, :_KEPT].astype(np.float64)
        out = np.zeros((*rows.shape[:2], _PADDED))
        out[..., :_KEPT] = rows
        return out


def unit_text() -> str:
    """The unit of quantisers."""
    units = resources.files("sparkbuild.qualify.probes").joinpath("units")
    return units.joinpath("quantize.cu").read_text()


def unknown_kernels(facts: SourceFacts) -> tuple[str, ...]:
    """Quantisers of the source that take other parameters than are known here, or are not there."""
    return tuple(
        kernel for kernel, names in PARAMETERS.items() if facts.parameters(SOURCE, kernel) != names
    )


def quantize_probes(facts: SourceFacts, arch: str) -> tuple[Probe, ...]:
    """One probe for each quantiser that is known here, in each of its instances."""
    unknown = unknown_kernels(facts)
    return tuple(probe for probe in _probes(facts, arch) if probe.functions[0] not in unknown)


def _probes(facts: SourceFacts, arch: str) -> tuple[Probe, ...]:
    found = [_probe("q8_1", template_entry("quantize_q8_1"), "quantize_q8_1", _q8_1_case)]
    layouts = facts.enums.get("mmq_q8_1_ds_layout", {})
    for name, value in layouts.items():
        layout = name.removeprefix("MMQ_Q8_1_DS_LAYOUT_")
        for scatter in (False, True):
            entry = template_entry("quantize_mmq_q8_1", Enum("mmq_q8_1_ds_layout", value), scatter)
            found.append(
                _probe(_named(f"mmq {layout}", scatter), entry, "quantize_mmq_q8_1",
                       _mmq_case(layout, scatter=scatter))
            )  # fmt: skip
    if has_fp4(arch):
        for scatter in (False, True):
            entry = template_entry("quantize_mmq_mxfp4", scatter)
            found.append(
                _probe(_named("mxfp4", scatter), entry, "quantize_mmq_mxfp4",
                       _mxfp4_case(scatter=scatter))
            )  # fmt: skip
            for aligned in (False, True):
                entry = template_entry("quantize_mmq_nvfp4", scatter, aligned)
                name = _named("nvfp4 aligned" if aligned else "nvfp4", scatter)
                found.append(
                    _probe(name, entry, "quantize_mmq_nvfp4", _nvfp4_case(scatter=scatter))
                )
    return tuple(found)


def _named(name: str, scatter: bool) -> str:
    return f"{name} scattered" if scatter else name


_MakeCase = Callable[[str, np.random.Generator], Case]


def _probe(name: str, entry: str, function: str, make: _MakeCase) -> Probe:
    def cases(seed: int) -> tuple[Case, ...]:
        return (make(entry, generator(seed, name)),)

    return Probe(
        name=f"quantize {name}",
        unit=UNIT,
        entry=entry,
        kind="quantize",
        functions=(function,),
        cases=cases,
        types=(name.split(maxsplit=1)[0],) if name.startswith(("q8_1", "mxfp4", "nvfp4")) else (),
    )


def _random_rows(rng: np.random.Generator, *, scatter: bool) -> Rows:
    """Values of all sizes; some groups of 64 are zero, some whole numbers of a power of two."""
    layers, count = (1, 2) if scatter else (_OUTER * _INNER, 3)
    x = rng.standard_normal((layers, count, _STRIDE))
    groups = x[..., :_KEPT].reshape(layers, count, -1, 64)
    groups *= np.exp2(rng.integers(-12, 13, groups.shape[:3]))[..., None]
    whole = rng.integers(-127, 128, groups[:, :, 1].shape).astype(np.float64)
    whole[..., ::16] = 127
    groups[:, :, 1] = whole * np.exp2(rng.integers(-4, 5, whole.shape[:2]))[..., None]
    groups[:, -1, 3] = 0
    x[..., :_KEPT] = groups.reshape(layers, count, -1)
    x[..., _KEPT:] = np.nan
    source = (0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1) if scatter else (2, 0, 1)
    return Rows(x.astype(np.float32), source, scatter)


def _launch(entry: str, rows: Rows, block: tuple[int, int, int], dst: Buffer) -> Launch:
    """The launch that MMQ's quantisers share: rows in x, parts of a row in y, layers in z."""
    layers, count, stride = rows.x.shape
    written = len(rows.source)
    parts = -(-_PADDED // (4 * 128))
    if rows.scatter:
        # For each token, where its copies go.
        ids = np.array([np.flatnonzero(np.array(rows.source) == row) for row in range(count)])
        used = written // count
        strides = (0, stride, 0)
        numbers = [np.int32(written), np.int32(1), np.int32(used)]
        grid = (count, parts, 1)
    else:
        ids = np.array(rows.source)
        strides = (stride, stride * count, stride * count * _INNER)
        numbers = [np.int32(written), np.int32(_INNER), np.int32(0)]
        grid = (written, parts, layers)
    arguments: list[Argument] = [
        Buffer("x", rows.x), Buffer("ids", ids.astype(np.int32)), dst, np.int64(_KEPT),
        *(np.int64(value) for value in strides), np.int64(_PADDED), *numbers,
    ]  # fmt: skip
    return Launch(entry, grid, block, arguments)


def _q8_1_case(entry: str, rng: np.random.Generator) -> Case:
    rows = _random_rows(rng, scatter=False)
    rows = Rows(rows.x, (0, 1, 2), scatter=False)
    layers, count, stride = rows.x.shape
    words, sure = q8_1_words(rows.padded)
    dst = Buffer("dst", np.zeros_like(words), writable=True)
    arguments: list[Argument] = [
        Buffer("x", rows.x), dst,
        *longs(_KEPT, stride, stride * count, stride * count * _INNER, _PADDED),
        np.uint32(count), fastdiv(_INNER),
    ]  # fmt: skip
    launch = Launch(entry, (_PADDED // 256, count, layers), (256, 1, 1), arguments)
    packed = (words, sure, np.zeros(words.shape))
    return Case(f"{layers} x {count} rows", launch, {"dst": _expected(packed)})


def _mmq_case(layout: str, *, scatter: bool) -> _MakeCase:
    def make(entry: str, rng: np.random.Generator) -> Case:
        rows = _random_rows(rng, scatter=scatter)
        packed = _by_blocks(mmq_words(rows.padded, layout))
        dst = Buffer("dst", np.zeros_like(packed[0]), writable=True)
        launch = _launch(entry, rows, (128, 1, 1), dst)
        return Case(f"{len(rows.source)} rows", launch, {"dst": _expected(packed)})

    return make


def _mxfp4_case(*, scatter: bool) -> _MakeCase:
    def make(entry: str, rng: np.random.Generator) -> Case:
        rows = _random_rows(rng, scatter=scatter)
        x = rows.padded
        grouped = x.reshape(*x.shape[:-1], -1, 32)
        scales = to_e8m0(np.abs(grouped).max(-1))
        factor = np.ldexp(1.0, 127 - scales.values) * (scales.values > 0)
        codes = to_e2m1((grouped * factor[..., None]).reshape(x.shape), 0)
        sure = np.repeat(scales.sure, 32, -1)
        quants = nibbles(Quants(codes.values, sure), 32)
        shape = (*x.shape[:-1], -1, 4)
        pair = scales.values.reshape(*shape, 2)
        head = (pair[..., 0] | pair[..., 1] << 8).astype(np.uint32)
        head_sure = np.asarray(scales.sure.reshape(*shape, 2).all(-1))
        packed = _by_blocks(with_quants(head, head_sure, np.zeros(head.shape), quants))
        dst = Buffer("dst", np.zeros_like(packed[0]), writable=True)
        launch = _launch(entry, rows, (32, 8, 1), dst)
        return Case(f"{len(rows.source)} rows", launch, {"dst": _expected(packed)})

    return make


def _nvfp4_case(*, scatter: bool) -> _MakeCase:
    def make(entry: str, rng: np.random.Generator) -> Case:
        rows = _random_rows(rng, scatter=scatter)
        x = rows.padded
        layers, count = x.shape[:2]
        found = to_nvfp4(x.reshape(-1, _PADDED))
        head, head_sure = pack_bytes(found.scales.values, found.scales.sure)
        quants = nibbles(found.codes, 16)
        shape = (layers, count, -1)
        packed = _by_blocks(
            with_quants(
                head.reshape(*shape, 4), head_sure.reshape(*shape, 4),
                np.zeros(head.size).reshape(*shape, 4),
                Quants(quants.values.reshape(shape), quants.sure.reshape(shape)),
            )
        )  # fmt: skip
        scales = found.rows.astype(np.float32)
        dst = Buffer("dst", np.zeros_like(packed[0]), writable=True)
        plain = _launch(entry, rows, (128, 1, 1), dst)
        launch = _nvfp4_launch(plain, Buffer("scale", np.zeros_like(scales), writable=True), rows)
        row_scales = Expected(scales, found.rows * NEAR, _WHY)
        return Case(
            f"{len(rows.source)} rows", launch, {"dst": _expected(packed), "scale": row_scales}
        )

    return make


def _nvfp4_launch(plain: Launch, scale: Buffer, rows: Rows) -> Launch:
    """As the others, with the rows' scales behind the result, and layers in y."""
    front, used = plain.arguments[:-3], plain.arguments[-1]
    numbers = longs(len(rows.source), 1 if rows.scatter else _INNER)
    arguments = [*front[:3], scale, *front[3:], *numbers, used]
    grid = (plain.grid[0], 1 if rows.scatter else plain.grid[2], 1)
    return Launch(plain.entry, grid, plain.block, arguments)


def _by_blocks(packed: Packed) -> Packed:
    """(layers, rows, blocks, words) as it lies in memory: blocks of the same columns together."""
    words, sure, bound = packed
    return (
        np.ascontiguousarray(words.swapaxes(1, 2)),
        np.ascontiguousarray(sure.swapaxes(1, 2)),
        np.ascontiguousarray(bound.swapaxes(1, 2)),
    )


def _expected(packed: Packed) -> Expected:
    words, sure, bound = packed
    return Expected(words, bound, _WHY, None if sure.all() else sure)
