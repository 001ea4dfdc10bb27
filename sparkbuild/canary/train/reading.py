"""Teaches a vision tower to read before a language model sees it.

A joint training has to find what the tokens of a picture mean and where to look at the same time,
and hardly moves for hundreds of steps. Here each token is asked directly which characters have
their middle in it, which a tower learns in about a hundred steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from sparkbuild.canary.tasks.drawing import array
from sparkbuild.canary.tasks.ocr import ALPHABET, code, written
from sparkbuild.canary.train.nets.glm5v import CELL, Grid, Tower, pack
from sparkbuild.canary.train.state import StateFile

SLOTS: Final = 4
"""Characters that a token is asked about: wide ones of 14 pixels fill it with three. More than
four, a run of I for instance, are not asked about."""
_NONE: Final = len(ALPHABET)
_CHARACTERS: Final = (4, 14)
"""Of a picture, at every level: the more there are, the more a step teaches."""

Labels = npt.NDArray[np.int64]
"""[tokens, 4]: characters with their middle in a token, from left to right, then ``_NONE``."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long, how many pictures a step; the level grows to 1 over the first ``rise``."""

    steps: int = 1500
    pictures: int = 64
    rate: float = 2e-3
    warm: int = 30
    rise: float = 0.6
    cool: float = 0.3
    """Share of the steps at the end over which the rate falls to nearly nothing."""
    seed: int = 1
    workers: int = 0
    """Processes that draw; what they draw does not depend on their number."""

    def level(self, step: int) -> float:
        """Difficulty of a step, see ``tasks.ocr``."""
        return min(1.0, step / (self.rise * self.steps))

    def rate_at(self, step: int) -> float:
        """Learning rate of a step."""
        left = (self.steps - step) / (self.cool * self.steps)
        return self.rate * min(1.0, (step + 1) / self.warm, max(0.02, left))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """``right`` is the share of characters told rightly."""

    step: int
    seconds: float
    level: float
    loss: float
    right: float


Batch = tuple[Tensor, list[Grid], Tensor]
"""Patches, grids, labels of all tokens."""


def labelled(rng: random.Random, level: float) -> tuple[npt.NDArray[np.uint8], Labels]:
    """A picture of the training split and what is in each of its tokens."""
    text = code(rng, "train", *_CHARACTERS)
    page = written(rng, text, level)
    rows, columns = page.image.height // CELL, page.image.width // CELL
    labels = np.full((rows, columns, SLOTS), _NONE)
    used = np.zeros((rows, columns), int)
    row = (page.stain.y + page.stain.mask.shape[0] // 2) // CELL
    for character, middle in zip(text, page.line.text.middles, strict=True):
        column = (page.stain.x + middle) // CELL
        if used[row, column] < SLOTS:
            labels[row, column, used[row, column]] = ALPHABET.index(character)
            used[row, column] += 1
    return array(page.image), labels.reshape(-1, SLOTS)


class _Steps(Dataset[Batch]):
    """One item is the batch of one step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __len__(self) -> int:
        return self.plan.steps

    def __getitem__(self, step: int) -> Batch:
        rng = random.Random(f"{self.plan.seed} {step}")  # noqa: S311 - not for secrets
        top = self.plan.level(step)
        levels = (
            top if rng.random() < 0.7 else rng.uniform(0, top) for _ in range(self.plan.pictures)
        )
        images, labels = zip(*(labelled(rng, level) for level in levels), strict=True)
        patches, grids = pack(images)
        return patches, grids, torch.from_numpy(np.concatenate(labels))


class Slots(nn.Module):
    """Tells a token's characters; thrown away after the training."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(tokens)
        self.out = nn.Linear(tokens, SLOTS * (_NONE + 1))

    def forward(self, tokens: Tensor) -> Tensor:
        """[tokens, width] to logits [tokens, slots, characters and none]."""
        logits: Tensor = self.out(self.norm(tokens))
        return logits.view(-1, SLOTS, _NONE + 1)


def warm_up(
    tower: Tower,
    plan: Plan,
    device: torch.device,
    report: Callable[[Progress], None] = lambda _: None,
    state: StateFile | None = None,
) -> float:
    """Trains a tower, in place and on ``device``, and reports every 25 steps.

    The same seed gives the same pictures everywhere, and the same weights on the same device,
    whether or not a killed run went on from its ``state``. Returns the seconds of all runs
    together.
    """
    tower.to(device).train()
    torch.manual_seed(plan.seed)
    slots = Slots(tower.shape.tokens).to(device)
    weights = [*tower.parameters(), *slots.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.01)
    parts: dict[str, Any] = {"tower": tower, "slots": slots, "optimizer": optimiser}
    first, seconds = _restored(parts, state, device)
    started = time.monotonic() - seconds
    for step, (patches, grids, labels) in enumerate(_batches(plan, first), first):
        wanted = labels.to(device, non_blocking=True)
        logits = slots(tower(patches.to(device, non_blocking=True), grids))
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        for group in optimiser.param_groups:
            group["lr"] = plan.rate_at(step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        seconds = time.monotonic() - started
        if step % 25 == 24:
            there = wanted != _NONE
            right = (logits.argmax(-1) == wanted)[there].float().mean().item()
            report(
                Progress(
                    step=step + 1,
                    seconds=seconds,
                    level=plan.level(step),
                    loss=loss.item(),
                    right=right,
                )
            )
        if state is not None and (step + 1 == plan.steps or state.due()):
            states = {name: part.state_dict() for name, part in parts.items()}
            state.save({"step": step + 1, "seconds": seconds, **states})
    return seconds


def _restored(
    parts: Mapping[str, Any], state: StateFile | None, device: torch.device
) -> tuple[int, float]:
    """Steps that are done already, and the seconds they took."""
    found = state.load(device) if state is not None else None
    if found is None:
        return 0, 0.0
    for name, part in parts.items():
        part.load_state_dict(found[name])
    return int(found["step"]), float(found["seconds"])


def _batches(plan: Plan, first: int) -> Iterable[Batch]:
    pinned = torch.cuda.is_available()
    return DataLoader(
        Subset(_Steps(plan), range(first, plan.steps)),
        batch_size=None,
        num_workers=plan.workers,
        pin_memory=pinned,
        collate_fn=_as_it_is,
    )


def _as_it_is(batch: Any) -> Any:
    return batch
