"""What encloses a line of C++ or Python: functions and types, from the outside in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

_IGNORED: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"
      |"(?:\\.|[^"\\\n])*"|(?<![\w'])'(?:\\.|[^'\\\n])+'""",
    re.VERBOSE | re.DOTALL,
)
_CONTROL: Final = re.compile(r"(?:else\b|do\b|try\b|(?:if|for|while|switch|catch)\b)")
_TYPE: Final = re.compile(r"(?:typedef )?(?:template ?<.*> ?)?(?:struct|class|union|enum)\b")
_INITIALISERS: Final = re.compile(r"\) ?(?:noexcept ?)?: ?(?!:)(?=[^?]*$)")
"""Where begins what a constructor has between its parameters and its body."""

_MEMBER: Final = re.compile(r"\) ?(?:noexcept ?)?: ?(?!:)[^?]*[\w>]$")
"""The same, up to a member that is initialised in braces."""

_BLANKS: Final = re.compile(r"\s+")
_DEFINITION: Final = re.compile(r"(?:async )?(?:def|class) .*")

Chain = tuple[str, ...]
"""Heads of what encloses a line, each on one line, the outermost first."""


def chains(content: Sequence[bytes], lines: Iterable[int], driver: str | None) -> dict[int, Chain]:
    """For each line (0-based, the one that an insertion would come before): what encloses it.

    Nothing where the language is none of the two.
    """
    wanted = sorted(set(lines))
    reader: Callable[[Sequence[str], Sequence[int]], dict[int, Chain]] | None
    reader = {"cpp": _braces, "python": _indents}.get(driver or "")
    if reader is None:
        return dict.fromkeys(wanted, ())
    text = b"".join(content).decode(errors="replace")
    if driver == "cpp":
        text = _IGNORED.sub(_blanked, text)
    return reader(re.split(r"(?<=\n)", text), wanted)


def _blanked(match: re.Match[str]) -> str:
    """As many lines as before, with nothing on them; a string stays a word."""
    return ("" if match[0].startswith("/") else '""') + "\n" * match[0].count("\n")


@dataclass
class _Scopes:
    """The braces that are open, and the head of what may come next."""

    open: list[str] = field(default_factory=list)
    """The head of each; empty where it is neither function nor type."""
    head: str = ""
    kept: list[str] = field(default_factory=list)
    """For each open brace, what its head goes on with: a constructor's ``: field{}`` is no body."""

    def read(self, line: str) -> None:
        for part in re.split(r"([{};])", line):
            if part == "{":
                member = bool(_MEMBER.search(one_line(self.head)))
                self.open.append("" if member else _scope(self.head))
                self.kept.append(f"{self.head}()" if member else "")
                self.head = ""
            elif part == "}":
                self.head = self.kept.pop() if self.kept else ""
                self.open = self.open[:-1]
            elif part == ";":
                # a for's head holds semicolons: it is none that counts
                self.head = ""
            else:
                self.head += f" {part}"

    @property
    def chain(self) -> Chain:
        return tuple(head for head in self.open if head)


def _scope(head: str) -> str:
    """The head of a function, a lambda or a type; empty for a block, a list, a namespace."""
    plain = one_line(head)
    plain = re.sub(r"^(?:(?:public|private|protected) ?: ?)+", "", plain)
    if _CONTROL.match(plain) or plain.startswith(("namespace", "extern", "case ", "default ")):
        return ""
    if "(" in plain and ")" in plain:
        if plain.endswith(("=", ",", "(")):
            return ""
        return _without_initialisers(plain)
    return plain.partition(" : ")[0] if _TYPE.match(plain) else ""


def _without_initialisers(head: str) -> str:
    """A head up to its parameters: a colon inside of other parentheses is of a ``? :``."""
    for match in _INITIALISERS.finditer(head):
        before = head[: match.start() + 1]
        if before.count("(") == before.count(")"):
            return before
    return head


def one_line(text: str) -> str:
    """A text with every run of blanks as one blank."""
    return _BLANKS.sub(" ", text).strip()


def _braces(lines: Sequence[str], wanted: Sequence[int]) -> dict[int, Chain]:
    scopes = _Scopes()
    kept: list[tuple[list[str], list[str], str]] = []
    found: dict[int, Chain] = {}
    todo = list(reversed(wanted))
    continued = False
    for number in range(len(lines) + 1):
        while todo and todo[-1] == number:
            found[todo.pop()] = scopes.chain
        if number == len(lines):
            break
        line = lines[number]
        directive = line.lstrip()
        if continued or directive.startswith("#"):
            continued = line.rstrip().endswith("\\")
            word = directive[1:].lstrip()
            if directive.startswith("#") and word.startswith("if"):
                kept.append((list(scopes.open), list(scopes.kept), scopes.head))
            elif directive.startswith("#") and word.startswith(("else", "elif")) and kept:
                open_, going_on, scopes.head = kept[-1]
                scopes.open, scopes.kept = list(open_), list(going_on)
            elif directive.startswith("#") and word.startswith("endif") and kept:
                kept.pop()
            continue
        scopes.read(line)
    return {**dict.fromkeys(wanted, ()), **found}


def _indents(lines: Sequence[str], wanted: Sequence[int]) -> dict[int, Chain]:
    """By indentation: a line belongs to each ``def`` and ``class`` above that is less indented."""
    found = {}
    for line in wanted:
        depth, chain = _depth(lines[line : line + 1]), []
        if line >= len(lines) or not lines[line].strip():
            following = (text for text in lines[line:] if text.strip())
            depth = _depth([next(following, "")])
        for text in reversed(lines[:line]):
            if text.strip() and _depth([text]) < depth:
                depth = _depth([text])
                head = text.strip()
                if _DEFINITION.match(head):
                    chain.append(head.rstrip(":"))
        found[line] = tuple(reversed(chain))
    return found


def _depth(lines: Sequence[str]) -> int:
    return len(lines[0]) - len(lines[0].lstrip(" \t")) if lines else 0
