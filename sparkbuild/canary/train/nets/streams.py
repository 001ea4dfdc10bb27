"""Hyper-connections: the residual streams of the tiny GLM5-Next around its blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sparkbuild.canary.train.nets.layers import parted

if TYPE_CHECKING:
    from sparkbuild.canary.train.nets.glm5_next import Shape


class Streams(nn.Module):
    """Manifold-constrained hyper-connections: how four residual streams enter and leave a block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        count = self.count = shape.streams
        self.steps, self.eps, self.norm_eps = shape.sinkhorn, shape.stream_eps, shape.eps
        mix = (2 + count) * count
        self.fn = nn.Parameter(torch.randn(mix, count * shape.width) * 0.02)
        base = torch.randn(mix) * 0.5
        base[2 * count :] += 2.0 * torch.eye(count).flatten()
        self.base = nn.Parameter(base)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[batch, tokens, 4, width] to post [.., 4], comb [.., 4, 4], the block's input."""
        count, flat = self.count, streams.flatten(2)
        power = torch.linalg.vector_norm(flat, dim=-1, keepdim=True).square() / flat.shape[-1]
        mixed = (flat @ self.fn.T) * torch.rsqrt(power + self.norm_eps)
        pre, post, comb = mixed.tensor_split([count, 2 * count], -1)
        base = self.base.tensor_split([count, 2 * count])
        pre = torch.sigmoid(pre * self.scale[0] + base[0]) + self.eps
        post = 2 * torch.sigmoid(post * self.scale[1] + base[1])
        comb = parted(comb * self.scale[2] + base[2], count, count)
        comb = comb.softmax(-1) + self.eps
        comb = comb / (comb.sum(-2, keepdim=True) + self.eps)
        for _ in range(self.steps - 1):
            comb = comb / (comb.sum(-1, keepdim=True) + self.eps)
            comb = comb / (comb.sum(-2, keepdim=True) + self.eps)
        return post, comb, (pre.unsqueeze(-2) @ streams).squeeze(-2)

    @staticmethod
    def joined(streams: Tensor, post: Tensor, comb: Tensor, found: Tensor) -> Tensor:
        """The mixed streams, and a block's output [batch, tokens, width] spread over them."""
        batch, tokens, count, width = streams.shape
        rows = batch * tokens
        mixed = torch.bmm(
            comb.reshape(rows, count, count).transpose(1, 2), streams.reshape(rows, count, width)
        )
        out = torch.baddbmm(mixed, post.reshape(rows, count, 1), found.reshape(rows, 1, width))
        return out.view(batch, tokens, count, width)

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the original checkpoint's names."""
        return {
            f"{prefix}_fn": self.fn,
            f"{prefix}_base": self.base,
            f"{prefix}_scale": self.scale,
        }
