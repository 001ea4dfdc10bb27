"""Routing to experts, and the weighted sum of what they gave.

topk-moe.cu, moe-weighted-reduction.cu, argsort.cu.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.activations import sigmoid, softplus
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import Enum, template_entry
from sparkbuild.qualify.probes.launching import (
    NULL,
    floats,
    generator,
    ints,
    longs,
    output,
    powers,
    read,
    rough,
    short,
    untouched,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "moe"
_WHY = (
    "sigmoid, soft-max or softplus as ex2.approx (2 ulp), lg2.approx and div.approx make them; a "
    "warp's sum of the chosen; a reciprocal and two products; logits are far enough apart that "
    "none of it changes which experts are chosen"
)
_WHY_SUM = "products of f16's bits are exact and sums rounded in order; else one rounding for each"
_WHY_ORDER = "no two values are equal: one order"


@dataclass(frozen=True, slots=True)
class Routing:
    """How experts are chosen: ``topk_moe_config`` and what goes with it."""

    gate: str
    """``sigmoid``, ``softmax``, ``softplus``, or ``delayed``: soft-max over the chosen only."""
    used: int
    biased: bool = False
    normed: bool = False
    scale: float = 1.0
    clamp: float = 0.0
    spread: float = 4.0
    """How far logits go either way ..."""
    middle: float = 0.0
    """... from here."""


def routed(
    logits: NDArray[Any], bias: NDArray[Any] | None, how: Routing
) -> tuple[Bounded, NDArray[np.int32]]:
    """Weights and experts, both (rows, used), the best first; logits: (rows, experts).

    Raises:
        ValueError: two experts are so near that roundings could exchange them.

    """
    scores = exactly(logits)
    match how.gate:
        case "sigmoid":
            scores = sigmoid(scores)
        case "softplus":
            scores = bounded.sqrt(softplus(scores))
        case "softmax":
            scores = _soft_max(scores)
    chosen = scores if bias is None else scores + bias
    order = np.argsort(-chosen.value, axis=-1, kind="stable")
    best = chosen.map(lambda v: np.take_along_axis(v, order, -1))[:, : how.used + 1]
    apart = best.value[:, :-1] - best.value[:, 1:]
    if not (apart > best.error[:, :-1] + best.error[:, 1:]).all():
        raise ValueError("experts are too near each other")
    order = order[:, : how.used]
    weights = scores.map(lambda v: np.take_along_axis(v, order, -1))
    if how.normed:
        lanes = (order % 32)[..., None] == np.arange(32)  # each lane adds up its own experts
        spread = bounded.where(lanes, weights.spread(), 0.0)
        total = spread.map(lambda v: np.moveaxis(v, 1, -1)).summed().warp_sum()
        weights *= bounded.reciprocal(bounded.largest(total, how.clamp)).spread()
    if how.gate == "delayed":
        weights = _soft_max(weights)
    return weights * np.float32(how.scale), order.astype(np.int32)


def _soft_max(x: Bounded) -> Bounded:
    """Of rows that one warp holds."""
    top = Bounded(x.value.max(-1, keepdims=True), x.error.max(-1, keepdims=True))
    terms = bounded.exp(x - top)
    return terms * bounded.reciprocal(terms.block_sum(32)).spread()


def _routing(seed: int, *, entry: str, experts: int, hows: tuple[Routing, ...]) -> tuple[Case, ...]:
    rng, rows, cases = generator(seed, entry), 9, []
    for how in hows:
        steps = how.spread * (
            np.linspace(-1, 1, experts) + rng.uniform(-1, 1, (rows, experts)) / 2 / experts
        )
        logits = (rng.permuted(steps, axis=1) + how.middle).astype(np.float32)
        bias = rng.permuted(np.linspace(-0.3, 0.3, experts)).astype(np.float32)
        weights, chosen = routed(logits, bias if how.biased else None, how)
        ids = np.full((rows, experts), untouched(np.int32), np.int32)
        ids[:, : how.used] = chosen
        flags = (how.gate == "sigmoid", how.gate == "softplus", how.normed, how.gate == "delayed")
        launch = Launch(
            entry=entry,
            grid=(2, 1, 1),
            block=(32, 8, 1),
            arguments=(
                read("logits", logits),
                output("weights", rows, how.used),
                output("ids", rows, experts, dtype=np.int32),
                read("bias", bias) if how.biased else NULL,
                *ints(rows, how.used),
                *floats(how.clamp, how.scale),
                struct.pack("<4?", *flags),
            ),
        )
        right = {
            "weights": expected(weights, _WHY),
            "ids": expected(exactly(ids), _WHY, np.int32),
        }
        label = f"{how.gate}, {how.used} of {experts}"
        cases.append(Case(label=label, launch=launch, expected=right))
    return tuple(cases)


def _weighted(seed: int, *, entry: str) -> tuple[Case, ...]:
    rng, tokens, used, columns = generator(seed, entry), 3, 13, 300
    cases = []
    for label, make, scaling in (
        ("exact products", short, None),
        ("exact products, scaled", short, powers),
        ("scaled", rough, rough),
    ):
        experts, weights = make(rng, tokens, used, columns), make(rng, tokens, used)
        scale = scaling(rng, tokens, used) if scaling else None
        terms = exactly(experts)
        terms = terms if scale is None else terms * scale[..., None]
        found = (terms * weights[..., None]).map(lambda v: np.moveaxis(v, 1, -1)).summed()
        launch = Launch(
            entry=entry,
            grid=(tokens, 2, 1),
            block=(256, 1, 1),
            arguments=(
                read("experts", experts),
                NULL if scale is None else read("scale", scale),
                read("weights", weights),
                output("dst", tokens, columns),
                *longs(columns),
                *ints(used),
            ),
        )
        right = {"dst": expected(found, _WHY_SUM)}
        cases.append(Case(label=label, launch=launch, expected=right))
    return tuple(cases)


def _sorted(seed: int, *, entry: str, down: bool) -> tuple[Case, ...]:
    """Rows that need padding, and one that is wider than a block."""
    rng, cases = generator(seed, entry), []
    for rows, columns in ((3, 100), (1, 1100)):
        padded = 1 << (columns - 1).bit_length()
        x = np.stack([rng.permutation(columns) for _ in range(rows)]).astype(np.float32) - 50
        order = np.argsort(-x if down else x, axis=-1)
        launch = Launch(
            entry=entry,
            grid=(rows, 1, 1),
            block=(min(padded, 1024), 1, 1),
            arguments=(
                read("x", x),
                output("dst", rows, columns, dtype=np.int32),
                *ints(columns, padded),
            ),
            shared=4 * padded,
        )
        right = {"dst": expected(exactly(order), _WHY_ORDER, np.int32)}
        cases.append(Case(label=f"{rows} of {columns}", launch=launch, expected=right))
    return tuple(cases)


_GLM = Routing("sigmoid", 8, biased=True, normed=True, scale=2.5, clamp=6.1e-5)
_ROUTINGS = (
    (
        288,
        (
            _GLM,
            Routing("softmax", 40, biased=True),
            Routing("softplus", 3, biased=True, scale=1.5),
            Routing("delayed", 6, biased=True, spread=400.0),
        ),
    ),
    (
        32,
        (
            Routing("softmax", 4, normed=True, middle=90.0),
            Routing("delayed", 6, scale=0.5, spread=400.0),
        ),
    ),
    (8, (Routing("softplus", 2), Routing("sigmoid", 3, normed=True, clamp=9.0))),
)


def probes() -> tuple[Probe, ...]:
    """Of GLM-5.3-Flash's routing and the usual others, the sum, and the sort under top-k."""

    def probe(
        name: str, function: str, entry: str, cases: Callable[..., tuple[Case, ...]]
    ) -> Probe:
        return Probe(
            name=name,
            unit=UNIT,
            entry=entry,
            kind="moe",
            functions=(function,),
            cases=partial(cases, entry=entry),
        )

    made = []
    for experts, hows in _ROUTINGS:
        entry = template_entry("topk_moe_cuda", experts, any(how.biased for how in hows))
        cases = partial(_routing, experts=experts, hows=hows)
        made.append(probe(f"topk_moe {experts} experts", "topk_moe_cuda", entry, cases))
    sums = template_entry("moe_weighted_reduction_f32")
    made.append(probe("moe_weighted_reduction", "moe_weighted_reduction_f32", sums, _weighted))
    for name, value in (("ascending", 0), ("descending", 1)):
        entry = template_entry("k_argsort_f32_i32", Enum("ggml_sort_order", value))
        order = partial(_sorted, down=bool(value))
        made.append(probe(f"k_argsort_f32_i32 {name}", "k_argsort_f32_i32", entry, order))
    return tuple(made)
