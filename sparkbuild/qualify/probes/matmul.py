"""Probes of ``mul_mat_vec_q``: a matrix times one vector or a few, with or without experts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.bounded import Bounded, exactly, exp, expected
from sparkbuild.qualify.probes.entries import Enum, template_entry
from sparkbuild.qualify.probes.inputs import Blocks, random_blocks
from sparkbuild.qualify.probes.launching import NULL, fastdiv, generator, uint3
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.probes.vec_dot import random_partner, rule_of, types_of
from sparkbuild.qualify.probes.vec_dot_sums import Partner, Rule, make_sums
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts, TensorType
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch

SOURCE: Final = "ggml-cuda/mmvq.cu"
UNIT: Final = "matmul_vec"
WARP: Final = 32

_SEVERAL: Final = 4
"""Columns of the instances with more than one."""
_SEVERAL_TYPES: Final = ("q8_0", "q4_K", "iq3_s")
_FUSED_TYPES: Final = ("q8_0", "q4_K", "iq2_s")
_EXPERT_TYPES: Final = ("q8_0", "q2_K", "iq1_s")
"""Which types the further instances are made for: they all call what the first one calls."""

_WHY: Final = (
    "the roundings of each vec_dot, then those of adding up loops, warps and lanes in the "
    "kernel's order; zero where all are exact"
)


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance: ``warps`` and ``rows`` (of x) that a CUDA block has, ``columns`` of y."""

    kind: TensorType
    rule: Rule
    columns: int
    warps: int
    rows: int
    fused: bool = False
    experts: bool = False

    @property
    def per(self) -> int:
        """Values of iqs in a block of x."""
        return self.kind.ints // self.rule.step

    @property
    def stride(self) -> int:
        """Blocks of x that one round of the loop takes."""
        return self.warps * WARP // self.per

    @property
    def blocks(self) -> int:
        """Blocks in a row: two rounds, and one that not all threads take part in."""
        return 2 * self.stride + max(self.stride // 2, 1)

    @property
    def entry(self) -> str:
        """The pattern of the kernel's name."""
        number = Enum("ggml_type", self.kind.number)
        if self.experts:
            return template_entry("mul_mat_vec_q_moe", number, self.rows, self.fused)
        return template_entry("mul_mat_vec_q", number, self.columns, self.fused, False, False)

    @property
    def line(self) -> str:
        """The table's line."""
        flag = "true" if self.fused else "false"
        if self.experts:
            return f"    EXPERTS({self.kind.enumerator}, {self.rows}, {flag})"
        return f"    ONE({self.kind.enumerator}, {self.columns}, {flag}, false, false)"


def instances(facts: SourceFacts) -> tuple[Instance, ...]:
    """What is probed of a source; nothing where its kernel is not the one that this was made for."""
    if not _is_known(facts):
        return ()
    warps = _switched(facts, "calc_nwarps")
    rows = _switched(facts, "calc_rows_per_block")
    found = []
    for kind in types_of(facts):
        rule = rule_of(facts, kind)
        if rule is None:
            continue
        found.append(Instance(kind, rule, 1, warps[1], 1))
        if kind.name in _SEVERAL_TYPES:
            found.append(Instance(kind, rule, _SEVERAL, warps[_SEVERAL], rows[_SEVERAL]))
        if kind.name in _FUSED_TYPES:
            found.append(Instance(kind, rule, 1, warps[1], 1, fused=True))
        if kind.name in _EXPERT_TYPES:
            found.append(Instance(kind, rule, 3, 1, 2, experts=True))
    return tuple(found)


def unit_text(facts: SourceFacts) -> str:
    """The unit with every instance that is probed."""
    units = resources.files("sparkbuild.qualify.probes").joinpath("units")
    lines = "\n".join(instance.line for instance in instances(facts))
    return f"{units.joinpath('matmul_vec.cu').read_text()}{lines}\n}};\n"


def matmul_probes(facts: SourceFacts, references: References) -> tuple[Probe, ...]:
    """One probe for each instance that can be judged."""
    return tuple(
        _probe(facts, references, instance)
        for instance in instances(facts)
        if references.can(instance.kind.name)
    )


def _is_known(facts: SourceFacts) -> bool:
    """Whether the kernel has the template and the parameters that the launches below fill."""
    text = " ".join(facts.text[SOURCE].split())
    return (
        "template <ggml_type type, int ncols_dst, bool has_fusion, bool small_k = false, "
        "bool halve_iters = false>" in text
        and "const ggml_cuda_mm_fusion_args_device fusion, float * dst_ptr, const uint32_t ncols_x"
        in text
    )


def _switched(facts: SourceFacts, function: str) -> dict[int, int]:
    """What a function of mmvq.cu returns for each number of columns on any NVIDIA GPU.

    ``cases`` of the first switch; ``small_k ? nwarps : 1`` is what holds without ``small_k``.
    """
    body = facts.body(SOURCE, function)
    first = body[body.find("switch (ncols_dst)") :]
    values: dict[int, int] = {}
    waiting: list[int] = []
    for case, result in re.findall(r"case (\d+):|return (?:\w+ \? \w+ : )?(\d+);", first):
        if case:
            waiting.append(int(case))
            continue
        values.update({number: int(result) for number in waiting if number not in values})
        waiting = []
    return values


def _fusion(facts: SourceFacts) -> dict[str, int]:
    """Offsets of the members of the struct that says what is fused; ``size`` of all."""
    text = facts.text["ggml-cuda/common.cuh"]
    body = re.search(r"struct ggml_cuda_mm_fusion_args_device \{([^}]*)\}", text)
    offsets: dict[str, int] = {}
    offset = 0
    for star, name in re.findall(r"[\w ]+?(\*?)\s*(\w+)\s*(?:=[^;]*)?;", body[1] if body else ""):
        size = 8 if star else 4
        offset += -offset % size
        offsets[name] = offset
        offset += size
    offsets["size"] = offset + -offset % 8
    return offsets


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
    """x whose first half of rows, and y whose first half of vectors, have powers of two."""
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
    """Two vectors, or two groups of them, in channels of their own; one matrix for both."""
    channels = 2
    vectors = channels * instance.columns
    product = _random(instance, 1, vectors, rng)
    if instance.fused:
        product = _sparse(product, rng)
    rows = product.rows
    pairs = np.stack([np.zeros(vectors, np.int64), np.arange(vectors)], 1)
    found = _values(facts, references, instance, product, pairs)
    fusion = _fusion(facts)
    struct = np.zeros(fusion["size"], np.uint8)
    pointers: dict[tuple[int, int], Buffer] = {}
    if instance.fused:
        gate = _Product(_small(product.blocks, rng), product.partner, 1, vectors, rows)
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
        *_words(instance.blocks, per_vector, rows), fastdiv(channels),
        *_words(0, per_vector * instance.columns, rows * instance.columns), fastdiv(1),
        *_words(0, 0, 0, 0),
    ]  # fmt: skip
    grid = (rows // instance.rows, channels, 1)
    launch = Launch(
        instance.entry, grid, (WARP, instance.warps, 1), arguments, pointers=pointers
    )
    return Case(f"{rows} rows x {vectors}", launch, {"dst": expected(found, _WHY)})


def _expert_case(
    facts: SourceFacts, references: References, instance: Instance, rng: np.random.Generator
) -> Case:
    """Three tokens, each for two of four experts."""
    experts, used, tokens = 4, 2, instance.columns
    product = _random(instance, experts, tokens, rng)
    rows = product.rows
    ids = np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)
    pairs = np.stack([ids.ravel(), np.repeat(np.arange(tokens), used)], 1).astype(np.int64)
    found = _values(facts, references, instance, product, pairs)
    dst = Buffer("dst", np.full((tokens * used, rows), np.nan, np.float32), writable=True)
    per_vector = instance.blocks * instance.kind.elements // 32
    arguments: list[Argument] = [
        Buffer("x", product.blocks.data), Buffer("y", product.partner.data()),
        Buffer("ids", ids), bytes(_fusion(facts)["size"]), dst,
        *_words(instance.blocks * instance.kind.elements), fastdiv(1),
        *_words(rows, instance.blocks, per_vector, used * rows, rows * instance.blocks, 0, rows),
        *_words(tokens, used),
    ]  # fmt: skip
    grid = (rows // instance.rows, used, 1)
    launch = Launch(instance.entry, grid, (WARP, tokens, 1), arguments)
    label = f"{rows} rows x {tokens} tokens x {used} experts"
    return Case(label, launch, {"dst": expected(found, _WHY)})


def _words(*values: int) -> list[np.uint32]:
    return [np.uint32(value) for value in values]


