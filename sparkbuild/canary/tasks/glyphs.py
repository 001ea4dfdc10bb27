"""Letters as masks: drawn once a font, size and character by Pillow, then only copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Mask = npt.NDArray[np.uint8]
"""[height, width]: how much ink, 0 to 255."""

Face = Literal["regular", "bold", "slanted"]
FACES: Final[tuple[Face, ...]] = get_args(Face)
CELL: Final = 28
"""Pixels of the side of a picture's token (two patches of 14)."""
_BOLD: Final = 1 / 36
"""Stroke around a bold character, in heights of the font: visible, and holes stay open."""
_SLANT: Final = 0.2
"""Pixels to the right for each pixel up (11 degrees, as usual for obliques)."""


@dataclass(frozen=True)
class Glyph:
    """A character's mask; ``left`` and ``top`` are its place, in pixels from pen and baseline."""

    mask: Mask
    left: int
    top: int
    advance: float


@dataclass(frozen=True)
class Text:
    """A mask of several characters, and the middle of each in pixels from its left border."""

    mask: Mask
    middles: tuple[int, ...]


def line(text: str, face: Face, size: int, spacing: float = 0.0) -> Text:
    """Text as one mask with no empty border; ``spacing`` is added after each character (pixels)."""
    pen = 0.0
    placed: list[tuple[int, Glyph]] = []
    for character in text:
        glyph = _glyph(face, size, character)
        placed.append((round(pen) + glyph.left, glyph))
        pen += glyph.advance + spacing
    return _joined(placed)


def cells(text: str, face: Face, size: int, shift: Callable[[], int]) -> Text:
    """Text with one character in the middle of each 28-pixel cell, give or take ``shift``."""
    placed = []
    for index, character in enumerate(text):
        glyph = _glyph(face, size, character)
        start = index * CELL + (CELL - glyph.mask.shape[1]) // 2 + shift()
        placed.append((max(0, min(start, len(text) * CELL - glyph.mask.shape[1])), glyph))
    return _joined(placed, left=0, right=len(text) * CELL)


def _joined(
    placed: Sequence[tuple[int, Glyph]], left: int | None = None, right: int | None = None
) -> Text:
    if left is None:
        left = min(x for x, _ in placed)
    if right is None:
        right = max(x + glyph.mask.shape[1] for x, glyph in placed)
    top = min(glyph.top for _, glyph in placed)
    bottom = max(glyph.top + glyph.mask.shape[0] for _, glyph in placed)
    whole = np.zeros((bottom - top, right - left), np.uint8)
    for x, glyph in placed:
        height, width = glyph.mask.shape
        room = whole[glyph.top - top :, x - left :][:height, :width]
        np.maximum(room, glyph.mask, out=room)
    middles = (x + glyph.mask.shape[1] // 2 - left for x, glyph in placed)
    return Text(whole, tuple(middles))


@cache
def _glyph(face: Face, size: int, character: str) -> Glyph:
    font = _font(size)
    pen, baseline = size, 2 * size
    sheet = Image.new("L", (4 * size, 3 * size))
    stroke = size * _BOLD if face == "bold" else 0.0
    ImageDraw.Draw(sheet).text(
        (pen, baseline), character, fill=255, font=font, anchor="ls", stroke_width=stroke
    )
    if face == "slanted":
        shear = (1, _SLANT, -_SLANT * baseline, 0, 1, 0)
        sheet = sheet.transform(
            sheet.size, Image.Transform.AFFINE, shear, Image.Resampling.BILINEAR
        )
    box = sheet.getbbox()
    if box is None:
        return Glyph(np.zeros((1, 1), np.uint8), 0, -1, font.getlength(character))
    advance = font.getlength(character) + 2 * stroke
    return Glyph(np.asarray(sheet.crop(box)), box[0] - pen, box[1] - baseline, advance)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):  # a Pillow without FreeType
        raise OSError("this Pillow has no scalable font: FreeType is missing")
    return font
