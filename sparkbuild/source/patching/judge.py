"""Judge one patch on one tree: every hunk, where it was made for, where git would put it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from sparkbuild.source.digest import Inventory
from sparkbuild.source.model import HunkFinding, PatchFinding, PatchState
from sparkbuild.source.patching.bench import Bench
from sparkbuild.source.patching.origin import Origin, landing
from sparkbuild.source.patching.place import Fit, applied, fit, nearest
from sparkbuild.source.patching.reading import Patch, touch_problems
from sparkbuild.source.patching.unified import (
    Change,
    Hunk,
    backwards,
    split,
)


def judge(
    bench: Bench, tree: str, patch: Patch, declared: Inventory, made_for: str | None
) -> tuple[PatchFinding, str]:
    """What becomes of a patch on ``tree``, and the tree with it, or as it was.

    ``made_for`` is the tree that the patch was made for, where that is another and known. Raises
    GitFailedError.
    """
    if patch.problems:
        return _finding(patch, "refused", problems=patch.problems), tree
    bench.set(tree)
    back = bench.apply(patch.file, "--check", "--reverse")
    if back.done and not back.searched:
        return _finding(patch, "already upstream"), tree
    forth = bench.apply(patch.file)
    looked = [_look(bench, tree, change, made_for) for change in patch.changes]
    took = back.done and all(_took(bench, one) for one in looked)
    if not forth.done:
        return _not_applied(bench, patch, looked, forth.said, took=took), tree
    touched = list(bench.touched(tree))
    problems = tuple(touch_problems(touched, declared))
    if problems or not touched:
        return _finding(patch, "refused", problems=problems or ("it changes nothing",)), tree
    found = _taken(bench, patch, looked, took=took)
    return found, bench.tree() if found.applied else tree


def misplaced(bench: Bench, tree: str, patch: Patch) -> tuple[HunkFinding, ...]:
    """Hunks of a patch, which git took on ``tree``, that are not in the function they are for."""
    after = bench.tree()
    looked = (_look(bench, tree, change, None) for change in patch.changes)
    placed = (hunk for one in looked for hunk in _placed(bench, after, one))
    return tuple(hunk for hunk in placed if hunk.state == "misplaced")


def _taken(bench: Bench, patch: Patch, looked: Sequence[_Looked], *, took: bool) -> PatchFinding:
    """A patch that git took: where each hunk landed. ``took``: upstream has it."""
    after = bench.tree()
    hunks = tuple(hunk for one in looked for hunk in _placed(bench, after, one))
    if any(hunk.state == "misplaced" for hunk in hunks):
        if took:
            return _finding(patch, "already upstream", notes=(_THERE,))
        return _finding(patch, "misplaced", hunks=hunks)
    offset = any(hunk.state == "offset" for hunk in hunks)
    state: PatchState = "applies with offset" if offset else "applies"
    return _finding(patch, "refused" if patch.lacks else state, hunks=hunks, applied=True)


def _finding(
    patch: Patch,
    state: PatchState,
    *,
    hunks: tuple[HunkFinding, ...] = (),
    problems: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    applied: bool = False,
) -> PatchFinding:
    return PatchFinding(
        file=patch.entry.file,
        reason=patch.entry.reason,
        state=state,
        hunks=hunks,
        problems=tuple(dict.fromkeys((*problems, *patch.lacks))),
        notes=notes,
        applied=applied,
    )


@dataclass(frozen=True, kw_only=True)
class _Looked:
    """One file of a patch: its lines in the tree, where each hunk fits, and where it came from."""

    change: Change
    content: tuple[bytes, ...] | None
    fits: tuple[Fit, ...]
    origins: tuple[Origin | None, ...]


def _look(bench: Bench, tree: str, change: Change, made_for: str | None) -> _Looked:
    content = bench.content(tree, change.old) if change.old else ()
    fits = _fits(content, change.hunks) if content is not None else ()
    origins: tuple[Origin | None, ...] = (None,) * len(change.hunks)
    if made_for is not None and change.old is not None:
        source = bench.content(made_for, change.old)
        if source is not None:
            pairs = zip(change.hunks, _fits(source, change.hunks), strict=True)
            origins = tuple(_origin(source, hunk, one) for hunk, one in pairs)
    return _Looked(change=change, content=content, fits=fits, origins=origins)


def _fits(content: tuple[bytes, ...], hunks: Sequence[Hunk]) -> tuple[Fit, ...]:
    found, floor = [], 0
    for hunk in hunks:
        one = fit(content, hunk, floor)
        found.append(one)
        floor = floor if one.taken is None else one.taken + len(hunk.old)
    return tuple(found)


def _origin(source: tuple[bytes, ...], hunk: Hunk, where: Fit) -> Origin | None:
    """Only a hunk that fits exactly where it says was made for that source."""
    if where.taken is None or where.taken != max(hunk.old_start - 1, 0):
        return None
    return Origin(content=source, line=where.taken, every=where.every)


_THERE: Final = "its lines are there at other places than it says"


def _took(bench: Bench, looked: _Looked) -> bool:
    """Whether the source has a file's new lines in the functions that the patch is about.

    The patch read backwards is judged as the patch itself is.
    """
    change = looked.change
    if change.new is None or looked.content is None or not change.hunks:
        return True
    if change.old is None:
        return True  # git compared the whole file
    known = [origin for origin in looked.origins if origin is not None]
    whole = len(known) == len(change.hunks)
    pairs = [(hunk, origin.line) for hunk, origin in zip(change.hunks, known, strict=False)]
    after = tuple(split(applied(known[0].content, pairs))) if whole else ()
    for hunk in map(backwards, change.hunks):
        where = fit(looked.content, hunk)
        origin = _origin(after, hunk, fit(after, hunk)) if whole else None
        if landing(bench.repository, change.path, looked.content, hunk, where, origin).reason:
            return False
    return True


def _placed(bench: Bench, after: str, looked: _Looked) -> Iterator[HunkFinding]:
    """The hunks of a file that git took: where, how far off, in which function."""
    change, content = looked.change, looked.content or ()
    lines = [one.taken for one in looked.fits]
    known = [line for line in lines if line is not None]
    pairs = list(zip(change.hunks, known, strict=False))
    as_git = len(known) == len(lines) and (
        change.new is None
        or not change.hunks
        or applied(content, pairs) == b"".join(bench.content(after, change.new) or ())
    )
    for number, (hunk, where, origin) in enumerate(
        zip(change.hunks, looked.fits, looked.origins, strict=True), start=1
    ):
        finding = _described(change.path, number, hunk, where)
        if not as_git or where.taken is None:
            reason = "git puts the hunks of this file elsewhere than their lines say"
            yield msgspec.structs.replace(finding, state="misplaced", reason=reason)
            continue
        if change.old is None:
            yield finding
            continue
        found = landing(bench.repository, change.path, content, hunk, where, origin)
        yield msgspec.structs.replace(
            finding,
            state="misplaced" if found.reason else finding.state,
            function=found.function,
            expected_function=found.expected,
            reason=found.reason,
        )


def _described(path: str, number: int, hunk: Hunk, where: Fit) -> HunkFinding:
    made_for = max(hunk.old_start, 1)
    line = None if where.taken is None else where.taken + 1
    offset = line - made_for if line is not None else 0
    return HunkFinding(
        file=path,
        number=number,
        state="offset" if offset else "exact",
        made_for=made_for,
        line=line,
        offset=offset,
        fits=len(where.every),
        function=hunk.function,
        expected_function=hunk.function,
    )


def _not_applied(
    bench: Bench, patch: Patch, looked: Sequence[_Looked], said: str, *, took: bool
) -> PatchFinding:
    """What stands against a patch that git does not take."""
    if took:
        return _finding(patch, "already upstream", notes=(_THERE,))
    hunks = tuple(hunk for one in looked for hunk in _against(bench, one))
    told = any(hunk.state == "conflict" for hunk in hunks)
    problems = (said,) if not told or any(one.content is None for one in looked) else ()
    return _finding(patch, "conflicts", hunks=hunks, problems=problems)


_NOWHERE: Final = Fit(every=(), taken=None, there=())


def _against(bench: Bench, looked: _Looked) -> Iterator[HunkFinding]:
    if looked.content is None:
        for number, hunk in enumerate(looked.change.hunks, start=1):
            finding = _described(looked.change.path, number, hunk, _NOWHERE)
            reason = f"there is no file {looked.change.old}"
            expected = _shown(hunk.old)
            yield msgspec.structs.replace(
                finding, state="conflict", reason=reason, expected=expected
            )
        return
    for number, (hunk, where, origin) in enumerate(
        zip(looked.change.hunks, looked.fits, looked.origins, strict=True), start=1
    ):
        finding = _described(looked.change.path, number, hunk, where)
        if looked.change.old is None:
            yield finding
        elif where.taken is not None:
            found = landing(
                bench.repository, looked.change.path, looked.content, hunk, where, origin
            )
            yield msgspec.structs.replace(
                finding,
                state="misplaced" if found.reason else finding.state,
                function=found.function,
                expected_function=found.expected,
                reason=found.reason,
            )
        elif where.there:
            yield msgspec.structs.replace(
                finding, state="already there", line=where.there[0] + 1,
                reason="the source has its new lines already",
            )  # fmt: skip
        else:
            begin, lines = nearest(looked.content, hunk)
            yield msgspec.structs.replace(
                finding,
                state="conflict",
                reason=_why(where),
                expected=_shown(hunk.old),
                found=_shown(lines),
                found_at=begin + 1,
            )


def _why(where: Fit) -> str:
    if not where.every:
        return "the source does not hold the lines that it expects"
    places = ", ".join(str(line + 1) for line in where.every[:5])
    return f"its lines stand at line {places}, where git may not put it"


def _shown(lines: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(line.decode(errors="replace").removesuffix("\n") for line in lines)
