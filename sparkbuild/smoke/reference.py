"""The llama architecture in float64 numpy, written from its definition: what the server must say.

RMSNorm, rotary positions on neighbouring pairs (GGUF's order for this architecture), grouped
query attention, SwiGLU, untied output. It shares no code with ggml, and is exact to about 1e-13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkbuild.smoke.tiny import Shape, Weights

Array = NDArray[np.float64]
Past = dict[str, tuple[Array, Array]]
"""Keys and values of the tokens seen so far, by block: [head, token, width] each."""


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """Greedy tokens; before each, by how much the best logit led the second."""

    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    stopped: bool
    """True where the end token came; it is not among ``tokens``, its margin is the last."""


class Reference:
    """A model's weights, [output, input] as in GGUF, and the arithmetic on them."""

    def __init__(self, weights: Weights, shape: Shape) -> None:
        self._weights = {name: values.astype(np.float64) for name, values in weights.items()}
        self._shape = shape

    def logits(self, tokens: Sequence[int], past: Past | None = None) -> Array:
        """Logits after each token, [len(tokens), vocabulary]; ``past`` is read and extended."""
        past = {} if past is None else past
        stream = self._weights["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self._shape.layers):
            block = f"blk.{layer}."
            normed = self._normed(block + "attn_norm", stream)
            stream = stream + self._attention(block, normed, past)
            stream = stream + self._feed_forward(block, self._normed(block + "ffn_norm", stream))
        return self._project("output", self._normed("output_norm", stream))

    def log_probabilities(self, tokens: Sequence[int]) -> Array:
        """Natural logarithm of the next token's probabilities, [vocabulary]."""
        last = self.logits(tokens)[-1]
        shifted = last - last.max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))

    def greedy(self, prompt: Sequence[int], *, count: int, end: int) -> Continuation:
        """Up to ``count`` best tokens after ``prompt``, fewer where ``end`` comes first."""
        tokens: list[int] = []
        margins: list[float] = []
        past: Past = {}
        while len(tokens) < count:
            last = self.logits(tokens[-1:] or prompt, past)[-1]
            second, best = np.argsort(last)[-2:]
            margins.append(float(last[best] - last[second]))
            if best == end:
                return Continuation(tokens=tuple(tokens), margins=tuple(margins), stopped=True)
            tokens.append(int(best))
        return Continuation(tokens=tuple(tokens), margins=tuple(margins), stopped=False)

    def _project(self, name: str, values: Array) -> Array:
        return np.asarray(values @ self._weights[f"{name}.weight"].T)

    def _normed(self, name: str, values: Array) -> Array:
        mean_square = (values * values).mean(axis=-1, keepdims=True)
        scaled = values / np.sqrt(mean_square + self._shape.epsilon)
        return np.asarray(scaled * self._weights[f"{name}.weight"])

    def _feed_forward(self, block: str, values: Array) -> Array:
        gate = self._project(block + "ffn_gate", values)
        swish = gate / (1 + np.exp(-gate))
        return self._project(block + "ffn_down", swish * self._project(block + "ffn_up", values))

    def _attention(self, block: str, values: Array, past: Past) -> Array:
        shape = self._shape
        count, width = len(values), shape.heads * shape.head
        before = past[block][0].shape[1] if block in past else 0
        positions = np.arange(before, before + count)
        query = self._heads(block + "attn_q", values, shape.heads)
        key = self._heads(block + "attn_k", values, shape.heads_kv)
        value = self._heads(block + "attn_v", values, shape.heads_kv)
        query = rotate(query, positions, base=shape.rope_base)
        key = rotate(key, positions, base=shape.rope_base)
        if block in past:
            key = np.concatenate([past[block][0], key], axis=1)
            value = np.concatenate([past[block][1], value], axis=1)
        past[block] = (key, value)
        shared = shape.heads // shape.heads_kv
        key, value = np.repeat(key, shared, axis=0), np.repeat(value, shared, axis=0)
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(shape.head)
        visible = positions[:, None] >= np.arange(before + count)[None, :]
        weights = np.where(visible, scores, -np.inf)
        weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ value).transpose(1, 0, 2).reshape(count, width)
        return self._project(block + "attn_output", mixed)

    def _heads(self, name: str, values: Array, heads: int) -> Array:
        """[head, token, width]."""
        projected = self._project(name, values).reshape(len(values), heads, self._shape.head)
        return projected.transpose(1, 0, 2)


def rotate(values: Array, positions: NDArray[np.int_], *, base: float) -> Array:
    """Rotary positions on [head, token, width]: pair i turns by position * base^(-2i/width)."""
    width = values.shape[-1]
    angles = positions[:, None] * base ** (-np.arange(0, width, 2) / width)
    even, odd = values[..., 0::2], values[..., 1::2]
    turned = np.empty_like(values)
    turned[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return turned


def nmse(found: Array, expected: Array) -> float:
    """Squared error over the expected values' own squared deviation; NaN where a value is NaN."""
    error = ((found - expected) ** 2).sum()
    return float(error / ((expected - expected.mean()) ** 2).sum())
