"""The body of a function: declarations, labels, scopes and instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sparkbuild.qualify.fault import PtxError
from sparkbuild.qualify.ptx.debug import Locations
from sparkbuild.qualify.ptx.model import (
    Guard,
    Instruction,
    Label,
    Location,
    Register,
    Symbol,
    Variable,
)
from sparkbuild.qualify.ptx.numbers import SIZES
from sparkbuild.qualify.ptx.operands import Operands, label
from sparkbuild.qualify.ptx.text import plain
from sparkbuild.qualify.ptx.variables import declaration

_STATEMENT: Final = re.compile(
    r"\s*(?:(\.loc\b[^\n]*)"
    r"|(?:@(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:(?:\.|::)\w+)*)\s*([^;/:]*);"
    r"|(//[^\n]*|/\*.*?\*/|\.file\b[^\n]*)|([{}])|([\w$%]+)\s*:(?!:)"
    r"|((?:[^;/]|/(?![/*])|//[^\n]*|/\*.*?\*/)+);|(\Z))",
    re.DOTALL,
)
"""An instruction without comments inside is matched at once; every other one in two steps."""
_LOCATION, _PLAIN, _BRACE, _LABEL, _OTHER = 1, 6, 8, 9, 10
_INSTRUCTION: Final = re.compile(
    r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:(?:\.|::)\w+)*)\s*(.*)$", re.DOTALL
)
_REGISTERS: Final = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.DOTALL)
_RANGE: Final = re.compile(r"([\w$%]+?)\s*(?:<\s*(\d+)\s*>)?$")
_BRANCHES: Final = frozenset({"bra", "brx"})
_MEMORY: Final = (".local", ".shared", ".param", ".global", ".const", ".extern", ".visible")


@dataclass(slots=True)
class Body:
    """What the body of a function holds, in the model's terms."""

    instructions: list[Instruction] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Scope:
    start: int
    """The index of its first instruction."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels whose names were taken already, and what they are called instead."""


class BodyReader:
    """Reads one body; ``line`` tells the line of an offset in ``text``."""

    def __init__(self, text: str, line: Callable[[int], int], locations: Locations) -> None:
        self._text = text
        self._line_of = line
        self._locations = locations
        self._at = self._counted = self._count = 0
        self._location: Location | None = None
        self._operands = Operands()
        self._names: set[str] = set()
        self._scopes: list[_Scope] = []
        self._label = ""
        self._parts: dict[str, tuple[str, ...]] = {}
        self._out = Body()

    def read(self, start: int, end: int) -> Body:
        """The body between the two offsets, its own braces left out."""
        match_at, location_of = _STATEMENT.match, self._locations.read
        text, position = self._text, start
        self._counted, self._count = start, self._line_of(start)
        while position < end:
            match = match_at(text, position, end)
            if match is None:
                self._at = end - len(text[position:end].lstrip())
                raise PtxError("a statement without its semicolon", self._line())
            kind = match.lastindex
            if kind == _PLAIN:
                self._at = match.start(4)
                self._instruction(*match.group(2, 3, 4, 5, 6))
            elif kind == _LOCATION:
                self._at = match.start(1)
                self._location = location_of(match[1], self._line)
            elif kind == _BRACE:
                self._at = match.start(kind)
                self._brace(match[kind])
            elif kind == _LABEL:
                self._at = match.start(kind)
                self._set_label(match[kind])
            elif kind == _OTHER:
                self._at = match.start(kind)
                self._statement(match[kind])
            position = match.end()
        if self._scopes:
            raise PtxError("a scope is never closed", self._line_of(end))
        return self._out

    def _line(self) -> int:
        """The line of the statement that is being read."""
        self._count += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._count

    def _brace(self, brace: str) -> None:
        if brace == "{":
            self._operands.push()
            self._scopes.append(_Scope(len(self._out.instructions)))
            return
        if not self._scopes:
            raise PtxError("a brace closes nothing", self._line())
        self._operands.pop()
        scope = self._scopes.pop()
        if scope.labels:
            body = self._out.instructions
            body[scope.start :] = [_relabelled(each, scope.labels) for each in body[scope.start :]]

    def _set_label(self, name: str) -> None:
        unique = name
        if name in self._out.labels:
            if not self._scopes or name in self._scopes[-1].labels:
                raise PtxError(f"label {name} is set twice", self._line())
            unique = self._fresh(name, self._out.labels.__contains__)
            self._scopes[-1].labels[name] = unique
        self._out.labels[unique] = len(self._out.instructions)
        self._label = unique

    def _statement(self, text: str) -> None:
        """A directive, or an instruction with a comment inside."""
        text = plain(text).strip()
        if text[:1] == ".":
            self._directive(text)
            return
        match = _INSTRUCTION.match(text)
        if match is None:
            raise PtxError(f"not an instruction: {text[:80]!r}", self._line())
        self._instruction(*match.groups())

    def _instruction(
        self, negated: str | None, guard: str | None, opcode: str, modifiers: str, rest: str
    ) -> None:
        line = self._line()
        operands = self._operands.read(rest.rstrip(), line)
        if opcode in _BRANCHES:
            if not operands:
                raise PtxError("a branch to nowhere", line)
            operands = (*operands[:-1], label(operands[-1], line))
        known = self._parts.get(modifiers)
        if known is None:
            known = self._parts[modifiers] = tuple(modifiers[1:].split(".")) if modifiers else ()
        given = Guard(self._operands.register(guard, line), bool(negated)) if guard else None
        self._out.instructions.append(
            Instruction(opcode, known, operands, given, line, self._location)
        )

    def _directive(self, text: str) -> None:
        word = text.split(None, 1)[0]
        if word == ".reg":
            self._declare_registers(text)
        elif word in _MEMORY:
            self._declare_variable(text)
        elif word == ".branchtargets":
            targets = text[len(word) :].split(",")
            self._out.branch_targets[self._label] = tuple(target.strip() for target in targets)
        elif word not in {".pragma", ".callprototype", ".calltargets"}:
            raise PtxError(f"unknown directive {word}", self._line())

    def _declare_registers(self, text: str) -> None:
        match = _REGISTERS.match(text)
        if match is None or match[1] not in SIZES:
            raise PtxError(f"not a declaration of registers: {text[:80]!r}", self._line())
        for part in match[2].split(","):
            range_ = _RANGE.match(part.strip())
            if range_ is None:
                raise PtxError(f"not a register: {part.strip()!r}", self._line())
            base, count = range_.groups()
            names = [base] if count is None else [f"{base}{at}" for at in range(int(count))]
            if self._scopes or not self._names.isdisjoint(names):
                unique = [self._unique(name) for name in names]
            else:
                unique = names
                self._names.update(names)
            registers = [Register(name, match[1]) for name in unique]
            self._out.registers += registers
            self._operands.declare(dict(zip(names, registers, strict=True)))

    def _declare_variable(self, text: str) -> None:
        variable = declaration(text, self._line())
        name = self._unique(variable.name)
        self._operands.declare({variable.name: Symbol(name)})
        self._out.variables.append(
            variable if name == variable.name else replace(variable, name=name)
        )

    def _unique(self, name: str) -> str:
        if name in self._names:
            if not self._scopes:
                raise PtxError(f"{name} is declared twice", self._line())
            name = self._fresh(name, self._names.__contains__)
        self._names.add(name)
        return name

    @staticmethod
    def _fresh(name: str, taken: Callable[[str], bool]) -> str:
        number = 1
        while taken(f"{name}'{number}"):
            number += 1
        return f"{name}'{number}"


def _relabelled(instruction: Instruction, names: dict[str, str]) -> Instruction:
    operands = tuple(
        Label(names.get(each.name, each.name)) if isinstance(each, Label) else each
        for each in instruction.operands
    )
    return replace(instruction, operands=operands)
