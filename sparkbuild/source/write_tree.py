"""A commit's tree from the store to disk: exact bytes and modes, fixed times, no git filters."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparkbuild.files import disk_full_refused, files_below, fsync_directory
from sparkbuild.source.entries import EXECUTABLE, LINK, Entry, normal_mode
from sparkbuild.source.gitdoor import GitFailedError, Repository
from sparkbuild.source.objects import Listed, blob_id, damaged, listing, read_entries
from sparkbuild.source.store import Store

_TIME: Final = 946_684_800
"""2000-01-01T00:00:00Z, of every file: a tree made anew must not look newer than its objects."""

_SHOWN: Final = 10
"""Changed files named in a note."""


def restore(store: Store, commit: str, place: Path) -> None:
    """Write the tree beside ``place`` and put it there by renaming.

    What was there goes to ``<place>.edited``. Single files are not made durable: one that a power
    cut leaves short has another size than the completion record says, and is noticed. Raises
    SourceMismatchError where the store is damaged, DiskFullError.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    for leftover in place.parent.glob(".new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    new = Path(tempfile.mkdtemp(dir=place.parent, prefix=".new-"))
    try:
        with disk_full_refused(place):
            _write(Repository(store.root), commit, new)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, GitFailedError):
            raise damaged(store, commit, str(error)) from error
        raise
    if os.path.lexists(place):
        shutil.rmtree(_aside(place), ignore_errors=True)
        place.rename(_aside(place))
    new.rename(place)
    fsync_directory(place.parent)


def unchanged(store: Store, commit: str, place: Path, note: Callable[[str], None]) -> bool:
    """True where every file still has its bytes and mode and none came or went.

    Otherwise ``note`` is told which, and where the changed tree will be kept.
    """
    try:
        expected = listing(Repository(store.root), commit)
    except GitFailedError as error:
        raise damaged(store, commit, str(error)) from error
    changes = _changes(expected, place)
    if changes:
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        note(
            f"the source at {place} was changed since sparkbuild wrote it, and is written anew; "
            f"the changed one is kept at {_aside(place)}: {', '.join(changes[:_SHOWN])}{more}"
        )
    return not changes


def _changes(expected: list[Listed], place: Path) -> list[str]:
    there = {file.relative_to(place).as_posix() for file in files_below(place)}
    changes = [f"{name} (added)" for name in there - {file.path for file in expected}]
    for file in expected:
        if file.path not in there:
            changes.append(f"{file.path} (deleted)")
        elif _mode(place / file.path) != file.mode:
            changes.append(f"{file.path} (mode)")
        elif blob_id(place / file.path, file.mode) != file.id:
            changes.append(file.path)
    return sorted(changes)


def _mode(file: Path) -> str:
    mode = file.lstat().st_mode
    if stat.S_ISLNK(mode):
        return LINK
    return normal_mode(mode) if stat.S_ISREG(mode) else "not a file"


def _write(repository: Repository, commit: str, root: Path) -> None:
    for entry in read_entries(repository, listing(repository, commit)):
        file = root / entry.path
        file.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == LINK:
            file.symlink_to(os.fsdecode(b"".join(entry.chunks)))
        else:
            _write_file(file, entry)
        os.utime(file, (_TIME, _TIME), follow_symlinks=False)
    for directory, _, _ in os.walk(root):
        folder = Path(directory)
        folder.chmod(0o755)
        os.utime(folder, (_TIME, _TIME))


def _write_file(file: Path, entry: Entry) -> None:
    mode = 0o755 if entry.mode == EXECUTABLE else 0o644
    with file.open("xb") as out:
        out.writelines(entry.chunks)
        os.fchmod(out.fileno(), mode)


def _aside(place: Path) -> Path:
    return place.with_name(f"{place.name}.edited")


def renew(store: Store, commit: str, place: Path) -> int:
    """Make ``place`` hold a commit's tree by writing only what differs; how many files that were.

    A file that is as it was keeps its times, so that a build of the folder goes on from there.
    Raises SourceMismatchError where the store is damaged, DiskFullError.
    """
    repository = Repository(store.root)
    try:
        expected = listing(repository, commit)
        files = files_below(place) if place.is_dir() else ()
        there = {file.relative_to(place).as_posix() for file in files}
        differing = [file for file in expected if not _as_listed(place / file.path, file)]
        gone = there - {file.path for file in expected}
        with disk_full_refused(place):
            place.mkdir(parents=True, exist_ok=True)
            for name in (*gone, *(file.path for file in differing)):
                _remove(place / name, place)
            for entry in read_entries(repository, differing):
                file = place / entry.path
                file.parent.mkdir(parents=True, exist_ok=True)
                if entry.mode == LINK:
                    file.symlink_to(os.fsdecode(b"".join(entry.chunks)))
                else:
                    _write_file(file, entry)
    except GitFailedError as error:
        raise damaged(store, commit, str(error)) from error
    return len(differing) + len(gone)


def _remove(file: Path, place: Path) -> None:
    """Remove a file, and the folders that hold nothing more: a file may now have their name."""
    file.unlink(missing_ok=True)
    for folder in file.parents:
        if folder == place:
            return
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def _as_listed(file: Path, listed: Listed) -> bool:
    if not os.path.lexists(file) or _mode(file) != listed.mode:
        return False
    return blob_id(file, listed.mode) == listed.id
