"""Declarations of memory: ``.global .align 4 .b8 table[8] = {1, 2, 3};`` and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final, cast

from sparkbuild.qualify.fault import PtxError
from sparkbuild.qualify.ptx.model import Space, Variable
from sparkbuild.qualify.ptx.numbers import SIZES, encode, immediate, integer

LINKAGE: Final = r"(?:\.(?:visible|extern|weak|common)\s+)*"
_DECLARATION: Final = re.compile(
    LINKAGE + r"\.(global|const|shared|local|param)\b\s*((?:\.[^\s]+(?:\s+\d+)?\s+)*)"
    r"([\w$%]+)\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*))?$",
    re.DOTALL,
)
_ATTRIBUTE: Final = re.compile(r"\.(\w+)(?:::\w+)*(?:\([^)]*\))?(?:\s+(\d+))?")
_WIDTHS: Final = {"v2": 2, "v4": 4, "v8": 8}
_OTHERS: Final = {"ptr", "global", "const", "shared", "local", "param", "attribute", "unified"}
_ITEM: Final = re.compile(
    r"(?:generic\(\s*([\w$]+)\s*\)|([A-Za-z_$%][\w$]*))\s*(?:([+-])\s*(\w+))?$"
)
_PLAIN: Final = re.compile(r"\{[\d,\s]*\}\s*$")


@dataclass(slots=True)
class _Content:
    data: bytearray
    references: list[tuple[int, str, int]]


def declaration(text: str, line: int, rename: str = "") -> Variable:
    """Read one declaration, without its semicolon; ``rename`` takes the place of its name."""
    match = _DECLARATION.match(text.strip())
    if match is None:
        raise PtxError(f"not a declaration: {text.strip()[:80]!r}", line)
    space, attributes, name, dimensions, content = match.groups()
    align, width, type_ = _attributes(attributes, line)
    sizes = _dimensions(dimensions, content, line)
    element = SIZES[type_] * width
    shape = [*sizes, width] if width > 1 else sizes
    start = _content(content, shape, type_, line) if content else _Content(bytearray(), [])
    return Variable(
        name=rename or name,
        space=cast("Space", space),
        size=element * prod(sizes),
        align=align or element,
        data=bytes(start.data),
        references=tuple(start.references),
    )


def _attributes(text: str, line: int) -> tuple[int, int, str]:
    """Alignment (0 where none is written), elements of a vector, type."""
    align, width, type_, pointer = 0, 1, "", False
    for match in _ATTRIBUTE.finditer(text):
        word, number = match.groups()
        if word == "align":
            align = 0 if pointer else int(number or 0)
        elif word in _WIDTHS:
            width = _WIDTHS[word]
        elif word in SIZES:
            type_ = word
        elif word not in _OTHERS:
            raise PtxError(f"unknown in a declaration: .{word}", line)
        pointer = pointer or word == "ptr"
    if not type_:
        raise PtxError(f"a declaration without a type: {text.strip()!r}", line)
    return align, width, type_


def _dimensions(text: str, content: str | None, line: int) -> list[int]:
    sizes: list[int] = []
    for part in re.findall(r"\[([^\]]*)\]", text):
        if not part.strip():
            sizes.append(len(_items(content)) if content else 0)
            continue
        size = integer(part.strip())
        if size is None or size < 0:
            raise PtxError(f"not a size: {part!r}", line)
        sizes.append(size)
    return sizes


def _content(text: str, shape: list[int], type_: str, line: int) -> _Content:
    content = _Content(bytearray(), [])
    if SIZES[type_] == 1 and len(shape) == 1 and _PLAIN.match(text):
        values = [int(item) for item in text.strip()[1:-1].split(",") if item.strip()]
        if len(values) > shape[0] or max(values, default=0) > 0xFF:
            raise PtxError("a variable's content does not fit into it", line)
        content.data += bytes(values)
        return content
    _fill(content, text, shape, type_, line)
    return content


def _fill(content: _Content, text: str, shape: list[int], type_: str, line: int) -> None:
    """Append a value, or the elements of an array; each inner array takes its whole size."""
    text = text.strip()
    if not shape or not text.startswith("{"):
        _scalar(content, text, type_, line)
        return
    start = len(content.data)
    size = SIZES[type_] * prod(shape)
    step = size // shape[0] if shape[0] else 0
    items = _items(text)
    if len(items) > shape[0]:
        raise PtxError("a variable's content does not fit into it", line)
    for number, item in enumerate(items):
        _fill(content, item, shape[1:], type_, line)
        missing = start + step * (number + 1) - len(content.data)
        content.data += bytes(missing)


def _scalar(content: _Content, text: str, type_: str, line: int) -> None:
    value = immediate(text)
    if value is not None:
        raw = encode(value, type_)
        if raw is None:
            raise PtxError(f"{text} does not fit into .{type_}", line)
        content.data += raw
        return
    match = _ITEM.match(text)
    offset = integer(match[4]) if match and match[4] else 0
    if match is None or offset is None:
        raise PtxError(f"not a constant: {text!r}", line)
    symbol = match[1] or match[2]
    content.references.append((len(content.data), symbol, -offset if match[3] == "-" else offset))
    content.data += bytes(SIZES[type_])


def _items(text: str) -> list[str]:
    """What stands between the outer braces, split at the commas of that level."""
    return list(split(text.strip()[1:-1]))


def split(text: str) -> Iterator[str]:
    """Split at commas outside of brackets of any kind."""
    depth, begin = 0, 0
    for at, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:].strip()
