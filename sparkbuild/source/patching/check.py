"""Every patch of a variant on a base, in one run: what fails does not hide what comes after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparkbuild.errors import SparkbuildError
from sparkbuild.manifest import PatchEntry, Patchset
from sparkbuild.source.digest import Inventory
from sparkbuild.source.gitdoor import GitFailedError
from sparkbuild.source.model import Checked, HunkFinding, PatchFinding
from sparkbuild.source.objects import damaged
from sparkbuild.source.patches import make_commit
from sparkbuild.source.patching.bases import PIN, Ground
from sparkbuild.source.patching.bench import Bench
from sparkbuild.source.patching.judge import judge
from sparkbuild.source.patching.reading import Patch, read_patch
from sparkbuild.source.patching.values import value_changes
from sparkbuild.source.prepare import patch_file
from sparkbuild.source.store import Store


@dataclass(frozen=True, kw_only=True)
class Series:
    """A variant's patches, read, with the tree that each was made for."""

    patches: tuple[Patch, ...]
    made_for: tuple[str | None, ...]


def check(
    store: Store,
    patchset: Patchset,
    manifest: Path,
    base: Ground,
    own: Ground | None,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Checked:
    """Judge every patch on ``base``, each on the tree with those before it that applied.

    ``own`` is the variant's own base, where it is here: what the patches were made for. Raises
    SourceMismatchError where the store is damaged, BusyError.
    """
    patches = read_patches(store, patchset, manifest)
    try:
        with store.writing("the patched source"), store.scratch() as scratch:
            bench = Bench(store, scratch)
            series = _series(bench, patches, base, own)
            return _check(bench, patchset, base, series, progress)
    except GitFailedError as error:
        raise damaged(store, base.source.commit, str(error)) from error


def read_patches(store: Store, patchset: Patchset, manifest: Path) -> tuple[Patch, ...]:
    """Every patch of a set, read; what cannot be had is kept as that patch's problem.

    A remote one may be fetched: do not call it while ``store.writing``.
    """
    declared = Inventory(patchset.source.paths)
    return tuple(_read(store, entry, manifest, declared) for entry in patchset.patches)


def _read(store: Store, entry: PatchEntry, manifest: Path, declared: Inventory) -> Patch:
    try:
        return read_patch(entry, patch_file(store, entry, manifest), declared)
    except SparkbuildError as error:  # a remote one that is not to be had hides no other
        problems = (error.message, *error.problems)
        return Patch(entry=entry, file=manifest.parent / entry.file, problems=problems)


def _series(bench: Bench, patches: tuple[Patch, ...], base: Ground, own: Ground | None) -> Series:
    """The patches, and for each the tree of the variant's own base before it.

    Where ``base`` is that base itself no tree is given: there a hunk's own heading decides.
    """
    if own is None or own.source.tree == base.source.tree:
        return Series(patches=patches, made_for=(None,) * len(patches))
    made_for: list[str | None] = []
    tree = own.source.tree
    for patch in patches:
        made_for.append(tree)
        if not patch.problems:
            bench.set(tree)
            tree = bench.tree() if bench.apply(patch.file).done else tree
    return Series(patches=patches, made_for=tuple(made_for))


def _check(
    bench: Bench,
    patchset: Patchset,
    base: Ground,
    series: Series,
    progress: Callable[[int, int, str], None],
) -> Checked:
    declared = Inventory(patchset.source.paths)
    findings: list[PatchFinding] = []
    tree = base.source.tree
    for number, patch in enumerate(series.patches):
        progress(number, len(series.patches), patch.entry.file)
        found, after = judge(bench, tree, patch, declared, series.made_for[number])
        missing = _missing(patch.entry, findings)
        if missing and found.state not in {"refused", "already upstream"}:
            found, after = _held_up(found, missing), tree
        else:
            found = _with_hints(found, findings, series.patches)
        findings.append(found)
        tree = after
    changes = value_changes(bench.repository, base.source.tree, tree)
    pinned = patchset.patched if base.name == PIN else None
    return Checked(
        variant=patchset.name,
        base=base.name,
        base_commit=base.source.commit,
        absent=base.absent,
        patches=tuple(findings),
        tree=tree,
        expected_tree=pinned.tree if pinned else None,
        values=changes,
    )


def _missing(entry: PatchEntry, before: Sequence[PatchFinding]) -> tuple[str, ...]:
    """The needed patches that the source does not hold."""
    there = {one.file for one in before if one.applied or one.state == "already upstream"}
    return tuple(name for name in entry.needs if name not in there)


def _held_up(found: PatchFinding, missing: tuple[str, ...]) -> PatchFinding:
    alone = f"by itself: {found.state}"
    return msgspec.structs.replace(
        found,
        state="held up",
        applied=False,
        held_up_by=missing,
        notes=(*found.notes, alone),
    )


def _with_hints(
    found: PatchFinding, before: Sequence[PatchFinding], patches: Sequence[Patch]
) -> PatchFinding:
    """A conflict over lines that a failed patch would have brought names that patch."""
    wanted = {line for hunk in found.hunks if hunk.state == "conflict" for line in _own(hunk)}
    notes = list(found.notes)
    for patch, other in zip(patches, before, strict=False):
        if other.applied or other.state == "already upstream" or not wanted:
            continue
        brought = {
            line.decode(errors="replace").rstrip("\n")
            for change in patch.changes
            for hunk in change.hunks
            for line in (text[1:] for text in hunk.lines if text.startswith(b"+"))
            if line.strip()
        }
        if wanted & brought:
            notes.append(
                f"expects lines that {other.file} ({other.state}) would bring: if it belongs "
                f'behind it, say needs = ["{other.file}"]'
            )
    return msgspec.structs.replace(found, notes=tuple(notes))


def _own(hunk: HunkFinding) -> set[str]:
    """Lines that a conflicting hunk expects and the source does not have there."""
    return {line for line in hunk.expected if line.strip()} - set(hunk.found)


def commit_tree(store: Store, base: Ground, tree: str, digests: Sequence[str]) -> str:
    """A commit of what applied, kept in the store, for a build of it. Raises BusyError."""
    from sparkbuild.source.gitdoor import Repository  # noqa: PLC0415 - only here

    if tree == base.source.tree:
        return base.source.commit
    with store.writing("the patched source"):
        repository = Repository(store.root)
        commit = make_commit(repository, base.source.commit, tree, digests)
        repository.must("update-ref", f"refs/checked/{commit}", commit)
    return commit
