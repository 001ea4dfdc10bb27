"""Probes of every ``vec_dot_*_q8_1``: what ``mul_mat_vec_q`` calls for each token that is made."""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

import numpy as np

from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.inputs import (
    Blocks,
    Partner,
    bounded_blocks,
    random_blocks,
    random_partner,
)
from sparkbuild.qualify.probes.launching import generator
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.probes.vec_dot_sums import HEADER, RULES, Rule, make_sums
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts, TensorType
from sparkbuild.qualify.simt.contract import Buffer, Launch

UNIT: Final = "vec_dot"
THREADS: Final = 256
LANES: Final = 2048
"""Threads of a launch: enough blocks for every index of the largest table, 2,048 entries."""

URGENT: Final = frozenset({"iq1_s", "iq2_s", "iq3_s"})
"""What nvcc 13.2.51 and 13.2.78 break: judged first."""

_WHOLE_ROUNDINGS: Final = 64
_WHOLE_CUT: Final = 0.25
"""For a type without a rule: as many roundings on the way to a block's sum as there may be values
of iqs (32, each rounded itself), and what dividing whole numbers may cut off."""

_WHY: Final = (
    "every rounding of f32 in the source's steps, of the products and sums as they stand; zero "
    "where all of them are exact"
)


def types_of(facts: SourceFacts) -> tuple[TensorType, ...]:
    """The types that the source has a ``vec_dot_*_q8_1`` for, and traits to call it with."""
    names = re.findall(r"\bvec_dot_(\w+?)_q8_1\(\s*const void \*", facts.text[HEADER])
    return tuple(kind for name, kind in facts.types.items() if name in names and kind.ints)


def unit_text(facts: SourceFacts) -> str:
    """The unit for a source: the template and one line for each of its types."""
    template = resources.files("sparkbuild.qualify.probes").joinpath("units/vec_dot.cu")
    lines = [
        f"{'EACH' if rule_of(facts, kind) else 'WHOLE'}"
        f"({kind.name}, {kind.enumerator}, {_step(facts, kind)})"
        for kind in types_of(facts)
    ]
    return template.read_text() + "\n".join(lines) + "\n"


def vec_dot_probes(facts: SourceFacts, references: References) -> tuple[Probe, ...]:
    """One probe for each type that can be judged."""
    return tuple(
        _probe(facts, references, kind) for kind in types_of(facts) if references.can(kind.name)
    )


def rule_of(facts: SourceFacts, kind: TensorType) -> Rule | None:
    """The rule for a type as this source has it; None where it means something else by iqs."""
    rule = RULES.get(kind.name)
    if rule is None or (rule.ints, rule.step) != (kind.ints, _step(facts, kind)):
        return None
    return rule


def _step(facts: SourceFacts, kind: TensorType) -> int:
    """VDR: how many words one call takes; 1 where the source names none, as mmvq.cu has it."""
    name = f"VDR_{kind.enumerator.removeprefix('GGML_TYPE_')}_Q8_1_MMVQ"
    return facts.constant(name) if facts.has(name) else 1


def _probe(facts: SourceFacts, references: References, kind: TensorType) -> Probe:
    rule = rule_of(facts, kind)
    name = f"vec_dot_{'each' if rule else 'whole'}_{kind.name}"

    def cases(seed: int) -> tuple[Case, ...]:
        rng = generator(seed, f"vec_dot {kind.name}")
        if rule is None:
            return (_whole_case(name, references, kind, rng),)
        return (_each_case(name, facts, references, kind, rule, rng),)

    return Probe(
        name=f"vec_dot {kind.name}",
        unit=UNIT,
        entry=name,
        kind="vec_dot",
        functions=facts.callees(HEADER, f"vec_dot_{kind.name}_q8_1"),
        cases=cases,
        types=(kind.name,),
        urgent=kind.name in URGENT,
    )


def _each_case(
    entry: str,
    facts: SourceFacts,
    references: References,
    kind: TensorType,
    rule: Rule,
    rng: np.random.Generator,
) -> Case:
    per = kind.ints // rule.step
    count = LANES // per - 1  # so that some threads of the last block have nothing to do
    # An f16 product of the ends of f16 is no number: there the scales stay within bounds.
    blocks = random_blocks(kind, count, rng, wild=kind.field("m") is None)
    partner = random_partner(kind, count, rng)
    sums = make_sums(facts, references, blocks, partner, rule.elements(per))
    return _case(entry, f"{count * per} values of iqs", blocks, partner, rule.combine(sums))


def _whole_case(
    entry: str, references: References, kind: TensorType, rng: np.random.Generator
) -> Case:
    count = LANES // 8 - 1
    blocks = bounded_blocks(kind, count, rng, references)
    # The sums that y carries are those of its quants, as nothing is known of their use: exact.
    q = rng.integers(-15, 16, (count, kind.elements)).astype(np.float64)
    d = np.exp2(rng.integers(-6, 3, (count, kind.elements // 32)))
    partner = Partner(d, d * q.reshape(count, -1, 32).sum(-1), q)
    values = references.values(kind.name, blocks.data)
    y = np.repeat(d, 32, 1) * q
    found = exactly(values * y).total(_WHOLE_ROUNDINGS)
    cut = _WHOLE_CUT * np.abs(values).max(-1) * np.abs(y).max(-1)
    return _case(entry, f"{count} blocks", blocks, partner, Bounded(found.value, found.error + cut))


def _case(entry: str, label: str, blocks: Blocks, partner: Partner, found: Bounded) -> Case:
    lanes = found.value.size
    dst = Buffer("dst", np.full(lanes, np.nan, np.float32), writable=True)
    launch = Launch(
        entry,
        (-(-lanes // THREADS), 1, 1),
        (THREADS, 1, 1),
        (Buffer("x", blocks.data), Buffer("y", partner.data()), dst, np.int32(lanes)),
    )
    flat = found.map(np.ravel)
    return Case(label, launch, {"dst": expected(flat, _WHY)})
