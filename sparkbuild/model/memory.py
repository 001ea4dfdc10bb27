"""Memory: everything that a server will hold, added up, against what the machine has.

Unified memory has no clean end: a machine that runs out of it hangs. So the sum is made before the
start, and every part of it is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from sparkbuild.model.asked import GIB, Asked
from sparkbuild.model.book import book
from sparkbuild.model.cache import STATE_BYTES, Block, Plan, plan
from sparkbuild.model.read import Model
from sparkbuild.model.types import BY_NAME, row_bytes

Kind = Literal["start", "margin", "growth"]
"""Held from the start, kept free, or taken while it serves."""

RESERVE: Final = 2 * GIB
"""Bytes that stay free for what is not counted: the driver's and CUDA's own memory, staging
buffers. A Spark served GLM-5.3-Flash (UD-Q2_K_XL, 262,144 tokens) with 2 GB left of its 119; below
0.75 GiB a server is to be ended, before the driver's reclaim hangs the machine."""
PAD: Final = 256
"""Contexts are padded to multiples of it (src/llama-context.cpp)."""
_COPIES: Final = 12
"""Embeddings of a token that a graph holds at once, with a feed-forward of twice their length; of
a longer one its gate and its output are held besides."""
_FEED: Final = "feed_forward_length"
_STREAMS: Final = 20
"""The same with hyper-connections, which carry four residual streams."""
_STATES: Final = 3
"""Copies of one block's states that a graph holds at once."""
_QUERIES: Final = 2
"""Queries of a token as long as the latents, with MLA, that a graph holds at once."""
_SNAPSHOTS: Final = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
"""Speculation that a state must be rolled back from (``need_n_rs_seq`` in common/common.h)."""
_PATCHES: Final = 46 * 46
"""Picture tokens that clip's warm-up encodes (``set_warmup_n_tokens``)."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One summand, in bytes, and how it comes about."""

    name: str
    kind: Kind
    bytes: int
    how: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """All summands, and what is not known."""

    context: int
    """Tokens of all slots together, as a server rounds them."""
    parts: tuple[Part, ...]
    doubts: tuple[str, ...]

    @property
    def needed(self) -> int:
        """Bytes that must be there at the start, the margin with them."""
        return sum(part.bytes for part in self.parts if part.kind != "growth")

    @property
    def growth(self) -> int:
        """Bytes that the server may take on top while it serves."""
        return sum(part.bytes for part in self.parts if part.kind == "growth")

    def lines(self) -> tuple[str, ...]:
        """The sum as a table: bytes, name, how."""
        return tuple(f"{part.bytes:>18,}  {part.name}  {part.how}" for part in self.parts)


def budget(model: Model, vision: Model | None, asked: Asked) -> Budget:
    """Add up what a server with these flags holds."""
    asked, cells = _sized(model, asked)
    layout = plan(model)
    parts = [
        *_weights(model, vision, asked),
        *_caches(layout, asked),
        *_drafting(model, layout, asked, cells),
        *_computing(model, vision, layout, asked, cells),
        *_growing(layout, asked),
    ]
    return Budget(
        context=asked.context,
        parts=tuple(part for part in parts if part.bytes),
        doubts=(*layout.doubts, *_uncounted(model)),
    )


def largest_context(model: Model, vision: Model | None, asked: Asked, available: int) -> int:
    """The largest context that fits, in tokens of all slots together; 0 where none does."""
    low, high = 0, max(1, _trained(model) * asked.slots // PAD)
    while low < high:
        middle = (low + high + 1) // 2
        tried = dataclasses.replace(asked, context=middle * PAD)
        if budget(model, vision, tried).needed <= available:
            low = middle
        else:
            high = middle - 1
    return low * PAD


def _trained(model: Model) -> int:
    return max(0, model.number(model.key("context_length")) or 0)


def _sized(model: Model, asked: Asked) -> tuple[Asked, int]:
    """The flags with the context as a server rounds it, and the cells of one slot's cache."""
    whole = _padded(asked.context or _trained(model))
    slots = max(1, asked.slots)
    cells = whole if asked.unified_cache else _padded(whole // slots)
    context = whole if asked.unified_cache else cells * slots
    return dataclasses.replace(asked, context=context, slots=slots), cells


def _padded(tokens: int) -> int:
    return -(-tokens // PAD) * PAD


def _weights(model: Model, vision: Model | None, asked: Asked) -> Iterator[Part]:
    skipped = _skipped(model) if "draft-mtp" not in asked.speculation else ()
    loaded = sum(
        tensor.bytes or 0
        for name, tensor in model.tensors.items()
        if not (skipped and name.startswith(skipped))
    )
    how = "tensors" + (", those of NextN blocks left out" if skipped else "")
    yield Part(name="weights", kind="start", bytes=loaded, how=how)
    if vision is not None:
        size = sum(tensor.bytes or 0 for tensor in vision.tensors.values())
        yield Part(name="mmproj", kind="start", bytes=size, how="tensors")
    if asked.drafter is not None:
        size = sum(tensor.bytes or 0 for tensor in asked.drafter.tensors.values())
        yield Part(name="draft model", kind="start", bytes=size, how="tensors")


def _uncounted(model: Model) -> Iterator[str]:
    strange = [tensor for tensor in model.tensors.values() if tensor.bytes is None]
    if strange:
        yield f"{len(strange)} tensors are of types without a size here, and are not counted"
    if model.missing:
        yield f"{len(model.missing)} shards are missing, and are not counted"


def _skipped(model: Model) -> tuple[str, ...]:
    """Beginnings of the names of tensors that a server which does not draft leaves out."""
    if not book().of(model.architecture).skips_nextn:
        return ()
    return tuple(f"blk.{block.number}." for block in plan(model).nextn)


def _caches(layout: Plan, asked: Asked) -> Iterator[Part]:
    yield from _cache("KV cache", layout.trunk, layout.widest, asked, asked.cache_k, asked.cache_v)
    indexed = [block for block in layout.trunk if block.indexer]
    yield _rows("indexer keys", [block.indexer for block in indexed], asked.cache_k, asked.context)
    state = sum(block.state for block in layout.trunk) * STATE_BYTES
    kept = _kept(asked)
    yield Part(
        name="recurrent state",
        kind="start",
        bytes=state * asked.slots * kept,
        how=f"{sum(1 for b in layout.trunk if b.state)} blocks, {asked.slots} slots, {kept} copies "
        "each (one, and one a drafted token)",
    )


def _kept(asked: Asked) -> int:
    """Copies of a slot's recurrent state."""
    return 1 + (asked.draft_depth if _SNAPSHOTS & set(asked.speculation) else 0)


def _cache(
    name: str, blocks: tuple[Block, ...], widest: int, asked: Asked, kind_k: str, kind_v: str
) -> Iterator[Part]:
    holding = [block for block in blocks if block.keys]
    yield _rows(f"{name}, keys", [block.keys for block in holding], kind_k, asked.context)
    values = [
        block.values if asked.flash_attention else max(block.values, widest) for block in holding
    ]
    yield _rows(f"{name}, values", values, kind_v, asked.context)


def _rows(name: str, widths: list[int], kind: str, tokens: int) -> Part:
    row = sum(row_bytes(BY_NAME[kind], width) for width in widths)
    held = [width for width in widths if width]
    return Part(
        name=name,
        kind="start",
        bytes=row * tokens,
        how=f"{len(held)} blocks, {row:,} bytes a token in {kind}, {tokens:,} tokens",
    )


def _drafting(model: Model, layout: Plan, asked: Asked, cells: int) -> Iterator[Part]:
    """The caches of a second context, for drafts: as long as the first, in types of its own."""
    drafter = asked.drafter
    if drafter is None and "draft-mtp" not in asked.speculation:
        return
    found = layout if drafter is None else plan(drafter)
    blocks = found.nextn if "draft-mtp" in asked.speculation and found.nextn else found.trunk
    yield from _cache(
        "draft's KV cache", blocks, found.widest, asked, asked.draft_cache_k, asked.draft_cache_v
    )
    indexed = [block.indexer for block in blocks if block.indexer and block.keys]
    yield _rows("draft's indexer keys", indexed, asked.draft_cache_k, asked.context)
    yield Part(
        name="draft's compute buffer",
        kind="start",
        bytes=_buffer(drafter or model, asked, cells),
        how="estimated as the model's own",
    )


def _computing(
    model: Model, vision: Model | None, layout: Plan, asked: Asked, cells: int
) -> Iterator[Part]:
    states = max((block.state for block in layout.trunk), default=0) * _kept(asked) * asked.slots
    yield Part(
        name="compute buffer",
        kind="start",
        bytes=_buffer(model, asked, cells) + _STATES * STATE_BYTES * states,
        how=f"estimated for {asked.micro_batch} tokens at once: logits, masks, activations",
    )
    if vision is not None:
        yield Part(
            name="mmproj's compute buffer",
            kind="start",
            bytes=_picture_buffer(vision),
            how="estimated for the largest picture",
        )
    yield Part(name="reserve", kind="margin", bytes=RESERVE, how="for the driver and the system")


def _buffer(model: Model, asked: Asked, cells: int) -> int:
    """Bytes of a graph's buffer, fitted to what b11434 reserves on a CPU for ten small models.

    For each token of a micro-batch: logits, activations, and a row of the mask for every cell of
    its slot's cache; without flash attention the scores of every head as well.
    """

    def number(name: str) -> int:
        return max(0, model.number(model.key(name)) or 0)

    heads = max(model.numbers(model.key("attention.head_count")) or (), default=0)
    heads = heads or number("attention.head_count")
    latent = number("attention.kv_lora_rank")
    indexed = number("attention.indexer.key_length") > 0
    fast = asked.flash_attention
    copies = _STREAMS if number("hyper_connection.count") else _COPIES
    embedding = number("embedding_length")
    feed = max(0, number(_FEED), *(model.numbers(model.key(_FEED)) or ()))
    numbers = model.length("tokenizer.ggml.tokens") + copies * embedding
    numbers += 2 * max(0, feed - 2 * embedding)
    numbers += _QUERIES * heads * number("attention.key_length") if latent else 0
    pair = 2 if fast else 4 + 4 * heads
    pair += (2 if fast else 8) if indexed else 0  # the selection's own masks
    taken = 4 * latent if indexed or (latent and not fast) else 0  # latents are taken out
    return asked.micro_batch * (4 * numbers + pair * cells) + taken * cells


def _picture_buffer(vision: Model) -> int:
    def number(name: str, default: int) -> int:
        value = vision.number(f"clip.vision.{name}")
        return value if value and value > 0 else default

    merged = number("spatial_merge_size", 1) ** 2
    patches = number("image_max_pixels", 0) // number("patch_size", 14) ** 2
    return max(patches, _PATCHES * merged) * number("embedding_length", 0) * 4 * _COPIES


def _growing(layout: Plan, asked: Asked) -> Iterator[Part]:
    state = sum(block.state for block in layout.trunk) * STATE_BYTES
    yield Part(
        name="context checkpoints",
        kind="growth",
        bytes=state * asked.checkpoints * asked.slots,
        how=f"up to {asked.checkpoints} a slot of {state:,} bytes (--ctx-checkpoints)",
    )
    yield Part(
        name="prompt cache",
        kind="growth",
        bytes=max(0, asked.prompt_cache),
        how="up to --cache-ram" if asked.prompt_cache >= 0 else "no limit was set",
    )
