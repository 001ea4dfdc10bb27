"""A team's package index: wheels added, withdrawn (yanked) and looked after."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sparkbuild.errors import PackageError, UnknownNameError, UsageError
from sparkbuild.files import sha256_bytes, sha256_file
from sparkbuild.manifest import unknown_name
from sparkbuild.package.index_incoming import SUFFIXES, Incoming, Verify, read_incoming
from sparkbuild.package.index_pages import EVIDENCE, FILES, Entry, Project, Proof, project
from sparkbuild.package.index_store import Store


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """An index as it is now, and what changed."""

    index: str
    projects: dict[str, tuple[str, ...]]
    """File names by project."""
    yanked: dict[str, str]
    """Reason by file name."""
    added: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def add(
    root: Path, wheels: Sequence[Path], *, now: dt.datetime, verify: Verify | None = None
) -> Published:
    """Publish wheels with what lies beside them: all of them or none.

    ``verify`` is asked of each before anything is written. A wheel that is there already, byte for
    byte, is left alone; its evidence may be new. Raises PackageError where a wheel is damaged or
    another one has its name.
    """
    store = Store(root)
    with store.held():
        incoming = [read_incoming(path, now, verify) for path in wheels]
        _refuse_two(incoming)
        known = store.projects()
        entries = {one.filename: one for page in known.values() for one in page.files}
        _refuse_replaced(incoming, entries)
        names = {one.entry.filename: one.project for one in incoming}
        for one in incoming:
            _place(store, one)
        added = [name for name in names if name not in entries]
        entries |= {one.entry.filename: _merged(one, entries) for one in incoming}
        owners = {one.filename: name for name, page in known.items() for one in page.files} | names
        pages = _grouped(entries, owners)
        if known != {page.name: page for page in pages} or not known:
            store.publish(pages)
    return _published(
        root,
        pages,
        added=added,
        unchanged=[name for name in names if name not in added],
        notes=[
            f"{one.entry.filename} {_unsure(one)}"
            for one in incoming
            if verify is None or not one.entry.proofs
        ],
    )


def yank(root: Path, name: str, reason: str | None) -> Published:
    """Withdraw a wheel (PEP 592): installers take it only where its exact version is asked for.

    ``reason`` None puts it back. Raises UnknownNameError where the index has no such file.
    """
    if reason is not None and (not reason.strip() or not reason.isprintable()):
        raise UsageError(
            "a withdrawn wheel needs a reason of one line",
            next_step='--reason "wrong output with long prompts"',
        )
    store = Store(root)
    with store.held():
        known = store.projects()
        names = [one.filename for page in known.values() for one in page.files]
        if name not in names:
            raise _unknown(name, names, root)
        pages = [
            project(
                page.name,
                [
                    msgspec.structs.replace(one, yanked=reason or False)
                    if one.filename == name
                    else one
                    for one in page.files
                ],
            )
            for page in known.values()
        ]
        store.publish(pages)
    return _published(root, pages)


def look_after(root: Path) -> Published:
    """Read every published file and write the pages anew; makes an empty index where none is.

    Raises PackageError where a file is missing or is not what the pages say.
    """
    store = Store(root)
    with store.held():
        pages = list(store.projects().values())
        problems = [line for page in pages for one in page.files for line in _damage(root, one)]
        if problems:
            raise PackageError(
                f"the index {root} is damaged",
                problems=problems,
                evidence=[root],
                next_step="put the files back as they were published, from a copy",
            )
        store.publish([project(page.name, page.files) for page in pages])
        listed = {one.filename for page in pages for one in page.files}
        wheels = {path.name for path in (root / FILES).glob("*.whl")}
    notes = [f"{name} lies in {FILES}/ and is on no page" for name in sorted(wheels - listed)]
    return _published(root, pages, notes=notes)


def _unsure(one: Incoming) -> str:
    """Why the index vouches for no more than the wheel's bytes."""
    if not one.entry.proofs:
        return "has no provenance beside it"
    return "was published with its provenance unverified: no key was named"


def _refuse_two(incoming: Sequence[Incoming]) -> None:
    seen: dict[str, Incoming] = {}
    for one in incoming:
        other = seen.setdefault(one.entry.filename, one)
        if other.entry.sha256 != one.entry.sha256:
            raise PackageError(
                f"{one.entry.filename} is named twice, with different bytes",
                problems=[other.path, one.path],
                next_step="publish one of them",
            )


def _refuse_replaced(incoming: Sequence[Incoming], entries: dict[str, Entry]) -> None:
    problems = []
    for one in incoming:
        old = entries.get(one.entry.filename)
        if old is not None and old.sha256 != one.entry.sha256:
            problems.append(
                f"{old.filename}: published with sha256 {old.sha256}, now {one.entry.sha256}"
            )
    if problems:
        raise PackageError(
            "a published file is never replaced by another of the same name",
            problems=problems,
            next_step="give it another version (another source, patch or variant does); withdraw "
            "the published one with --yank",
        )


def _merged(one: Incoming, entries: dict[str, Entry]) -> Entry:
    """A wheel that is published again keeps its time and whether it is withdrawn."""
    old = entries.get(one.entry.filename)
    if old is None:
        return one.entry
    return msgspec.structs.replace(old, proofs=one.entry.proofs or old.proofs)


def _place(store: Store, one: Incoming) -> None:
    name, entry = one.entry.filename, one.entry
    for file, data in one.evidence.items():
        store.place(data, f"{EVIDENCE}/{one.folder}/{file}", sha256=sha256_bytes(data))
    metadata = f"{FILES}/{name}.metadata"
    store.place(one.metadata, metadata, sha256=entry.core_metadata.sha256)
    store.place(Path(one.path), f"{FILES}/{name}", sha256=entry.sha256)


def _grouped(entries: dict[str, Entry], owners: dict[str, str]) -> list[Project]:
    return [
        project(name, [one for file, one in entries.items() if owners[file] == name])
        for name in sorted(set(owners.values()))
    ]


def _damage(root: Path, one: Entry) -> list[str]:
    """Files of an entry that are missing or changed."""
    wanted = {
        root / FILES / one.filename: one.sha256,
        root / FILES / f"{one.filename}.metadata": one.core_metadata.sha256,
    }
    if one.proofs:
        for kind, suffix in SUFFIXES.items():
            proof: Proof = getattr(one.proofs, kind)
            folder = proof.url.split("/")[-2]
            wanted[root / EVIDENCE / folder / f"{one.filename}{suffix}"] = proof.sha256
    found = {path: sha256_file(path) if path.is_file() else "nothing" for path in wanted}
    return [
        f"{path.relative_to(root)}: expected sha256 {digest}, found {found[path]}"
        for path, digest in wanted.items()
        if found[path] != digest
    ]


def _unknown(name: str, names: Sequence[str], root: Path) -> UnknownNameError:
    return unknown_name("published file", name, names, root)


def _published(
    root: Path,
    pages: Sequence[Project],
    *,
    added: Sequence[str] = (),
    unchanged: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Published:
    entries = [one for page in pages for one in page.files]
    return Published(
        index=str(root),
        projects={page.name: tuple(one.filename for one in page.files) for page in pages},
        yanked={one.filename: str(one.yanked) for one in entries if one.yanked is not False},
        added=tuple(added),
        unchanged=tuple(unchanged),
        notes=tuple(notes),
    )
