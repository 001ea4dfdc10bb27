"""Constant expressions of C: numbers, names and operators; anything else stays text."""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_INTEGER: Final = re.compile(r"(0[xX][0-9a-fA-F']+|0[bB][01']+|[0-9][0-9']*)[uUlLzZ]*")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: lambda left, right: left << min(right, 128),
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
MOST: Final = 64
"""Values that one enumerator may have, by the branches of ``#if`` around it."""

Values = frozenset[int]


@dataclass(frozen=True)
class Token:
    """A piece of C text and what kind it is of."""

    kind: str
    text: str


def evaluate(stream: Sequence[Token], known: Mapping[str, Values | str]) -> Values | str:
    """What a constant expression can be; its text where it holds more than numbers and names."""
    words = [_python(token) for token in stream]
    text = " ".join(token.text for token in stream)
    try:
        tree = ast.parse(" ".join(words), mode="eval").body
    except (SyntaxError, ValueError):
        return text
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    choices = []
    for name in names:
        value = known.get(name)
        if not isinstance(value, frozenset):
            return text
        choices.append(sorted(value))
    results = set()
    for numbers in itertools.islice(itertools.product(*choices), MOST):
        try:
            results.add(_number(tree, dict(zip(names, numbers, strict=True))))
        except (ArithmeticError, ValueError):
            return text
    return frozenset(results)


def _python(token: Token) -> str:
    if token.kind == "number":
        match = _INTEGER.fullmatch(token.text)
        if match is None:
            return "?"
        digits = match[1].replace("'", "")
        octal = len(digits) > 1 and digits.startswith("0") and digits.isdigit()
        return f"0o{digits[1:]}" if octal else digits
    if token.kind == "char" and len(token.text) == 3:
        return str(ord(token.text[1]))
    return {"/": "//", "::": "?"}.get(token.text, token.text)


def _number(node: ast.expr, names: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd, ast.Invert)):
        value = _number(node.operand, names)
        return {ast.USub: -value, ast.UAdd: value, ast.Invert: ~value}[type(node.op)]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_number(node.left, names), _number(node.right, names))
    raise ValueError("not a number")
