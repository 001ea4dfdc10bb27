"""Bring a source into the store: stream, digest, compare, import, read back, and only then pin."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

from sparkbuild.errors import SourceMismatchError
from sparkbuild.files import disk_full_refused
from sparkbuild.source.digest import Inventory
from sparkbuild.source.entries import Entry, UnsafeEntryError
from sparkbuild.source.gitdoor import GitFailedError, Repository
from sparkbuild.source.objects import AUTHOR, commit_of, damaged, listing, read_entries, tree_of
from sparkbuild.source.store import PinRecord, Store, pin_ref

_INCOMING: Final = "refs/incoming"
"""Where an import stands until it is verified; nothing trusts it, and the next import takes it."""


def take_in(
    store: Store,
    repository: Repository,
    entries: Iterable[Entry],
    *,
    paths: tuple[str, ...],
    expected: str | None,
    origin: str,
    upstream: str | None,
    manifest: Path,
) -> PinRecord:
    """Import the declared files, verified, and pin them. Call it while ``store.writing``.

    ``expected`` is the digest that they must have; without it the digest found is the pin, and
    ``upstream`` (the full commit) the reason to believe it. Raises SourceMismatchError.
    """
    inventory = Inventory(paths)
    with store.scratch() as scratch, disk_full_refused(scratch):
        stream = scratch / "import"
        with stream.open("wb") as out:
            _write_blobs(out, entries, inventory, origin)
            _compare(inventory, expected, origin, manifest)
            _write_commit(out, inventory)
        commit = _import(repository, stream)
    record = PinRecord(
        digest=inventory.digest,
        commit=commit,
        tree=tree_of(repository, commit),
        paths=paths,
        files=len(inventory.files),
        bytes=inventory.size,
        origin=origin,
        upstream=upstream,
    )
    read_back(store, repository, record)
    store.remember(record.digest, record)
    repository.must("update-ref", pin_ref(record.digest), commit)
    return record


def read_back(store: Store, repository: Repository, record: PinRecord) -> Inventory:
    """Digest the store's own objects, every byte. Raises SourceMismatchError on any difference."""
    inventory = Inventory(record.paths)
    try:
        if tree_of(repository, record.commit) != record.tree:
            raise damaged(store, record.commit, f"its tree is not {record.tree}")
        for entry in read_entries(repository, listing(repository, record.commit)):
            for _ in inventory.through(entry):
                pass
    except (GitFailedError, UnsafeEntryError) as error:
        raise damaged(store, record.commit, str(error)) from error
    if inventory.digest != record.digest:
        reason = f"content digest: expected {record.digest}, found {inventory.digest}"
        raise damaged(store, record.commit, reason)
    return inventory


def _write_blobs(
    out: IO[bytes], entries: Iterable[Entry], inventory: Inventory, origin: str
) -> None:
    out.write(b"feature done\n")
    try:
        for mark, entry in enumerate(entries, start=1):
            out.write(b"blob\nmark :%d\ndata %d\n" % (mark, entry.size))
            out.writelines(inventory.through(entry))
            out.write(b"\n")
        inventory.finish()
    except UnsafeEntryError as error:
        raise SourceMismatchError(
            f"{origin} holds what no source may",
            problems=[str(error)],
            next_step="leave it out of `source.paths`, or name another origin in the manifest",
        ) from error


def _compare(inventory: Inventory, expected: str | None, origin: str, manifest: Path) -> None:
    missing = [f"declared path missing: {path}" for path in inventory.missing]
    if missing or (expected is not None and inventory.digest != expected):
        found = f"{len(inventory.files)} files, {inventory.size} bytes below the declared paths"
        digest = [f"expected content digest {expected}"] if expected else []
        raise SourceMismatchError(
            f"{origin} is not the source that {manifest} pins",
            problems=[*digest, f"found content digest {inventory.digest} ({found})", *missing],
            evidence=[manifest],
            next_step="do not build it: ask why the origin changed, or take it off the manifest; "
            "if the pin is what is wrong, set `source.digest` to the digest found",
        )


def _write_commit(out: IO[bytes], inventory: Inventory) -> None:
    message = f"Pinned source\n\nContent-Digest: {inventory.digest}\n".encode()
    out.write(
        f"commit {_INCOMING}\nauthor {AUTHOR}\ncommitter {AUTHOR}\ndata {len(message)}\n".encode()
        + message
    )
    for mark, (path, facts) in enumerate(inventory.files.items(), start=1):
        quoted = path.replace('"', '\\"')
        out.write(f'M {facts.mode} :{mark} "{quoted}"\n'.encode())
    out.write(b"done\n")


def _import(repository: Repository, stream: Path) -> str:
    repository.must("update-ref", "-d", _INCOMING)
    try:
        with stream.open("rb") as commands:
            repository.must("fast-import", "--quiet", "--depth=0", "--force", stdin=commands)
    finally:
        for report in repository.directory.glob("fast_import_crash_*"):
            report.unlink()
    commit = commit_of(repository, _INCOMING)
    repository.must("update-ref", "-d", _INCOMING)
    return commit
