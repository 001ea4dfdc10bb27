"""Text from elsewhere, made harmless: what a log holds must not steer a terminal or break XML."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # operating system commands: titles, links
    r"|\x1b[@-Z\\-_]"  # two-character escapes
)
"""Forms of ECMA-48 that compilers, CMake and llama.cpp use; whatever else begins with ESC stays
and is shown as ``\\x1b``."""


def visible(text: str) -> str:
    """``text`` without terminal escapes; every other character that does not print, spelled out.

    Line breaks and tabs stay; a carriage return counts as a line break. The result holds only
    characters that XML 1.0 allows, that UTF-8 can encode, and that move no cursor and turn no
    reading direction.
    """
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    if plain.isprintable():
        return plain
    return "".join(
        char if char.isprintable() or char in "\n\t" else _spelled(char) for char in plain
    )


def encodable(text: str, encoding: str) -> str:
    """``text`` with every character that ``encoding`` lacks spelled out by its number."""
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
