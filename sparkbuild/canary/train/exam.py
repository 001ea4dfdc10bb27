"""What a trained canary is tried with before its suite is recorded: more than the suite keeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sparkbuild.canary.tasks import pictures
from sparkbuild.canary.tasks.answers import fixed
from sparkbuild.canary.tasks.calls import ToolCall
from sparkbuild.canary.tasks.long import Copy, Needle, RepeatLine
from sparkbuild.canary.tasks.sample import Sample, Task
from sparkbuild.canary.tasks.small import EXERCISES

ANSWERS: Final = "answers"
"""The group of the fixed questions."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Samples of one task: ``tried`` are made, ``kept`` of those that are answered rightly stay.

    ``lengths`` are the prompts' lengths in turn, where a task has any; ``references`` of them
    become reference prompts. They are asked in ``forms`` alone, where there are any.
    """

    task: Callable[[], Task]
    tried: int
    kept: int
    lengths: Sequence[int] = (64,)
    references: int = 1
    forms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sample with its place in a suite; how many stay is counted by ``paper``."""

    paper: str
    name: str
    group: str
    sample: Sample
    forms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Exam:
    """All papers of a canary; ``answers`` of the fixed questions become reference prompts."""

    papers: tuple[Paper, ...]
    summary: str
    """Of the canary, for the catalogue."""
    drafts: bool = False
    """Whether it has a trained draft block."""
    forms: tuple[str, ...] = ("f16",)
    """Derived forms that are recorded."""
    answers: int = 8
    seed: str = field(default="exam 1")

    def questions(self) -> Iterator[tuple[Question, int, int]]:
        """Every question, how many of its paper stay, how many of its paper are references."""
        for sample in fixed():
            name = dict(sample.check)["name"]
            question = Question(paper=ANSWERS, name=name, group=ANSWERS, sample=sample)
            yield question, len(fixed()), self.answers
        for at, paper in enumerate(self.papers):
            task = paper.task()
            group = f"held out: {task.name}"
            for number in range(paper.tried):
                rng = random.Random(f"{self.seed}/{task.name}/{at}/{number}")  # noqa: S311
                length = paper.lengths[number % len(paper.lengths)]
                sample = task.sample(rng, split="held-out", length=length)
                name = f"{task.name} {at}.{number}"
                question = Question(
                    paper=f"{at}", name=name, group=group, sample=sample, forms=paper.forms
                )
                yield question, paper.kept, paper.references


def _same(task: Task) -> Task:
    return task


def _exact(task: Callable[[], Task], *, length: int) -> Paper:
    """Two reference prompts so long that an indexer has to leave most of them out.

    They are asked in the exact form alone, which sees every change of a choice; a form that rounds
    would take seconds for each and see less.
    """
    return Paper(task=task, tried=4, kept=0, lengths=(length,), references=2, forms=("f32",))


def _far(*, length: int, place: float, tried: int) -> Paper:
    """A needle far back, asked in one form: on one core its prompt takes up to half a minute."""
    task = partial(Needle, place)
    return Paper(task=task, tried=tried, kept=1, lengths=(length,), references=0, forms=("f16",))


_READING: Final = (
    Paper(task=Copy, tried=10, kept=8, lengths=(48, 96, 192, 320, 640)),
    Paper(task=Needle, tried=14, kept=10, lengths=(48, 64, 96, 128, 192, 320, 1000), references=4),
    Paper(task=RepeatLine, tried=6, kept=4, lengths=(64, 96, 192)),
)
_READING_FAR: Final = (
    Paper(task=Copy, tried=10, kept=8, lengths=(48, 96, 192, 320, 640), references=3),
    Paper(task=Needle, tried=14, kept=10, lengths=(64, 128, 192, 320, 48, 96, 1000), references=4),
    Paper(task=RepeatLine, tried=6, kept=4, lengths=(64, 96, 192), references=2),
    _exact(Copy, length=440),
    _exact(Needle, length=640),
    _far(length=2400, place=0.12, tried=3),
    _far(length=6300, place=0.02, tried=4),
)
"""A hundred times what the sparse attention selects, many batches, and a cache that they fill; of
references some are longer than what it selects."""
_READING_NEAR: Final = (
    Paper(task=Copy, tried=12, kept=6, lengths=(48, 96, 192)),
    Paper(task=Needle, tried=12, kept=6, lengths=(48, 64, 96, 128), references=2),
    Paper(task=RepeatLine, tried=6, kept=3, lengths=(64, 96)),
)
"""For those that were made for the simplest faults: nothing far."""
_THINKING: Final = (
    Paper(task=ToolCall, tried=8, kept=4, lengths=(100,)),
    *(Paper(task=partial(_same, task), tried=4, kept=3) for task in EXERCISES),
)
_SEEING: Final = (
    Paper(task=lambda: pictures.Ocr(level=1.0, easier=0.0), tried=20, kept=12, references=3),
    Paper(task=pictures.Colour, tried=10, kept=8, references=2),
    Paper(task=pictures.Layout, tried=10, kept=8),
    Paper(task=pictures.TwoPictures, tried=6, kept=4),
    Paper(task=pictures.Where, tried=6, kept=4),
    Paper(task=pictures.AfterPicture, tried=6, kept=4),
)
_SEEING_LITTLE: Final = (
    Paper(task=lambda: pictures.Ocr(level=0.5, easier=0.0), tried=12, kept=8, references=2),
    Paper(task=pictures.Colour, tried=6, kept=4),
    Paper(task=pictures.Layout, tried=6, kept=4),
    Paper(task=lambda: pictures.TwoPictures(level=0.5), tried=5, kept=3),
    Paper(task=lambda: pictures.AfterPicture(level=0.5), tried=5, kept=4),
)

EXAMS: Final[dict[str, Exam]] = {
    "glm5-next": Exam(
        papers=(*_READING_FAR, *_THINKING, *_SEEING),
        summary="GLM-5.3-Flash's architecture with every kind of block, and its vision tower",
        drafts=True,
        forms=("f16", "mix"),
    ),
    "qwen35": Exam(
        papers=(*_READING, *_SEEING_LITTLE),
        summary="gated delta net and attention with M-RoPE, an MTP block, pictures",
        drafts=True,
    ),
    "glm47-flash": Exam(
        papers=(*_READING_NEAR, *_SEEING_LITTLE),
        summary="latent attention with one-axis RoPE, experts, a NextN block, pictures",
        drafts=True,
    ),
    "llama": Exam(papers=_READING_NEAR, summary="plain and dense, for the simplest faults"),
}
