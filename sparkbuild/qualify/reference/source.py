"""What the pinned source says of its tensor types: enumerators, blocks, constants, functions.

Everything is read from the text of the headers, so that a type which upstream adds is seen without
a change here. Only integer constants are worked out; what the reader does not understand is left
out, and asking for it is a KeyError that names it.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sparkbuild.errors import QualificationIncompleteError

_SIZES: Final = {
    "ggml_half": 2, "uint8_t": 1, "int8_t": 1, "uint16_t": 2, "int16_t": 2, "uint32_t": 4,
    "int32_t": 4, "float": 4,
}  # fmt: skip
"""Bytes of the types that blocks are made of; each is aligned to its size, as in C."""

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.floordiv, ast.LShift: operator.lshift,
}  # fmt: skip
"""What constants of the headers are made with; ``/`` divides integers, none of them negative."""

HEADERS: Final = (
    "ggml-common.h", "ggml-cuda/vecdotq.cuh", "ggml-cuda/common.cuh", "ggml-cuda/quantize.cuh",
    "ggml-cuda/mmq.cuh", "ggml-cuda/mmq-config-ampere.cuh", "ggml-cuda/mmq-config-blackwell.cuh",
    "ggml-cuda/dequantize.cuh", "ggml-cuda/mmvq.cu", "ggml-cuda/mmvq.cuh",
    "ggml-cuda/getrows.cu", "ggml-cuda/convert.cu", "ggml-cuda/quantize.cu",
)  # fmt: skip
"""Files below ``ggml/src`` that are read; one that a source lacks reads as empty."""


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a block; ``type`` as C names it, ``offset`` and ``size`` in bytes."""

    name: str
    type: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class TensorType:
    """A quantised type: ``name`` as ggml prints it (``iq3_s``, ``q4_K``), ``number`` in the enum.

    ``fields`` are those of its block, ``size`` the block's bytes. ``elements`` is how many values
    a block holds, ``ints`` (QI) how many 32-bit words of quants; both 0 where CUDA has no traits.
    """

    name: str
    enumerator: str
    number: int
    fields: tuple[Field, ...]
    size: int
    elements: int
    ints: int

    def field(self, name: str) -> Field | None:
        """The member of that name, if there is one."""
        return next((field for field in self.fields if field.name == name), None)


@dataclass(frozen=True, slots=True, eq=False)
class SourceFacts:
    """Facts of one source tree; ``root`` is the folder that holds ``ggml``."""

    root: Path
    text: Mapping[str, str]
    """Headers by their names in ``HEADERS``, comments taken out."""
    enums: Mapping[str, Mapping[str, int]]
    """``ggml_type``, ``ggml_prec`` and the like, each name with its value."""
    types: Mapping[str, TensorType]
    """Types that have a block, by name, in the order of their numbers."""

    def constant(self, name: str) -> int:
        """The value of a ``#define`` of integers. Raises KeyError with the name it lacks."""
        return _constants(self)(name)

    def has(self, name: str) -> bool:
        """Whether ``constant`` would give a value."""
        try:
            self.constant(name)
        except KeyError:
            return False
        return True

    def body(self, header: str, function: str) -> str:
        """The text of a function's definition, from its name to its last brace; empty if none."""
        text = self.text[header]
        for match in re.finditer(rf"\b{re.escape(function)}\s*\(", text):
            opening = text.find("{", match.end())
            if opening < 0 or ";" in text[match.end() : opening]:
                continue
            return text[match.start() : _closing(text, opening) + 1]
        return ""

    def parameters(self, header: str, function: str) -> tuple[str, ...]:
        """The names of a function's parameters, in order; empty if it is not there."""
        declared = self.body(header, function).partition("{")[0]
        inside = declared[declared.find("(") + 1 : declared.rfind(")")]
        return tuple(re.findall(r"(\w+)\s*(?:,|$)", inside))

    def callees(self, header: str, function: str) -> tuple[str, ...]:
        """A function of a header, and the header's functions that it calls, at any depth."""
        defined = set(re.findall(r"\b__device__[^;{}()]*?\b(\w+)\s*\(", self.text[header]))
        found: list[str] = []
        waiting = [function]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.append(name)
                names = re.findall(r"\b\w+\b", self.body(header, name))
                waiting += sorted(defined.intersection(names), reverse=True)
        return tuple(found)


def read_source(root: Path) -> SourceFacts:
    """Read a tree's headers. Raises QualificationIncompleteError where ``root`` is no such tree."""
    src = root / "ggml" / "src"
    text = {name: _read(src / name) for name in HEADERS}
    header = root / "ggml" / "include" / "ggml.h"
    api = _read(header)
    if not api:
        raise QualificationIncompleteError(
            "the source has no tensor types that could be judged",
            problems=[f"expected {header}, found no such file"],
            evidence=[root],
            next_step="pin a source of llama.cpp, or one that has ggml where llama.cpp has it",
        )
    enums = {**_enums(api), **_enums(text["ggml-cuda/mmq.cuh"])}
    facts = SourceFacts(root, MappingProxyType(text), enums, {})
    blocks = dict(_blocks(facts))
    by_upper = {name.upper(): name for name in blocks}
    types = {}
    for enumerator, number in sorted(enums["ggml_type"].items(), key=lambda item: item[1]):
        name = by_upper.get(enumerator.removeprefix("GGML_TYPE_"))
        if name is None:
            continue
        fields, size = blocks[name]
        traits = _traits(facts, enumerator)
        types[name] = TensorType(
            name, enumerator, number, fields, size, traits.get("qk", 0), traits.get("qi", 0)
        )
    return SourceFacts(root, facts.text, enums, MappingProxyType(types))


def evaluate(expression: str, constant: Callable[[str], int]) -> int:
    """Work out a C expression of integers and names. Raises KeyError for what it does not know."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError as error:
        raise KeyError(expression) from error

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return constant(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case _:
                raise KeyError(expression)

    return value(tree)


@functools.lru_cache(maxsize=8)
def _constants(facts: SourceFacts) -> Callable[[str], int]:
    """A look-up over all ``#define`` lines; macros with parameters are not constants."""
    defines: dict[str, str] = {}
    for text in facts.text.values():
        for name, expression in re.findall(r"^#define[ \t]+(\w+)[ \t]+(\S.*)$", text, re.MULTILINE):
            defines.setdefault(name, expression)
        for name, expression in re.findall(r"\bconstexpr int (\w+)\s*=\s*([^;{]+);", text):
            defines.setdefault(name, expression)

    @functools.cache
    def constant(name: str) -> int:
        return evaluate(defines[name], constant)

    return constant


def _read(path: Path) -> str:
    try:
        return _plain(path.read_text(errors="replace"))
    except FileNotFoundError:
        return ""


def _plain(text: str) -> str:
    """Without comments; lines stay where they are."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n") or " "

    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def _enums(text: str) -> dict[str, Mapping[str, int]]:
    found: dict[str, Mapping[str, int]] = {}
    for name, body in re.findall(r"\benum (\w+) \{([^}]*)\}", text):
        values: dict[str, int] = {}
        following = 0
        for entry in body.split(","):
            key, _, given = (part.strip() for part in entry.partition("="))
            if not re.fullmatch(r"\w+", key):
                continue
            try:
                number = int(given, 0) if given else following
            except ValueError:
                number = values.get(given, following)
            values[key] = number
            following = number + 1
        found[name] = MappingProxyType(values)
    return found


def _blocks(facts: SourceFacts) -> list[tuple[str, tuple[tuple[Field, ...], int]]]:
    """Each ``block_<name>`` struct with its fields and size; of a union, the plain members."""
    text = re.sub(
        r"GGML_EXTENSION union \{\s*struct \{(.*?)\}\s*\w*;.*?\}\s*\w*;",
        r"\1",
        facts.text["ggml-common.h"],
        flags=re.DOTALL,
    )
    constant = _constants(facts)
    found = []
    for body, name in re.findall(r"typedef struct \{([^{}]*)\} block_(\w+);", text):
        try:
            found.append((name, _layout(body, constant)))
        except KeyError:
            continue
    return found


def _layout(body: str, constant: Callable[[str], int]) -> tuple[tuple[Field, ...], int]:
    fields: list[Field] = []
    offset = widest = 0
    for kind, name, count in re.findall(r"(\w+)\s+(\w+)\s*(?:\[([^\]]+)\])?\s*;", body):
        unit = _SIZES[kind]
        size = unit * (evaluate(count, constant) if count else 1)
        offset += -offset % unit
        fields.append(Field(name, kind, offset, size))
        offset += size
        widest = max(widest, unit)
    return tuple(fields), offset + -offset % max(widest, 1)


def _traits(facts: SourceFacts, enumerator: str) -> dict[str, int]:
    """``qk``, ``qr`` and ``qi`` of ``ggml_cuda_type_traits``; empty where CUDA has none."""
    match = re.search(
        rf"struct ggml_cuda_type_traits<{enumerator}>\s*\{{([^}}]*)\}}",
        facts.text["ggml-cuda/common.cuh"],
    )
    values = {}
    for name, expression in re.findall(r"int (\w+)\s*=\s*([^;]+);", match[1] if match else ""):
        try:
            values[name] = evaluate(expression, facts.constant)
        except KeyError:
            continue
    return values


def _closing(text: str, opening: int) -> int:
    """The index of the brace that closes the one at ``opening``."""
    depth = 0
    for match in re.finditer(r"[{}]", text[opening:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return opening + match.start()
    return len(text) - 1
