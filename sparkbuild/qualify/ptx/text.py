"""The text of a module: which line an offset is in, which brace closes which, without its comments.

Braces are found with numpy, so that megabytes of kernels that nobody asks for cost milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from sparkbuild.qualify.fault import PtxError

COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUIET: Final = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


class Text:
    """A module's text with an index of its lines and braces."""

    def __init__(self, text: str) -> None:
        self.text = text
        raw = np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8)
        self._newlines = np.flatnonzero(raw == ord("\n"))
        braces = np.flatnonzero((raw == ord("{")) | (raw == ord("}")))
        opens = raw[braces] == ord("{")
        hidden = self._hidden(braces)
        if hidden is not None:
            braces, opens = braces[~hidden], opens[~hidden]
        self._braces = braces
        self._depth = np.cumsum(np.where(opens, 1, -1))
        self._closing = braces[self._depth == 0]
        if self._depth.size and self._depth.min() < 0:
            raise PtxError("a brace closes nothing", self.line(int(braces[self._depth < 0][0])))

    def line(self, offset: int) -> int:
        """The line that holds the character at ``offset``, counted from 1."""
        return int(np.searchsorted(self._newlines, offset)) + 1

    def close(self, offset: int) -> int:
        """Where the brace at ``offset``, of the outermost level, is closed."""
        at = int(np.searchsorted(self._closing, offset))
        if at == self._closing.size:
            raise PtxError("a brace is never closed", self.line(offset))
        return int(self._closing[at])

    def _hidden(self, braces: np.ndarray[tuple[int], np.dtype[np.intp]]) -> np.ndarray | None:
        """Which braces stand in comments or strings; None where no comment or string has one."""
        hidden = None
        for begin, end in _quiet(self.text):
            first, last = np.searchsorted(braces, (begin, end))
            if last > first:
                hidden = np.zeros(braces.size, dtype=bool) if hidden is None else hidden
                hidden[first:last] = True
        return hidden


def _quiet(text: str) -> Iterator[tuple[int, int]]:
    """Comments and strings that hold a brace, as offsets."""
    find = text.find
    slash, quote = find("/"), find('"')
    while slash >= 0 or quote >= 0:
        begin = slash if quote < 0 or 0 <= slash < quote else quote
        match = _QUIET.match(text, begin)
        end = match.end() if match else begin + 1
        if match and (find("{", begin, end) >= 0 or find("}", begin, end) >= 0):
            yield begin, end
        slash = find("/", end) if 0 <= slash < end else slash
        quote = find('"', end) if 0 <= quote < end else quote


def plain(text: str) -> str:
    """The text with a space for each comment."""
    return COMMENT.sub(" ", text) if "/" in text else text
