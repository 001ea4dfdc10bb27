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
    become reference prompts.
    """

    task: Callable[[], Task]
    tried: int
    kept: int
    lengths: Sequence[int] = (64,)
    references: int = 1


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sample with its place in a suite."""

    name: str
    group: str
    sample: Sample


@dataclass(frozen=True, kw_only=True)
class Exam:
    """All papers of a canary; ``answers`` of the fixed questions become reference prompts."""

    papers: tuple[Paper, ...]
    answers: int = 8
    seed: str = field(default="exam 1")

    def questions(self) -> Iterator[tuple[Question, int, int]]:
        """Every question, how many of its group stay, how many of its group are references."""
        for sample in fixed():
            name = dict(sample.check)["name"]
            yield Question(name=name, group=ANSWERS, sample=sample), len(fixed()), self.answers
        for at, paper in enumerate(self.papers):
            task = paper.task()
            group = f"held out: {task.name}"
            for number in range(paper.tried):
                rng = random.Random(f"{self.seed}/{task.name}/{at}/{number}")  # noqa: S311
                length = paper.lengths[number % len(paper.lengths)]
                sample = task.sample(rng, split="held-out", length=length)
                name = f"{task.name} {at}.{number}"
                yield Question(name=name, group=group, sample=sample), paper.kept, paper.references


def _same(task: Task) -> Task:
    return task


_READING: Final = (
    Paper(task=Copy, tried=24, kept=8, lengths=(48, 96, 192, 640, 2000, 6300)),
    Paper(
        task=Needle,
        tried=24,
        kept=10,
        lengths=(48, 64, 96, 128, 192, 320, 640, 1000, 2000, 6300),
        references=3,
    ),
    Paper(task=lambda: Needle(place=0.12), tried=4, kept=2, lengths=(640, 6300), references=1),
    Paper(task=RepeatLine, tried=12, kept=4, lengths=(64, 96, 192, 640, 2000)),
)
_READING_NEAR: Final = (
    Paper(task=Copy, tried=12, kept=6, lengths=(48, 96, 192)),
    Paper(task=Needle, tried=12, kept=6, lengths=(48, 64, 96, 128), references=2),
    Paper(task=RepeatLine, tried=6, kept=3, lengths=(64, 96)),
)
"""For those that were made for the simplest faults: nothing far."""
_THINKING: Final = (
    Paper(task=ToolCall, tried=12, kept=4, lengths=(100,)),
    *(Paper(task=partial(_same, task), tried=6, kept=3) for task in EXERCISES),
)
_SEEING: Final = (
    Paper(task=lambda: pictures.Ocr(level=1.0, easier=0.0), tried=30, kept=12, references=3),
    Paper(task=pictures.Colour, tried=16, kept=8, references=2),
    Paper(task=pictures.Layout, tried=16, kept=8),
    Paper(task=pictures.TwoPictures, tried=10, kept=4),
    Paper(task=pictures.Where, tried=10, kept=4),
    Paper(task=pictures.AfterPicture, tried=10, kept=4),
)
_SEEING_LITTLE: Final = (
    Paper(task=lambda: pictures.Ocr(level=0.5, easier=0.0), tried=24, kept=8, references=2),
    Paper(task=pictures.Colour, tried=12, kept=4),
    Paper(task=pictures.Layout, tried=12, kept=4),
    Paper(task=lambda: pictures.TwoPictures(level=0.5), tried=8, kept=3),
    Paper(task=lambda: pictures.AfterPicture(level=0.5), tried=8, kept=4),
)

EXAMS: Final[dict[str, Exam]] = {
    "glm5-next": Exam(papers=(*_READING, *_THINKING, *_SEEING)),
    "qwen35": Exam(papers=(*_READING, *_SEEING_LITTLE)),
    "glm47-flash": Exam(papers=(*_READING_NEAR, *_SEEING_LITTLE)),
    "llama": Exam(papers=_READING_NEAR),
}
