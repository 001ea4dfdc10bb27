"""Stage 3: a pinned source and its patches become the tree that is built, on disk."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.errors import PatchError
from sparkbuild.files import digest_of, sha256_bytes
from sparkbuild.manifest import Patchset
from sparkbuild.source import materialise
from sparkbuild.source.model import PatchedTree, SourceTree
from sparkbuild.source.obtain import require_git
from sparkbuild.source.origins import Places, Watcher
from sparkbuild.source.store import PatchedRecord, Store

_RULES = 1
"""Raised when patches are to be judged by other rules, so that old verdicts do not count."""


def prepare(
    source: SourceTree, patchset: Patchset, manifest: Path, places: Places, watcher: Watcher
) -> PatchedTree:
    """Apply the patches in order and write the tree to disk; what is done already is reused.

    Raises PatchError, SourceMismatchError (a damaged store), DiskFullError, BusyError.
    """
    store = Store(places.store)
    record = apply(store, source, patchset, manifest)
    place = materialise.ensure(store, record.commit, places.sources, watcher.note)
    return PatchedTree(
        source_digest=source.digest,
        commit=record.commit,
        tree=record.tree,
        build=source.build,
        patches=record.patches,
        directory=str(place),
    )


def apply(store: Store, source: SourceTree, patchset: Patchset, manifest: Path) -> PatchedRecord:
    """What a source becomes with a patch set: a commit that depends on both and nothing else.

    An empty list gives the source's own commit. Raises PatchError for a patch file that is not
    the one in the manifest, and all that ``patches.apply_patches`` raises.
    """
    files = _patch_files(patchset, manifest)
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


def _patch_files(patchset: Patchset, manifest: Path) -> list[Path]:
    """The patch files, each with the bytes that the manifest pins. Raises PatchError naming all."""
    files, problems = [], []
    for patch in patchset.patches:
        file = manifest.parent / patch.file
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
