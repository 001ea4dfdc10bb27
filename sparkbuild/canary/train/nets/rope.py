"""What the architectures with rotary positions share: angles, attention, a draft block's start."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn

from sparkbuild.canary.train.nets.layers import RmsNorm, linear

Angles = tuple[Tensor, Tensor]
"""Cosines and sines, each [batch, 1, tokens, rotated dimensions]."""


def angles(
    positions: Tensor, rotated: int, base: float, sections: tuple[int, ...] | None = None
) -> Angles:
    """Rotation of ``rotated`` dimensions at every position.

    ``positions`` is [batch, tokens], or [3, batch, tokens] (time, height, width) with ``sections``:
    how many frequencies each axis has. They are dealt in turn (t h w t h w …), as Qwen3.5 has it,
    and what the shorter axes leave goes to time.
    """
    device = positions.device
    frequency = base ** (-torch.arange(0, rotated, 2, device=device, dtype=torch.float32) / rotated)
    if sections is None:
        turned = positions.unsqueeze(-1).float() * frequency
    else:
        at = torch.arange(rotated // 2, device=device)
        axis = at % 3
        for index in (1, 2):
            axis = axis.masked_fill((axis == index) & (at >= 3 * sections[index]), 0)
        turned = positions.float().permute(1, 2, 0)[..., axis] * frequency
    turned = torch.cat([turned, turned], -1).unsqueeze(1)
    return turned.cos(), turned.sin()


def rotate(x: Tensor, by: Angles) -> Tensor:
    """First dimensions of ``x`` [batch, heads, tokens, n] turned; those past the angles pass."""
    cos, sin = by
    rotated = cos.shape[-1]
    turned, rest = x[..., :rotated], x[..., rotated:]
    first, second = turned.chunk(2, -1)
    return torch.cat([turned * cos + torch.cat([-second, first], -1) * sin, rest], -1)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention with grouped heads, [batch, heads, tokens, n] to [batch, tokens, heads * n].

    ``k`` and ``v`` may have fewer heads; neighbouring queries share them.
    """
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def heads(x: Tensor, size: int) -> Tensor:
    """[batch, tokens, heads * size] to [batch, heads, tokens, size]."""
    return x.view(*x.shape[:2], -1, size).transpose(1, 2)


def from_zero(embedded: Tensor, axes: int) -> Tensor:
    """Positions of a text that starts a sequence, in the shape that ``Net.forward`` takes."""
    batch, tokens, _ = embedded.shape
    at = torch.arange(tokens, device=embedded.device).expand(batch, tokens)
    return at if axes == 1 else at.expand(axes, batch, tokens)


class DraftInput(nn.Module):
    """Where a draft block starts: both inputs normed, side by side, back to one width."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.embedding_norm, self.hidden_norm = RmsNorm(width, eps), RmsNorm(width, eps)
        self.join = linear(2 * width, width)

    def forward(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        """Two [batch, tokens, width] to one."""
        both = torch.cat([self.embedding_norm(embedded), self.hidden_norm(hidden)], -1)
        out: Tensor = self.join(both)
        return out
