"""Picture tasks: reading, colours, layout, two pictures, two lines, and what comes afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from PIL.Image import Image

from sparkbuild.canary.tasks import scenes
from sparkbuild.canary.tasks.drawing import COLOURS, SHAPES, array, picture
from sparkbuild.canary.tasks.heldout import drawn
from sparkbuild.canary.tasks.ocr import READ, Ocr, code, lengths, look, set_line, width_for, written
from sparkbuild.canary.tasks.sample import Sample, Split, Task, Turn
from sparkbuild.canary.tasks.scenes import Colour, Layout

__all__ = [
    "AfterPicture",
    "Colour",
    "Layout",
    "Ocr",
    "TwoPictures",
    "Where",
    "array",
    "picture_tasks",
    "wordings",
]

Which = Literal["first", "second", "both"]
WHICH: Final[tuple[Which, ...]] = get_args(Which)
READ_WHICH: Final[dict[Which, str]] = {
    "first": "Read the first picture.",
    "second": "Read the second picture.",
    "both": "Read both pictures.",
}
COLOUR_WHICH: Final[dict[Which, str]] = {
    "first": "What colour is the first picture?",
    "second": "What colour is the second picture?",
    "both": "What colour are the pictures?",
}
TOP_OR_BOTTOM: Final = "Is the text at the top or at the bottom?"
READ_HALF: Final = "Read the {half} line."
HALVES: Final = ("top", "bottom")
AGAIN: Final = "Say it again."
FIRST: Final = "What is the first character?"
LAST: Final = "What is the last character?"
REPEAT: Final = "Repeat: {text}"
_SHORT: Final = 8
"""Characters at most of each of two texts, so that two fit a sample as long as one of 16."""


def _short(level: float) -> tuple[int, int]:
    shortest, longest = lengths(level)
    return min(shortest, _SHORT - 2), min(longest, _SHORT)


@dataclass
class TwoPictures:
    """Two pictures in one turn: one of them, or both in their order, by text or by colour."""

    level: float = 1.0
    colours: float = 0.3
    """Share of samples that are about colours."""
    name: str = "two pictures"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """Answers of both are separated by a space; ``length`` changes nothing."""
        del length
        which = rng.choice(WHICH)
        if rng.random() < self.colours:
            kind, question = "colour", COLOUR_WHICH[which]
            answers, images = self._flat(rng, split, which)
        else:
            kind, question = "text", READ_WHICH[which]
            answers = [code(rng, split, *_short(self.level)) for _ in range(2)]
            images = [written(rng, text, self.level).image for text in answers]
        told = {"first": answers[:1], "second": answers[1:], "both": answers}[which]
        turn = Turn(role="user", text=question, pictures=tuple(images))
        facts = (("kind", kind), ("which", which))
        return Sample(task=self.name, turns=(turn,), answer=" ".join(told), check=facts)

    @staticmethod
    def _flat(rng: random.Random, split: Split, which: Which) -> tuple[list[str], list[Image]]:
        names = drawn(
            split, lambda: rng.sample(list(COLOURS), 2), lambda pair: f"{which} {' '.join(pair)}"
        )
        return names, [scenes.flat(rng, name) for name in names]


@dataclass
class Where:
    """One text in a half of a picture, or two lines of which one is to be read."""

    level: float = 1.0
    lines: float = 0.6
    """Share of samples with two lines."""
    name: str = "where"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """One picture; ``length`` changes nothing."""
        del length
        half = rng.randrange(2)
        two = rng.random() < self.lines
        texts = [code(rng, split, *_short(self.level)) for _ in range(2 if two else 1)]
        style = look(rng, self.level)
        lines = [set_line(rng, text, style) for text in texts]
        width, height = width_for(rng, lines, self.level), rng.choice((56, 84))
        rows = ((0, height // 2), (height // 2, height))
        places = zip(lines, rows if two else (rows[half],), strict=True)
        stains = [line.put(rng, width, top, bottom) for line, (top, bottom) in places]
        image = picture(width, height, style.paper, stains)
        question = READ_HALF.format(half=HALVES[half]) if two else TOP_OR_BOTTOM
        turn = Turn(role="user", text=question, pictures=(image,))
        facts = (("lines", str(len(texts))), ("half", HALVES[half]), *style.facts)
        answer = texts[half] if two else HALVES[half]
        return Sample(task=self.name, turns=(turn,), answer=answer, check=facts)


@dataclass
class AfterPicture:
    """A picture, its answer, and another turn: about it, about something else, a second picture."""

    level: float = 1.0
    name: str = "after a picture"
    kinds: tuple[str, ...] = field(
        default=("again", "first", "last", "repeat", "picture", "colour")
    )

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """Three turns, the last one a question; ``length`` changes nothing."""
        del length
        kind = rng.choice(self.kinds)
        if kind == "colour":
            before = Colour().sample(rng, split=split, length=0)
        else:
            text = code(rng, split, *_short(self.level))
            turn = Turn(
                role="user",
                text=rng.choice(READ),
                pictures=(written(rng, text, self.level).image,),
            )
            before = Sample(task=self.name, turns=(turn,), answer=text)
        last, answer = self._next(rng, split, kind, before.answer)
        turns = (*before.turns, Turn(role="assistant", text=before.answer), last)
        return Sample(task=self.name, turns=turns, answer=answer, check=(("kind", kind),))

    def _next(self, rng: random.Random, split: Split, kind: str, said: str) -> tuple[Turn, str]:
        questions: dict[str, Callable[[], tuple[str, str]]] = {
            "again": lambda: (AGAIN, said),
            "colour": lambda: (AGAIN, said),
            "first": lambda: (FIRST, said[0]),
            "last": lambda: (LAST, said[-1]),
        }
        if kind in questions:
            question, answer = questions[kind]()
            return Turn(role="user", text=question), answer
        answer = code(rng, split, *_short(self.level))
        if kind == "repeat":
            return Turn(role="user", text=REPEAT.format(text=answer)), answer
        image = written(rng, answer, self.level).image
        return Turn(role="user", text=rng.choice(READ), pictures=(image,)), answer


def picture_tasks(level: float = 1.0) -> list[Task]:
    """One task of each kind."""
    return [
        Ocr(level=level),
        Colour(),
        Layout(),
        TwoPictures(level=level),
        Where(level=level),
        AfterPicture(level=level),
    ]


def wordings() -> list[str]:
    """All fixed texts that questions and answers are made of, for the tokenizer."""
    questions = [*READ, *scenes.COLOUR, scenes.COLOUR_OF, *scenes.WHERE, scenes.WHICH]
    questions += [*scenes.HOW_MANY, *scenes.LARGER, *scenes.KIND]
    questions += [*READ_WHICH.values(), *COLOUR_WHICH.values(), TOP_OR_BOTTOM, READ_HALF]
    questions += [AGAIN, FIRST, LAST, REPEAT]
    answers = [*COLOURS, *SHAPES, *(name for row in scenes.PLACES for name in row), *HALVES]
    return [*(question.split("{", 1)[0].rstrip() for question in questions), *answers]
