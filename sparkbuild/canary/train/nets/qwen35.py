"""Qwen3.5: gated delta net layers, full attention every fourth, M-RoPE and an MTP block."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn

from sparkbuild.canary.train.nets.base import Net, Trunk
from sparkbuild.canary.train.nets.delta import chunk_delta
from sparkbuild.canary.train.nets.layers import Feed, RmsNorm, linear
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
_FULL: Final = (False, False, False, True)
"""Every fourth layer has full attention."""
_HEADS: Final = 4
_KV_HEADS: Final = 2
_HEAD: Final = 64
_ROTATED: Final = 32
_SECTIONS: Final = (6, 5, 5)
"""Frequencies of time, height and width."""
_KEY_HEADS: Final = 2
_VALUE_HEADS: Final = 4
_LINEAR_HEAD: Final = 128
"""As in the released models: the kernels are made for a few sizes, this is the one they take."""
_CONV: Final = 4
_EPS: Final = 1e-6
_BASE: Final = 10000.0
"""Epsilon is Qwen3.5's own. Its RoPE base of ten million is for long contexts; these are short."""
_GAIN: Final = 0.35
"""What a block adds to the stream at the start: near one over the root of twice the layers."""


class _LinearAttention(nn.Module):
    """Gated delta net: key heads are shared by neighbouring value heads, the decay is per head."""

    def __init__(self) -> None:
        super().__init__()
        keys, values = _KEY_HEADS * _LINEAR_HEAD, _VALUE_HEADS * _LINEAR_HEAD
        self.sizes = [keys, keys, values]
        self.in_proj_qkv = linear(_WIDTH, sum(self.sizes))
        self.in_proj_z = linear(_WIDTH, values)
        self.in_proj_b = linear(_WIDTH, _VALUE_HEADS)
        self.in_proj_a = linear(_WIDTH, _VALUE_HEADS)
        self.conv = nn.Parameter(torch.randn(sum(self.sizes), 1, _CONV) * _CONV**-0.5)
        # Half-lives from about three to about a hundred tokens, one per head.
        self.log_decay = nn.Parameter(torch.linspace(-1.5, -5.0, _VALUE_HEADS))
        self.decay_bias = nn.Parameter(torch.ones(_VALUE_HEADS))
        self.norm = RmsNorm(_LINEAR_HEAD, _EPS)
        self.out_proj = linear(values, _WIDTH, gain=_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        mixed = F.pad(self.in_proj_qkv(x).transpose(1, 2), (_CONV - 1, 0))
        mixed = F.silu(F.conv1d(mixed, self.conv, groups=mixed.shape[1])).transpose(1, 2)
        q, k, v = (_by_head(part) for part in torch.split(mixed, self.sizes, -1))
        q, k = (part.repeat_interleave(_VALUE_HEADS // _KEY_HEADS, 2) for part in (q, k))
        decay = -self.log_decay.exp() * F.softplus(self.in_proj_a(x) + self.decay_bias)
        read = chunk_delta(q, k, v, decay, self.in_proj_b(x).sigmoid())
        gate = F.silu(_by_head(self.in_proj_z(x)))
        out: Tensor = self.out_proj((self.norm(read) * gate).flatten(2))
        return out

    def named(self, prefix: str) -> dict[str, Tensor]:
        names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "norm", "out_proj")
        return {f"{prefix}.{name}.weight": getattr(self, name).weight for name in names} | {
            f"{prefix}.conv1d.weight": self.conv,
            f"{prefix}.A_log": self.log_decay,
            f"{prefix}.dt_bias": self.decay_bias,
        }


def _by_head(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:2], -1, _LINEAR_HEAD)


class _FullAttention(nn.Module):
    """Attention with normalised heads and a sigmoid gate that shares the query's projection."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = linear(_WIDTH, 2 * _HEADS * _HEAD)
        self.k_proj = linear(_WIDTH, _KV_HEADS * _HEAD)
        self.v_proj = linear(_WIDTH, _KV_HEADS * _HEAD)
        self.o_proj = linear(_HEADS * _HEAD, _WIDTH, gain=_GAIN)
        self.q_norm = RmsNorm(_HEAD, _EPS)
        self.k_norm = RmsNorm(_HEAD, _EPS)

    def forward(self, x: Tensor, turn: Angles) -> Tensor:
        q, gate = heads(self.q_proj(x), 2 * _HEAD).chunk(2, -1)
        q = rotate(self.q_norm(q), turn)
        k = rotate(self.k_norm(heads(self.k_proj(x), _HEAD)), turn)
        read = attend(q, k, heads(self.v_proj(x), _HEAD))
        out: Tensor = self.o_proj(read * gate.transpose(1, 2).flatten(2).sigmoid())
        return out

    def named(self, prefix: str) -> dict[str, Tensor]:
        return {f"{prefix}.{name}": weight for name, weight in self.named_parameters()}


class _Layer(nn.Module):
    def __init__(self, *, full: bool) -> None:
        super().__init__()
        self.input_norm = RmsNorm(_WIDTH, _EPS)
        self.mixer: _LinearAttention | _FullAttention = (
            _FullAttention() if full else _LinearAttention()
        )
        self.feed_norm = RmsNorm(_WIDTH, _EPS)
        self.feed = Feed(_WIDTH, _INNER, limit=math.inf, gain=_GAIN)

    def forward(self, x: Tensor, turn: Angles) -> Tensor:
        seen, mixer = self.input_norm(x), self.mixer
        x = x + (mixer(seen) if isinstance(mixer, _LinearAttention) else mixer(seen, turn))
        out: Tensor = x + self.feed(self.feed_norm(x))
        return out

    def named(self, prefix: str) -> dict[str, Tensor]:
        kind = "linear_attn" if isinstance(self.mixer, _LinearAttention) else "self_attn"
        return {
            f"{prefix}.input_layernorm.weight": self.input_norm.weight,
            f"{prefix}.post_attention_layernorm.weight": self.feed_norm.weight,
            **self.mixer.named(f"{prefix}.{kind}"),
            **self.feed.named(f"{prefix}.mlp"),
        }


class Qwen35(Net):
    """The architecture ``qwen35`` at width 256: three linear layers, one full, one MTP block."""

    width = _WIDTH
    drafts = True
    axes = 3

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.token_embedding = nn.Embedding(vocab, _WIDTH)
        self.layers = nn.ModuleList(_Layer(full=full) for full in _FULL)
        self.norm = RmsNorm(_WIDTH, _EPS)
        self.output = linear(_WIDTH, vocab)
        self.draft_input = DraftInput(_WIDTH, _EPS)
        self.draft_layer = _Layer(full=True)
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
        """Causal pass; ``positions`` [3, batch, tokens], counted from zero where None."""
        del real  # there are no losses
        turn = self._angles(embedded, positions)
        for layer in self.layers:
            embedded = layer(embedded, turn)
        return Trunk(self.norm(embedded))

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
        del real
        joined = self.draft_input(hidden, embedded)
        mixed = self.draft_layer(joined, self._angles(embedded, positions))
        return self.draft_norm(mixed), {}

    def _angles(self, embedded: Tensor, positions: Tensor | None) -> Angles:
        positions = from_zero(embedded, self.axes) if positions is None else positions
        return angles(positions, _ROTATED, _BASE, _SECTIONS)

    def config(self) -> dict[str, Any]:
        """``config.json`` as the pinned converter reads it."""
        rope = {
            "rope_type": "default",
            "rope_theta": _BASE,
            "partial_rotary_factor": _ROTATED / _HEAD,
            "mrope_section": list(_SECTIONS),
            "mrope_interleaved": True,
        }
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "vocab_size": self.vocab,
            "hidden_size": _WIDTH,
            "intermediate_size": _INNER,
            "num_hidden_layers": len(_FULL),
            "mtp_num_hidden_layers": 1,
            "layer_types": ["full_attention" if full else "linear_attention" for full in _FULL],
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _KV_HEADS,
            "head_dim": _HEAD,
            "linear_num_key_heads": _KEY_HEADS,
            "linear_num_value_heads": _VALUE_HEADS,
            "linear_key_head_dim": _LINEAR_HEAD,
            "linear_value_head_dim": _LINEAR_HEAD,
            "linear_conv_kernel_dim": _CONV,
            "full_attention_interval": len(_FULL),
            "rms_norm_eps": _EPS,
            "max_position_embeddings": 8192,
            "rope_parameters": rope,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        }

    def tensors(self) -> dict[str, Tensor]:
        """``model.safetensors`` as the pinned converter reads it."""
        found = {
            "model.embed_tokens.weight": self.token_embedding.weight,
            "model.norm.weight": self.norm.weight,
            "lm_head.weight": self.output.weight,
            "mtp.fc.weight": self.draft_input.join.weight,
            "mtp.pre_fc_norm_embedding.weight": self.draft_input.embedding_norm.weight,
            "mtp.pre_fc_norm_hidden.weight": self.draft_input.hidden_norm.weight,
            "mtp.norm.weight": self.draft_norm.weight,
            **self.draft_layer.named("mtp.layers.0"),
        }
        for at, layer in enumerate(self.layers):
            assert isinstance(layer, _Layer)  # noqa: S101 - tells mypy what the list holds
            found |= layer.named(f"model.layers.{at}")
        return {name: _stored(name, weight.detach()) for name, weight in found.items()}


def _stored(name: str, weight: Tensor) -> Tensor:
    """Qwen3.5 keeps the weights of its norms as their distance from one, but for the gated norm."""
    centred = "norm" in name and not name.endswith("linear_attn.norm.weight")
    return weight - 1 if centred else weight
