"""Stage 2: a pin becomes a source in the store; where it is there already, nothing is loaded."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.errors import HostError
from sparkbuild.manifest import SourcePin
from sparkbuild.process import find_program
from sparkbuild.source.model import SourceTree
from sparkbuild.source.origins import Places, Watcher
from sparkbuild.source.store import PinRecord, Store


def obtain(pin: SourcePin, manifest: Path, places: Places, watcher: Watcher) -> SourceTree:
    """The pinned source, from the store or else from the first origin that answers and matches.

    Relative paths in the pin count from the folder of ``manifest``. Raises SourceMismatchError,
    SourceUnavailableError, ArchiveError, DiskFullError, BusyError, HostError (no git).
    """
    store = Store(places.store)
    known = store.find(pin)
    if known is not None:
        return _tree(known, pin, "store")
    require_git()
    from sparkbuild.source.fetch import fetch  # noqa: PLC0415 - 1 s of imports, needed once

    with store.writing("the source store"):
        known = store.find(pin)  # another process may have brought it while we waited
        if known is not None:
            return _tree(known, pin, "store")
        record, warnings = fetch(store, pin, manifest, places, watcher)
    return _tree(record, pin, record.origin, warnings)


def require_git() -> None:
    """Raise HostError where git is missing: GitPython cannot even be imported without it."""
    if find_program("git") is None:
        raise HostError(
            "git is missing",
            problems=["expected a program `git` on the PATH, found none"],
            next_step="install it, on Debian and Ubuntu with: sudo apt install git",
        )


def _tree(
    record: PinRecord, pin: SourcePin, origin: str, warnings: tuple[str, ...] = ()
) -> SourceTree:
    return SourceTree(
        digest=record.digest,
        commit=record.commit,
        tree=record.tree,
        build=pin.build,
        origin=origin,
        warnings=warnings,
    )
