"""Whether a hunk lands in the function that it was made for, not only where its lines fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sparkbuild.source.gitdoor import Repository
from sparkbuild.source.patching.functions import (
    Place,
    driver_of,
    headings,
    places,
)
from sparkbuild.source.patching.place import Fit, change_lines
from sparkbuild.source.patching.scopes import one_line
from sparkbuild.source.patching.unified import Hunk

_MOST: Final = 64
"""Places looked at; a hunk that fits at more of them says nothing about where it belongs."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A hunk in the source that it was made for."""

    content: tuple[bytes, ...]
    line: int
    every: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Landing:
    """What encloses a hunk where git puts it, what should, and why the two are not one."""

    function: str = ""
    expected: str = ""
    reason: str = ""


def landing(
    repository: Repository,
    path: str,
    content: Sequence[bytes],
    hunk: Hunk,
    where: Fit,
    origin: Origin | None,
) -> Landing:
    """Judge the place that git takes for a hunk; without an origin, by the hunk's own heading.

    Raises GitFailedError.
    """
    if where.taken is None:
        return Landing()
    if len(where.every) > _MOST:
        return Landing(reason=f"its lines stand at {len(where.every)} places of the file")
    if origin is None:
        return _by_heading(repository, path, content, hunk, where)
    return _by_origin(repository, path, content, hunk, where, origin)


def _by_heading(
    repository: Repository, path: str, content: Sequence[bytes], hunk: Hunk, where: Fit
) -> Landing:
    """Compare with what stands behind the ``@@``, which git of its author wrote."""
    assert where.taken is not None  # noqa: S101 - the caller asked
    data = b"".join(content)
    drivers = dict.fromkeys([driver_of(path), None])
    found = {one: headings(repository, data, where.every, one) for one in drivers}
    at = where.every.index(where.taken)
    here = next(iter(found.values()))[at]
    if not hunk.function:
        return Landing(function=here)
    right = [
        line
        for number, line in enumerate(where.every)
        if any(_same_heading(hunk.function, names[number]) for names in found.values())
    ]
    reason = "" if where.taken in right else _elsewhere(here, hunk.function, right)
    return Landing(function=here, expected=hunk.function, reason=reason)


def _same_heading(written: str, found: str) -> bool:
    """Headings are cut off, at lengths that differ between programs."""
    written, found = written.strip(), found.strip()
    if not found or not written:
        return False
    return found.startswith(written) or written.startswith(found)


def _by_origin(
    repository: Repository,
    path: str,
    content: Sequence[bytes],
    hunk: Hunk,
    where: Fit,
    origin: Origin,
) -> Landing:
    assert where.taken is not None  # noqa: S101 - the caller asked
    driver, runs = driver_of(path), change_lines(hunk)
    before = _all_places(repository, origin.content, origin.every, runs, driver)
    after = _all_places(repository, content, where.every, runs, driver)
    was, now = before[origin.line], after[where.taken]
    plain = one_line(b"".join(content).decode(errors="replace"))
    right = [line for line in where.every if _all_same(was, after[line], plain)]
    told = Landing(function=str(now[0]), expected=str(was[0]))
    if where.taken not in right:
        pairs = zip(was, now, strict=True)
        wrong = next(n for n, (old, new) in enumerate(pairs) if not old.same(new, plain))
        reason = _elsewhere(str(now[wrong]), str(was[wrong]), right)
        return Landing(function=str(now[wrong]), expected=str(was[wrong]), reason=reason)
    alike = [line for line in origin.every if before[line] == was]
    number, here = alike.index(origin.line), right.index(where.taken)
    if (number, len(alike)) == (here, len(right)):
        return told
    made = f"number {number + 1} of {len(alike)}" if len(alike) > 1 else "the only one"
    return Landing(
        function=told.function,
        expected=told.expected,
        reason=f"its lines stand {len(right)} times in {told.function}: made for {made}, git takes "
        f"number {here + 1}",
    )


def _all_places(
    repository: Repository,
    content: Sequence[bytes],
    lines: Sequence[int],
    runs: Sequence[int],
    driver: str | None,
) -> dict[int, tuple[Place, ...]]:
    """For each place of a hunk, what encloses each of its runs of changes."""
    asked = [line + run for line in lines for run in runs]
    found = places(repository, b"".join(content), asked, driver)
    size = len(runs)
    return {
        line: tuple(found[number * size : (number + 1) * size]) for number, line in enumerate(lines)
    }


def _all_same(was: Sequence[Place], now: Sequence[Place], plain: str) -> bool:
    return all(old.same(new, plain) for old, new in zip(was, now, strict=True))


def _elsewhere(here: str, meant: str, right: Sequence[int]) -> str:
    also = f"; its lines also stand there, at line {right[0] + 1}" if right else ""
    return f"lands in {here or 'no function'}, was made for {meant or 'no function'}{also}"
