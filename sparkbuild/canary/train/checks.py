"""What a training tells while it runs, and its looks at held-out items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from sparkbuild.canary.train.batch import Batches, Room
from sparkbuild.canary.train.card import Rate
from sparkbuild.canary.train.loop import rates
from sparkbuild.canary.train.model import Model

_CHECKS: Final = 5
"""Looks before the end."""
_ASKED: Final = 64
_MOST: Final = 8
"""Rows of each room at the end, as far as so many batches go."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A step of a phase, rates of held-out items, or a ``note`` in words.

    ``values``: of ``warm-up`` and ``training`` losses and shares, of ``check`` the share of right
    answers by task. ``seconds`` are those of the phase.
    """

    phase: Literal["warm-up", "training", "check", "note"]
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    values: dict[str, float] = field(default_factory=dict)
    note: str = ""


Tell = Callable[[Told], None]


class Checks:
    """Asks held-out items every so often, and more of them at the end."""

    def __init__(self, model: Model, held_out: Batches, *, step: int, tell: Tell) -> None:
        self.model, self.batches, self.tell = model, held_out, tell
        self.between = max(1, held_out.steps // (_CHECKS + 1))
        self.done = step // self.between

    def __call__(self, step: int) -> None:
        """One batch of each room when it is time for it."""
        due = step // self.between
        if due > self.done and step < self.batches.steps:
            self.done = due
            self._look(step, lambda _: 1)

    def last(self) -> dict[str, Rate]:
        """Up to 64 rows of each room; rates by task."""
        return self._look(self.batches.steps, lambda room: max(1, min(_MOST, _ASKED // room.rows)))

    def _look(self, step: int, count: Callable[[Room], int]) -> dict[str, Rate]:
        found: dict[str, Rate] = {}
        for room in self.batches.rooms:
            counted = rates(self.model, self.batches, room, count=count(room))
            for task, (right, of) in counted.items():
                known = found.get(task, Rate(right=0, of=0))
                found[task] = Rate(right=known.right + right, of=known.of + of)
        values = {task: rate.right / rate.of for task, rate in found.items()}
        self.tell(Told(phase="check", step=step, steps=self.batches.steps, values=values))
        return found
