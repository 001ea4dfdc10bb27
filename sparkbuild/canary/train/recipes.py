"""How each canary is trained: its net, its rooms, what it learns when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparkbuild.canary.tasks import pictures
from sparkbuild.canary.tasks.answers import FixedAnswers
from sparkbuild.canary.tasks.calls import ToolCall
from sparkbuild.canary.tasks.long import Copy, Needle, RepeatLine
from sparkbuild.canary.tasks.sample import Task, Tokenizer
from sparkbuild.canary.tasks.small import EXERCISES
from sparkbuild.canary.train.batch import Room
from sparkbuild.canary.train.checkpoint import ENDS
from sparkbuild.canary.train.loop import Schedule
from sparkbuild.canary.train.model import Model
from sparkbuild.canary.train.nets.glm4_moe_lite import Glm4MoeLite
from sparkbuild.canary.train.nets.glm5_next import Glm5Next, Shape
from sparkbuild.canary.train.nets.glm5v import Shape as TowerShape
from sparkbuild.canary.train.nets.glm5v import Tower
from sparkbuild.canary.train.nets.llama import Llama
from sparkbuild.canary.train.nets.qwen35 import Qwen35

VOCABULARY: Final = 512
_RAMP: Final = 0.5
"""Share of the steps in which pictures grow from easy to as hard as they get."""


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """The tasks of a room; pictures get harder over the first half of the steps."""

    hardest: float = 1.0
    """Level of the pictures in the end."""
    exercises: bool = True
    """Whether there are tasks whose answer has to be worked out, and tool calls."""

    def __call__(self, room: str, progress: float) -> Sequence[tuple[float, Task]]:
        """See Curriculum."""
        level = self.hardest * min(1.0, 0.05 + progress / _RAMP)
        if room == "see":
            return [
                (6.0, pictures.Ocr(level=level)),
                (1.0, pictures.Colour()),
                (2.0, pictures.Layout()),
                (1.0, pictures.Where(level=level)),
            ]
        if room == "two":
            return [
                (2.0, pictures.TwoPictures(level=level)),
                (2.0, pictures.AfterPicture(level=level)),
            ]
        if room in {"short", "drafts"}:
            more: list[tuple[float, Task]] = [(0.7, task) for task in EXERCISES]
            return [
                (4.0, FixedAnswers()),
                (3.0, Copy()),
                (3.0, Needle()),
                (1.0, RepeatLine()),
                *([(1.5, ToolCall()), *more] if self.exercises else []),
            ]
        return [(1.0, Copy()), (3.0, Needle()), (1.0, RepeatLine())]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A canary in the making; ``schedule`` is for a GPU, a CPU takes ``cpu_steps``."""

    name: str
    build: Callable[[Tokenizer], Model]
    rooms: tuple[Room, ...]
    lessons: Lessons
    schedule: Schedule
    cpu_steps: int


def glm5_next(known: Tokenizer) -> Model:
    """The target's architecture with its vision tower."""
    ends = tuple(known.id_of(token) for token in ENDS)
    return Model(Glm5Next(Shape(vocabulary=VOCABULARY, ends=ends, pad=ends[0])), Tower())


def qwen35(_: Tokenizer) -> Model:
    """M-RoPE, gated delta net, a draft block with M-RoPE, pictures."""
    return Model(Qwen35(VOCABULARY), Tower(_SMALL_TOWER))


def glm47_flash(_: Tokenizer) -> Model:
    """One-axis RoPE, latent attention, experts, a NextN block, pictures."""
    return Model(Glm4MoeLite(VOCABULARY), Tower(_SMALL_TOWER))


def llama(_: Tokenizer) -> Model:
    """Plain and dense, text alone."""
    return Model(Llama(VOCABULARY))


_SMALL_TOWER: Final = TowerShape(depth=2, width=128, inner=256, projector=256)

_ROOMS: Final = (
    Room(name="short", rows=48, tokens=112, share=2.5, drafts=1),
    Room(name="drafts", rows=24, tokens=192, share=0.7, drafts=3),
    Room(name="see", rows=96, tokens=72, share=4.5, pictures=96, picture_tokens=1408, drafts=0),
    Room(name="two", rows=48, tokens=96, share=1.5, pictures=96, picture_tokens=960, drafts=1),
    Room(name="page", rows=10, tokens=384, share=0.8, drafts=0),
    Room(name="middle", rows=4, tokens=1024, share=0.6, drafts=0),
    Room(name="long", rows=1, tokens=6656, share=0.08, drafts=0),
)
_TEXT_ROOMS: Final = (
    Room(name="short", rows=48, tokens=112, share=2.0, drafts=2),
    Room(name="drafts", rows=24, tokens=192, share=2.0, drafts=3),
    Room(name="page", rows=10, tokens=384, share=0.7, drafts=1),
    Room(name="middle", rows=4, tokens=1024, share=0.3, drafts=1),
)
_SMALL_ROOMS: Final = (
    *_TEXT_ROOMS,
    Room(name="see", rows=64, tokens=64, share=2.5, pictures=64, picture_tokens=832, drafts=2),
    Room(name="two", rows=32, tokens=88, share=1.0, pictures=64, picture_tokens=640, drafts=2),
)
_EASY: Final = Lessons(hardest=0.5, exercises=False)

RECIPES: Final[dict[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="glm5-next",
            build=glm5_next,
            rooms=_ROOMS,
            lessons=Lessons(),
            schedule=Schedule(steps=16000, rate=2e-3),
            cpu_steps=3000,
        ),
        Recipe(
            name="qwen35",
            build=qwen35,
            rooms=_SMALL_ROOMS,
            lessons=_EASY,
            schedule=Schedule(steps=6000, rate=2e-3),
            cpu_steps=2000,
        ),
        Recipe(
            name="glm47-flash",
            build=glm47_flash,
            rooms=_SMALL_ROOMS,
            lessons=_EASY,
            schedule=Schedule(steps=6000, rate=2e-3),
            cpu_steps=2000,
        ),
        Recipe(
            name="llama",
            build=llama,
            rooms=_TEXT_ROOMS,
            lessons=_EASY,
            schedule=Schedule(steps=4000, rate=2e-3),
            cpu_steps=2000,
        ),
    )
}
