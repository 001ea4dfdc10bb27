"""What each block keeps of the tokens before: a cache that grows with the context, or a state.

The rules are those of llama.cpp b11434 (src/llama-model.cpp, llama_model::create_memory, and
src/llama-kv-cache.cpp, src/llama-memory-recurrent.cpp, src/llama-hparams.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparkbuild.model.book import Architecture, book
from sparkbuild.model.finding import named
from sparkbuild.model.read import Model

STATE_BYTES: Final = 4
"""Recurrent states are float32 whatever the cache's type."""
_UNKNOWN: Final = ("deepseek4", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7", "mamba", "mamba2", "lfm2",
                   "lfm2moe", "minimax-01")  # fmt: skip
"""Architectures whose memory has a form of its own that no rule here describes."""
_MOST_BLOCKS: Final = 512


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block's memory: numbers that a token's row holds, and numbers of a slot's state."""

    number: int
    keys: int = 0
    values: int = 0
    """0 where keys are latents (MLA), from which values are computed."""
    indexer: int = 0
    state: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every block's memory; ``nextn`` are the blocks that only a draft context has."""

    trunk: tuple[Block, ...]
    nextn: tuple[Block, ...]
    widest: int
    """The widest values of any block, which all have where flash attention is off."""
    doubts: tuple[str, ...]
    """What is not known, or counted too high."""


def plan(model: Model) -> Plan:
    """The memory of every block. Missing keys count as 0: another check names them."""
    known = book().of(model.architecture)
    count = min(_number(model, "block_count"), _MOST_BLOCKS)
    trunk = max(0, count - _number(model, "nextn_predict_layers"))
    heads = _each(model, "attention.head_count", count)
    kv_heads = _each(model, "attention.head_count_kv", count, heads)
    recurrent = _recurrent(model, known, kv_heads, trunk)
    blocks = [
        _block(model, known, number, kv_heads[number], recurrent[number]) for number in range(count)
    ]
    latent = _latent(model)
    width = _length(model, "value_length")
    return Plan(
        trunk=tuple(blocks[:trunk]),
        nextn=tuple(blocks[trunk:]),
        widest=0 if latent else width * max(kv_heads, default=0),
        doubts=tuple(_doubts(model)),
    )


def _block(model: Model, known: Architecture, number: int, kv_heads: int, recurrent: bool) -> Block:
    if recurrent:
        return Block(number=number, state=_state(model))
    return Block(
        number=number,
        keys=_length(model, "key_length") * kv_heads,
        values=0 if _latent(model) else _length(model, "value_length") * kv_heads,
        indexer=_indexer(model, known, number),
    )


def _number(model: Model, name: str) -> int:
    return max(0, model.number(model.key(name)) or 0)


def _each(model: Model, name: str, count: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """A value for every block: an array, a number for all, or a default."""
    array = model.numbers(model.key(name))
    if array is not None:
        known = tuple(max(0, value) for value in array[:count])
        return known + (0,) * (count - len(known))
    number = model.number(model.key(name))
    if number is None:
        return default or (0,) * count
    return (max(0, number),) * count


def _length(model: Model, name: str) -> int:
    """``attention.key_length`` or ``value_length``; an embedding's share of a head by default."""
    stated = model.number(model.key(f"attention.{name}"))
    if stated is not None:
        return max(0, stated)
    heads = next(iter(_each(model, "attention.head_count", 1)), 0)
    return _number(model, "embedding_length") // heads if heads > 0 else 0


def _latent(model: Model) -> bool:
    names = ("key_length_mla", "value_length_mla")
    return all(_number(model, f"attention.{name}") for name in names)


def _recurrent(
    model: Model, known: Architecture, kv_heads: tuple[int, ...], trunk: int
) -> tuple[bool, ...]:
    """Which blocks carry a state; the general rule is that such a block has no KV heads."""
    count = len(kv_heads)
    stated = model.numbers(model.key("attention.recurrent_layers"))
    if stated is not None and len(stated) == count:
        return tuple(bool(value) for value in stated)
    if known.recurrent == "interval":
        every = _number(model, "full_attention_interval") or known.interval
        return tuple(number < trunk and (number + 1) % every != 0 for number in range(count))
    if _state(model):
        return tuple(heads == 0 for heads in kv_heads)
    return (False,) * count


def _state(model: Model) -> int:
    """Numbers of a block's state for a slot: convolution windows, and the state itself."""
    window = max(0, _number(model, "ssm.conv_kernel") - 1)
    head = _number(model, "kda.head_dim")
    if head:
        heads = next(iter(_each(model, "attention.head_count", 1)), 0)
        return 3 * window * heads * head + head * head * heads
    inner, state = _number(model, "ssm.inner_size"), _number(model, "ssm.state_size")
    groups = _number(model, "ssm.group_count")
    return window * (inner + 2 * groups * state) + state * inner


def _indexer(model: Model, known: Architecture, number: int) -> int:
    types = model.numbers(model.key("attention.indexer.types"))
    if types is not None and number < len(types) and not types[number]:
        return 0  # it takes the choice of the block before
    return _number(model, "attention.indexer.key_length") * known.indexer_rows


def _doubts(model: Model) -> list[str]:
    name = named(model.architecture)
    doubts = []
    if name in _UNKNOWN:
        doubts.append(f"the memory of {name} has a form of its own, which is not known here")
    elif book().known(name) is None:
        doubts.append(f"{name} was not compared with a server's log: the general rules were used")
    if _number(model, "attention.sliding_window"):
        doubts.append("blocks with a sliding window are counted with the whole context: too much")
    return doubts
