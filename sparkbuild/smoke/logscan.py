"""Search a server's log for lines that no healthy server writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from sparkbuild.smoke.suite import LogPattern

_LONGEST: Final = 240
"""Characters of a log line that a finding quotes."""


class Hit(msgspec.Struct, frozen=True):
    """A line that should not be there: its number from 1, its text, why it counts."""

    number: int
    line: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.line} ({self.reason})"


def scan(text: str, patterns: Sequence[LogPattern]) -> list[Hit]:
    """Every line that matches a pattern, each once, by the first pattern that finds it."""
    compiled = [(re.compile(entry.pattern), entry.reason) for entry in patterns]
    hits = []
    for number, line in enumerate(text.split("\n"), start=1):
        for pattern, reason in compiled:
            if pattern.search(line):
                hits.append(Hit(number=number, line=line.strip()[:_LONGEST], reason=reason))
                break
    return hits
