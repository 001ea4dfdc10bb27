"""Llama: a plain dense transformer, for the simplest faults."""

from __future__ import annotations

import math
from typing import Any, Final

from torch import Tensor, nn

from sparkbuild.canary.train.nets.base import Net, Trunk
from sparkbuild.canary.train.nets.layers import Feed, RmsNorm, linear
from sparkbuild.canary.train.nets.rope import (
    Angles,
    angles,
    attend,
    from_zero,
    heads,
    rotate,
)

_WIDTH: Final = 256
_INNER: Final = 512
_LAYERS: Final = 3
_HEADS: Final = 4
_KV_HEADS: Final = 2
_HEAD: Final = 64
_EPS: Final = 1e-5
_BASE: Final = 10000.0
"""Llama's own epsilon and RoPE base."""
_GAIN: Final = 0.35
"""What a block adds to the stream at the start: near one over the root of twice the layers."""


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_norm = RmsNorm(_WIDTH, _EPS)
        self.q_proj = linear(_WIDTH, _HEADS * _HEAD)
        self.k_proj = linear(_WIDTH, _KV_HEADS * _HEAD)
        self.v_proj = linear(_WIDTH, _KV_HEADS * _HEAD)
        self.o_proj = linear(_HEADS * _HEAD, _WIDTH, gain=_GAIN)
        self.feed_norm = RmsNorm(_WIDTH, _EPS)
        self.feed = Feed(_WIDTH, _INNER, limit=math.inf, gain=_GAIN)

    def forward(self, x: Tensor, turn: Angles) -> Tensor:
        seen = self.input_norm(x)
        q, k = (rotate(heads(p(seen), _HEAD), turn) for p in (self.q_proj, self.k_proj))
        x = x + self.o_proj(attend(q, k, heads(self.v_proj(seen), _HEAD)))
        out: Tensor = x + self.feed(self.feed_norm(x))
        return out

    def named(self, prefix: str) -> dict[str, Tensor]:
        projections = ("q_proj", "k_proj", "v_proj", "o_proj")
        return {
            f"{prefix}.input_layernorm.weight": self.input_norm.weight,
            f"{prefix}.post_attention_layernorm.weight": self.feed_norm.weight,
            **{f"{prefix}.self_attn.{n}.weight": getattr(self, n).weight for n in projections},
            **self.feed.named(f"{prefix}.mlp"),
        }


class Llama(Net):
    """The architecture ``llama`` at width 256, three layers."""

    width = _WIDTH
    drafts = False
    axes = 1

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.token_embedding = nn.Embedding(vocab, _WIDTH)
        self.layers = nn.ModuleList(_Layer() for _ in range(_LAYERS))
        self.norm = RmsNorm(_WIDTH, _EPS)
        self.output = linear(_WIDTH, vocab)

    def embed(self, tokens: Tensor) -> Tensor:
        """[batch, tokens] int64 to [batch, tokens, width]."""
        out: Tensor = self.token_embedding(tokens)
        return out

    def forward(
        self,
        embedded: Tensor,
        positions: Tensor | None = None,
        *,
        real: Tensor | None = None,
    ) -> Trunk:
        """Causal pass; ``positions`` [batch, tokens], counted from zero where None."""
        del real  # there are no losses
        positions = from_zero(embedded, self.axes) if positions is None else positions
        turn = angles(positions, _HEAD, _BASE)
        for layer in self.layers:
            embedded = layer(embedded, turn)
        return Trunk(self.norm(embedded))

    def head(self, hidden: Tensor) -> Tensor:
        """[…, width] to logits […, vocabulary]."""
        out: Tensor = self.output(hidden)
        return out

    def config(self) -> dict[str, Any]:
        """``config.json`` as the pinned converter reads it."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": _WIDTH,
            "intermediate_size": _INNER,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _KV_HEADS,
            "head_dim": _HEAD,
            "rms_norm_eps": _EPS,
            "max_position_embeddings": 8192,
            "rope_theta": _BASE,
            "rope_parameters": {"rope_type": "default", "rope_theta": _BASE},
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        }

    def tensors(self) -> dict[str, Tensor]:
        """``model.safetensors`` as the pinned converter reads it."""
        found = {
            "model.embed_tokens.weight": self.token_embedding.weight,
            "model.norm.weight": self.norm.weight,
            "lm_head.weight": self.output.weight,
        }
        for at, layer in enumerate(self.layers):
            assert isinstance(layer, _Layer)  # noqa: S101 - tells mypy what the list holds
            found |= layer.named(f"model.layers.{at}")
        return {name: weight.detach() for name, weight in found.items()}
