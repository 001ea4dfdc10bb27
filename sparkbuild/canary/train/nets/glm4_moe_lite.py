"""GLM-4.7-Flash: latent attention with one-axis RoPE, experts, one NextN block.

llama.cpp knows it as ``deepseek2``. It takes pictures, which ``glm4moe`` with one-axis positions
refuses, so it is the canary for drafts after pictures without M-RoPE.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn

from sparkbuild.canary.train.nets.base import Net, Trunk
from sparkbuild.canary.train.nets.layers import Experts, Feed, RmsNorm, linear
from sparkbuild.canary.train.nets.rope import (
    Angles,
    DraftInput,
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
_RANK: Final = 256
_LATENT: Final = 512
_ROTATED: Final = 64
"""Latent and rotated width are the released model's: its kernels exist for 576 by 512 only."""
_PLAIN: Final = 64
_VALUE: Final = 64
_EXPERTS: Final = 4
_CHOSEN: Final = 2
_EXPERT_INNER: Final = 256
_SCALE: Final = 1.8
"""GLM-4.7-Flash's routed scaling factor."""
_EPS: Final = 1e-2
"""Far from where it stops to matter: a build that loses 1e-6 or the released model's 1e-5 gives the
same numbers."""
_LOUD: Final = 64.0
"""How much larger latents are than what is trained, a power of two.

llama.cpp has one epsilon for every norm, transformers 1e-6 for the latents' whatever the
configuration says. Before a norm a factor does not matter; of values this large neither does which
of the two epsilons is added (1e-6 of the result)."""
_BASE: Final = 10000.0
"""GLM-4.7-Flash's own is a million, for long contexts; these are short."""
_GAIN: Final = 0.35
"""What a block adds to the stream at the start: near one over the root of twice the layers."""


class _Attention(nn.Module):
    """Queries and a latent of keys and values through low ranks; one rotated key for all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q_a_proj = linear(_WIDTH, _RANK)
        self.q_a_layernorm = RmsNorm(_RANK, _EPS)
        self.q_b_proj = linear(_RANK, _HEADS * (_PLAIN + _ROTATED))
        self.kv_a_proj_with_mqa = linear(_WIDTH, _LATENT + _ROTATED)
        self.kv_a_layernorm = RmsNorm(_LATENT, _EPS)
        self.kv_b_proj = linear(_LATENT, _HEADS * (_PLAIN + _VALUE))
        self.o_proj = linear(_HEADS * _VALUE, _WIDTH, gain=_GAIN)

    def forward(self, x: Tensor, turn: Angles) -> Tensor:
        rank = self.q_a_layernorm(_LOUD * self.q_a_proj(x))
        q = heads(self.q_b_proj(rank), _PLAIN + _ROTATED)
        q = torch.cat([q[..., :_PLAIN], rotate(_halves(q[..., _PLAIN:]), turn)], -1)
        latent, key = torch.split(self.kv_a_proj_with_mqa(x), [_LATENT, _ROTATED], -1)
        kv = heads(self.kv_b_proj(self.kv_a_layernorm(_LOUD * latent)), _PLAIN + _VALUE)
        key = rotate(_halves(key.unsqueeze(1)), turn).expand(-1, _HEADS, -1, -1)
        k = torch.cat([kv[..., :_PLAIN], key], -1)
        out: Tensor = self.o_proj(attend(q, k, kv[..., _PLAIN:]))
        return out

    def named(self, prefix: str) -> dict[str, Tensor]:
        found = {f"{prefix}.{name}": weight for name, weight in self.named_parameters()}
        latent, key = torch.split(self.kv_a_proj_with_mqa.weight, [_LATENT, _ROTATED])
        return found | {
            f"{prefix}.q_a_proj.weight": _LOUD * self.q_a_proj.weight,
            f"{prefix}.kv_a_proj_with_mqa.weight": torch.cat([_LOUD * latent, key]),
        }


def _halves(x: Tensor) -> Tensor:
    """Pairs that lie side by side, taken apart: what is rotated together is half a width away."""
    return torch.cat([x[..., 0::2], x[..., 1::2]], -1)


class _Layer(nn.Module):
    def __init__(self, *, dense: bool) -> None:
        super().__init__()
        self.input_norm = RmsNorm(_WIDTH, _EPS)
        self.attention = _Attention()
        self.feed_norm = RmsNorm(_WIDTH, _EPS)
        self.feed: Feed | Experts = (
            Feed(_WIDTH, _INNER, limit=math.inf, gain=_GAIN)
            if dense
            else Experts(
                _WIDTH,
                _EXPERT_INNER,
                experts=_EXPERTS,
                active=_CHOSEN,
                scale=_SCALE,
                limit=math.inf,
                gain=_GAIN / _SCALE,
            )
        )

    def forward(self, x: Tensor, turn: Angles, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x = x + self.attention(self.input_norm(x), turn)
        seen, feed = self.feed_norm(x), self.feed
        fed, margin = (
            feed(seen, real) if isinstance(feed, Experts) else (feed(seen), x.new_zeros(()))
        )
        return x + fed, margin

    def named(self, prefix: str) -> dict[str, Tensor]:
        return {
            f"{prefix}.input_layernorm.weight": self.input_norm.weight,
            f"{prefix}.post_attention_layernorm.weight": self.feed_norm.weight,
            **self.attention.named(f"{prefix}.self_attn"),
            **self.feed.named(f"{prefix}.mlp"),
        }


class Glm4MoeLite(Net):
    """The architecture ``deepseek2`` at width 256: one dense layer, two with experts, NextN."""

    width = _WIDTH
    drafts = True
    axes = 1

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.token_embedding = nn.Embedding(vocab, _WIDTH)
        self.layers = nn.ModuleList(_Layer(dense=at == 0) for at in range(_LAYERS))
        self.norm = RmsNorm(_WIDTH, _EPS)
        self.output = linear(_WIDTH, vocab)
        self.draft_input = DraftInput(_WIDTH, _EPS)
        self.draft_layer = _Layer(dense=False)
        self.draft_norm = RmsNorm(_WIDTH, _EPS)

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
        """Causal pass; ``positions`` [batch, tokens], counted from zero where None.

        ``losses``: ``margin``, the sum of the layers' with experts.
        """
        turn = self._angles(embedded, positions)
        margin = embedded.new_zeros(())
        for layer in self.layers:
            embedded, more = layer(embedded, turn, real)
            margin = margin + more
        return Trunk(self.norm(embedded), {"margin": margin})

    def head(self, hidden: Tensor) -> Tensor:
        """[…, width] to logits […, vocabulary]."""
        out: Tensor = self.output(hidden)
        return out

    def draft(
        self,
        hidden: Tensor,
        embedded: Tensor,
        positions: Tensor | None = None,
        *,
        real: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See Net; ``positions`` are those of the embedded tokens, as in llama-server."""
        joined = self.draft_input(hidden, embedded)
        turn = self._angles(embedded, positions)
        mixed, margin = self.draft_layer(joined, turn, real)
        return self.draft_norm(mixed), {"margin": margin}

    def _angles(self, embedded: Tensor, positions: Tensor | None) -> Angles:
        positions = from_zero(embedded, self.axes) if positions is None else positions
        return angles(positions, _ROTATED, _BASE)

    def config(self) -> dict[str, Any]:
        """``config.json`` as the pinned converter reads it."""
        rope = {"rope_type": "default", "rope_theta": _BASE}
        return {
            "architectures": ["Glm4MoeLiteForCausalLM"],
            "model_type": "glm4_moe_lite",
            "vocab_size": self.vocab,
            "hidden_size": _WIDTH,
            "intermediate_size": _INNER,
            "moe_intermediate_size": _EXPERT_INNER,
            "num_hidden_layers": _LAYERS,
            "num_nextn_predict_layers": 1,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _HEADS,
            "q_lora_rank": _RANK,
            "kv_lora_rank": _LATENT,
            "qk_rope_head_dim": _ROTATED,
            "qk_nope_head_dim": _PLAIN,
            "v_head_dim": _VALUE,
            "rope_interleave": True,
            "attention_bias": False,
            "scoring_func": "sigmoid",
            "n_routed_experts": _EXPERTS,
            "num_experts_per_tok": _CHOSEN,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": _SCALE,
            "first_k_dense_replace": 1,
            "mlp_layer_types": ["dense"] + ["sparse"] * (_LAYERS - 1),
            "rms_norm_eps": _EPS,
            "max_position_embeddings": 8192,
            "rope_parameters": rope,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        }

    def tensors(self) -> dict[str, Tensor]:
        """``model.safetensors`` as the pinned converter reads it."""
        nextn = f"model.layers.{_LAYERS}"
        found = {
            "model.embed_tokens.weight": self.token_embedding.weight,
            "model.norm.weight": self.norm.weight,
            "lm_head.weight": self.output.weight,
            f"{nextn}.eh_proj.weight": self.draft_input.join.weight,
            f"{nextn}.enorm.weight": self.draft_input.embedding_norm.weight,
            f"{nextn}.hnorm.weight": self.draft_input.hidden_norm.weight,
            f"{nextn}.shared_head.norm.weight": self.draft_norm.weight,
            **self.draft_layer.named(nextn),
        }
        for at, layer in enumerate(self.layers):
            assert isinstance(layer, _Layer)  # noqa: S101 - tells mypy what the list holds
            found |= layer.named(f"model.layers.{at}")
        return {name: weight.detach() for name, weight in found.items()}
