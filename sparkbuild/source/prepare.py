"""Stage 3: a pinned source and its patches become the tree that is built, on disk."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.errors import PatchError
from sparkbuild.files import digest_of, sha256_bytes
from sparkbuild.manifest import PatchEntry, Patchset
from sparkbuild.source import materialise
from sparkbuild.source.model import PatchedTree, SourceTree
from sparkbuild.source.obtain import require_git
from sparkbuild.source.origins import Places, Watcher
from sparkbuild.source.store import PatchedRecord, Store

_RULES = 3
"""Raised when patches are to be judged by other rules, so that old verdicts do not count."""


def prepare(
    source: SourceTree, patchset: Patchset, manifest: Path, places: Places, watcher: Watcher
) -> PatchedTree:
    """Apply the patches in order and write the tree to disk; what is done already is reused.

    Raises PatchError, SourceMismatchError (a damaged store), DiskFullError, BusyError.
    """
    store = Store(places.store)
    record = apply(store, source, patchset, manifest)
    _refuse_other_tree(record, patchset, manifest)
    place = materialise.ensure(store, record.commit, places.sources, watcher.note)
    return PatchedTree(
        source_digest=source.digest,
        commit=record.commit,
        tree=record.tree,
        build=source.build,
        patches=record.patches,
        directory=str(place),
        notes=record.notes,
    )


def _refuse_other_tree(record: PatchedRecord, patchset: Patchset, manifest: Path) -> None:
    """Whatever became of the patches: the tree is the one that the manifest names, or refused."""
    expected = patchset.patched.tree if patchset.patched else record.tree
    if record.tree != expected:
        raise PatchError(
            f"the patched source of {patchset.name} is not the tree that its manifest pins",
            problems=[f"expected tree {expected}", f"found tree {record.tree}"],
            evidence=[manifest],
            next_step=f"sparkbuild patch check --variant {patchset.name}; where the patches are "
            f"meant to give the tree found, set `patched.tree` in {manifest} to it",
        )


def apply(store: Store, source: SourceTree, patchset: Patchset, manifest: Path) -> PatchedRecord:
    """What a source becomes with a patch set: a commit that depends on both and nothing else.

    An empty list gives the source's own commit. Raises PatchError for a patch file that is not
    the one in the manifest, and all that ``patches.apply_patches`` raises.
    """
    files = patch_files(store, patchset, manifest)
    if not files:
        return PatchedRecord(commit=source.commit, tree=source.tree, patches=())
    key = digest_of(
        {
            "rules": _RULES,
            "commit": source.commit,
            "paths": list(patchset.source.paths),
            "patches": [[patch.file, patch.sha256, patch.reason] for patch in patchset.patches],
        }
    )
    known = store.patched(key)
    if known is not None:
        return known
    require_git()
    from sparkbuild.source.patches import apply_patches  # noqa: PLC0415 - needs git

    with store.writing("the patched source"):
        return apply_patches(store, key, source, patchset, files)


def patch_files(store: Store, patchset: Patchset, manifest: Path) -> list[Path]:
    """The patch files, each with the bytes that the manifest pins.

    A remote one is made from its commit where the store does not have it. Raises PatchError naming
    all that differ; SourceUnavailableError, SourceMismatchError for a remote one.
    """
    files, problems = [], []
    for patch in patchset.patches:
        file = patch_file(store, patch, manifest)
        files.append(file)
        try:
            found = sha256_bytes(file.read_bytes())
        except OSError as error:
            problems.append(f"{patch.file}: {error.strerror}")
            continue
        if found != patch.sha256:
            problems.append(f"{patch.file}: expected sha256 {patch.sha256}, found {found}")
    if problems:
        raise PatchError(
            f"patches of {patchset.name} are not those that its manifest pins",
            problems=problems,
            evidence=[manifest, *files],
            next_step=f"get the patch back, or set its `sha256` in {manifest} to the one found",
        )
    return files


def patch_file(store: Store, patch: PatchEntry, manifest: Path) -> Path:
    """Where a patch lies; a remote one is made from its commit where the store lacks it.

    Raises SourceUnavailableError, SourceMismatchError, BusyError for a remote one.
    """
    if patch.remote is None:
        return manifest.parent / patch.file
    require_git()
    from sparkbuild.source.patching.remote import remote_file  # noqa: PLC0415 - needs git

    return remote_file(store, patch, manifest)
