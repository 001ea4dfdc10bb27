"""The gated delta rule over whole sequences, in chunks: what linear attention is trained with."""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor

_CHUNK: Final = 32
"""Tokens solved at once. A decay per channel is factored about the chunk's middle, so exponents
stay within 16 tokens times the bound of the gate (5 per token for KDA): e^80 is a float32."""


def chunk_delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Outputs of the recurrence S = diag(e^g) S + beta k (v - (e^g k)' S)', o = q' S.

    ``q``, ``k`` [batch, tokens, heads, K] are normalised here and q is scaled by K^-1/2; ``v``
    [batch, tokens, heads, V]; ``g`` log decay [batch, tokens, heads, K] (per channel, at least -5)
    or [batch, tokens, heads] (per head, any); ``beta`` [batch, tokens, heads]. Returns [batch,
    tokens, heads, V]. The start state is zero. Computed in float32 at least,
    whatever autocast does: decays are factors as large as e^80, whose products have to cancel.
    """
    with torch.autocast(q.device.type, enabled=False):
        return _chunk_delta(
            *(x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v, g, beta))
        )


def _chunk_delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    tokens = q.shape[1]
    q, k, v, beta = (_chunked(x, tokens) for x in (unit(q), unit(k), v, beta.unsqueeze(-1)))
    q = q * q.shape[-1] ** -0.5
    per_head = g.dim() == 3
    decay = _chunked(g.unsqueeze(-1) if per_head else g, tokens).cumsum(-2)
    inner, mixed = (_products_by_head if per_head else _products_by_channel)(q, k, decay)
    size = q.shape[-2]
    lower = inner * beta + torch.eye(size, device=q.device, dtype=q.dtype)
    grown = decay.exp()
    right = torch.cat([v * beta, k * beta * grown], -1)
    solved = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
    values, keys = solved.split([v.shape[-1], k.shape[-1]], -1)
    last = decay[..., -1:, :]
    into = (k * (last - decay).exp()).transpose(-1, -2)
    carry = last.exp().transpose(-1, -2)
    return _scan(q * grown, mixed, values, keys, into, carry)[:, :tokens]


def unit(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Rows of Euclidean length one; ``eps`` is the architecture's own."""
    width = x.shape[-1]
    normed: Tensor = F.rms_norm(x, (width,), eps=eps / width)
    scaled: Tensor = normed * width**-0.5
    return scaled


def _chunked(x: Tensor, tokens: int) -> Tensor:
    """[batch, tokens, heads, n] to [batch, heads, chunks, chunk, n], padded by zeros."""
    x = F.pad(x.transpose(1, 2), (0, 0, 0, -tokens % _CHUNK))
    return x.reshape(*x.shape[:2], -1, _CHUNK, x.shape[-1])


def _products_by_channel(q: Tensor, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """k_i k_j and q_i k_j, each weighted by the decay between j and i."""
    middle = decay[..., _CHUNK // 2 : _CHUNK // 2 + 1, :].detach()
    up, down = (decay - middle).exp(), (middle - decay).exp()
    earlier = (k * down).transpose(-1, -2)
    # What lies above the diagonal may be infinite, so it goes before anything is multiplied by it.
    return ((k * up) @ earlier).tril(-1), ((q * up) @ earlier).tril()


def _products_by_head(q: Tensor, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """The same for one decay per head, which has no bound: only differences are raised."""
    size = q.shape[-2]
    future = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    between = (decay - decay.transpose(-1, -2)).masked_fill(future, float("-inf")).exp()
    earlier = k.transpose(-1, -2)
    return ((k @ earlier) * between).tril(-1), (q @ earlier) * between


def _scan(
    q: Tensor, mixed: Tensor, values: Tensor, keys: Tensor, into: Tensor, carry: Tensor
) -> Tensor:
    batch, heads, chunks, _, width = values.shape
    state = values.new_zeros(batch, heads, keys.shape[-1], width)
    out = []
    for at in range(chunks):
        new = values[:, :, at] - keys[:, :, at] @ state
        out.append(q[:, :, at] @ state + mixed[:, :, at] @ new)
        state = state * carry[:, :, at] + into[:, :, at] @ new
    return torch.cat(out, 2).transpose(1, 2)
