"""The end of a refresh: commits become patch files again, and the manifest says what they are."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparkbuild.errors import PatchError
from sparkbuild.files import sha256_bytes, write_atomic
from sparkbuild.manifest import PatchedSection, PatchEntry, Patchset
from sparkbuild.source.objects import tree_of
from sparkbuild.source.patching.bases import Ground, base_table
from sparkbuild.source.patching.export import patch_text
from sparkbuild.source.patching.recipe import renewed
from sparkbuild.source.patching.refresh import State
from sparkbuild.source.patching.worktree import Worktree
from sparkbuild.source.prepare import apply
from sparkbuild.source.store import Store


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a refresh wrote: files by what became of them, and the tree that they give."""

    tree: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    dropped: dict[str, str]


def finish(
    store: Store, patchset: Patchset, manifest: Path, base: Ground, folder: Path, state: State
) -> Finished:
    """Make every patch file anew, prove that they give the commits' tree, then write.

    Each file is replaced as a whole and the manifest last: a killed run leaves a set that is
    refused by its digests, and the same command writes it again. Raises PatchError where the files
    would not give that tree, GitFailedError.
    """
    tree = Worktree(folder)
    texts = {
        step.file: patch_text(tree.repository, step.commit)
        for step in state.steps
        if step.commit is not None
    }
    entries = tuple(
        _entry(entry, texts, manifest) for entry in patchset.patches if entry.file in texts
    )
    texts = {entry.file: texts[entry.file] for entry in entries if entry.remote is None}
    expected = tree_of(tree.repository, tree.head)
    new = msgspec.structs.replace(
        patchset, patches=entries, source=base.pin, patched=PatchedSection(tree=expected)
    )
    _prove(store, new, base, texts, expected, manifest)
    names = {one.name for one in base_table(manifest.parent.parent.parent).bases}
    text = renewed(
        manifest.read_text(encoding="utf-8"),
        digests={entry.file: entry.sha256 for entry in entries},
        local=frozenset(texts),
        tree=expected,
        pin=base.pin,
        tag=base.name if base.name in names else None,
    )
    dropped = {step.file: step.dropped for step in state.steps if step.dropped}
    written = _write(manifest, texts, text, dropped)
    return Finished(
        tree=expected,
        written=written,
        unchanged=tuple(name for name in texts if name not in written),
        dropped=dropped,
    )


def _entry(entry: PatchEntry, texts: dict[str, bytes], manifest: Path) -> PatchEntry:
    """A patch's entry with the digest of its new text; a remote one stays while its diff does."""
    text = texts[entry.file]
    if entry.remote is not None:
        start = re.search(rb"^diff --git ", text, re.MULTILINE)
        if start and sha256_bytes(text[start.start() :]) == entry.sha256:
            return entry
    del manifest
    return msgspec.structs.replace(entry, sha256=sha256_bytes(text), remote=None)


def _prove(
    store: Store,
    patchset: Patchset,
    base: Ground,
    texts: dict[str, bytes],
    expected: str,
    manifest: Path,
) -> None:
    """Apply the new files as stage 3 does. Raises PatchError where the tree is another."""
    with tempfile.TemporaryDirectory(prefix="sparkbuild-") as name:
        place = Path(name) / manifest.name
        for file, text in texts.items():
            write_atomic(place.parent / file, text)
        record = apply(store, base.source, patchset, place)
    if record.tree != expected:
        raise PatchError(
            "the patch files made of the commits give another tree than the commits do",
            problems=[f"expected tree {expected}", f"found tree {record.tree}"],
            evidence=[manifest],
            next_step="nothing was written; please report this with the folder of the refresh",
        )


def _write(
    manifest: Path, texts: dict[str, bytes], text: str, dropped: dict[str, str]
) -> tuple[str, ...]:
    written = []
    for name, data in texts.items():
        file = manifest.parent / name
        if not file.is_file() or file.read_bytes() != data:
            write_atomic(file, data)
            written.append(name)
    if manifest.read_text(encoding="utf-8") != text:
        write_atomic(manifest, text)
        written.append(manifest.name)
    for name in dropped:
        (manifest.parent / name).unlink(missing_ok=True)
    return tuple(written)
