"""Operands of instructions, with the names that are in force where they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sparkbuild.qualify.fault import PtxError
from sparkbuild.qualify.ptx.model import (
    Address,
    Immediate,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from sparkbuild.qualify.ptx.numbers import immediate, integer
from sparkbuild.qualify.ptx.variables import split

_PARTS: Final = re.compile(r"\s*((?:\{[^{}]*\}|\([^()]*\)|[^,{(])+)")
"""The operands where some have braces or parentheses, which are not nested here."""
_NAME: Final = re.compile(r"[A-Za-z_$%][\w$]*$")
_ADDRESS: Final = re.compile(r"\[\s*([^\s+\]-]+)\s*(?:([+-])\s*(-?\w+))?\s*\]$")
_SUM: Final = re.compile(r"([A-Za-z_$][\w$]*)\s*([+-])\s*(\w+)$")
_SPECIAL: Final = re.compile(
    r"%(?:(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)\.[xyz]|cluster_n?ctarank"
    r"|laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|lanemask_[a-z]{2}"
    r"|clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?|envreg\d+"
    r"|(?:total|dynamic|aggr|reserved)_smem\w*|current_graph_exec)$"
)


class Operands:
    """Reads operands; a scope's declarations shadow those around it, and end with it."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, Register | Symbol]] = [{}]
        self._known: list[dict[str, Operand]] = [{}]

    def push(self) -> None:
        """Enter ``{``."""
        self._scopes.append({})
        self._known.append(self._known[-1])

    def pop(self) -> None:
        """Leave by ``}``."""
        self._scopes.pop()
        self._known.pop()

    def declare(self, meanings: Mapping[str, Register | Symbol]) -> None:
        """Give names their meaning in this scope."""
        if not self._scopes[-1] or self._known[-1]:
            self._known[-1] = {}
        self._scopes[-1].update(meanings)

    def read(self, text: str, line: int) -> tuple[Operand, ...]:
        """All operands of an instruction."""
        if not text:
            return ()
        known = self._known[-1]
        if "{" in text or "(" in text:
            parts = map(str.strip, _PARTS.findall(text))
            return tuple([known.get(part) or self._new(part, line) for part in parts])
        return tuple(
            [known.get(part) or self._new(part, line) for part in map(str.strip, text.split(","))]
        )

    def _new(self, text: str, line: int) -> Operand:
        """An operand that was not met in this scope."""
        operand = self._known[-1][text] = self._operand(text, line)
        return operand

    def register(self, name: str, line: int) -> Register:
        """The register of that name."""
        found = self._find(name)
        if not isinstance(found, Register):
            raise PtxError(f"no register {name!r}", line)
        return found

    def _find(self, name: str) -> Register | Symbol | None:
        for names in reversed(self._scopes):
            found = names.get(name)
            if found is not None:
                return found
        return None

    def _operand(self, text: str, line: int) -> Operand:
        found = self._find(text)
        if found is not None:
            return found
        value = _other(text)
        return self._built(text, line) if value is None else value

    def _built(self, text: str, line: int) -> Operand:
        """An operand that is made of others."""
        first = text[:1]
        if first == "[":
            return self._address(text, line)
        if first in {"{", "("}:
            return Vector(tuple(self._operand(part, line) for part in split(text[1:-1])))
        if "|" in text:
            halves = [self._half(part.strip(), line) for part in text.split("|")]
            if len(halves) == 2:
                return Pair(halves[0], halves[1])
        if first == "!":
            return Negated(self.register(text[1:].strip(), line))
        match = _SUM.match(text)
        if match is not None:
            return self._place(match[1], match[2], match[3], line)
        raise PtxError(f"not an operand: {text!r}", line)

    def _half(self, text: str, line: int) -> Register | Sink:
        return Sink() if text == "_" else self.register(text, line)

    def _address(self, text: str, line: int) -> Address:
        match = _ADDRESS.match(text)
        if match is None:
            raise PtxError(f"not an address: {text!r}", line)
        return self._place(match[1], match[2] or "+", match[3] or "0", line)

    def _place(self, name: str, sign: str, text: str, line: int) -> Address:
        offset = integer(text)
        base = self._find(name) or _other(name)
        if offset is None or not isinstance(base, Register | Symbol | Immediate):
            raise PtxError(f"not an address: {name} {sign} {text}", line)
        return Address(base, -offset if sign == "-" else offset)


def _other(text: str) -> Operand | None:
    """What needs no declaration: a constant, a register of the machine, a symbol, the sink."""
    if text == "_":
        return Sink()
    value = immediate(text)
    if value is not None:
        return value
    if _SPECIAL.match(text):
        return Special(text)
    if _NAME.match(text) and text[0] != "%":
        return Symbol(text)
    return None


def label(operand: Operand, line: int) -> Label:
    """What a branch names, as a label."""
    if not isinstance(operand, Symbol):
        raise PtxError("a branch to what is no label", line)
    return Label(operand.name)
