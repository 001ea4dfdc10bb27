"""What the trainer wants of every architecture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Trunk:
    """One pass: ``hidden`` [batch, tokens, width] after the last norm; ``losses`` by name, scalars.

    ``hidden`` is what the output head and the draft block take.
    """

    hidden: Tensor
    losses: dict[str, Tensor] = field(default_factory=dict)


class Net(nn.Module):
    """A language model with an optional draft (NextN, MTP) block.

    Parameters are float32 and named by the subclass as it likes; ``tensors`` gives them the names
    of the original checkpoint, which the pinned llama.cpp's converter reads.
    """

    width: int
    """n_embd."""
    drafts: bool
    """Whether there is a draft block."""
    axes: int
    """Position axes: 0 none (NoPE), 1 plain RoPE, 3 M-RoPE (time, height, width)."""

    def embed(self, tokens: Tensor) -> Tensor:
        """[batch, tokens] int64 to [batch, tokens, width]."""
        raise NotImplementedError

    def forward(
        self,
        embedded: Tensor,
        positions: Tensor | None = None,
        *,
        real: Tensor | None = None,
    ) -> Trunk:
        """Causal pass; ``positions`` is [batch, tokens] or [3, batch, tokens] by ``axes``.

        ``real`` [batch, tokens] are the places that count for the losses and for what the net
        learns from the load of its experts; None: all of them. It changes nothing of ``hidden``.
        """
        raise NotImplementedError

    def head(self, hidden: Tensor) -> Tensor:
        """[…, width] to logits […, vocabulary]."""
        raise NotImplementedError

    def draft(
        self,
        hidden: Tensor,
        embedded: Tensor,
        positions: Tensor | None = None,
        *,
        real: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One step of the draft block: hidden at t - 1 and token t's embedding, to hidden at t.

        ``positions`` and ``real`` are those of the embedded tokens. What comes back is what the
        draft's head takes, which then predicts token t + 1, and what the next depth is fed with one
        place later; and losses by name.
        """
        raise NotImplementedError

    def draft_head(self, hidden: Tensor) -> Tensor:
        """Logits of the draft block's output."""
        return self.head(hidden)

    def phase(self, progress: float) -> None:
        """Told before a step how much of the training is done, 0 to 1."""

    def config(self) -> dict[str, Any]:
        """``config.json`` as the pinned converter reads it."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """``model.safetensors`` as the pinned converter reads it."""
        raise NotImplementedError


def device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
