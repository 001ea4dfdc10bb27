"""Write a commit's tree to disk once, and notice when somebody changes it there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from sparkbuild.files import tree_fingerprint, write_atomic
from sparkbuild.source.obtain import require_git
from sparkbuild.source.store import Store


class _Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Written last: the tree was whole, and its files looked like this."""

    commit: str
    fingerprint: str


def ensure(store: Store, commit: str, sources: Path, note: Callable[[str], None]) -> Path:
    """The folder with a commit's tree, byte for byte; git is asked only where it is in doubt.

    A file that was edited, added or deleted there is noticed: the tree is made anew, the edited
    one is kept aside, and ``note`` is told. Raises SourceMismatchError where the store is
    damaged, DiskFullError, HostError (no git).
    """
    place = sources / commit
    if _untouched(place):
        return place
    require_git()
    from sparkbuild.source.write_tree import restore, unchanged  # noqa: PLC0415 - needs git

    with store.writing("the materialised source"):
        if _untouched(place):  # another process was quicker
            return place
        if not (place.is_dir() and unchanged(store, commit, place, note)):
            _record(place).unlink(missing_ok=True)
            restore(store, commit, place)
        state = tree_fingerprint(place)
        completion = _Completion(commit=commit, fingerprint=state)
        write_atomic(_record(place), msgspec.json.encode(completion))
    return place


def _untouched(place: Path) -> bool:
    try:
        record = msgspec.json.decode(_record(place).read_bytes(), type=_Completion)
        return record.commit == place.name and record.fingerprint == tree_fingerprint(place)
    except (OSError, msgspec.DecodeError):
        return False


def _record(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")
