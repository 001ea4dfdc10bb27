"""All probes of quantised types, and the units that hold their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparkbuild.qualify.probes import (
    dequantize,
    matmul,
    matmul_config,
    quantize,
    tiles,
    tiles_more,
    vec_dot,
)
from sparkbuild.qualify.probes.model import Probe
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts

COSTS: Final[Mapping[str, float]] = {
    vec_dot.UNIT: 1.2, tiles.PLAIN_UNIT: 5.3, "mmq_super": 5.2, "mmq_wide": 3.0,
    matmul_config.UNIT: 2.4, quantize.UNIT: 1.6, dequantize.UNIT: 3.0,
}  # fmt: skip
"""Seconds of CPU that nvcc 13.0.88 takes for each unit of b11434, for 121a with its lines."""


def quant_units(facts: SourceFacts, arch: str) -> Mapping[str, str]:
    """The text of each unit, by the name that probes give; to be compiled as CUDA to PTX.

    ``arch`` as a toolchain names it: ``121a``. A unit that a source has no kernels for is left out.
    """
    units = {vec_dot.UNIT: vec_dot.unit_text(facts)}
    lines = tiles.table_lines(facts, arch)
    lines.setdefault(tiles.PLAIN_UNIT, []).extend(tiles_more.table_lines(facts))
    units.update({unit: tiles.unit_text(some) for unit, some in lines.items() if some})
    if matmul_config.instances(facts):
        units[matmul_config.UNIT] = matmul_config.unit_text(facts)
    if facts.text[quantize.SOURCE]:
        units[quantize.UNIT] = quantize.unit_text()
    if facts.text[dequantize.CONVERT] and facts.text[dequantize.ROWS]:
        units[dequantize.UNIT] = dequantize.unit_text(facts)
    return units


def quant_probes(facts: SourceFacts, references: References, arch: str) -> tuple[Probe, ...]:
    """Every probe of a quantised type that this source can be judged by; urgent ones first."""
    probes = (
        *vec_dot.vec_dot_probes(facts, references),
        *tiles.tile_probes(facts, references, arch),
        *tiles_more.more_probes(facts, references),
        *dequantize.dequantize_probes(facts, references),
        *quantize.quantize_probes(facts, arch),
        *matmul.matmul_probes(facts, references),
    )
    return tuple(sorted(probes, key=lambda probe: not probe.urgent))


def not_covered(facts: SourceFacts, references: References, arch: str) -> tuple[str, ...]:
    """What of the source's quantised types no probe stands for, a line for each.

    A type that CUDA knows (``ggml_cuda_type_traits``) and for which a kind of probe is missing; a
    type that is judged by the sums of whole blocks, since nothing here says which elements its
    function takes.
    """
    probes = quant_probes(facts, references, arch)
    lines = []
    for kind in facts.types.values():
        if not kind.ints:
            continue
        kinds = {probe.kind for probe in probes if kind.name in probe.types}
        expected = {"vec_dot", "mul_mat_vec", "dequantize"}
        if tiles.has_tiles(facts, kind):
            expected.add("load_tiles")
        missing = sorted(expected - kinds)
        if missing:
            lines.append(f"{kind.name}: no probe of {', '.join(missing)}")
        elif vec_dot.rule_of(facts, kind) is None:
            lines.append(f"{kind.name}: vec_dot by whole blocks alone")
    lines += [f"{kernel}: not as it is known here" for kernel in quantize.unknown_kernels(facts)]
    return tuple(lines)
