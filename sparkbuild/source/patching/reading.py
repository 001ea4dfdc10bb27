"""A patch of a set as its file has it: what it changes, and what is wrong with the file itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkbuild.files import sha256_bytes
from sparkbuild.manifest import PatchEntry
from sparkbuild.source.digest import Inventory
from sparkbuild.source.entries import EXECUTABLE, REGULAR, path_problem
from sparkbuild.source.patching.mail import read_mail
from sparkbuild.source.patching.unified import Change, DiffError, parse

GONE = "000000"
"""What git calls the mode of a file that is deleted."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A patch of a set, read."""

    entry: PatchEntry
    file: Path
    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    """Why the file is not what a patch may be; it is not applied then."""
    lacks: tuple[str, ...] = ()
    """Parts that its header must have and does not; it is applied, and refused all the same."""


def read_patch(entry: PatchEntry, file: Path, declared: Inventory) -> Patch:
    """Read a patch file; what is wrong with it is kept, not raised. ``declared``: the paths."""
    try:
        data = file.read_bytes()
    except OSError as error:
        return Patch(entry=entry, file=file, problems=(f"{file}: {error.strerror}",))
    found = sha256_bytes(data)
    if found != entry.sha256:
        reason = f"expected sha256 {entry.sha256}, found {found}"
        return Patch(entry=entry, file=file, problems=(reason,))
    lacks = () if entry.remote else read_mail(data).problems
    try:
        changes = parse(data)
    except DiffError as error:
        return Patch(entry=entry, file=file, problems=(str(error),), lacks=lacks)
    problems = tuple(change_problems(changes, declared))
    return Patch(entry=entry, file=file, changes=changes, problems=problems, lacks=lacks)


def change_problems(changes: Sequence[Change], declared: Inventory) -> Iterator[str]:
    """Why a patch may not do what it says, apart from the tree that it is applied to."""
    seen: set[str] = set()
    for change in changes:
        if change.binary:
            yield f"binary change of {change.path}"
        if change.path in seen:
            yield f"{change.path}: changed twice by one patch"
        seen.add(change.path)
        for path in dict.fromkeys(p for p in (change.old, change.new) if p is not None):
            problem = path_problem(path)
            if problem is not None:
                yield f"{path!r}: {problem}"
            elif not declared.wants(path):
                yield f"{path}: outside the declared paths"
        for mode in change.modes:
            if mode not in {REGULAR, EXECUTABLE}:
                yield f"{change.path}: mode {mode}; a patch may make regular files only"


def touch_problems(touched: Sequence[tuple[str, str]], declared: Inventory) -> Iterator[str]:
    """Why files (path and new mode) may not come out of a patch."""
    for path, mode in touched:
        problem = path_problem(path)
        if problem is not None:
            yield f"{path!r}: {problem}"
        elif not declared.wants(path):
            yield f"{path}: outside the declared paths"
        elif mode not in {REGULAR, EXECUTABLE, GONE}:
            yield f"{path}: mode {mode}; a patch may make regular files only"
