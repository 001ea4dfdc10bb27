"""GLM-5.3-Flash's architecture, tiny: KDA, sparse latent attention, hyper-connections, MoE, NextN.

Dimensions make CUDA take the kernels of the full model: latent 512, 8 heads, KDA heads of 128,
indexer keys of 128, every row of a quantised matrix divisible by 256.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sparkbuild.canary.train.nets.base import Net, Trunk
from sparkbuild.canary.train.nets.dsa import Dsa, Sparse
from sparkbuild.canary.train.nets.glm5_config import text_config
from sparkbuild.canary.train.nets.kda import Kda
from sparkbuild.canary.train.nets.layers import Experts, Feed, RmsNorm, linear
from sparkbuild.canary.train.nets.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Dimensions. Epsilons, clamp and Sinkhorn steps are far from where they stop to matter.

    So that a build that ignores one of them gives other numbers: the usual values (1e-5, 1e-6,
    10.0, 20) change nothing measurable when they are lost.
    """

    vocabulary: int
    layers: str = "KKDKDKDKD"
    """K: linear attention, D: sparse attention; the first layer's feed-forward block is dense."""
    width: int = 256
    heads: int = 8
    head: int = 32
    linear_head: int = 128
    latent: int = 512
    rank: int = 256
    inner: int = 512
    expert: int = 256
    experts: int = 4
    active: int = 2
    scale: float = 2.5
    limit: float = 2.0
    taps: int = 4
    bound: float = -5.0
    streams: int = 4
    sinkhorn: int = 4
    eps: float = 1e-2
    stream_eps: float = 1e-2
    context: int = 16384
    sparse: Sparse = field(default_factory=Sparse)
    dense: float = 0.4
    """Part of the training in which attention sees everything."""
    alone: float = 0.25
    """Part of the rows in which, while training, only one sparse attention is heard."""
    short: float = 0.25
    """Part of the rows in which linear attention forgets at once what is a few tokens back."""
    together: float = 0.75
    """Part of the training after which all is heard and remembered in every row."""
    ends: tuple[int, ...] = ()
    """Ids of the tokens that end an answer."""
    pad: int = 0

    @property
    def gain(self) -> float:
        """Of the projections that add to the residual streams."""
        return float((2 * len(self.layers)) ** -0.5)


def _dsa(shape: Shape) -> Dsa:
    return Dsa(
        shape.width,
        heads=shape.heads,
        head=shape.head,
        latent=shape.latent,
        rank=shape.rank,
        sparse=shape.sparse,
        eps=shape.eps,
        gain=shape.gain,
    )


def _experts(shape: Shape) -> Experts:
    return Experts(
        shape.width,
        shape.expert,
        experts=shape.experts,
        active=shape.active,
        scale=shape.scale,
        limit=shape.limit,
        gain=shape.gain / shape.scale,
    )


class Layer(nn.Module):
    """Attention and feed-forward, each between hyper-connections."""

    def __init__(self, shape: Shape, kind: str, *, dense: bool) -> None:
        super().__init__()
        self.attention_norm = RmsNorm(shape.width, shape.eps)
        self.feed_norm = RmsNorm(shape.width, shape.eps)
        self.attention_streams, self.feed_streams = Streams(shape), Streams(shape)
        self.attention: Kda | Dsa = (
            _dsa(shape)
            if kind == "D"
            else Kda(
                shape.width,
                heads=shape.heads,
                head=shape.linear_head,
                taps=shape.taps,
                bound=shape.bound,
                eps=shape.eps,
                gain=shape.gain,
            )
        )
        self.feed: Feed | Experts = (
            Feed(shape.width, shape.inner, limit=shape.limit, gain=shape.gain)
            if dense
            else _experts(shape)
        )

    def forward(
        self, streams: Tensor, real: Tensor | None = None, trial: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The streams after both blocks, the index loss and the margin loss, of ``real`` places.

        ``trial`` [batch] names the rows in which sparse attention is heard, or linear attention
        forgets; None where all is heard and remembered.
        """
        none = streams.new_zeros(())
        post, comb, x = self.attention_streams(streams)
        x = self.attention_norm(x)
        attention, feed = self.attention, self.feed
        if isinstance(attention, Dsa):
            found, index = attention(x, real)
            found = found if trial is None else found * trial.view(-1, 1, 1)
        else:
            found, index = attention(x, trial), none
        streams = Streams.joined(streams, post, comb, found)
        post, comb, x = self.feed_streams(streams)
        x = self.feed_norm(x)
        fed, margin = feed(x, real) if isinstance(feed, Experts) else (feed(x), none)
        streams = Streams.joined(streams, post, comb, fed)
        return streams, index, margin

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the original checkpoint's names."""
        return {
            f"{prefix}.input_layernorm.weight": self.attention_norm.weight,
            f"{prefix}.post_attention_layernorm.weight": self.feed_norm.weight,
            **self.attention_streams.named(f"{prefix}.hc_attn"),
            **self.feed_streams.named(f"{prefix}.hc_ffn"),
            **self.attention.named(f"{prefix}.self_attn"),
            **self.feed.named(f"{prefix}.mlp"),
        }


class NextN(nn.Module):
    """The draft block: plain residuals, sparse attention of its own, experts, its own last norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, eps = shape.width, shape.eps
        self.embedding_norm, self.hidden_norm = RmsNorm(width, eps), RmsNorm(width, eps)
        self.join = linear(2 * width, width)
        self.attention_norm, self.feed_norm = RmsNorm(width, eps), RmsNorm(width, eps)
        self.attention, self.feed = _dsa(shape), _experts(shape)
        self.last_norm = RmsNorm(width, eps)

    def forward(
        self, hidden: Tensor, embedded: Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden at t and the embedding of token t + 1 to the draft's hidden; two losses."""
        x = self.join(torch.cat([self.embedding_norm(embedded), self.hidden_norm(hidden)], -1))
        found, index = self.attention(self.attention_norm(x), real)
        x = x + found
        fed, margin = self.feed(self.feed_norm(x), real)
        return self.last_norm(x + fed), index, margin

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the original checkpoint's names."""
        return {
            f"{prefix}.enorm.weight": self.embedding_norm.weight,
            f"{prefix}.hnorm.weight": self.hidden_norm.weight,
            f"{prefix}.eh_proj.weight": self.join.weight,
            f"{prefix}.shared_head.norm.weight": self.last_norm.weight,
            f"{prefix}.input_layernorm.weight": self.attention_norm.weight,
            f"{prefix}.post_attention_layernorm.weight": self.feed_norm.weight,
            **self.attention.named(f"{prefix}.self_attn"),
            **self.feed.named(f"{prefix}.mlp"),
        }


class Glm5Next(Net):
    """The language model."""

    drafts = True
    axes = 0

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.width = shape, shape.width
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(
            Layer(shape, kind, dense=index == 0) for index, kind in enumerate(shape.layers)
        )
        self.norm = RmsNorm(shape.width, shape.eps)
        self.output = linear(shape.width, shape.vocabulary)
        self.nextn = NextN(shape)
        self._dense = False
        self.register_buffer("trials", torch.ones(()), persistent=False)
        self.trials: Tensor
        """One while rows are trained without some of the net, then zero."""

    def phase(self, progress: float) -> None:
        """See Net; attention is dense in the first part, and whole in every row in the last."""
        self.trials.fill_(float(progress < self.shape.together))
        dense = progress < self.shape.dense
        if dense != self._dense:
            self._dense = dense
            for module in self.modules():
                if isinstance(module, Dsa):
                    module.dense.fill_(dense)

    def embed(self, tokens: Tensor) -> Tensor:
        """See Net."""
        found: Tensor = self.embedding(tokens)
        return found

    def forward(
        self,
        embedded: Tensor,
        positions: Tensor | None = None,
        *,
        real: Tensor | None = None,
    ) -> Trunk:
        """See Net; there are no positions."""
        del positions
        streams = embedded.unsqueeze(2).repeat(1, 1, self.shape.streams, 1)
        index = margin = embedded.new_zeros(())
        trials = self._trials(len(embedded)) if self.training else [None] * len(self.layers)
        for trial, layer in zip(trials, self.layers, strict=True):
            streams, more_index, more_margin = layer(streams, real, trial)
            index, margin = index + more_index, margin + more_margin
        return Trunk(self.norm(streams.mean(2)), {"index": index, "margin": margin})

    def _trials(self, rows: int) -> list[Tensor]:
        """For each layer [rows]: where sparse attention is heard, linear attention forgets.

        What several can do one of them learns, and the others nothing that a wrong kernel would
        change. Linear attention learned to copy and to find before sparse attention did: without
        this, a sparse attention at nine tenths of its size moved log-probabilities by one in a
        hundred thousand.
        """
        device = self.trials.device
        count = self.shape.layers.count("D")
        single = torch.rand(rows, device=device) < self.shape.alone * self.trials
        short = torch.rand(rows, device=device) < self.shape.short * self.trials
        chosen = torch.rand(count, rows, device=device).argmax(0)
        heard = (~single | (chosen == at) for at in range(count))
        return [next(heard) if kind == "D" else short for kind in self.shape.layers]

    def head(self, hidden: Tensor) -> Tensor:
        """See Net."""
        logits: Tensor = self.output(hidden)
        return logits

    def draft(
        self,
        hidden: Tensor,
        embedded: Tensor,
        positions: Tensor | None = None,
        *,
        real: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See Net."""
        del positions
        found, index, margin = self.nextn(hidden, embedded, real)
        return found, {"index": index, "margin": margin}

    def tensors(self) -> dict[str, Tensor]:
        """See Net."""
        start = "model.language_model"
        result = {
            "lm_head.weight": self.output.weight,
            f"{start}.embed_tokens.weight": self.embedding.weight,
            f"{start}.norm.weight": self.norm.weight,
        }
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)  # noqa: S101 - tells mypy what the list holds
            result |= layer.named(f"{start}.layers.{index}")
        return result | self.nextn.named(f"{start}.layers.{len(self.layers)}")

    def config(self) -> dict[str, Any]:
        """See Net; ``text_config`` of the whole."""
        return text_config(self.shape)
