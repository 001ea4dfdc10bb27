"""Apply patches to a tree in a temporary index: exactly where they were made for, or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparkbuild.errors import PatchError, SparkbuildError
from sparkbuild.manifest import PatchEntry, Patchset
from sparkbuild.source.digest import Inventory
from sparkbuild.source.gitdoor import GitFailedError, Repository, said
from sparkbuild.source.model import AppliedPatch, HunkFinding, SourceTree, ValueChange
from sparkbuild.source.objects import AUTHOR, damaged, tree_of
from sparkbuild.source.patching.bench import ELSEWHERE, Bench
from sparkbuild.source.patching.judge import misplaced
from sparkbuild.source.patching.reading import Patch, change_problems, touch_problems
from sparkbuild.source.patching.unified import DiffError, parse
from sparkbuild.source.patching.values import value_changes
from sparkbuild.source.store import PatchedRecord, Store, patched_ref


def apply_patches(
    store: Store, key: str, source: SourceTree, patchset: Patchset, files: Sequence[Path]
) -> PatchedRecord:
    """Apply ``files``, the patches of the set in order; call it while ``store.writing``.

    Raises PatchError for a patch that does not apply, lands at an offset, is there already,
    changes nothing, or touches what is not a plain text file below the declared paths; and where
    a value that model files hold would move.
    """
    repository = Repository(store.root)
    declared = Inventory(patchset.source.paths)
    try:
        with store.scratch() as scratch:
            bench = Bench(store, scratch)
            bench.set(source.tree)
            applied, tree = [], source.tree
            for entry, file in zip(patchset.patches, files, strict=True):
                done, tree = _apply(bench, tree, entry, file, declared)
                applied.append(done)
            values = value_changes(bench.repository, source.tree, tree)
        _refuse_moved(values, files)
        commit = make_commit(repository, source.commit, tree, [one.sha256 for one in applied])
    except GitFailedError as error:
        raise damaged(store, source.commit, str(error)) from error
    record = PatchedRecord(
        commit=commit, tree=tree, patches=tuple(applied), notes=tuple(map(told, values))
    )
    if tree_of(repository, commit) != tree:
        raise damaged(store, commit, f"its tree is not {tree}")
    store.remember_patched(key, record)
    repository.must("update-ref", patched_ref(key), commit)
    return record


def told(value: ValueChange) -> str:
    """A value that patches changed, in words."""
    reason = f": {value.refused}" if value.refused else ""
    if value.before is None:
        return f"{value.name} is new, {value.after!r} ({value.file}){reason}"
    now = "gone" if value.after is None else repr(value.after)
    return f"{value.name} was {value.before!r} and is {now} ({value.file}){reason}"


def _refuse_moved(values: Sequence[ValueChange], files: Sequence[Path]) -> None:
    moved = [told(value) for value in values if value.refused]
    if moved:
        raise PatchError(
            "the patches move values that model files hold",
            problems=moved,
            evidence=files,
            next_step="give new values numbers behind all others, and leave the old ones alone",
        )


def _apply(
    bench: Bench, before: str, entry: PatchEntry, file: Path, declared: Inventory
) -> tuple[AppliedPatch, str]:
    """Apply one patch to the index; what it touched, and the tree with it."""
    _refuse_unreadable(bench.repository, entry, file)
    try:
        changes = parse(file.read_bytes())
    except DiffError as error:
        raise _refused(entry, file, "is not a patch as it says", _REMAKE, [str(error)]) from error
    problems = list(change_problems(changes, declared))
    if problems:
        raise _refused(entry, file, "touches what it may not", "edit the patch", problems)
    back = bench.apply(file, "--check", "--reverse")
    if back.done and not back.searched:
        raise _refused(entry, file, "is in the source already", "take it off the manifest")
    forth = bench.apply(file)
    if not forth.done:
        raise _refused(entry, file, "does not apply", _REMAKE, [forth.said], forth.err)
    moved = [line for line in forth.err.splitlines() if ELSEWHERE.search(line)]
    if moved:
        raise _refused(entry, file, "lands elsewhere than it was made for", _REMAKE, moved)
    touched = list(bench.touched(before))
    problems = list(touch_problems(touched, declared))
    if problems:
        raise _refused(entry, file, "touches what it may not", "edit the patch", problems)
    if not touched:
        raise _refused(entry, file, "changes nothing", "take it off the manifest")
    other = misplaced(bench, before, Patch(entry=entry, file=file, changes=changes))
    if other:
        problems = [_elsewhere(hunk) for hunk in other]
        raise _refused(entry, file, "is misplaced: not in its own function", _REMAKE, problems)
    names = tuple(path for path, _ in touched)
    done = AppliedPatch(file=entry.file, sha256=entry.sha256, reason=entry.reason, touched=names)
    return done, bench.tree()


def _elsewhere(hunk: HunkFinding) -> str:
    return (
        f"{hunk.file}, hunk {hunk.number}, line {hunk.line}: made for "
        f"{hunk.expected_function or 'no function'}, lands in {hunk.function or 'no function'}"
        f"{hunk.reason and f' ({hunk.reason})'}"
    )


_REMAKE: Final = (
    "make the patch anew against the pinned source (sparkbuild patch refresh), or pin the source "
    "it was made for; sparkbuild patch check shows every patch"
)


def _refuse_unreadable(work: Repository, entry: PatchEntry, file: Path) -> None:
    answer = work.run("apply", "--numstat", "-z", "-p1", "--", str(file))
    if answer.status != 0:
        problems = [said(answer.err)]
        raise _refused(entry, file, "is not a patch that git can read", _REMAKE, problems)
    binary = [
        line.decode(errors="replace").rpartition("\t")[2]
        for line in answer.out.split(b"\0")
        if line.startswith(b"-\t-\t")
    ]
    if binary:
        problems = [f"binary change of {name}" for name in binary]
        raise _refused(entry, file, "changes binary files", "keep patches to text", problems)


def make_commit(repository: Repository, parent: str, tree: str, digests: Sequence[str]) -> str:
    """A commit on top of the pin that depends on the patches' content and order only."""
    lines = [f"Patch-Digest: {digest}" for digest in digests]
    body = "\n".join(["Patched source", "", *lines, ""])
    content = f"tree {tree}\nparent {parent}\nauthor {AUTHOR}\ncommitter {AUTHOR}\n\n{body}"
    with tempfile.TemporaryFile() as text:
        text.write(content.encode())
        text.seek(0)
        return repository.must("hash-object", "-t", "commit", "-w", "--stdin", stdin=text).text


def _refused(
    entry: PatchEntry,
    file: Path,
    what: str,
    next_step: str,
    problems: Sequence[str] = (),
    detail: str = "",
) -> SparkbuildError:
    return PatchError(
        f"patch {entry.file} {what}",
        problems=problems,
        evidence=[file],
        next_step=next_step,
        detail=detail,
    )
