"""Probes of ``mul_mat_vec_q``: a matrix times one vector or a few, with or without experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import Bounded, exactly, exp, expected
from sparkbuild.qualify.probes.inputs import Blocks, Partner, random_blocks, random_partner
from sparkbuild.qualify.probes.launching import NULL, fastdiv, generator, uint3
from sparkbuild.qualify.probes.matmul_config import (
    UNIT,
    WARP,
    Instance,
    fusion_offsets,
    instances,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.probes.vec_dot_sums import make_sums
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch

_WHY: Final = (
    "the roundings of each vec_dot, then those of adding up loops, warps and lanes in the "
    "kernel's order; zero where all are exact"
)


def matmul_probes(facts: SourceFacts, references: References) -> tuple[Probe, ...]:
    """One probe for each instance that can be judged."""
    return tuple(
        _probe(facts, references, instance)
        for instance in instances(facts)
        if references.can(instance.kind.name)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """x as (matrices, rows, blocks), y as (vectors, blocks), and each vector's matrix."""

    blocks: Blocks
    partner: Partner
    matrices: int
    vectors: int
    rows: int


def _probe(facts: SourceFacts, references: References, instance: Instance) -> Probe:
    marks = [
        mark
        for mark, holds in (
            (f"{instance.columns} columns", instance.columns > 1 and not instance.experts),
            ("fused", instance.fused),
            ("experts", instance.experts),
        )
        if holds
    ]
    name = " ".join(["mul_mat_vec_q", instance.kind.name, *marks])
    make = _expert_case if instance.experts else _case

    def cases(seed: int) -> tuple[Case, ...]:
        return (make(facts, references, instance, generator(seed, name)),)

    return Probe(
        name=name,
        unit=UNIT,
        entry=instance.entry,
        kind="mul_mat_vec",
        functions=("mul_mat_vec_q_moe" if instance.experts else "mul_mat_vec_q",),
        cases=cases,
        types=(instance.kind.name,),
    )


def _random(instance: Instance, matrices: int, vectors: int, rng: np.random.Generator) -> _Product:
    """Make x whose first half of rows, and y whose first half of vectors, have powers of two."""
    rows = 4 * instance.rows
    kind = instance.kind
    blocks = random_blocks(kind, matrices * rows * instance.blocks, rng, wild=False)
    partner = random_partner(kind, vectors * instance.blocks, rng)
    if matrices > 1:  # so that every matrix has rows of both sorts
        order = np.arange(len(blocks.data)).reshape(rows, matrices, -1).swapaxes(0, 1).ravel()
        blocks = Blocks(kind, blocks.data[order])
    return _Product(blocks, partner, matrices, vectors, rows)


def _sparse(product: _Product, rng: np.random.Generator) -> _Product:
    """The same with few quants of y, all 1 or -1: sums that an exponential function can take."""
    partner = product.partner
    q = rng.choice([-1.0, 0.0, 1.0], partner.q.shape, p=[0.03, 0.94, 0.03])
    return replace(product, partner=Partner(partner.d, partner.s / 64, q))


def _small(blocks: Blocks, rng: np.random.Generator) -> Blocks:
    """Other blocks like these, with scales of a 64th."""
    found = random_blocks(blocks.kind, len(blocks.data), rng, wild=False)
    for name in ("d", "m", "dmin"):
        if blocks.kind.field(name) is not None:
            small = (found.half(name) / 64).astype("<f2").view(np.uint8)
            found.field(name)[:] = small.reshape(-1, 2)
    return found


def _values(
    facts: SourceFacts,
    references: References,
    instance: Instance,
    product: _Product,
    pairs: NDArray[np.int64],
) -> Bounded:
    """(pairs, rows): the products of a matrix with a vector for each pair of their numbers."""
    count, rows = instance.blocks, product.rows
    shape = (len(pairs), rows, count)
    x = (pairs[:, 0, None, None] * rows + np.arange(rows)[:, None]) * count + np.arange(count)
    y = np.broadcast_to(pairs[:, 1, None, None] * count + np.arange(count), shape)
    partner = product.partner
    sums = make_sums(
        facts,
        references,
        Blocks(instance.kind, product.blocks.data[x.ravel()]),
        Partner(partner.d[y.ravel()], partner.s[y.ravel()], partner.q[y.ravel()]),
        instance.rule.elements(instance.per),
        alone=False,
    )
    return _added(instance.rule.combine(sums), instance, shape)


def _added(parts: Bounded, instance: Instance, shape: tuple[int, int, int]) -> Bounded:
    """Add up as the kernel does: each thread its rounds, then warps, then lanes in halves."""
    pairs, rows, count = shape
    rounds = -(-count // instance.stride)

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.zeros((pairs, rows, rounds * instance.stride, instance.per))
        out[:, :, :count] = values.reshape(pairs, rows, count, instance.per)
        return out.reshape(pairs, rows, rounds, instance.warps, WARP).transpose(0, 1, 4, 3, 2)

    return parts.map(spread).summed().summed().warp_sum()


def _case(
    facts: SourceFacts, references: References, instance: Instance, rng: np.random.Generator
) -> Case:
    """Four channels, each with its vectors; two of them share a matrix."""
    matrices, channels = 2, 4
    vectors = channels * instance.columns
    product = _random(instance, matrices, vectors, rng)
    if instance.fused:
        product = _sparse(product, rng)
    rows = product.rows
    every = np.arange(vectors)
    pairs = np.stack([every // instance.columns // (channels // matrices), every], 1)
    found = _values(facts, references, instance, product, pairs)
    fusion = fusion_offsets(facts)
    struct = np.zeros(fusion["size"], np.uint8)
    pointers: dict[tuple[int, int], Buffer] = {}
    if instance.fused:
        gate = _Product(_small(product.blocks, rng), product.partner, matrices, vectors, rows)
        bias = rng.integers(-8, 9, (channels, rows)).astype(np.float32)
        found = found + bias.astype(np.float64)
        gating = _values(facts, references, instance, gate, pairs)
        found = found * (gating / (exactly(np.ones_like(gating.value)) + exp(-gating)))
        operation = facts.enums["ggml_glu_op"]["GGML_GLU_OP_SWIGLU"]
        struct[fusion["glu_op"] : fusion["glu_op"] + 4] = np.array([operation], "<i4").view("u1")
        pointers = {
            (3, fusion["gate"]): Buffer("gate", gate.blocks.data),
            (3, fusion["x_bias"]): Buffer("bias", bias),
        }
    dst = Buffer("dst", np.full((vectors, rows), np.nan, np.float32), writable=True)
    per_vector = instance.blocks * instance.kind.elements // 32
    arguments: list[Argument] = [
        Buffer("x", product.blocks.data), Buffer("y", product.partner.data()), NULL,
        struct.tobytes(), dst,
        *_words(instance.blocks * instance.kind.elements), uint3(0, 0, 0),
        *_words(instance.blocks, per_vector, rows), fastdiv(channels // matrices),
        *_words(rows * instance.blocks, per_vector * instance.columns, rows * instance.columns),
        fastdiv(1),
        *_words(0, 0, 0, 0),
    ]  # fmt: skip
    grid = (rows // instance.rows, channels, 1)
    launch = Launch(instance.entry, grid, (WARP, instance.warps, 1), arguments, pointers=pointers)
    return Case(f"{rows} rows x {vectors}", launch, {"dst": expected(found, _WHY)})


def _expert_case(
    facts: SourceFacts, references: References, instance: Instance, rng: np.random.Generator
) -> Case:
    """Three tokens, each for two of four experts, with a vector for each."""
    experts, used, tokens = 4, 2, instance.columns
    product = _random(instance, experts, tokens * used, rng)
    rows = product.rows
    ids = np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)
    pairs = np.stack([ids.ravel(), np.arange(tokens * used)], 1).astype(np.int64)
    found = _values(facts, references, instance, product, pairs)
    dst = Buffer("dst", np.full((tokens * used, rows), np.nan, np.float32), writable=True)
    per_vector = instance.blocks * instance.kind.elements // 32
    fusion = [bytes(fusion_offsets(facts)["size"])] if instance.may_fuse else []
    arguments: list[Argument] = [
        Buffer("x", product.blocks.data), Buffer("y", product.partner.data()),
        Buffer("ids", ids), *fusion, dst,
        *_words(instance.blocks * instance.kind.elements), fastdiv(used),
        *_words(rows, instance.blocks, used * per_vector, used * rows, rows * instance.blocks),
        *_words(per_vector, rows),
        *_words(tokens, used),
    ]  # fmt: skip
    grid = (rows // instance.rows, used, 1)
    launch = Launch(instance.entry, grid, (WARP, tokens, 1), arguments)
    label = f"{rows} rows x {tokens} tokens x {used} experts"
    return Case(label, launch, {"dst": expected(found, _WHY)})


def _words(*values: int) -> list[np.uint32]:
    return [np.uint32(value) for value in values]
