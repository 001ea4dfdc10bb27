"""What each tensor of a model is for, by its name, and what all of one role weigh.

Names are those of llama.cpp b11434 (src/llama-arch.cpp, LLM_TENSOR_NAMES).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, get_args

import msgspec

from sparkbuild.model.header import Tensor

Role = Literal[
    "routed experts", "shared expert", "dense feed-forward", "attention", "linear attention",
    "indexer", "hyper-connections", "norms and rest", "embeddings", "head", "NextN block", "other",
]  # fmt: skip
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""As they are listed; ``other`` is what no rule here describes."""

_Rules = tuple[tuple[Role, re.Pattern[str]], ...]

_BLOCK: Final = re.compile(r"^(?:enc\.|dec\.)?blk\.(?P<number>\d+)\.(?P<rest>.+)$", re.DOTALL)
_NEXTN: Final = re.compile(r"^nextn\.")
_PARTS: Final[_Rules] = (
    ("indexer", re.compile(r"indexer[._]")),
    ("hyper-connections", re.compile(r"hc_(?:attn|ffn)_")),
    ("linear attention", re.compile(r"(?:ssm|time_mix)_|shortconv\.")),
    ("norms and rest", re.compile(r"(?:\w+_)?norm(?:_\d|_exps)?(?:\.|$)")),
    ("routed experts", re.compile(r"ffn_(?:gate|up|down|gate_up)_(?:ch)?exps(?:\.|$)")),
    ("routed experts", re.compile(r"ffn_(?:gate|up|down)\.\d+(?:\.|$)")),
    ("shared expert", re.compile(r"ffn_(?:gate|up|down|gate_inp)_shexp(?:\.|$)")),
    ("dense feed-forward", re.compile(r"(?:ffn_(?:gate|up|down)(?:\.|$)|channel_mix_)")),
    ("norms and rest", re.compile(r"(?:ffn_gate_(?:inp|tid2eid)|exp_probs_b|layer_output_scale)")),
    ("norms and rest", re.compile(r"attn_rot_embd|rope_(?:freqs|factors)")),
    ("attention", re.compile(r"(?:cross_)?attn_")),
)
"""Of what follows a block's number; the first that matches."""
_WHOLE: Final[_Rules] = (
    ("hyper-connections", re.compile(r"output_hc_")),
    ("norms and rest", re.compile(r"(?:enc\.|dec\.)?(?:output|token_embd)_norm(?:\.|$)")),
    ("norms and rest", re.compile(r"rope_(?:freqs|factors)")),
    ("embeddings", re.compile(r"(?:per_layer_)?token_embd(?:\.|$)|position_embd|token_types")),
    ("head", re.compile(r"(?:output|cls)(?:\.|$)")),
)
"""Of the whole name of a tensor outside all blocks."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """All tensors of one role, or of a model."""

    role: Role | Literal["all"]
    tensors: int
    weights: int
    bytes: int
    """Of tensors whose type is known."""
    bits: float | None
    """A weight; None where a type is not known, or there is no weight."""
    types: dict[str, int]
    """Tensors by ggml's type name, the type with the most weights first."""


def role_of(name: str, *, nextn: frozenset[int], linear: frozenset[int]) -> Role:
    """What a tensor is for; ``nextn`` and ``linear`` are blocks that draft or carry a state."""
    match = _BLOCK.match(name)
    if match is None:
        if _NEXTN.match(name):
            return "NextN block"
        return _first(_WHOLE, name)
    number = int(match["number"])
    if number in nextn:
        return "NextN block"
    found = _first(_PARTS, match["rest"])
    return "linear attention" if found == "attention" and number in linear else found


def _first(rules: _Rules, name: str) -> Role:
    for role, pattern in rules:
        if pattern.match(name):
            return role
    return "other"


def weigh(role: Role | Literal["all"], tensors: Iterable[Tensor]) -> Weights:
    """Add up tensors."""
    counted: Counter[str] = Counter()
    heavy: Counter[str] = Counter()
    size = 0
    whole = True
    for tensor in tensors:
        counted[tensor.type] += 1
        heavy[tensor.type] += tensor.weights
        size += tensor.bytes or 0
        whole = whole and tensor.bytes is not None
    weights = heavy.total()
    return Weights(
        role=role,
        tensors=counted.total(),
        weights=weights,
        bytes=size,
        bits=8 * size / weights if whole and weights else None,
        types={kind: counted[kind] for kind, _ in heavy.most_common()},
    )


def by_role(
    tensors: Iterable[Tensor], *, nextn: frozenset[int], linear: frozenset[int]
) -> tuple[Weights, ...]:
    """Every role that a model has, in the order of ``ROLES``; each tensor counts once."""
    found: dict[Role, list[Tensor]] = {role: [] for role in ROLES}
    for tensor in tensors:
        found[role_of(tensor.name, nextn=nextn, linear=linear)].append(tensor)
    return tuple(weigh(role, those) for role, those in found.items() if those)
