"""Ask the origins of a pin one after another; the first that answers must also be right."""

from __future__ import annotations

import contextlib
from pathlib import Path

from sparkbuild.errors import HostError, SourceMismatchError, SourceUnavailableError
from sparkbuild.manifest import GitOrigin, Origin, SdistOrigin, SourcePin
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.source.digest import Inventory
from sparkbuild.source.git_origin import from_git
from sparkbuild.source.gitdoor import GitFailedError, Repository
from sparkbuild.source.intake import take_in
from sparkbuild.source.objects import listing, open_store, read_entries
from sparkbuild.source.origins import (
    Delivery,
    Places,
    Request,
    Watcher,
    describe,
)
from sparkbuild.source.path_origin import from_path
from sparkbuild.source.sdist_origin import from_sdist
from sparkbuild.source.store import PinRecord, Store, commit_key, commit_name


def fetch(
    store: Store, pin: SourcePin, manifest: Path, places: Places, watcher: Watcher
) -> tuple[PinRecord, tuple[str, ...]]:
    """Bring a pin's source into the store; call it while ``store.writing``.

    Returns its record and a line for each origin that could not deliver. Raises
    SourceMismatchError where the first origin that answers is not what is pinned,
    SourceUnavailableError where none answers, ArchiveError, DiskFullError, HostError.
    """
    try:
        return _fetch(store, pin, manifest, places, watcher)
    except GitFailedError as error:
        raise HostError(
            f"git cannot use the store at {store.root}",
            problems=[str(error)],
            evidence=[store.root],
            next_step=store.recovery,
        ) from error


def _fetch(
    store: Store, pin: SourcePin, manifest: Path, places: Places, watcher: Watcher
) -> tuple[PinRecord, tuple[str, ...]]:
    repository = open_store(store)
    again = _other_paths(store, repository, pin, manifest)
    if again is not None:
        return again, ()
    warnings: list[str] = []
    for origin in pin.origins:
        with store.scratch() as scratch:
            request = Request(
                manifest=manifest,
                wants=Inventory(pin.paths).wants,
                scratch=scratch,
                downloads=places.downloads,
                watcher=watcher,
            )
            watcher.progress(0, 0, describe(origin))
            try:
                return _from(origin, store, repository, pin, request), tuple(warnings)
            except OriginUnavailableError as error:
                warnings.append(f"{describe(origin)}: {error}")
                watcher.note(f"cannot use {warnings[-1]}")
    raise SourceUnavailableError(
        "no origin of the source can be reached, and the store does not hold it",
        problems=warnings,
        evidence=[manifest],
        next_step="connect this machine to the network and run the same command again, or add an "
        f'origin `{{kind = "path", path = ...}}` with a copy of the source to {manifest}',
    )


def _from(
    origin: Origin, store: Store, repository: Repository, pin: SourcePin, request: Request
) -> PinRecord:
    delivery = deliver(origin, pin, request)
    with contextlib.closing(delivery.entries):
        record = take_in(
            store,
            repository,
            delivery.entries,
            paths=pin.paths,
            expected=pin.digest,
            origin=describe(origin),
            upstream=delivery.upstream,
            manifest=request.manifest,
        )
    if pin.digest is None and isinstance(origin, GitOrigin) and record.upstream:
        store.remember(commit_name(record.upstream, commit_key(pin, origin)), record)
    return record


def deliver(origin: Origin, pin: SourcePin, request: Request) -> Delivery:
    """What one origin has of the declared files. Raises OriginUnavailableError, ArchiveError."""
    if isinstance(origin, GitOrigin):
        return from_git(origin, request)
    if isinstance(origin, SdistOrigin):
        return from_sdist(origin, request)
    return from_path(origin, pin, request)


def _other_paths(
    store: Store, repository: Repository, pin: SourcePin, manifest: Path
) -> PinRecord | None:
    """The pinned content again, where only the way its paths are declared has changed."""
    commit = store.pinned(pin.digest) if pin.digest else None
    if commit is None:
        return None
    wants = Inventory(pin.paths).wants
    try:
        files = [file for file in listing(repository, commit) if wants(file.path)]
        return take_in(
            store,
            repository,
            read_entries(repository, files),
            paths=pin.paths,
            expected=pin.digest,
            origin="store",
            upstream=None,
            manifest=manifest,
        )
    except (GitFailedError, SourceMismatchError):
        return None
