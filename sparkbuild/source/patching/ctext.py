"""Read C and C++ enums and string tables from source text: no compiler, every branch of ``#if``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparkbuild.source.patching.cnumber import MOST, Token, Values, evaluate

_TOKEN: Final = re.compile(
    r"""(?P<skip>[ \t\r\f\v]+|\\\n|//[^\n]*|/\*.*?\*/)
      | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
      | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<char>[uUL]?'(?:\\.|[^'\\\n])+')
      | (?P<word>[A-Za-z_]\w*)
      | (?P<line>\n)
      | (?P<sign><<|>>|::|.)""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE: Final = re.compile(r"#[ \t]*(\w+)[ \t]*(.*)", re.DOTALL)
_Known = dict[str, Values | str]


@dataclass(frozen=True, kw_only=True)
class Enumerator:
    """One enumerator: its enum (by name, or by its first enumerator) and what it can be.

    ``value`` has one number, several where ``#if`` decides, or is the text that gives it.
    """

    enum: str
    name: str
    value: Values | str

    @property
    def shown(self) -> str:
        """The value as text, equal where the values are."""
        if isinstance(self.value, str):
            return self.value
        return " or ".join(map(str, sorted(self.value)))


def tokens(text: str) -> Iterator[Token]:
    """Words, numbers, strings, signs and whole preprocessor lines; comments are gone."""
    at, fresh = 0, True
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None  # noqa: S101 - the last alternative takes any character
        kind = match.lastgroup or "sign"
        if kind == "tag":
            kind = "raw"
        at = match.end()
        if kind == "line":
            fresh = True
        elif kind == "sign" and match[0] == "#" and fresh:
            line, at = _directive(text, match.start())
            yield Token("directive", line)
        elif kind != "skip":
            fresh = False
            yield Token("string" if kind == "raw" else kind, match[0])


def _directive(text: str, start: int) -> tuple[str, int]:
    """A preprocessor line without its comments, and where the next line begins."""
    at, kept = start, []
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None  # noqa: S101 - as above
        if match.lastgroup == "line":
            break
        kept.append(" " if match.lastgroup == "skip" else match[0])
        at = match.end()
    return "".join(kept).strip(), at


def enumerators(text: str) -> tuple[Enumerator, ...]:
    """Every enumerator of every enum with a body, in order."""
    known: _Known = {}
    found: list[Enumerator] = []
    stream = list(tokens(text))
    at = 0
    while at < len(stream):
        if stream[at] == Token("word", "enum"):
            name, body = _heading(stream, at + 1)
            if body is not None:
                end = _closing(stream, body)
                found += _body(name, stream[body + 1 : end], known)
                at = end
        at += 1
    return tuple(found)


def _heading(stream: Sequence[Token], at: int) -> tuple[str, int | None]:
    """An enum's name, and where its ``{`` is; None where the word only names a type."""
    name = ""
    for number in range(at, min(at + 24, len(stream))):
        token = stream[number]
        if token.text == "{":
            return name, number
        if token.text in {";", ")", ",", "=", "*", "(", "&", ">", "}"} or token.kind == "directive":
            return name, None
        if token.text == ":" and not name:
            name = "enum"
        if token.kind == "word" and token.text not in {"class", "struct"} and not name:
            name = token.text
    return name, None


def _closing(stream: Sequence[Token], at: int) -> int:
    depth = 0
    for number in range(at, len(stream)):
        depth += {"{": 1, "}": -1}.get(stream[number].text, 0)
        if depth == 0:
            return number
    return len(stream)


@dataclass
class _Branch:
    """An ``#if`` inside an enum: the next value before it, and after each branch so far."""

    before: Values | str
    after: list[Values | str] = field(default_factory=list)
    complete: bool = False
    dead: bool = False


def _body(name: str, stream: Sequence[Token], known: _Known) -> list[Enumerator]:
    """The enumerators between an enum's braces; ``known`` has those before, and gets these."""
    found: dict[str, Enumerator] = {}
    following: Values | str = frozenset({0})
    branches: list[_Branch] = []
    pending: list[Token] = []
    for token in [*stream, Token("sign", ",")]:
        if token.kind != "directive" and token.text != ",":
            pending.append(token)
            continue
        if token.text == "," and _depth(pending):
            pending.append(token)
            continue
        if pending and not any(branch.dead for branch in branches):
            one, following = _enumerator(name or pending[0].text, pending, following, known)
            name = name or one.name
            if one.name in found:  # in another branch
                both = _either([found[one.name].value, one.value])
                one = Enumerator(enum=name, name=one.name, value=both)
            found[one.name] = one
            known[one.name] = one.value
        pending = []
        if token.kind == "directive":
            following = _branched(token.text, branches, following)
    return list(found.values())


def _depth(stream: Sequence[Token]) -> int:
    return sum({"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(t.text, 0) for t in stream)


def _branched(text: str, branches: list[_Branch], following: Values | str) -> Values | str:
    """The next value behind a preprocessor line."""
    match = _DIRECTIVE.match(text)
    word = match[1] if match else ""
    if word in {"if", "ifdef", "ifndef"}:
        dead = word == "if" and match is not None and match[2].strip() == "0"
        branches.append(_Branch(before=following, dead=dead))
    elif word in {"else", "elif"} and branches:
        branch = branches[-1]
        if not branch.dead:
            branch.after.append(following)
        branch.complete = word == "else"
        branch.dead = False
        return branch.before
    elif word == "endif" and branches:
        branch = branches.pop()
        ends = branch.after if branch.dead else [*branch.after, following]
        return _either(ends if branch.complete else [*ends, branch.before])
    return following


def _either(values: Sequence[Values | str]) -> Values | str:
    if all(isinstance(value, frozenset) for value in values):
        union = frozenset().union(*(value for value in values if isinstance(value, frozenset)))
        return frozenset(sorted(union)[:MOST])
    return " or ".join(dict.fromkeys(v if isinstance(v, str) else _text(v) for v in values))


def _text(value: Values) -> str:
    return " or ".join(map(str, sorted(value)))


def _enumerator(
    enum: str, stream: Sequence[Token], following: Values | str, known: _Known
) -> tuple[Enumerator, Values | str]:
    """One enumerator, and the value that the next would get by itself."""
    name = stream[0].text
    sign = next((n for n, token in enumerate(stream) if token.text == "="), None)
    value = following if sign is None else evaluate(stream[sign + 1 :], known)
    if isinstance(value, str):
        return Enumerator(enum=enum, name=name, value=value), f"{name} + 1"
    one = Enumerator(enum=enum, name=name, value=value)
    return one, frozenset(number + 1 for number in value)


def tables(text: str, wanted: re.Pattern[str]) -> dict[str, dict[str, str]]:
    """String tables by name: ``NAME = { { KEY, "text" }, ... }`` or ``{ [KEY] = "text", ... }``."""
    stream = [token for token in tokens(text) if token.kind != "directive"]
    found: dict[str, dict[str, str]] = {}
    for at, token in enumerate(stream):
        if token.kind != "word" or not wanted.fullmatch(token.text):
            continue
        opening = next((n for n in range(at + 1, min(at + 8, len(stream)))
                        if stream[n].text == "{"), None)  # fmt: skip
        signs = {stream[n].text for n in range(at + 1, opening or at)}
        if opening is not None and signs <= {"=", "[", "]"}:
            body = stream[opening + 1 : _closing(stream, opening)]
            found[token.text] = {**found.get(token.text, {}), **dict(_pairs(body))}
    return found


def _pairs(stream: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Each string with the word before it: adjacent strings are one."""
    key = ""
    at = 0
    while at < len(stream):
        token = stream[at]
        if token.kind == "word":
            scoped = at > 1 and stream[at - 1].text == "::"
            key = f"{key}::{token.text}" if scoped else token.text
        elif token.kind == "string" and key:
            text = ""
            while at < len(stream) and stream[at].kind == "string":
                text += _string(stream[at].text)
                at += 1
            yield key, text
            key = ""
            continue
        at += 1


def _string(literal: str) -> str:
    """A literal's content; escapes stay as they are written, which is enough to compare."""
    if 'R"' in literal[:4]:
        return literal.partition("(")[2].rpartition(")")[0]
    return literal.partition('"')[2].removesuffix('"')


def defines(text: str, wanted: re.Pattern[str]) -> dict[str, str]:
    """``#define NAME "text"`` by name."""
    found = {}
    for token in tokens(text):
        match = re.match(r'#[ \t]*define[ \t]+(\w+)[ \t]+("(?:\\.|[^"\\])*")\s*$', token.text)
        if token.kind == "directive" and match and wanted.fullmatch(match[1]):
            found[match[1]] = _string(match[2])
    return found
