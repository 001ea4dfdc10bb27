"""What models ask of a back end: types by what tensors are for, attention heads, architectures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparkbuild.model.header import Tensor
from sparkbuild.model.read import Model
from sparkbuild.smoke.ops.suite import Role

_EXPERTS: Final = re.compile(r"ffn_(?:gate|up|down|gate_up)_(?:ch)?exps\.weight$")
_EMBEDDINGS: Final = re.compile(r"(?:^|\.)(?:per_layer_)?(?:token_embd|embed_tokens)\.weight$")
_HEAD: Final = re.compile(r"^output\.weight$")
_ADDED: Final = re.compile(
    r"conv1d|shortconv|kpool_ape|rope_(?:freqs|factors)|position_embd|token_types|patch_embd"
)
"""Tensors of two axes or more that no matrix multiplication reads: convolutions, and what is added
or looked up."""
_MATRIX_AXES: Final = 2


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one or several models ask for; ``heads`` are lengths of a key and of a value."""

    architectures: frozenset[str]
    types: Mapping[Role, frozenset[str]]
    heads: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    def of(self, role: Role) -> tuple[str, ...]:
        """The types in a role, by name."""
        return tuple(sorted(self.types.get(role, ())))


def need_of(model: Model, *, also: Mapping[str, Iterable[str]] | None = None) -> Need:
    """What a model asks for, by its headers.

    ``also`` has further types of single tensors, by name: those that other forms of it have.
    """
    types: dict[Role, set[str]] = {"matrices": set(), "experts": set(), "embeddings": set()}
    more = also or {}
    for tensor in model.tensors.values():
        for role in roles_of(tensor):
            types[role] |= {tensor.type, *more.get(tensor.name, ())}
    if not any(_HEAD.search(name) for name in model.tensors):  # the head is the embedding again
        types["matrices"] |= types["embeddings"]
    return Need(
        architectures=frozenset({model.architecture}),
        types={role: frozenset(found) for role, found in types.items()},
        heads=frozenset(_heads(model)),
    )


def together(needs: Iterable[Need], *, cache: Iterable[str]) -> Need:
    """What all of them ask for, with a cache of these types."""
    types: dict[Role, frozenset[str]] = {"cache": frozenset(cache)}
    architectures: frozenset[str] = frozenset()
    heads: frozenset[tuple[int, int]] = frozenset()
    for one in needs:
        architectures |= one.architectures
        heads |= one.heads
        for role, found in one.types.items():
            types[role] = types.get(role, frozenset()) | found
    return Need(architectures=architectures, types=types, heads=heads)


def roles_of(tensor: Tensor) -> Iterator[Role]:
    """What is done with a tensor, as far as its type decides which kernel does it."""
    name = tensor.name
    if _EMBEDDINGS.search(name):
        yield "embeddings"
    elif _EXPERTS.search(name):
        yield "experts"
    elif _is_matrix(tensor):
        yield "matrices"


def _is_matrix(tensor: Tensor) -> bool:
    axes = sum(length > 1 for length in tensor.shape)
    return (
        tensor.name.endswith(".weight") and axes >= _MATRIX_AXES and not _ADDED.search(tensor.name)
    )


def _heads(model: Model) -> Iterator[tuple[int, int]]:
    if model.architecture == "clip":
        width, count = (
            model.number(f"clip.vision.{name}") or 0
            for name in ("embedding_length", "attention.head_count")
        )
        if width and count:
            yield width // count, width // count
        return
    counts = model.numbers(model.key("attention.head_count")) or (
        model.number(model.key("attention.head_count")) or 0,
    )
    width, most = model.number(model.key("embedding_length")) or 0, max(counts, default=0)
    usual = width // most if most else 0
    key = model.number(model.key("attention.key_length")) or usual
    value = model.number(model.key("attention.value_length")) or usual
    if key and value:
        yield key, value
