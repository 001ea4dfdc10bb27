"""Apply patches to a tree in a temporary index: exactly where they were made for, or not at all."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sparkbuild.errors import PatchError, SparkbuildError
from sparkbuild.manifest import PatchEntry, Patchset
from sparkbuild.source.digest import Inventory
from sparkbuild.source.entries import EXECUTABLE, REGULAR, path_problem
from sparkbuild.source.gitdoor import GitFailedError, Repository, said
from sparkbuild.source.model import AppliedPatch, SourceTree
from sparkbuild.source.objects import AUTHOR, damaged, tree_of
from sparkbuild.source.store import PatchedRecord, Store, patched_ref

_ELSEWHERE: Final = re.compile(r"^Hunk #\d+ succeeded at .*offset|^Context reduced", re.MULTILINE)
"""What ``git apply --verbose`` says of a hunk that it placed by searching."""

_GONE: Final = "000000"


def apply_patches(
    store: Store, key: str, source: SourceTree, patchset: Patchset, files: Sequence[Path]
) -> PatchedRecord:
    """Apply ``files``, the patches of the set in order; call it while ``store.writing``.

    Raises PatchError for a patch that does not apply, lands at an offset, is there already,
    changes nothing, or touches what is not a plain text file below the declared paths.
    """
    repository = Repository(store.root)
    try:
        with store.scratch() as scratch:
            work = Repository(store.root, index=scratch / "index")
            work.must("read-tree", source.tree)
            applied, tree = [], source.tree
            for entry, file in zip(patchset.patches, files, strict=True):
                done, tree = _apply(work, tree, entry, file, patchset.source.paths)
                applied.append(done)
        commit = _commit(repository, source, tree, applied)
    except GitFailedError as error:
        raise damaged(store, source.commit, str(error)) from error
    record = PatchedRecord(commit=commit, tree=tree, patches=tuple(applied))
    if tree_of(repository, commit) != tree:
        raise damaged(store, commit, f"its tree is not {tree}")
    store.remember_patched(key, record)
    repository.must("update-ref", patched_ref(key), commit)
    return record


def _apply(
    work: Repository, before: str, entry: PatchEntry, file: Path, paths: tuple[str, ...]
) -> tuple[AppliedPatch, str]:
    """Apply one patch to the index; what it touched, and the tree with it."""
    _refuse_binary(work, entry, file)
    back = work.run(*_APPLY, "--check", "--reverse", "--", str(file))
    if back.status == 0 and not _ELSEWHERE.search(back.err):
        raise _refused(entry, file, "is in the source already", "take it off the manifest")
    forth = work.run(*_APPLY, "--", str(file))
    if forth.status != 0:
        raise _refused(entry, file, "does not apply", _REMAKE, [said(forth.err)], forth.err)
    moved = [line for line in forth.err.splitlines() if _ELSEWHERE.search(line)]
    if moved:
        raise _refused(entry, file, "lands elsewhere than it was made for", _REMAKE, moved)
    touched = list(_touched(work, before))
    problems = list(_path_problems(touched, Inventory(paths)))
    if problems:
        raise _refused(entry, file, "touches what it may not", "edit the patch", problems)
    if not touched:
        raise _refused(entry, file, "changes nothing", "take it off the manifest")
    names = tuple(path for path, _ in touched)
    done = AppliedPatch(file=entry.file, sha256=entry.sha256, reason=entry.reason, touched=names)
    return done, work.must("write-tree").text


_APPLY: Final = ("apply", "--cached", "--verbose", "--whitespace=nowarn", "-p1")
_REMAKE: Final = "make the patch anew against the pinned source, or pin the source it was made for"


def _refuse_binary(work: Repository, entry: PatchEntry, file: Path) -> None:
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


def _touched(work: Repository, before: str) -> Iterator[tuple[str, str]]:
    """Path and new mode of every file that differs between the index and a tree."""
    arguments = ("diff-index", "--cached", "--raw", "-z", "--no-renames", before, "--")
    fields = work.must(*arguments).out.split(b"\0")
    for facts, path in zip(fields[0::2], fields[1::2], strict=False):
        yield path.decode(errors="surrogateescape"), facts.split(b" ")[1].decode()


def _path_problems(touched: list[tuple[str, str]], declared: Inventory) -> Iterator[str]:
    for path, mode in touched:
        problem = path_problem(path)
        if problem is not None:
            yield f"{path!r}: {problem}"
        elif not declared.wants(path):
            yield f"{path}: outside the declared paths"
        elif mode not in {REGULAR, EXECUTABLE, _GONE}:
            yield f"{path}: mode {mode}; a patch may make regular files only"


def _commit(
    repository: Repository, source: SourceTree, tree: str, applied: list[AppliedPatch]
) -> str:
    """A commit on top of the pin that depends on the patches' content and order only."""
    lines = [f"Patch-Digest: {patch.sha256}" for patch in applied]
    body = "\n".join(["Patched source", "", *lines, ""])
    content = f"tree {tree}\nparent {source.commit}\nauthor {AUTHOR}\ncommitter {AUTHOR}\n\n{body}"
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
