"""Colours, shapes, places, numbers: pictures that are asked about in one short question."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from PIL.Image import Image

from sparkbuild.canary.tasks.drawing import (
    SHAPES,
    Shape,
    Stain,
    picture,
    shade,
    shape_mask,
    two_colours,
)
from sparkbuild.canary.tasks.heldout import drawn
from sparkbuild.canary.tasks.sample import Sample, Split, Turn

COLOUR: Final = ("What colour is it?", "Name the colour.")
COLOUR_OF: Final = "What colour is the {shape}?"
WHERE: Final = ("Where is the {shape}?", "Where is it?")
WHICH: Final = "Which shape is at the {side}?"
HOW_MANY: Final = ("How many dots?", "Count the dots.")
LARGER: Final = ("Which is larger?", "Which shape is larger?")
KIND: Final = ("What shape is it?", "Name the shape.")

PLACES: Final = (
    ("top left", "top", "top right"),
    ("left", "middle", "right"),
    ("bottom left", "bottom", "bottom right"),
)
_SIDES: Final = (56, 84, 112)
"""Pixels of a scene's sides."""
_FLAT_SIDES: Final = (28, 56, 84)
_MOST_DOTS: Final = 5

Layouts = Literal["place", "side", "count", "larger", "shape"]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A question about a picture that is not drawn yet; ``content`` decides the split."""

    question: str
    answer: str
    content: str
    draw: Callable[[], Image]


def flat(rng: random.Random, name: str) -> Image:
    """A picture of nothing but one colour."""
    width, height = _canvas(rng, _FLAT_SIDES)
    return picture(width, height, shade(rng, name))


def colour(rng: random.Random) -> Scene:
    """A flat picture or a shape on it, and its colour's name."""
    ink, paper = two_colours(rng)
    if rng.random() < 1 / 4:
        image = flat(rng, ink)
        return Scene(
            question=rng.choice(COLOUR),
            answer=ink,
            content=f"colour {ink} {image.getpixel((0, 0))} {image.width}x{image.height}",
            draw=lambda: image,
        )
    shape = rng.choice(SHAPES)
    width, height = _canvas(rng, _SIDES)
    radius = rng.uniform(11, min(width, height) / 2 - 2)
    stain = _somewhere(rng, shape, radius, ink, (0, 0, width, height))
    ground = shade(rng, paper)
    return Scene(
        question=COLOUR_OF.format(shape=shape),
        answer=ink,
        content=f"colour {ink} {shape} {paper} {width}x{height}",
        draw=lambda: picture(width, height, ground, [stain]),
    )


def place(rng: random.Random) -> Scene:
    """A shape in one of nine parts of a picture: which part."""
    row, column = rng.randrange(3), rng.randrange(3)
    width, height = _canvas(rng, (84, 112))
    box = (
        width * column // 3, height * row // 3, width * (column + 1) // 3, height * (row + 1) // 3
    )  # fmt: skip
    shape = rng.choice(SHAPES)
    ink, paper = two_colours(rng)
    stain = _somewhere(rng, shape, rng.uniform(7, 11), ink, box)
    ground = shade(rng, paper)
    answer = PLACES[row][column]
    return Scene(
        question=rng.choice(WHERE).format(shape=shape),
        answer=answer,
        content=f"place {answer} {shape} {ink} {paper} {width}x{height}",
        draw=lambda: picture(width, height, ground, [stain]),
    )


@dataclass(frozen=True)
class _Canvas:
    width: int
    height: int
    paper: tuple[int, int, int]
    stains: tuple[Stain, ...]

    def draw(self) -> Image:
        """The picture."""
        return picture(self.width, self.height, self.paper, self.stains)


def _pair(rng: random.Random, radii: tuple[float, float]) -> tuple[tuple[str, str], str, _Canvas]:
    """Two shapes side by side or one above the other; ``radii`` in pixels, in that order."""
    first, second = rng.sample(SHAPES, 2)
    ink, paper = two_colours(rng)
    across = rng.random() < 0.5
    width, height = (rng.choice((84, 112)), 56) if across else (56, rng.choice((84, 112)))
    half = (width // 2, height) if across else (width, height // 2)
    start = (half[0], 0) if across else (0, half[1])
    stains = (
        _somewhere(rng, first, radii[0], ink, (0, 0, *half)),
        _somewhere(rng, second, radii[1], ink, (*start, width, height)),
    )
    canvas = _Canvas(width, height, shade(rng, paper), stains)
    content = f"{first} {second} {ink} {paper} {width}x{height}"
    return (first, second), content, canvas


def side(rng: random.Random) -> Scene:
    """Two shapes: which one is at a side."""
    shapes, content, canvas = _pair(rng, (rng.uniform(8, 13), rng.uniform(8, 13)))
    sides = ("left", "right") if canvas.width > canvas.height else ("top", "bottom")
    which = rng.randrange(2)
    return Scene(
        question=WHICH.format(side=sides[which]),
        answer=shapes[which],
        content=f"side {sides[which]} {content}",
        draw=canvas.draw,
    )


def larger(rng: random.Random) -> Scene:
    """Two shapes: which one is larger (1.6 times as wide at least)."""
    small, large = rng.uniform(5, 8), 13.0
    which = rng.randrange(2)
    shapes, content, canvas = _pair(rng, (large, small) if which == 0 else (small, large))
    return Scene(
        question=rng.choice(LARGER),
        answer=shapes[which],
        content=f"larger {shapes[which]} {content}",
        draw=canvas.draw,
    )


def count(rng: random.Random) -> Scene:
    """One to five dots, each in a part of its own."""
    number = rng.randint(1, _MOST_DOTS)
    width, height = _canvas(rng, (56, 84))
    ink, paper = two_colours(rng)
    columns, rows = width // 28, height // 28
    parts = rng.sample(range(columns * rows), min(number, columns * rows))
    radius = rng.uniform(5, 9)
    stains = [
        _somewhere(rng, "circle", radius, ink, (x, y, x + 28, y + 28))
        for x, y in ((part % columns * 28, part // columns * 28) for part in parts)
    ]
    ground = shade(rng, paper)
    where = " ".join(str(part) for part in sorted(parts))
    return Scene(
        question=rng.choice(HOW_MANY),
        answer=str(len(parts)),
        content=f"count {where} {ink} {paper} {width}x{height}",
        draw=lambda: picture(width, height, ground, stains),
    )


def kind(rng: random.Random) -> Scene:
    """One shape: which."""
    shape = rng.choice(SHAPES)
    ink, paper = two_colours(rng)
    width, height = _canvas(rng, _SIDES)
    stain = _somewhere(rng, shape, rng.uniform(9, 25), ink, (0, 0, width, height))
    ground = shade(rng, paper)
    return Scene(
        question=rng.choice(KIND),
        answer=shape,
        content=f"shape {shape} {ink} {paper} {width}x{height}",
        draw=lambda: picture(width, height, ground, [stain]),
    )


_LAYOUTS: Final[dict[Layouts, Callable[[random.Random], Scene]]] = {
    "place": place,
    "side": side,
    "count": count,
    "larger": larger,
    "shape": kind,
}


@dataclass
class Colour:
    """Names the colour of a flat picture or of a shape."""

    name: str = "colour"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """One picture; ``length`` changes nothing."""
        del length
        return _asked(self.name, drawn(split, lambda: colour(rng), _content))


@dataclass
class Layout:
    """Tells where, which, how many, which shape."""

    kinds: tuple[Layouts, ...] = get_args(Layouts)
    name: str = "layout"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """One picture of one of ``kinds``; ``length`` changes nothing."""
        del length
        make = _LAYOUTS[rng.choice(self.kinds)]
        return _asked(self.name, drawn(split, lambda: make(rng), _content))


def _asked(name: str, scene: Scene) -> Sample:
    image = scene.draw()
    turn = Turn(role="user", text=scene.question, pictures=(image,))
    facts = (("kind", scene.content.split()[0]), ("picture", f"{image.width}x{image.height}"))
    return Sample(task=name, turns=(turn,), answer=scene.answer, check=facts)


def _content(scene: Scene) -> str:
    return scene.content


def _canvas(rng: random.Random, sides: tuple[int, ...]) -> tuple[int, int]:
    return rng.choice(sides), rng.choice(sides)


def _somewhere(
    rng: random.Random, shape: Shape, radius: float, ink: str, box: tuple[int, int, int, int]
) -> Stain:
    """A shape at any place of a box (left, top, right, bottom), smaller where it does not fit."""
    left, top, right, bottom = box
    radius = min(radius, (min(right - left, bottom - top) - 3) / 2)
    mask = shape_mask(shape, radius)
    side_length = mask.shape[0]
    x, y = rng.randint(left, right - side_length), rng.randint(top, bottom - side_length)
    return Stain(mask, shade(rng, ink), x, y)
