"""The PTX reader: text to ``Module``.

The frame of a module is read at once; a kernel's body, a variable's content and the counts of
instructions when they are first asked for, so a file of a hundred kernels costs the one that runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from sparkbuild.qualify.fault import PtxError
from sparkbuild.qualify.ptx.body import BodyReader
from sparkbuild.qualify.ptx.calm import calm
from sparkbuild.qualify.ptx.debug import DebugInfo, Locations
from sparkbuild.qualify.ptx.lazy import LazyCounts, LazyDict
from sparkbuild.qualify.ptx.model import Function, Module, Variable
from sparkbuild.qualify.ptx.numbers import integer
from sparkbuild.qualify.ptx.text import Text, plain
from sparkbuild.qualify.ptx.variables import LINKAGE, declaration, split

_SPACE: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE: Final = re.compile(r"\.(version|target|address_size|file|loc)\b([^\n]*)")
_SECTION: Final = re.compile(r"\.section\s+[\w.$]+\s*(?=\{)")
_FUNCTION: Final = re.compile(LINKAGE + r"\.(entry|func)\b")
_VARIABLE: Final = re.compile(LINKAGE + r"\.(?:global|const|shared|local|param)\b")
_VARIABLE_NAME: Final = re.compile(r"([\w$%]+)\s*(?:\[[^\]]*\]\s*)*\s*(?:=|;)")
_SKIPPED: Final = re.compile(r"\.(?:pragma|alias|callprototype)\b[^;]*;")
_HEADER: Final = re.compile(
    LINKAGE + r"\.(entry|func)\s*(?:\.noreturn\s*)?(?:\(([^()]*)\)\s*)?([\w$%]+)\s*"
    r"(?:\(([^()]*)\)\s*)?(.*)$",
    re.DOTALL,
)
_BOUND: Final = re.compile(r"\.(\w+)\s*([\d,\s]*)")
_OPCODE: Final = re.compile(
    r"(?:^|[;{}]|(?<!:):)[ \t]*(?:@!?[ \t]*[%\w$]+[ \t]+)?([a-z]\w*(?:(?:\.|::)\w+)*)(?=[ \t\n;])"
    r"(?!\s*[:),])",
    re.MULTILINE,
)


def read_module(text: str) -> Module:
    """Read a module; raises PtxError with the line of what is not PTX.

    An error inside a body is raised when that function is first asked for.
    """
    return _ModuleReader(text).read()


class _ModuleReader:
    def __init__(self, text: str) -> None:
        self._text = Text(text)
        self._debug = DebugInfo(text)
        self._version: tuple[int, int] | None = None
        self._target = ""
        self._variables: LazyDict[Variable] = LazyDict()
        self._functions: LazyDict[Function] = LazyDict()

    def read(self) -> Module:
        text = self._text.text
        position = _skip(text, 0)
        while position < len(text):
            position = _skip(text, self._one(position))
        if self._version is None or not self._target:
            raise PtxError("no .version and .target", 1)
        return Module(
            version=self._version,
            target=self._target,
            variables=self._variables,
            functions=self._functions,
            opcodes=LazyCounts(partial(_opcodes, text)),
        )

    def _one(self, position: int) -> int:
        """Read what stands at the offset; where it ends."""
        text = self._text.text
        line = _LINE.match(text, position)
        if line is not None:
            self._set(line[1], line[2], position)
            return line.end()
        if _FUNCTION.match(text, position):
            return self._function(position)
        if _VARIABLE.match(text, position):
            return self._variable(position)
        section = _SECTION.match(text, position)
        if section is not None:
            return self._text.close(section.end()) + 1
        skipped = _SKIPPED.match(text, position)
        if skipped is None:
            found = text[position : position + 60].split("\n")[0]
            raise PtxError(f"unknown: {found!r}", self._text.line(position))
        return skipped.end()

    def _set(self, word: str, rest: str, position: int) -> None:
        value = plain(rest).strip()
        if word == "version":
            match = re.fullmatch(r"(\d+)\.(\d+)", value)
            if match is None:
                raise PtxError(f"not a version: {value!r}", self._text.line(position))
            self._version = (int(match[1]), int(match[2]))
        elif word == "target":
            self._target = value.split(",")[0].strip()
        elif word == "address_size" and value != "64":
            raise PtxError(f"addresses of {value} bits", self._text.line(position))

    def _variable(self, position: int) -> int:
        text = self._text.text
        end = text.find(";", position)
        name = _VARIABLE_NAME.search(text, position, end + 1)
        if end < 0 or name is None:
            raise PtxError("a declaration without its semicolon", self._text.line(position))

        def make() -> Variable:
            return declaration(plain(text[position:end]), self._text.line(position))

        self._variables.put(name[1], make)
        return end + 1

    def _function(self, position: int) -> int:
        text = self._text.text
        brace, semicolon = text.find("{", position), text.find(";", position)
        declared = brace < 0 or 0 <= semicolon < brace
        end = semicolon if declared else brace
        if end < 0:
            raise PtxError("a function without a body", self._text.line(position))
        match = _HEADER.match(plain(text[position:end]))
        if match is None:
            raise PtxError("not the head of a function", self._text.line(position))
        name = match[3]
        if declared:
            if name not in self._functions:
                self._functions.put(name, partial(self._read, match, position, None))
            return end + 1
        close = self._text.close(brace)
        self._functions.put(name, partial(self._read, match, position, (brace + 1, close)))
        return close + 1

    def _read(self, header: re.Match[str], position: int, body: tuple[int, int] | None) -> Function:
        line = self._text.line(position)
        kind, results, name, parameters, directives = header.groups()
        reader = BodyReader(self._text.text, self._text.line, Locations(name, self._debug))
        with calm():
            inside = reader.read(*body) if body else reader.read(0, 0)
        return Function(
            name=name,
            entry=kind == "entry",
            parameters=_parameters(parameters, line),
            results=_parameters(results, line),
            registers=tuple(inside.registers),
            variables=tuple(inside.variables),
            body=tuple(inside.instructions),
            labels=inside.labels,
            branch_targets=inside.branch_targets,
            directives=_bounds(directives),
        )


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _parameters(text: str | None, line: int) -> tuple[Variable, ...]:
    return tuple(declaration(part, line) for part in split(text or ""))


def _bounds(text: str) -> dict[str, tuple[int, ...]]:
    return {
        match[1]: tuple(integer(part.strip()) or 0 for part in match[2].split(",") if part.strip())
        for match in _BOUND.finditer(text)
    }


def _opcodes(text: str) -> Iterator[str]:
    for match in _OPCODE.finditer(text):
        yield match[1]
