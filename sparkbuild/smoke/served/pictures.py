"""Pictures that are drawn at run time: flat colours, squares, and texts that cannot be guessed."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparkbuild.files import sha256_bytes
from sparkbuild.smoke.served.suite import Picture, Vision

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

_MARGIN: Final = 8
"""Paper around a text is the font's size divided by it, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A PNG file, the text in it, and the digest of the bytes that this text was drawn into."""

    png: bytes
    truth: str
    sha256: str


def draw(vision: Vision) -> dict[str, tuple[Drawn, ...]]:
    """Every look's pictures, the same for the same seed and the same Pillow."""
    found = {}
    for look in vision.looks:
        rng = random.Random(f"{vision.seed}/{look.name}")  # noqa: S311 - no secret
        found[look.name] = tuple(_drawn(rng, one, vision.alphabet) for one in look.pictures)
    return found


def _drawn(rng: random.Random, asked: Picture, alphabet: str) -> Drawn:
    from PIL import Image, ImageDraw  # noqa: PLC0415 - only who looks at pictures needs it

    truth = _string(rng, alphabet, asked.text)
    image = Image.new("RGB", (asked.width, asked.height), asked.paper)
    pen = ImageDraw.Draw(image)
    if truth:
        _write(rng, pen, asked, truth)
    if asked.square:
        _square(pen, asked)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    data = buffer.getvalue()
    return Drawn(png=data, truth=truth, sha256=sha256_bytes(data))


def _write(rng: random.Random, pen: ImageDraw, asked: Picture, truth: str) -> None:
    """The text in one line at a place that is drawn too, smaller where it would not fit."""
    from PIL import ImageFont  # noqa: PLC0415 - see above

    for size in range(asked.size, 0, -1):
        font, margin = ImageFont.load_default(size), -(-size // _MARGIN)
        left, top, right, bottom = pen.textbbox((0, 0), truth, font=font)
        spare_x = asked.width - 2 * margin - (right - left)
        spare_y = asked.height - 2 * margin - (bottom - top)
        if spare_x >= 0 and spare_y >= 0:
            break
    x = margin - left + rng.uniform(0, max(0, spare_x))
    y = margin - top + rng.uniform(0, max(0, spare_y))
    pen.text((round(x), round(y)), truth, fill=asked.ink, font=font)


def _string(rng: random.Random, alphabet: str, length: int) -> str:
    """No character twice in a row: how often it stands there is no matter of reading."""
    found = ""
    while len(found) < length:
        found += rng.choice(alphabet.replace(found[-1:], "") if found else alphabet)
    return found


def _square(pen: ImageDraw, asked: Picture) -> None:
    side = min(asked.size, asked.width // 2, asked.height // 2)
    margin = -(-side // _MARGIN)
    vertical, horizontal = asked.square.split()
    x = margin if horizontal == "left" else asked.width - margin - side
    y = margin if vertical == "top" else asked.height - margin - side
    pen.rectangle((x, y, x + side - 1, y + side - 1), fill=asked.ink)
