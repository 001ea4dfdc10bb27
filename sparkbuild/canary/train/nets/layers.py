"""Layers that several architectures share."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Root mean square norm with a gain."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as ``x``, normed over the last axis; float32 whatever autocast does."""
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


def linear(inputs: int, outputs: int, *, gain: float = 1.0, bias: bool = False) -> nn.Linear:
    """A projection whose outputs have ``gain`` times the deviation of its inputs."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=gain * inputs**-0.5)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def parted(x: Tensor, *sizes: int) -> Tensor:
    """The last axis as several, [..., n] to [..., *sizes]."""
    return x.reshape(*x.shape[:-1], *sizes)


def mean_of(values: Tensor, real: Tensor | None) -> Tensor:
    """Mean of [batch, tokens, ...] over the ``real`` places [batch, tokens] of it, or over all.

    What is left of the shape is [...]; zero where no place is real.
    """
    if real is None:
        return values.mean((0, 1))
    counts = real.to(values.dtype)
    weighed = counts.view(*counts.shape, *[1] * (values.dim() - 2)) * values
    return weighed.sum((0, 1)) / counts.sum().clamp(min=1)


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """silu(min(gate, limit)) times up within ±limit."""
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


class Feed(nn.Module):
    """A gated feed-forward block, clamped."""

    def __init__(self, width: int, inner: int, *, limit: float, gain: float) -> None:
        super().__init__()
        self.limit = limit
        self.gate = linear(width, inner)
        self.up = linear(width, inner)
        self.down = linear(inner, width, gain=gain)

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] to the same."""
        out: Tensor = self.down(clamped_swiglu(self.gate(x), self.up(x), self.limit))
        return out

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the usual checkpoint names."""
        return {
            f"{prefix}.gate_proj.weight": self.gate.weight,
            f"{prefix}.up_proj.weight": self.up.weight,
            f"{prefix}.down_proj.weight": self.down.weight,
        }


class Experts(nn.Module):
    """Routed experts beside a shared one; every expert is computed, the routing weighs them.

    Scores are sigmoids; the best ``active`` by score plus correction bias are taken, their scores
    normed and scaled. ``losses``: ``margin``, how far the last taken and the first left expert are
    from being ``MARGIN`` apart, so that rounding flips none.
    """

    MARGIN = 0.05

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        experts: int,
        active: int,
        scale: float,
        limit: float,
        gain: float,
    ) -> None:
        super().__init__()
        self.active, self.scale, self.limit, self.inner = active, scale, limit, inner
        self.router = linear(width, experts, gain=2.0)
        self.register_buffer("correction", torch.zeros(experts))
        self.correction: Tensor
        self.gate_up = nn.Parameter(torch.randn(experts, 2 * inner, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, inner) * gain * inner**-0.5)
        self.shared = Feed(width, inner, limit=limit, gain=gain)

    def forward(self, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[batch, tokens, width] to the same and the margin loss (a scalar).

        ``real`` [batch, tokens] are the places that loss and load are counted at, None for all:
        an expert that padding alone chooses would be one that no text ever needs.
        """
        scores = self.router(x).sigmoid()
        choice = scores + self.correction
        best = choice.topk(self.active + 1, dim=-1)
        weights = torch.zeros_like(scores).scatter(-1, best.indices[..., : self.active], 1.0)
        if self.training:
            self._balance(weights, real)
        weights = scores * weights
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scale
        gap = best.values[..., self.active - 1] - best.values[..., self.active]
        margin = mean_of(F.relu(self.MARGIN - gap), real) / self.MARGIN
        experts, both, width = self.gate_up.shape
        hidden = F.linear(x, self.gate_up.reshape(experts * both, width))
        hidden = parted(hidden, experts, both)
        gate, up = hidden.chunk(2, -1)
        inner = clamped_swiglu(gate, up, self.limit) * weights.unsqueeze(-1)
        down = self.down.permute(1, 0, 2).reshape(width, -1)
        return F.linear(inner.flatten(-2), down) + self.shared(x), margin

    @torch.no_grad()
    def _balance(self, taken: Tensor, real: Tensor | None) -> None:
        """Move the correction bias against the load, by the sign of the difference."""
        load = mean_of(taken, real)
        self.correction -= 1e-3 * (load - load.mean()).sign()
        self.correction -= self.correction.mean()

    def named(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the usual checkpoint names."""
        result = {
            f"{prefix}.gate.weight": self.router.weight,
            f"{prefix}.gate.e_score_correction_bias": self.correction,
        }
        for index in range(self.gate_up.shape[0]):
            gate, up = self.gate_up[index].chunk(2)
            result[f"{prefix}.experts.{index}.gate_proj.weight"] = gate
            result[f"{prefix}.experts.{index}.up_proj.weight"] = up
            result[f"{prefix}.experts.{index}.down_proj.weight"] = self.down[index]
        return result | self.shared.named(f"{prefix}.shared_experts")
