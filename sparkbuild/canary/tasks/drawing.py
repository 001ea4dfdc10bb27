"""Colours, shapes and canvases: numpy arrays that become pictures at the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparkbuild.canary.tasks.glyphs import Mask

Rgb = tuple[int, int, int]
Shape = Literal["circle", "square", "triangle", "cross"]
SHAPES: Final[tuple[Shape, ...]] = get_args(Shape)

COLOURS: Final[dict[str, Rgb]] = {
    "black": (12, 12, 12),
    "blue": (30, 60, 220),
    "brown": (120, 70, 30),
    "cyan": (30, 210, 220),
    "green": (20, 150, 40),
    "grey": (128, 128, 128),
    "magenta": (220, 40, 200),
    "orange": (245, 135, 20),
    "pink": (250, 165, 190),
    "purple": (110, 40, 160),
    "red": (215, 30, 30),
    "white": (243, 243, 243),
    "yellow": (240, 220, 30),
}
"""What the names mean; any two differ by 75 at least, far more than ``shade`` changes them."""
_SHADE: Final = 10
"""By how much a channel may differ from its colour's."""
_APART: Final = 130.0
"""Distance in RGB of two colours that lie upon each other."""
_CONTRAST: Final = 110.0
"""Difference in luma, of 255, of ink and paper: nearly half of black and white."""
_LUMA: Final = (0.299, 0.587, 0.114)
"""ITU-R BT.601."""


@dataclass(frozen=True)
class Stain:
    """A mask in a colour, its left upper corner at ``x`` and ``y``."""

    mask: Mask
    ink: Rgb
    x: int = 0
    y: int = 0


def array(image: Image.Image) -> npt.NDArray[np.uint8]:
    """The bytes of a picture, [height, width, 3]."""
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def picture(width: int, height: int, paper: Rgb, stains: Sequence[Stain] = ()) -> Image.Image:
    """A picture of ``paper`` with stains on it, which do not overlap."""
    canvas = np.empty((height, width, 3), np.uint8)
    canvas[:] = paper
    for stain in stains:
        rows, columns = stain.mask.shape
        room = canvas[stain.y : stain.y + rows, stain.x : stain.x + columns]
        room[:] = _shades(stain.ink, paper)[stain.mask]
    return Image.fromarray(canvas)


def shape_mask(shape: Shape, radius: float) -> Mask:
    """A shape that fills a square of about twice ``radius`` pixels, edges smoothed."""
    half = int(radius) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    if shape == "circle":
        inside = radius - np.hypot(x, y)
    elif shape == "square":
        inside = radius - np.maximum(abs(x), abs(y))
    elif shape == "triangle":
        inside = np.minimum(radius - y, (y + radius - 2 * abs(x)) / np.sqrt(5))
    else:
        arm = radius * 0.3
        inside = np.maximum(
            np.minimum(arm - abs(x), radius - abs(y)), np.minimum(radius - abs(x), arm - abs(y))
        )
    mask: Mask = np.rint(np.clip(inside + 0.5, 0, 1) * 255).astype(np.uint8)
    return mask


def shade(rng: random.Random, name: str) -> Rgb:
    """A colour that still has its name."""
    red, green, blue = (
        min(255, max(0, channel + rng.randint(-_SHADE, _SHADE))) for channel in COLOURS[name]
    )
    return red, green, blue


def two_colours(rng: random.Random) -> tuple[str, str]:
    """Names of two colours that can be told apart where one lies on the other."""
    names = tuple(COLOURS)
    while True:
        ink, paper = rng.choice(names), rng.choice(names)
        apart = zip(COLOURS[ink], COLOURS[paper], strict=True)
        if sum((a - b) ** 2 for a, b in apart) >= _APART**2:
            return ink, paper


def ink_and_paper(rng: random.Random, *, dark_ink: bool) -> tuple[Rgb, Rgb]:
    """Any two colours with enough contrast to read one on the other."""
    while True:
        dark, light = _any_colour(rng), _any_colour(rng)
        if luma(light) - luma(dark) >= _CONTRAST:
            return (dark, light) if dark_ink else (light, dark)


def _any_colour(rng: random.Random) -> Rgb:
    red, green, blue = rng.randbytes(3)
    return red, green, blue


def _shades(ink: Rgb, paper: Rgb) -> npt.NDArray[np.uint8]:
    """[256, 3]: the colour at each amount of ink."""
    ground = np.array(paper)
    mixed = ground + (np.array(ink) - ground) * (np.arange(256)[:, None] / 255)
    shades: npt.NDArray[np.uint8] = np.rint(mixed).astype(np.uint8)
    return shades


def luma(colour: Rgb) -> float:
    """Brightness, 0 to 255."""
    return _LUMA[0] * colour[0] + _LUMA[1] * colour[1] + _LUMA[2] * colour[2]
