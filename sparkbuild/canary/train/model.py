"""A net with its eyes, and the loss of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn

from sparkbuild.canary.train.batch import Batch
from sparkbuild.canary.train.nets.base import Net
from sparkbuild.canary.train.nets.glm5v import Tower

DRAFT_WEIGHTS: Final = (0.5, 0.3, 0.2)
"""Of the draft's loss at depth 1, 2, 3, beside 1 for the answer's own."""
_DRAFT_SHARE: Final = 0.3
"""Of the draft block's own index and margin losses."""
LOSS_WEIGHTS: Final[Mapping[str, float]] = {"index": 0.3, "margin": 0.02}


class Model(nn.Module):
    """A language model and, where it sees, a vision tower."""

    def __init__(self, net: Net, tower: Tower | None = None) -> None:
        super().__init__()
        self.net, self.tower = net, tower

    def embedded(self, batch: Batch) -> Tensor:
        """[rows, tokens, width]: of the tokens, and of the pictures where they stand."""
        embedded = self.net.embed(batch.tokens)
        if self.tower is None or not batch.places.numel():
            return embedded
        seen = self.tower(batch.patches, batch.plan())
        rows, tokens, width = embedded.shape
        spread = seen.new_zeros(rows * tokens + 1, width).index_copy(0, batch.places, seen)
        spread = spread[:-1].view(rows, tokens, width)
        taken = torch.zeros(rows * tokens + 1, dtype=torch.bool, device=seen.device)
        taken = taken.index_fill(0, batch.places, True)[:-1].view(rows, tokens, 1)
        return torch.where(taken, spread, embedded)

    def positions(self, batch: Batch) -> Tensor | None:
        """As the net's number of axes wants them."""
        if self.net.axes == 0:
            return None
        if self.net.axes == 1:
            rows, tokens = batch.tokens.shape
            return torch.arange(tokens, device=batch.tokens.device).expand(rows, tokens)
        return batch.positions

    def forward(self, batch: Batch, *, drafts: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its parts.

        ``answer`` is of all that is predicted, known parts of prompts included; ``right`` [rows]
        tells which answers are right throughout, whatever was said of the known parts.
        """
        embedded, positions = self.embedded(batch), self.positions(batch)
        trunk = self.net(embedded, positions, real=up_to_last(batch.weights))
        logits = self.net.head(trunk.hidden)
        answer = cross_entropy(logits, batch.tokens, batch.weights)
        parts = {"answer": answer, **trunk.losses}
        loss = answer + sum(LOSS_WEIGHTS[name] * value for name, value in trunk.losses.items())
        with torch.no_grad():
            wrong = (logits[:, :-1].argmax(-1) != batch.tokens[:, 1:]) & answers(batch)[:, 1:]
            parts["right"] = ~wrong.any(-1)
        if drafts and self.net.drafts:
            more, found = self._drafts(batch, trunk.hidden, embedded, positions, drafts)
            loss, parts = loss + more, parts | found
        return loss, parts

    def _drafts(
        self, batch: Batch, hidden: Tensor, embedded: Tensor, positions: Tensor | None, count: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses of the draft block, as llama-server feeds it.

        It never sees a picture's tokens: what is before the picture stands before what follows it,
        and the pictures, after all else, are as little real to it as padding.
        """
        order = shown_first(batch)
        wide = order.unsqueeze(-1).expand_as(hidden)
        hidden, embedded = hidden.gather(1, wide), embedded.gather(1, wide)
        tokens, weights = batch.tokens.gather(1, order), batch.weights.gather(1, order)
        if positions is not None:
            positions = positions.gather(-1, order.expand_as(positions))
        real = up_to_last(weights)
        loss, parts = hidden.new_zeros(()), {}
        for depth in range(1, count + 1):
            before = F.pad(hidden[:, :-1], (0, 0, 1, 0))
            hidden, extra = self.net.draft(before, embedded, positions, real=real)
            found = cross_entropy(self.net.draft_head(hidden), tokens, weights)
            parts[f"draft{depth}"] = found
            loss = loss + DRAFT_WEIGHTS[depth - 1] * found
            loss = loss + sum(_DRAFT_SHARE * LOSS_WEIGHTS[n] * value for n, value in extra.items())
        return loss, parts


def shown_first(batch: Batch) -> Tensor:
    """Order of a row's tokens [rows, tokens] with the pictures' after all others."""
    rows, tokens = batch.tokens.shape
    seen = torch.zeros(rows * tokens + 1, dtype=torch.int8, device=batch.tokens.device)
    seen = seen.index_fill(0, batch.places, 1)[:-1].view(rows, tokens)
    return seen.argsort(dim=1, stable=True)


def answers(batch: Batch) -> Tensor:
    """Places of the answers [rows, tokens], without what is known of the prompts."""
    at = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    return (batch.weights > 0) & (at >= batch.starts.unsqueeze(1))


def up_to_last(weights: Tensor) -> Tensor:
    """Places [rows, tokens] up to the last that is predicted: the others are padding."""
    return weights.flip(1).cumsum(1).flip(1) > 0


def cross_entropy(logits: Tensor, tokens: Tensor, weights: Tensor) -> Tensor:
    """Mean over the weighted tokens, each predicted from the one before it."""
    found = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return (found * weights[:, 1:]).sum() / weights[:, 1:].sum().clamp(min=1)
