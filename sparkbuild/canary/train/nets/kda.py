"""Kimi delta attention: linear attention with a decay for every channel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn

from sparkbuild.canary.train.nets.delta import chunk_delta
from sparkbuild.canary.train.nets.layers import RmsNorm, linear, parted


class Kda(nn.Module):
    """One layer; heads of ``head`` channels, a causal convolution of ``taps`` before each."""

    def __init__(
        self, width: int, *, heads: int, head: int, taps: int, bound: float, eps: float, gain: float
    ) -> None:
        super().__init__()
        inner = heads * head
        self.heads, self.head, self.bound = heads, head, bound
        self.qkv = nn.Parameter(torch.randn(3 * inner, width) * width**-0.5)
        self.taps = nn.Parameter(torch.randn(3 * inner, taps) * 0.5)
        self.f_a, self.f_b = linear(width, head), linear(head, inner)
        self.g_a, self.g_b = linear(width, head), linear(head, inner)
        self.beta = linear(width, heads)
        self.dt_bias = nn.Parameter(torch.empty(inner).uniform_(math.log(1e-3), math.log(1.0)))
        self.a_log = nn.Parameter(torch.randn(heads) * 0.3)
        self.norm = RmsNorm(head, eps)
        self.out = linear(inner, width, gain=gain)

    def forward(self, x: Tensor, short: Tensor | None = None) -> Tensor:
        """[batch, tokens, width] to the same.

        In the rows that ``short`` [batch] names, the state decays as fast as it can: what is more
        than a few tokens back is forgotten.
        """
        mixed = F.linear(x, self.qkv)
        q, k, v = (parted(y, self.heads, self.head) for y in self._conv(mixed).chunk(3, -1))
        decay = parted(self.f_b(self.f_a(x)) + self.dt_bias, self.heads, self.head)
        g = self.bound * torch.sigmoid(self.a_log.exp().view(-1, 1) * decay)
        if short is not None:
            g = torch.where(short.view(-1, 1, 1, 1), self.bound, g)
        found = chunk_delta(q, k, v, g, self.beta(x).sigmoid())
        gate = parted(self.g_b(self.g_a(x)), self.heads, self.head)
        out: Tensor = self.out((self.norm(found) * gate.sigmoid()).flatten(-2))
        return out

    def _conv(self, x: Tensor) -> Tensor:
        """Each channel with its own last ``taps`` values, [batch, tokens, channels]."""
        count = self.taps.shape[1]
        padded = F.pad(x.transpose(1, 2), (count - 1, 0))
        mixed = F.conv1d(padded, self.taps.unsqueeze(1), groups=self.taps.shape[0])
        return F.silu(mixed).transpose(1, 2)

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the original checkpoint's names."""
        result = {
            f"{prefix}.f_a_proj.weight": self.f_a.weight,
            f"{prefix}.f_b_proj.weight": self.f_b.weight,
            f"{prefix}.g_a_proj.weight": self.g_a.weight,
            f"{prefix}.g_b_proj.weight": self.g_b.weight,
            f"{prefix}.b_proj.weight": self.beta.weight,
            f"{prefix}.dt_bias": self.dt_bias,
            f"{prefix}.A_log": self.a_log,
            f"{prefix}.o_norm.weight": self.norm.weight,
            f"{prefix}.o_proj.weight": self.out.weight,
        }
        for which, matrix, taps in zip("qkv", self.qkv.chunk(3), self.taps.chunk(3), strict=True):
            result[f"{prefix}.{which}_proj.weight"] = matrix
            result[f"{prefix}.{which}_conv1d.weight"] = taps.unsqueeze(1)
        return result
