"""Every probe of what is not a dot product of quantised types, and the units with their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparkbuild.qualify.probes import (
    activations,
    arithmetic,
    attention,
    attention_mma,
    attention_parts,
    copies,
    delta_net,
    hyper,
    indexer,
    kv,
    linear,
    matmul_mma,
    matvec,
    moe,
    norms,
    rope,
    rope_fused,
    softmax,
)
from sparkbuild.qualify.probes.model import Probe

_UNITS = Path(__file__).parent / "units"
_MODULES = (
    delta_net,
    indexer,
    moe,
    hyper,
    norms,
    softmax,
    attention,
    attention_mma,
    attention_parts,
    kv,
    rope,
    rope_fused,
    activations,
    arithmetic,
    copies,
    linear,
    matvec,
    matmul_mma,
)


def other_probes() -> tuple[Probe, ...]:
    """All of them; first what GLM-5.3-Flash's graph launches most."""
    return tuple(probe for module in _MODULES for probe in module.probes())


def other_units() -> Mapping[str, str]:
    """The text of every unit that a probe of these names."""
    names = dict.fromkeys(probe.unit for probe in other_probes())
    return {name: (_UNITS / f"{name}.cu").read_text() for name in names}
