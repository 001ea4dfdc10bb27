"""The training loop: resumable, the same from a seed, replayed as CUDA graphs on a GPU."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from sparkbuild.canary.train.batch import Batch, Batches, Room
from sparkbuild.canary.train.model import Model
from sparkbuild.canary.train.state import StateFile

_EAGER: Final = 3
"""Steps of a room before its graph is captured, as PyTorch asks for."""
_CLIP: Final = 1.0
_BETAS: Final = (0.9, 0.95)
_BFLOAT16: Final = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""As Linux names the instruction sets on x86-64 and, last, on aarch64."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Steps, peak rate of AdamW, and how the rate goes: up, level, and down to nothing."""

    steps: int
    rate: float = 1.5e-3
    warm: int = 200
    cool: float = 0.4
    """Part of the steps, at the end, in which the rate falls."""
    decay: float = 0.01
    half: bool = False
    """On a CPU with instructions for it, multiply in bfloat16 until the rate is nearly nothing."""
    fine: float = 0.1
    """Part of the steps, at the end, in which all is float32 again."""

    def progress(self, step: int) -> float:
        """Part of the run that is done before a step."""
        return step / self.steps

    def at(self, step: int) -> float:
        """The rate of a step."""
        left = (self.steps - step) / max(1.0, self.cool * self.steps)
        return self.rate * min(1.0, (step + 1) / self.warm, max(left, 1e-3))

    def halves(self, step: int, device: torch.device) -> bool:
        """Whether a step multiplies in bfloat16."""
        early = self.progress(step) < 1 - self.fine
        return self.half and early and device.type == "cpu" and _has_bfloat16()


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a run tells of itself."""

    step: int
    steps: int
    seconds: float
    """Of all runs together."""
    losses: dict[str, float]
    """By room and part."""


class Trainer:
    """Trains a model; ``state`` is what a killed run goes on from.

    On a CPU, the same seed and the same number of threads give the same weights, with any number
    of interruptions and workers.
    """

    def __init__(
        self,
        model: Model,
        batches: Batches,
        schedule: Schedule,
        *,
        workers: int,
        state: StateFile | None,
    ) -> None:
        self.device = next(model.parameters()).device
        self.model, self.batches, self.schedule = model, batches, schedule
        self.workers, self.state = workers, state
        cuda = self.device.type == "cuda"
        self.rate = torch.tensor(schedule.rate, device=self.device)
        self.optimizer = torch.optim.AdamW(
            _groups(model, schedule.decay),
            lr=self.rate,
            betas=_BETAS,
            fused=True,
            capturable=cuda,
        )
        self.step, self.seconds = 0, 0.0
        self._losses: dict[str, float] = {}
        # One pool for all graphs: they never run at once, and each leaves nothing but its losses.
        self.pool = torch.cuda.graph_pool_handle() if cuda else None
        self._rooms: dict[int, _Replay] = {}
        found = state.load(self.device) if state is not None else None
        if found is not None:
            self._restore(found)

    def run(
        self, tell: Callable[[Progress], None], *, every: int, until: float = float("inf")
    ) -> bool:
        """Train to the end, or until ``until`` (time.monotonic); True when all steps are done."""
        started = time.monotonic() - self.seconds
        self.model.train()
        for room, batch in self._stream():
            self.rate.fill_(self.schedule.at(self.step))
            self.model.net.phase(self.schedule.progress(self.step))
            replay = self._rooms.setdefault(room, _Replay(self, self.batches.rooms[room]))
            replay(batch)
            self.step += 1
            self.seconds = time.monotonic() - started
            done = self.step >= self.schedule.steps
            if self.state is not None and (done or self.state.due()):
                self._save(self.state)
            if done or self.step % every == 0:
                tell(self._progress())
                if time.monotonic() > until:
                    break
        return self.step >= self.schedule.steps

    def _stream(self) -> Iterator[tuple[int, Batch]]:
        rest = Subset(self.batches, range(self.step, self.schedule.steps))
        yield from DataLoader(
            rest,
            batch_size=None,
            num_workers=self.workers,
            prefetch_factor=4 if self.workers else None,
            pin_memory=False,
            multiprocessing_context="fork" if self.workers else None,
            # Its own, or every start of a run would draw from the one that the nets' noise is of.
            generator=torch.Generator(),
        )

    @property
    def losses(self) -> dict[str, float]:
        """Of the last batch of each room, by room and part."""
        losses = dict(self._losses)
        for replay in self._rooms.values():
            for name, value in replay.parts.items():
                losses[f"{replay.room.name} {name}"] = float(value.float().mean())
        return losses

    def _progress(self) -> Progress:
        return Progress(
            step=self.step, steps=self.schedule.steps, seconds=self.seconds, losses=self.losses
        )

    def _save(self, state: StateFile) -> None:
        state.save(
            {
                "step": self.step,
                "seconds": self.seconds,
                "losses": self.losses,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "random": torch.get_rng_state(),
            }
        )

    def _restore(self, content: dict[str, Any]) -> None:
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        torch.set_rng_state(content["random"].cpu())
        self.step, self.seconds = content["step"], content["seconds"]
        self._losses = content["losses"]
        if self.device.type == "cuda":
            torch.cuda.manual_seed(self.step)  # other noise than that of the first steps


class _Replay:
    """Steps of one room: eager at first; on a GPU then one captured graph, replayed."""

    def __init__(self, trainer: Trainer, room: Room) -> None:
        self.trainer, self.room = trainer, room
        self.parts: dict[str, Tensor] = {}
        self._done = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._fixed: Batch | None = None

    def __call__(self, batch: Batch) -> None:
        """Train one step on ``batch``."""
        self._done += 1
        if self.trainer.device.type != "cuda":
            self.parts = self._work(batch)
        elif self._graph is not None and self._fixed is not None:
            self._fixed.copy_from(batch)
            self._graph.replay()
        elif self._done <= _EAGER:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.parts = self._work(batch.to(self.trainer.device))
            torch.cuda.current_stream().wait_stream(side)
        else:
            self._capture(batch)

    def _capture(self, batch: Batch) -> None:
        self._fixed = batch.to(self.trainer.device)
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        self.trainer.optimizer.zero_grad(set_to_none=True)
        # Kept outside the graphs' pool, which the next graph to run overwrites.
        self.parts = {name: value.clone() for name, value in self.parts.items()}
        with torch.cuda.graph(
            self._graph, pool=self.trainer.pool, capture_error_mode="thread_local"
        ):
            for name, value in self._work(self._fixed).items():
                self.parts[name].copy_(value)
        self._graph.replay()

    def _work(self, batch: Batch) -> dict[str, Tensor]:
        trainer = self.trainer
        trainer.optimizer.zero_grad(set_to_none=True)
        half = trainer.schedule.halves(trainer.step, trainer.device)
        with torch.autocast(trainer.device.type, torch.bfloat16, enabled=half):
            loss, parts = trainer.model(batch, drafts=self.room.drafts)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), _CLIP, foreach=True)
        trainer.optimizer.step()
        return {name: value.detach() for name, value in parts.items()}


@torch.no_grad()
def rates(model: Model, batches: Batches, room: Room, *, count: int) -> dict[str, tuple[int, int]]:
    """Right answers and answers in all, by task, of ``count`` batches of a room, teacher-forced."""
    was = model.training
    model.eval()
    device = next(model.parameters()).device
    found: dict[str, tuple[int, int]] = {}
    for number in range(count):
        rng = random.Random(f"{batches.seed}/check/{room.name}/{number}")  # noqa: S311
        rows = batches.drawn(room, rng, 1.0)
        _, parts = model(batches.collated(room, rows).to(device), drafts=0)
        for row, right in zip(rows, parts["right"].tolist(), strict=False):
            good, total = found.get(row.sample.task, (0, 0))
            found[row.sample.task] = (good + bool(right), total + 1)
    model.train(was)
    return found


@cache
def _has_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16; elsewhere it is slower than float32."""
    flags = Path("/proc/cpuinfo")
    words = set(flags.read_text(encoding="utf-8").split()) if flags.exists() else set()
    return bool(words & _BFLOAT16)


def _groups(model: Model, decay: float) -> Sequence[dict[str, Any]]:
    """Matrices decay, vectors (gains, biases) do not."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
