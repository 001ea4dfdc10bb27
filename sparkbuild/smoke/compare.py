"""Comparisons inside one check: all are made, all mismatches told, none made is a failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SHOWN: Final = 4
"""Mismatches that a finding spells out; the count of all is told."""


class Comparisons:
    """Counts comparisons and keeps the mismatches."""

    def __init__(self, expected: str) -> None:
        self.expected = expected
        """What the check wants, in words; a check that knows better says so."""
        self.made = 0
        self.mismatches: list[str] = []

    def equal(self, what: str, expected: object, found: object) -> None:
        """The two must be equal."""
        self.holds(f"{what}: expected {expected!r}, found {found!r}", expected == found)

    def tokens(self, what: str, expected: Sequence[int], found: Sequence[int]) -> None:
        """The two must be equal; a mismatch names the first place."""
        self.made += 1
        if list(expected) == list(found):
            return
        pairs = zip(expected, found, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(found)))
        self.mismatches.append(
            f"{what}: differs from token {at} on, expected {_window(expected, at)}, "
            f"found {_window(found, at)}"
        )

    def holds(self, otherwise: str, condition: bool) -> None:
        """The condition must hold; ``otherwise`` is the mismatch's text."""
        self.made += 1
        if not condition:
            self.mismatches.append(otherwise)

    @property
    def passed(self) -> bool:
        """True where at least one comparison was made and all were well."""
        return self.made > 0 and not self.mismatches

    def found(self, summary: str) -> str:
        """What was found: ``summary`` where all is well, else the mismatches."""
        if self.passed:
            return summary
        if not self.made:
            return "nothing was compared"
        shown = "; ".join(self.mismatches[:_SHOWN])
        more = len(self.mismatches) - _SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown


def _window(tokens: Sequence[int], at: int) -> str:
    shown = list(tokens[at : at + 6])
    return f"{shown}" if shown else "the end"
