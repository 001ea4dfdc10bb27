"""Operations on small arrays: their inputs, how ggml's CPU side is asked, and the probes' rule.

``record.py`` keeps what the CPU side gave; ``test_probes_other_rules.py`` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import activations, bounded, hyper, indexer, linear, norms, softmax
from sparkbuild.qualify.probes.bounded import Bounded, exactly
from sparkbuild.qualify.probes.delta_net import Inputs as Gated
from sparkbuild.qualify.probes.delta_net import step
from sparkbuild.qualify.probes.rope import Rotation, rotated

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]
Tensor: TypeAlias = int


class Side(Protocol):
    """ggml's CPU side: tensors are addresses."""

    def tensor(self, array: Array) -> Tensor:
        """A tensor with these contents, numpy's axes reversed."""
        ...

    def call(self, name: str, *arguments: Any) -> Tensor:
        """``ggml_<name>`` with the context before these: tensors, int, float, None."""
        ...

    def sinks(self, name: str, tensor: Tensor, sinks: Tensor) -> None:
        """``ggml_<name>`` of two tensors."""
        ...


@dataclass(frozen=True, kw_only=True)
class Operation:
    make: Callable[[np.random.Generator], Arrays]
    ask: Callable[[Side, Mapping[str, Tensor]], Tensor]
    rule: Callable[[Arrays], Bounded]
    near: float = 2e-6
    """How far both may be apart: the CPU side rounds as well. Relative to the largest value."""


def values(
    *shape: int, dtype: Any = np.float32, scale: float = 2.0
) -> Callable[[np.random.Generator], Array]:
    return lambda rng: (rng.standard_normal(shape) * scale).astype(dtype)


def positive(*shape: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.random(shape).astype(np.float32)


def holes(*shape: int) -> Callable[[np.random.Generator], Array]:
    """A mask in f16 with minus infinity here and there, never in a row's first column."""

    def make(rng: np.random.Generator) -> Array:
        mask = np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape))
        mask[..., 0] = 0.5
        return mask.astype(np.float16)

    return make


def makes(
    **parts: Callable[[np.random.Generator], Array],
) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: {name: make(rng) for name, make in parts.items()}


def soft_max(sinks: bool, bias: float) -> Operation:
    def ask(side: Side, a: Mapping[str, Tensor]) -> Tensor:
        found = side.call("soft_max_ext", a["x"], a["mask"], 0.3, bias)
        if sinks:
            side.sinks("soft_max_add_sinks", found, a["sinks"])
        return found

    def rule(a: Arrays) -> Bounded:
        given = softmax.Inputs(a["x"], 0.3, a["mask"], a["sinks"] if sinks else None, bias)
        return softmax.soft_max(given, 32)

    make = makes(x=values(2, 3, 2, 37), mask=holes(2, 1, 2, 37), sinks=values(3))
    return Operation(make=make, ask=ask, rule=rule)


def norm(name: str, rule: Callable[[Array], Bounded], *more: float) -> Operation:
    return Operation(
        make=makes(x=values(2, 3, 70)),
        ask=lambda side, a: side.call(name, a["x"], *more),
        rule=lambda a: rule(a["x"]),
    )


def group_norm() -> Operation:
    return Operation(
        make=makes(x=values(1, 4, 3, 10)),
        ask=lambda side, a: side.call("group_norm", a["x"], 2, 1e-5),
        rule=lambda a: norms.group_norm(a["x"].ravel(), 60).map(lambda v: v.reshape(1, 4, 3, 10)),
    )


def unary(name: str, number: int, near: float = 2e-6) -> Operation:
    rule = {**activations.UNARY, "silu": activations.silu}[name]
    return Operation(
        make=makes(x=values(200, scale=4.0)),
        ask=lambda side, a: side.call("unary", a["x"], number),
        rule=lambda a: rule(exactly(a["x"])),
        near=near,
    )


def gated(
    name: str, rule: Callable[[Bounded, Bounded], Bounded], *more: float, near: float = 2e-6
) -> Operation:
    return Operation(
        make=makes(x=values(3, 40, scale=4.0), g=values(3, 40, scale=4.0)),
        ask=lambda side, a: side.call(name, a["x"], a["g"], *more),
        rule=lambda a: rule(exactly(a["x"]), exactly(a["g"])),
        near=near,
    )


MODES = {"norm": 0, "neox": 2, "multi": 8, "vision": 24, "interleaved": 40}


def rope(
    layout: str,
    dims: int,
    *,
    sections: tuple[int, int, int, int] = (0, 0, 0, 0),
    factors: bool = False,
    yarn: bool = False,
) -> Operation:
    scale, extra, growth = (0.25, 0.75, 1.1) if yarn else (1.0, 0.0, 1.0)
    many = layout in {"multi", "vision", "interleaved"}

    def make(rng: np.random.Generator) -> Arrays:
        return {
            "x": rng.standard_normal((1, 4, 3, 40)).astype(np.float32),
            "positions": rng.integers(0, 60, (4 if many else 1) * 4).astype(np.int32),
            "factors": rng.uniform(1, 3, 20).astype(np.float32),
        }

    def ask(side: Side, a: Mapping[str, Tensor]) -> Tensor:
        extended = (100, 10000.0, scale, extra, growth, *BETAS)
        given = (a["x"], a["positions"], a["factors"] if factors else None, dims)
        if many:
            return side.call("rope_multi", *given, list(sections), MODES[layout], *extended)
        return side.call("rope_ext", *given, MODES[layout], *extended)

    def rule(a: Arrays) -> Bounded:
        how = Rotation(
            positions=a["positions"].reshape(-1, 4),
            dims=dims,
            freq_scale=scale,
            extrapolation=extra,
            magnitude=growth,
            corrections=CORRECTIONS[dims],
            factors=a["factors"][: dims // 2] if factors else None,
            sections=sections,
        )
        return rotated(a["x"], how, layout)

    return Operation(make=make, ask=ask, rule=rule, near=1e-5)


BETAS = (8.0, 0.5)
CORRECTIONS = {24: (0.0, 5.0), 32: (1.0, 7.0), 40: (1.0, 8.0), 20: (0.0, 0.0)}
"""What ``ggml_rope_yarn_corr_dims`` gives, by ``dims``: 100 positions, base 10000, ``BETAS``."""


def delta(gates: int) -> Operation:
    """Two snapshots; the output is attention, then states, the last one first."""
    size, tokens = 16, 3
    names = ("q", "k", "v", "gate", "beta", "state")

    def make(rng: np.random.Generator) -> Arrays:
        short, long = (2, tokens, 1, size), (2, tokens, 2, size)
        return {
            "q": values(*short, scale=0.3)(rng),
            "k": values(*short, scale=0.3)(rng),
            "v": values(*long)(rng),
            "gate": -np.abs(values(2, tokens, 2, gates)(rng)),
            "beta": positive(2, tokens, 2, 1)(rng),
            "state": values(2, 2, size, size)(rng),
        }

    def rule(a: Arrays) -> Bounded:
        given = Gated(**{**{name: a[name] for name in names}, "beta": a["beta"][..., 0]})
        seen: list[Bounded] = []
        kept: list[Bounded] = []
        state = exactly(given.state)
        for token in range(tokens):
            found, state = step(given, state, token, size)
            seen.append(found)
            kept.insert(0, state)
        value = np.stack([one.value for one in seen], 1), np.stack([o.value for o in kept[:2]])
        error = np.stack([one.error for one in seen], 1), np.stack([o.error for o in kept[:2]])
        return Bounded(*(np.concatenate([x.ravel(), y.ravel()]) for x, y in (value, error)))

    return Operation(
        make=make,
        ask=lambda side, a: side.call("gated_delta_net", *(a[name] for name in names), 2),
        rule=rule,
    )


def mixing(a: Arrays) -> Bounded:
    logits = exactly(a["mixes"][:, 8:]) * a["scale"][2] + a["base"][8:]
    return hyper.mixing(logits.map(lambda v: v.reshape(-1, 4, 4)))


def simple(
    name: str,
    rule: Callable[[Arrays], Bounded],
    *more: float | bool,
    near: float = 2e-6,
    **parts: Callable[[np.random.Generator], Array],
) -> Operation:
    """An operation whose parameters are its tensors in their order, and numbers."""
    return Operation(
        make=makes(**parts),
        ask=lambda side, a: side.call(name, *(a[part] for part in parts), *more),
        rule=rule,
        near=near,
    )


def triangle(rng: np.random.Generator) -> Array:
    a = np.tril(rng.standard_normal((2, 20, 20)) * 0.3) + np.eye(20) * 1.5
    return np.asarray(a, np.float32)


def indexed(a: Arrays) -> Bounded:
    kernel = indexer.Kernel("vec", 4, 3, "f32")
    mask = a["mask"][:, 0]
    return indexer.scores(kernel, a["q"], a["k"][:, :, 0], a["w"][:, 0], mask)


OPERATIONS: dict[str, Operation] = {
    "soft_max, slopes": soft_max(sinks=False, bias=8.0),
    "soft_max, sinks": soft_max(sinks=True, bias=0.0),
    "norm": norm("norm", lambda x: norms.layer_norm(x, 32), 1e-5),
    "rms_norm": norm("rms_norm", lambda x: norms.rms_norm(x, 32), 1e-5),
    "l2_norm": norm("l2_norm", lambda x: norms.l2_norm(x, 15.0, 32), 15.0),
    "group_norm": group_norm(),
    "sum_rows": norm("sum_rows", lambda x: norms.row_sum(x.reshape(6, -1), 32)),
    "silu": unary("silu", 10),
    "sigmoid": unary("sigmoid", 7),
    "softplus": unary("softplus", 15),
    "exp": unary("exp", 13),
    "expm1": unary("expm1", 14),
    "gelu": unary("gelu", 8, near=1e-3),  # a table of f16
    "gelu_erf": unary("gelu_erf", 16),
    "tanh": unary("tanh", 4),
    "sgn": unary("sgn", 1),
    "round": unary("round", 20),
    "hardswish": unary("hardswish", 11),
    "swiglu": gated("swiglu_split", lambda x, g: activations.silu(x) * g),
    "geglu": gated("geglu_split", lambda x, g: activations.gelu(x) * g, near=1e-3),
    "reglu": gated("reglu_split", lambda x, g: bounded.largest(x, 0.0) * g),
    "swiglu_oai": gated("swiglu_oai", activations.oai, 1.702, 2.75),
    "swiglu_clamp": gated("swiglu_clamp", activations.clamped, 2.75),
    "rope norm": rope("norm", 24),
    "rope norm, yarn": rope("norm", 32, factors=True, yarn=True),
    "rope neox, yarn": rope("neox", 40, yarn=True),
    "rope neox": rope("neox", 24, factors=True),
    "rope multi": rope("multi", 32, sections=(4, 3, 2, 1)),
    "rope interleaved": rope("interleaved", 40, sections=(8, 6, 6, 0), yarn=True),
    "rope vision": rope("vision", 20, sections=(10, 10, 0, 0)),
    "gated_delta_net, a gate for each element": delta(16),
    "gated_delta_net, a gate for each head": delta(1),
    "dsv4_hc_comb": simple(
        "dsv4_hc_comb", mixing, 1e-6, 20, mixes=values(5, 24), scale=values(3), base=values(24)
    ),
    "dsv4_hc_pre": simple(
        "dsv4_hc_pre",
        lambda a: hyper.gathered(a["x"], a["w"], 1.0),
        x=values(3, 4, 20),
        w=values(3, 4),
    ),
    "dsv4_hc_pre_gated": simple(
        "dsv4_hc_pre_gated",
        lambda a: hyper.gathered(a["x"], a["w"], 0.25, gated=True),
        0.25,
        x=values(3, 4, 20),
        w=values(3, 4, 20),
    ),
    "dsv4_hc_post": simple(
        "dsv4_hc_post",
        lambda a: hyper.scattered(a["x"], a["residual"], a["post"], a["matrix"]),
        x=values(3, 20),
        residual=values(3, 4, 20),
        post=values(3, 4),
        matrix=values(3, 4, 4),
    ),
    "lightning_indexer": simple(
        "lightning_indexer",
        indexed,
        q=values(2, 3, 4, 128),
        k=values(2, 5, 1, 128),
        w=values(2, 1, 3, 4),
        mask=holes(1, 1, 3, 5),
    ),
    "ssm_conv": simple(
        "ssm_conv",
        lambda a: linear.convolved(a["x"], a["weight"], None),
        x=values(2, 10, 3 + 7),
        weight=values(10, 4),
    ),
    "cumsum": simple(
        "cumsum", lambda a: exactly(linear.running_sums(a["x"], 32)), x=values(2, 150)
    ),
    "tri lower": simple("tri", lambda a: exactly(np.tril(a["x"])), 2, x=values(2, 9, 9)),
    "tri upper": simple("tri", lambda a: exactly(np.triu(a["x"])), 0, x=values(2, 9, 9)),
    "solve_tri": simple(
        "solve_tri",
        lambda a: linear.solved(a["a"], a["b"]),
        True,
        True,
        False,
        near=1e-5,
        a=triangle,
        b=values(2, 20, 3),
    ),
}
