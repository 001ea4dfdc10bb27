"""Latent attention behind an indexer that selects pools of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn

from sparkbuild.canary.train.nets.layers import RmsNorm, linear, mean_of, parted


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """Dimensions of the indexer: ``keep`` tokens are taken, in pools of ``pool``."""

    heads: int = 4
    head: int = 128
    pool: int = 4
    keep: int = 64


class Indexer(nn.Module):
    """Scores of complete pools; it learns from where the attention itself looks."""

    def __init__(self, width: int, rank: int, sparse: Sparse) -> None:
        super().__init__()
        self.sparse = sparse
        self.query = linear(rank, sparse.heads * sparse.head)
        self.key = linear(width, sparse.head)
        self.key_norm = nn.LayerNorm(sparse.head, eps=1e-6)  # fixed by the converter
        self.weights = linear(width, sparse.heads)
        self.ape = nn.Parameter(torch.randn(sparse.pool, sparse.head) * 0.5)
        self.compress = nn.Parameter(torch.randn(sparse.head, width) * width**-0.5)

    def forward(self, x: Tensor, rank: Tensor) -> Tensor:
        """[batch, tokens, pools], without any mask; ``rank`` is the queries' low-rank form."""
        sparse = self.sparse
        pools = x.shape[1] // sparse.pool
        whole = slice(0, pools * sparse.pool)
        keys = self.key_norm(self.key(x))[:, whole]
        gates = F.linear(x, self.compress)[:, whole]
        keys, gates = (y.reshape(len(x), pools, sparse.pool, -1) for y in (keys, gates))
        keys = ((gates + self.ape).softmax(2) * keys).sum(2)
        queries = parted(self.query(rank), sparse.heads, sparse.head).transpose(1, 2)
        scores = F.relu(queries @ keys.unsqueeze(1).transpose(-1, -2) * sparse.head**-0.5)
        weights = self.weights(x).transpose(1, 2).unsqueeze(-1) * sparse.heads**-0.5
        total: Tensor = (scores * weights).sum(1)
        return total

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the original checkpoint's names."""
        return {
            f"{prefix}.wq_b.weight": self.query.weight,
            f"{prefix}.wk.weight": self.key.weight,
            f"{prefix}.k_norm.weight": self.key_norm.weight,
            f"{prefix}.k_norm.bias": self.key_norm.bias,
            f"{prefix}.weights_proj.weight": self.weights.weight,
            f"{prefix}.index_kpool_compress_ape": self.ape,
            f"{prefix}.index_kpool_compress_gate": self.compress,
        }


class Dsa(nn.Module):
    """Multi-head latent attention without positions, over what the indexer selects.

    ``losses``: ``index``, the divergence of the indexer's choice from where dense attention looks.
    """

    NOISE = 0.02
    """Relative, on index scores in training: what rounding could turn must not matter."""

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        head: int,
        latent: int,
        rank: int,
        sparse: Sparse,
        eps: float,
        gain: float,
    ) -> None:
        super().__init__()
        self.heads, self.head, self.sparse = heads, head, sparse
        self.q_a, self.q_norm = linear(width, rank), RmsNorm(rank, eps)
        self.q_b = linear(rank, heads * head, gain=1.5)
        self.kv_a, self.kv_norm = linear(width, latent), RmsNorm(latent, eps)
        self.kv_b = linear(latent, heads * 2 * head)
        self.out = linear(heads * head, width, gain=gain)
        self.indexer = Indexer(width, rank, sparse)
        self.register_buffer("dense", torch.zeros((), dtype=torch.bool), persistent=False)
        self.dense: Tensor
        """Training starts with dense attention: an indexer can only learn from where it looks, and
        attention finds nothing that an untrained indexer hides from it."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[batch, tokens, width] to the same and the index loss (a scalar).

        The loss is of the ``real`` places [batch, tokens], None for all.
        """
        tokens = x.shape[1]
        rank = self.q_norm(self.q_a(x))
        queries = parted(self.q_b(rank), self.heads, self.head).transpose(1, 2)
        latent = self.kv_b(self.kv_norm(self.kv_a(x)))
        keys, values = parted(latent, self.heads, -1).transpose(1, 2).chunk(2, -1)
        scores = queries @ keys.transpose(-1, -2) * self.head**-0.5
        place = torch.arange(tokens, device=x.device)
        scores = scores.masked_fill(place > place[:, None], float("-inf"))
        index_loss = x.new_zeros(())
        if tokens >= self.sparse.pool:
            index = self.indexer(x.detach(), rank.detach())
            if self.training:
                index_loss = mean_of(self._index_losses(index, scores.detach(), place), real)
            scores = scores.masked_fill(~self._selected(index.detach(), place), float("-inf"))
        found = (scores.softmax(-1) @ values).transpose(1, 2).flatten(-2)
        return self.out(found), index_loss

    def _visible(self, pools: int, place: Tensor) -> Tensor:
        """[tokens, pools]: a pool can be taken once its last token is there."""
        ends = torch.arange(pools, device=place.device) * self.sparse.pool + self.sparse.pool - 1
        return ends <= place[:, None]

    def _selected(self, index: Tensor, place: Tensor) -> Tensor:
        """[batch, 1, tokens, tokens]: taken pools, and the tokens since the last whole pool."""
        pool, (_, tokens, pools) = self.sparse.pool, index.shape
        visible = self._visible(pools, place)
        if self.training:
            index = index * (1 + self.NOISE * torch.randn_like(index))
        index = index.masked_fill(~visible, float("-inf"))
        best = index.topk(min(self.sparse.keep // pool, pools), dim=-1).indices
        taken = torch.zeros_like(visible).expand_as(index).scatter(-1, best, value=True) & visible
        taken = taken.repeat_interleave(pool, -1)
        taken = F.pad(taken, (0, tokens - taken.shape[-1]))
        tail = place >= (place[:, None] + 1) // pool * pool
        chosen = taken | tail
        if self.training:
            chosen = chosen | self.dense
        return chosen.unsqueeze(1)

    def _index_losses(self, index: Tensor, scores: Tensor, place: Tensor) -> Tensor:
        """[batch, tokens], of every query."""
        pools = index.shape[-1]
        visible = self._visible(pools, place)
        mass = scores.softmax(-1).mean(1)[..., : pools * self.sparse.pool]
        mass = parted(mass, pools, self.sparse.pool).sum(-1) * visible
        total = mass.sum(-1, keepdim=True)
        wanted = mass / total.clamp(min=1e-6)
        said = index.masked_fill(~visible, -1e4).log_softmax(-1)
        crossed = -(wanted * said).sum(-1)
        own = -(wanted * wanted.clamp(min=1e-9).log()).sum(-1)
        losses: Tensor = (crossed - own) * total.squeeze(-1)
        return losses

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the original checkpoint's names."""
        return {
            f"{prefix}.q_a_proj.weight": self.q_a.weight,
            f"{prefix}.q_a_layernorm.weight": self.q_norm.weight,
            f"{prefix}.q_b_proj.weight": self.q_b.weight,
            f"{prefix}.kv_a_proj_with_mqa.weight": self.kv_a.weight,
            f"{prefix}.kv_a_layernorm.weight": self.kv_norm.weight,
            f"{prefix}.kv_b_proj.weight": self._kv_b(),
            f"{prefix}.o_proj.weight": self.out.weight,
        } | self.indexer.named(f"{prefix}.indexer")

    def _kv_b(self) -> Tensor:
        """Keys' and values' rows of a head stand together already: [heads * 2 * head, latent]."""
        return self.kv_b.weight
