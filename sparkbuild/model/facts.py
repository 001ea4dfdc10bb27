"""What a model is, as its headers tell it: no judgement, and nothing that a file does not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from sparkbuild.model.book import book
from sparkbuild.model.cache import Block, Plan, plan
from sparkbuild.model.checks.build import projector_of
from sparkbuild.model.checks.subject import block_of
from sparkbuild.model.checks.vision import width_of
from sparkbuild.model.read import Model
from sparkbuild.model.roles import Weights, by_role, role_of, weigh

_ENDS: Final = ("eos", "eot", "eom")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file: its whole path and its size in bytes."""

    path: str
    bytes: int


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks by kind; ``nextn`` aside, each counts once as a mixer and once as a feed-forward."""

    total: int
    """``block_count``, NextN blocks with them."""
    nextn: int
    attention: int
    """Those that keep keys of every token."""
    latent: bool
    """Whether these keys are latents (MLA)."""
    sparse: int
    """Of those that attend: with an indexer of their own."""
    recurrent: int
    """Linear attention: those that carry a state instead."""
    dense: int
    experts: int
    """Feed-forwards: those of one part, and those with routed experts; by tensors."""


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """Experts of a block: how many there are, how many a token uses, how many all tokens share."""

    count: int
    used: int
    shared: int


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token with a task: its number and its text, None for the one that the file lacks."""

    task: str
    number: int | None
    text: str | None


class Vision(msgspec.Struct, frozen=True, kw_only=True):
    """A vision tower."""

    files: tuple[File, ...]
    projector: str
    width: int | None
    """Numbers of a picture's vector; None where it is not known where they stand."""
    blocks: int
    least: int | None
    most: int | None
    """Tokens that a picture becomes; None where the file does not bound its pixels."""
    around: tuple[Token, ...]
    """Tokens that go around a picture, where it is known which ones the projector asks for."""
    total: Weights


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A model. Texts are the file's own, so they may hold anything."""

    architecture: str
    name: str
    files: tuple[File, ...]
    missing: tuple[str, ...]
    """Shards that are not there."""
    blocks: Blocks
    experts: Experts | None
    context: int
    """Tokens that it was trained for."""
    vocabulary: int
    tokenizer: str
    pre: str
    """How text is cut before it is tokenised (``tokenizer.ggml.pre``)."""
    ends: tuple[Token, ...]
    """Those that the file names as ends."""
    template: int | None
    """Characters of the chat template; None where there is none."""
    total: Weights
    roles: tuple[Weights, ...]
    vision: Vision | None


def facts(model: Model, vision: Model | None = None) -> Facts:
    """What a model is, with its mmproj if there is one; what is not stated is empty or 0."""
    layout = plan(model)
    nextn, linear = _nextn(model, layout), frozenset(b.number for b in layout.trunk if b.state)
    tokens = model.texts("tokenizer.ggml.tokens") or ()
    template = model.text("tokenizer.chat_template")
    return Facts(
        architecture=model.architecture,
        name=model.text("general.name") or "",
        files=files_of(model),
        missing=tuple(str(path) for path in model.missing),
        blocks=_blocks(model, layout, nextn),
        experts=_experts(model),
        context=_number(model, model.key("context_length")),
        vocabulary=len(tokens),
        tokenizer=model.text("tokenizer.ggml.model") or "",
        pre=model.text("tokenizer.ggml.pre") or "",
        ends=tuple(_ends(model, tokens)),
        template=None if template is None else len(template),
        total=weigh("all", model.tensors.values()),
        roles=by_role(model.tensors.values(), nextn=nextn, linear=linear),
        vision=None if vision is None else vision_facts(vision, tokens),
    )


def files_of(model: Model) -> tuple[File, ...]:
    """Every shard that is there."""
    return tuple(File(path=str(shard.path), bytes=shard.size) for shard in model.shards)


def _number(model: Model, key: str) -> int:
    """An integer, or the largest of an array of them; 0 where there is none."""
    return max(model.number(key) or 0, *(model.numbers(key) or ()), 0)


def _nextn(model: Model, layout: Plan) -> frozenset[int]:
    """Blocks that are announced as NextN's, and those that hold their tensors."""
    held = {block_of(tensor) for tensor in model.tensors.values() if ".nextn." in tensor.name}
    announced = {block.number for block in layout.nextn}
    return frozenset(announced | {number for number in held if number is not None})


def _blocks(model: Model, layout: Plan, nextn: frozenset[int]) -> Blocks:
    trunk: list[Block] = [block for block in layout.trunk if block.number not in nextn]
    attending = [block for block in trunk if block.keys]
    fed: dict[str, set[int]] = {"dense feed-forward": set(), "routed experts": set()}
    for tensor in model.tensors.values():
        number = block_of(tensor)
        role = role_of(tensor.name, nextn=nextn, linear=frozenset())
        if number is not None and role in fed:
            fed[role].add(number)
    experts = fed["routed experts"]
    return Blocks(
        total=_number(model, model.key("block_count")),
        nextn=len(nextn),
        attention=len(attending),
        latent=any(not block.values for block in attending),
        sparse=sum(1 for block in attending if block.indexer),
        recurrent=sum(1 for block in trunk if block.state),
        dense=len(fed["dense feed-forward"] - experts),
        experts=len(experts),
    )


def _experts(model: Model) -> Experts | None:
    count, used, shared = (
        _number(model, model.key(f"expert_{name}"))
        for name in ("count", "used_count", "shared_count")
    )
    return Experts(count=count, used=used, shared=shared) if count else None


def _ends(model: Model, tokens: tuple[str, ...]) -> Iterator[Token]:
    for name in _ENDS:
        number = model.number(f"tokenizer.ggml.{name}_token_id")
        if number is not None:
            text = tokens[number] if 0 <= number < len(tokens) else None
            yield Token(task=name, number=number, text=text)


def vision_facts(vision: Model, tokens: tuple[str, ...]) -> Vision:
    """What an mmproj is; ``tokens`` are those of the model that it goes with."""
    name = projector_of(vision)
    known = book().projects(name)
    least, most = (_picture(vision, bound) for bound in ("min", "max"))
    return Vision(
        files=files_of(vision),
        projector=name,
        width=width_of(vision, name)[1],
        blocks=_number(vision, "clip.vision.block_count"),
        least=least,
        most=most,
        around=tuple(
            Token(
                task="around a picture",
                number=tokens.index(text) if text in tokens else None,
                text=text,
            )
            for text in (known.tokens if known else ())
        ),
        total=weigh("all", vision.tensors.values()),
    )


def _picture(vision: Model, bound: str) -> int | None:
    """Tokens of the smallest or largest picture: pixels by those that one token stands for."""
    pixels = vision.number(f"clip.vision.image_{bound}_pixels")
    side = _number(vision, "clip.vision.patch_size")
    side *= _number(vision, "clip.vision.spatial_merge_size") or 1
    return pixels // side**2 if pixels and pixels > 0 and side else None
