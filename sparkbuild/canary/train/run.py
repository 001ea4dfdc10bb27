"""Train one canary from a recipe: the tower alone, then everything, then the files and the card."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import torch

from sparkbuild.canary.tasks import corpus, tokenizer
from sparkbuild.canary.train import checkpoint, reading
from sparkbuild.canary.train.batch import Batches, Room
from sparkbuild.canary.train.card import (
    CARD,
    Card,
    Lesson,
    Rate,
    digests,
    load_card,
    save_card,
)
from sparkbuild.canary.train.checks import Checks, Tell, Told
from sparkbuild.canary.train.loop import Progress, Trainer
from sparkbuild.canary.train.model import Model
from sparkbuild.canary.train.nets import base
from sparkbuild.canary.train.recipes import RECIPES, Effort, Recipe
from sparkbuild.canary.train.state import EVERY, StateFile
from sparkbuild.errors import CanaryError, HostError
from sparkbuild.files import digest_of, exclusive, files_below, sha256_bytes, sha256_file
from sparkbuild.manifest import unknown_name

_TELL: Final = {"cuda": 50, "cpu": 5}
"""Steps between two reports; on a GPU each makes the queue run empty."""
_WORKERS_LEAVE: Final = 10.0
"""Seconds; PyTorch's workers look every five whether their parent is still there."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished canary; ``text`` and ``vision`` are what the converter reads."""

    folder: Path
    card: Card

    @property
    def text(self) -> Path:
        """Language model and tokenizer."""
        return self.folder / "text"

    @property
    def vision(self) -> Path | None:
        """The tower, where there is one."""
        return self.folder / "vision" if self.card.vision_parameters else None


def train(
    name: str,
    out: Path,
    *,
    seed: int = 1,
    device: str | None = None,
    steps: int | None = None,
    workers: int = 0,
    tell: Tell = lambda _: None,
) -> Trained:
    """Train canary ``name`` into ``out``: folders ``text`` and ``vision``, the card, the state.

    ``device`` is ``cpu`` or ``cuda``, by default the GPU where there is one; ``steps`` shortens or
    lengthens the recipe. A killed run goes on where it was, when the same is asked again, and does
    at most a minute's work twice; a state of anything else is put aside. On a CPU the same seed
    and number of threads give the same weights; on a GPU sums differ by the order they come in.

    Raises UnknownNameError, HostError without the device, BusyError while another run trains into
    ``out``, DiskFullError, CanaryError where the loss is not a number.
    """
    if name not in RECIPES:
        raise unknown_name("canary", name, list(RECIPES), Path(__file__).with_name("recipes.py"))
    recipe, place = RECIPES[name], _place(device)
    effort = recipe.effort(place.type)
    if steps is not None and steps != effort.schedule.steps:
        effort = effort.shortened(steps)
    run = Run(recipe=recipe, effort=effort, out=out, seed=seed, place=place, workers=workers)
    out.mkdir(parents=True, exist_ok=True)
    with exclusive(out / ".lock", what=f"canary {name}", wait=_WORKERS_LEAVE), _numerics(place):
        return run.finished(tell) or run(tell)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training, and everything that decides what comes of it."""

    recipe: Recipe
    effort: Effort
    out: Path
    seed: int
    place: torch.device
    workers: int = 0
    save_every: float = EVERY

    @property
    def key(self) -> str:
        """Digest of all that decides the weights, but for the kind of processor and PyTorch."""
        return digest_of(
            {
                "canary": self.recipe.name,
                "device": self.place.type,
                "effort": repr(self.effort),
                "lessons": repr(self.recipe.lessons),
                "seed": self.seed,
                "tokenizer": sha256_bytes(corpus.tokenizer_json()),
                "code": _code(),
            }
        )

    def finished(self, tell: Tell) -> Trained | None:
        """What an earlier run of the same made, where its files are as it left them."""
        if not (self.out / CARD).exists():
            return None
        try:
            card = load_card(self.out)
        except CanaryError:
            return None
        if card.key != self.key or card.files != digests(self.out):
            return None
        tell(Told(phase="note", note=f"{self.recipe.name} is trained already"))
        return Trained(folder=self.out, card=card)

    def __call__(self, tell: Tell) -> Trained:
        """Train, from where an earlier run was killed."""
        torch.manual_seed(self.seed)
        model = self.recipe.build(tokenizer.load(corpus.tokenizer_json())).to(self.place)
        warmed = self._warm_up(model, tell)
        torch.manual_seed(self.seed)
        trainer = Trainer(
            model,
            self._batches("train"),
            self.effort.schedule,
            workers=self.workers,
            state=self._state("training", tell),
        )
        checks = Checks(model, self._batches("held-out"), step=trainer.step, tell=tell)

        def on_progress(progress: Progress) -> None:
            _refuse_nonsense(progress)
            tell(_told(progress))
            checks(progress.step)

        trainer.run(on_progress, every=_TELL[self.place.type])
        held_out = checks.last()
        checkpoint.save(model, self.out, half=True)
        card = self._card(trainer, held_out, warmed)
        save_card(self.out, card)
        return Trained(folder=self.out, card=card)

    def _warm_up(self, model: Model, tell: Tell) -> float:
        """Teach the tower to read; returns the seconds it took."""
        if model.tower is None or self.effort.warm_up is None:
            return 0.0
        plan = replace(self.effort.warm_up, seed=self.seed, workers=self.workers)

        def on_progress(progress: reading.Progress) -> None:
            tell(
                Told(
                    phase="warm-up",
                    step=progress.step,
                    steps=plan.steps,
                    seconds=progress.seconds,
                    values={"loss": progress.loss, "right": progress.right},
                )
            )

        state = self._state("warm-up", tell)
        return reading.warm_up(model.tower, plan, self.place, on_progress, state)

    def _batches(self, split: Literal["train", "held-out"]) -> Batches:
        known = tokenizer.load(corpus.tokenizer_json())
        steps, rooms = self.effort.schedule.steps, self.effort.rooms
        return Batches(rooms, self.recipe.lessons, known, seed=self.seed, steps=steps, split=split)

    def _state(self, part: str, tell: Tell) -> StateFile:
        return StateFile(
            self.out / f"{part}.state",
            self.key,
            every=self.save_every,
            note=lambda text: tell(Told(phase="note", note=text)),
        )

    def _card(self, trainer: Trainer, held_out: dict[str, Rate], warmed: float) -> Card:
        model, plan = trainer.model, self.effort.warm_up
        config = checkpoint.text_config(model, trainer.batches.tokenizer)
        seen = model.tower is not None
        return Card(
            canary=self.recipe.name,
            architecture=config["architectures"][0],
            key=self.key,
            seed=self.seed,
            steps=self.effort.schedule.steps,
            warm_up_steps=plan.steps if plan and seen else 0,
            rate=self.effort.schedule.rate,
            device=_device_name(self.place),
            threads=torch.get_num_threads(),
            torch=str(torch.__version__),
            seconds=round(warmed + trainer.seconds, 1),
            parameters=_count(model.net),
            vision_parameters=_count(model.tower) if model.tower is not None else 0,
            effort=self.recipe.note(self.place.type, self.effort),
            data=_lessons(self.recipe, self.effort.rooms),
            losses=trainer.losses,
            held_out=held_out,
            files=digests(self.out),
        )


def _told(progress: Progress) -> Told:
    return Told(
        phase="training",
        step=progress.step,
        steps=progress.steps,
        seconds=progress.seconds,
        values=progress.losses,
    )


def _refuse_nonsense(progress: Progress) -> None:
    bad = [name for name, value in progress.losses.items() if not math.isfinite(value)]
    if bad:
        raise CanaryError(
            f"the training went astray before step {progress.step}",
            problems=[f"{name} is not a number" for name in bad],
            next_step="try another --seed",
        )


def _lessons(recipe: Recipe, rooms: tuple[Room, ...]) -> tuple[Lesson, ...]:
    total = sum(room.share for room in rooms)
    return tuple(
        Lesson(
            room=room.name,
            share=room.share / total,
            rows=room.rows,
            tokens=room.tokens,
            tasks=recipe.lessons.shares(room.name),
        )
        for room in rooms
    )


def _count(part: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def _code() -> str:
    """Digest of the trainer and of what it teaches."""
    here = Path(__file__).parent
    files = [
        file
        for folder in (here, here.parent / "tasks")
        for file in files_below(folder)
        if "__pycache__" not in file.parts
    ]
    return digest_of({str(f.relative_to(here.parent)): sha256_file(f) for f in files})


def _place(device: str | None) -> torch.device:
    place = base.device() if device is None else torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise HostError(
            "there is no GPU that PyTorch can use",
            problems=[f"PyTorch {torch.__version__} finds no CUDA device"],
            next_step="leave out --device, or ask for --device cpu",
        )
    return place


def _device_name(place: torch.device) -> str:
    return torch.cuda.get_device_name(place) if place.type == "cuda" else "CPU"


@contextlib.contextmanager
def _numerics(place: torch.device) -> Iterator[None]:
    """TF32 on a GPU; on a CPU only what gives the same every time."""
    precision = torch.get_float32_matmul_precision()
    strict = torch.are_deterministic_algorithms_enabled()
    try:
        if place.type == "cuda":
            torch.set_float32_matmul_precision("high")
        else:
            torch.use_deterministic_algorithms(mode=True)
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(strict)
