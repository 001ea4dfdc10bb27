"""Reading: strings that cannot be guessed, from a cell a character to whatever fits a picture."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from PIL.Image import Image

from sparkbuild.canary.tasks import glyphs
from sparkbuild.canary.tasks.drawing import Rgb, Stain, ink_and_paper, luma, picture
from sparkbuild.canary.tasks.glyphs import CELL, FACES, Face, Text
from sparkbuild.canary.tasks.heldout import drawn
from sparkbuild.canary.tasks.sample import Sample, Split, Turn

ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
READ: Final = ("Read it.", "What does it say?", "Read the text.")
WIDTH: Final = 392
"""Pixels of the widest picture: 14 tokens."""
HEIGHTS: Final = (28, 56, 84)
Facts = tuple[tuple[str, str], ...]
_LONGEST: Final = 16
_SHORTEST_HELD_OUT: Final = 4
"""Shorter strings are always trained on: there are too few to keep one in eight from a model."""
_MARGIN: Final = 1
"""Pixels of paper around text."""
_BLACK: Final = (0, 0, 0)
_WHITE: Final = (255, 255, 255)


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a text looks; ``size`` in pixels (the font's em), ``spacing`` between characters."""

    face: Face = "regular"
    size: int = 24
    spacing: float = 0.0
    ink: Rgb = _BLACK
    paper: Rgb = _WHITE
    cells: bool = False
    """Each character in the middle of a token."""
    jitter: int = 0
    """Pixels off the middle, at most."""

    @property
    def facts(self) -> Facts:
        """What a sample's ``check`` tells about it."""
        polarity = "dark on light" if luma(self.ink) < luma(self.paper) else "light on dark"
        return (("size", str(self.size)), ("face", self.face), ("polarity", polarity))


def code(rng: random.Random, split: Split, shortest: int, longest: int) -> str:
    """A string of capitals and digits; the splits never share one, whatever the task."""
    if split == "held-out":
        shortest = max(shortest, _SHORTEST_HELD_OUT)
    length = rng.randint(shortest, max(shortest, longest))

    def make() -> str:
        return "".join(rng.choices(ALPHABET, k=length))

    return make() if length < _SHORTEST_HELD_OUT else drawn(split, make, str)


def look(rng: random.Random, level: float) -> Look:
    """A look by difficulty: 0 is black on white, one size, a cell a character; 1 is anything."""
    plain = rng.random() >= (level - 0.2) / 0.4
    dark_ink = rng.random() >= 0.5 * level
    ink, paper = (_BLACK, _WHITE) if plain else ink_and_paper(rng, dark_ink=dark_ink)
    cells = rng.random() >= level / 0.4
    return Look(
        face=rng.choice(FACES) if rng.random() < level - 0.3 else "regular",
        size=rng.randint(round(24 - 10 * level), 24 if cells else round(24 + 6 * level)),
        spacing=rng.uniform(0, 3),
        ink=ink,
        paper=paper,
        cells=cells,
        jitter=round(10 * level),
    )


@dataclass(frozen=True)
class Line:
    """A line of text and how it looks."""

    text: Text
    look: Look

    @property
    def room(self) -> int:
        """Pixels of width that it needs."""
        return int(self.text.mask.shape[1]) + (0 if self.look.cells else 2 * _MARGIN)

    def put(self, rng: random.Random, width: int, top: int, bottom: int) -> Stain:
        """At any place of a picture between two rows; what is in cells stays in cells."""
        rows, columns = self.text.mask.shape
        spare = width - columns
        if self.look.cells:
            x = CELL * rng.randint(0, spare // CELL)
        else:
            x = rng.randint(min(_MARGIN, spare), max(0, spare - _MARGIN))
        last = bottom - rows - _MARGIN
        return Stain(self.text.mask, self.look.ink, x, rng.randint(min(top + _MARGIN, last), last))


def set_line(rng: random.Random, text: str, how: Look) -> Line:
    """A line at most 392 pixels wide: without cells or smaller where it has to be."""
    if how.cells and len(text) * CELL <= WIDTH:
        return Line(glyphs.cells(text, how.face, how.size, lambda: _within(rng, how.jitter)), how)
    size = how.size
    while True:
        drawing = glyphs.line(text, how.face, size, how.spacing)
        if drawing.mask.shape[1] <= WIDTH - 2 * _MARGIN:
            return Line(drawing, replace(how, size=size, cells=False))
        size -= 1


def _within(rng: random.Random, most: int) -> int:
    return rng.randint(-most, most)


def width_for(rng: random.Random, lines: Sequence[Line], level: float) -> int:
    """A picture's width in pixels: what the lines need, and at times some tokens more."""
    least = -(max(line.room for line in lines) // -CELL)
    more = rng.randint(0, 3) if rng.random() < level else 0
    return CELL * min(WIDTH // CELL, least + more)


@dataclass(frozen=True)
class Written:
    """A picture with one line in it, where the line is, and the facts about it."""

    image: Image
    line: Line
    stain: Stain
    facts: Facts


def written(rng: random.Random, text: str, level: float) -> Written:
    """A picture of a text."""
    line = set_line(rng, text, look(rng, level))
    height = rng.choice(HEIGHTS) if rng.random() < level - 0.2 else HEIGHTS[0]
    width = width_for(rng, [line], level)
    stain = line.put(rng, width, 0, height)
    size = ("picture", f"{width}x{height}")
    return Written(
        image=picture(width, height, line.look.paper, [stain]),
        line=line,
        stain=stain,
        facts=(("characters", str(len(text))), *line.look.facts, size),
    )


def lengths(level: float) -> tuple[int, int]:
    """Fewest and most characters of a level: 1 and 2 at 0, 12 and 16 at 1."""
    return round(1 + 11 * level), round(2 + (_LONGEST - 2) * level)


@dataclass
class Ocr:
    """Reads one string; ``level`` may be changed while training goes on.

    ``easier`` is the share of training samples whose level is drawn from 0 to ``level``.
    """

    level: float = 1.0
    easier: float = 0.3
    name: str = "ocr"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """One picture, its text is the answer; ``length`` changes nothing."""
        del length
        level = self.level
        if split == "train" and rng.random() < self.easier:
            level = rng.uniform(0, level)
        text = code(rng, split, *lengths(level))
        page = written(rng, text, level)
        turn = Turn(role="user", text=rng.choice(READ), pictures=(page.image,))
        return Sample(task=self.name, turns=(turn,), answer=text, check=page.facts)
