"""Where the lines of a hunk stand in a file: every place that fits, the one that git takes."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sparkbuild.source.patching.unified import Hunk

_MARGIN: Final = 2
"""Lines shown around the nearest place of a conflict."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Where a hunk fits: 0-based lines of the file before the change."""

    every: tuple[int, ...]
    """All places that hold its old lines, byte for byte."""
    taken: int | None
    """The one that git would take, or None."""
    there: tuple[int, ...]
    """All places that hold its new lines already."""


def occurrences(content: Sequence[bytes], wanted: Sequence[bytes]) -> tuple[int, ...]:
    """Every line at which ``wanted`` stands, whole and in order."""
    if not wanted:
        return ()
    first, size = wanted[0], len(wanted)
    return tuple(
        at
        for at in range(len(content) - size + 1)
        if content[at] == first and tuple(content[at : at + size]) == tuple(wanted)
    )


def fit(content: Sequence[bytes], hunk: Hunk, floor: int = 0) -> Fit:
    """Where a hunk fits; places before line ``floor`` belong to hunks before it.

    As git does: the nearest place of all, the one further down where two are as near; a hunk
    without lines behind its change belongs to the end of the file, one made for line 1 to its
    beginning.
    """
    old = hunk.old
    every = occurrences(content, old) if old else (0,) if not content else ()
    wish = max(hunk.old_start - 1, 0)
    open_to = [
        at
        for at in every
        if at >= floor
        and (hunk.trailing or at + len(old) == len(content))
        and (hunk.old_start > 1 or at == 0)
    ]
    taken = min(open_to, key=lambda at: (abs(at - wish), at < wish), default=None)
    return Fit(every=every, taken=taken, there=occurrences(content, hunk.new))


def applied(content: Sequence[bytes], hunks: Sequence[tuple[Hunk, int]]) -> bytes:
    """The file with each hunk put at its line; they must be in order and not overlap."""
    result: list[bytes] = []
    at = 0
    for hunk, line in hunks:
        result.extend(content[at:line])
        result.extend(hunk.new)
        at = line + len(hunk.old)
    result.extend(content[at:])
    return b"".join(result)


def nearest(content: Sequence[bytes], hunk: Hunk) -> tuple[int, tuple[bytes, ...]]:
    """The lines of a file that are most like those that a hunk expects, and where they begin.

    Every line that both have votes for how far the hunk moved, a rare one with more weight.
    """
    old = hunk.old
    places = collections.defaultdict(list)
    for number, line in enumerate(content):
        places[line].append(number)
    votes: collections.Counter[int] = collections.Counter()
    for number, line in enumerate(old):
        for at in places.get(line, ()):
            votes[at - number] += 1_000_000 // len(places[line]) if line.strip() else 1
    wish = max(hunk.old_start - 1, 0)
    start = max(votes, key=lambda at: (votes[at], -abs(at - wish)), default=wish)
    start = min(max(start, 0), max(len(content) - 1, 0))
    begin, end = max(0, start - _MARGIN), min(len(content), start + len(old) + _MARGIN)
    return begin, tuple(content[begin:end])


def change_lines(hunk: Hunk) -> tuple[int, ...]:
    """Of each run of changes in a hunk: how many of its old lines stand before it."""
    found, old, inside = [], 0, False
    for line in hunk.lines:
        changed = not line.startswith(b" ")
        if changed and not inside:
            found.append(old)
        inside = changed
        old += not line.startswith(b"+")
    return tuple(found)
