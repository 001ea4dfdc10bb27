"""All probes for one source tree and one target, and the units that hold their kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparkbuild.qualify.probes.model import Probe
from sparkbuild.qualify.probes.other import other_probes, other_units
from sparkbuild.qualify.probes.quants import COSTS, not_covered, quant_probes, quant_units
from sparkbuild.qualify.reference.library import build_library
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import read_source
from sparkbuild.toolkit.model import HostCompiler


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the references are built with, and a folder to keep them in."""

    host: HostCompiler
    folder: str


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Units (name to text) and the probes whose kernels they hold.

    ``uncovered`` names tensor types of the source that no probe is there for.
    """

    units: Mapping[str, str]
    probes: tuple[Probe, ...]
    uncovered: tuple[str, ...] = ()
    prepare: Callable[[], object] = lambda: None
    """Builds the references and lets them agree; raises HostError where they do not."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds to compile, roughly: long units begin early."""


@functools.lru_cache(maxsize=4)
def catalogue(source: str, architecture: str, given: Given) -> Catalogue:
    """Every probe for the tree in ``source``, as ``architecture`` (``121a``) has them."""
    root = Path(source)
    facts = read_source(root)
    references = References(lambda: build_library(root, Path(given.folder), given.host))
    return Catalogue(
        units={**quant_units(facts, architecture), **other_units()},
        probes=(*quant_probes(facts, references, architecture), *other_probes()),
        uncovered=not_covered(facts, references, architecture),
        prepare=lambda: references.library,
        costs=COSTS,
    )
