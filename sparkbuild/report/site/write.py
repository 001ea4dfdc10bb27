"""The site on disk: written beside the old one, complete, and put in its place by a rename."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from sparkbuild.errors import BusyError, UsageError
from sparkbuild.files import disk_full_refused, fsync_directory
from sparkbuild.history.model import Run
from sparkbuild.report.site.data import Book
from sparkbuild.report.site.pages import site
from sparkbuild.report.site.shared import common
from sparkbuild.report.site.words import log_page, page
from sparkbuild.report.text import visible

MARK: Final = ".sparkbuild-site"
"""A file that says that sparkbuild may replace the folder."""

_PATIENCE: Final = 300.0
"""Seconds to wait for another writer; four months of nights take some thirty."""

_HERE: Final = -100
_RENAME_EXCHANGE: Final = 2
"""AT_FDCWD of linux/fcntl.h, RENAME_EXCHANGE of linux/fs.h."""

_SHOWN: Final = 400_000
"""Bytes of a log that its page shows, the last ones: about 5,000 lines, read at once on a phone."""


def write_site(book: Book, folder: Path, *, fewest: int) -> int:
    """Write all pages and the logs they lead to; gives the number of files.

    Readers see the old site or the new one. Raises UsageError where ``folder`` holds what
    sparkbuild did not make, DiskFullError, BusyError while another one writes it.
    """
    folder = folder.absolute()
    _refuse_foreign(folder)
    with disk_full_refused(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            for left in folder.parent.glob(f".{glob.escape(folder.name)}.new-*"):
                shutil.rmtree(left)  # of a writer that was killed
            new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.new-"))
            try:
                count = _write(book, new, fewest)
                _exchange(folder, new)
            finally:
                shutil.rmtree(new, ignore_errors=True)
    return count


def _write(book: Book, new: Path, fewest: int) -> int:
    new.chmod(0o755)
    count = 0
    for name, text in _files(book, new, fewest):
        file = new / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        count += 1
    (new / MARK).write_text(book.made + "\n")
    fsync_directory(new)
    return count


def _files(book: Book, new: Path, fewest: int) -> Iterator[tuple[str, str]]:
    yield from site(book, fewest=fewest)
    for run in book.runs:
        for place in (*run.evidence, run.report):
            if place and inside(place):
                yield log_page(place), _log(book, run, place, new)


def inside(place: str) -> bool:
    """Whether a path stays in the folder that it is below, whatever it is called."""
    path = PurePosixPath(place)
    return not path.is_absolute() and ".." not in path.parts


def _log(book: Book, run: Run, place: str, new: Path) -> str:
    """A file of the history as a page.

    The file itself goes along, under a name that no browser takes for a page. A place that leads
    out of the history's folder is not followed.
    """
    source = (book.root / place).resolve()
    there = source.is_relative_to(book.root.resolve()) and source.is_file()
    given = common(book, log_page(place))
    name = place.rpartition("/")[2]
    cut, text, raw = "It is not in the history any more.", "", ""
    if there:
        raw = f"{name}.txt"
        copy = new / f"{place}.txt"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        with source.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _SHOWN))
            text = visible(file.read().decode(errors="replace"))
        cut = f"Below is its end, {_SHOWN:,} of {size:,} bytes." if size > _SHOWN else ""
    return page("log.html", {**given, "run": run, "name": name, "text": text, "raw": raw,
                             "cut": cut})  # fmt: skip


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir())):
        return
    raise UsageError(
        f"{folder} is there, and sparkbuild did not make it",
        problems=[f"expected no such folder, an empty one, or one with {MARK}"],
        evidence=[folder],
        next_step="name another folder: the whole of it is replaced each time",
    )


def _exchange(folder: Path, new: Path) -> None:
    """Put the new site in the old one's place; ``new`` is the old one afterwards, or gone."""
    if not folder.exists():
        new.replace(folder)
    elif not _swapped(folder, new):
        old = new.with_name(f"{new.name}.old")
        folder.replace(old)
        new.replace(folder)
        old.replace(new)
    fsync_directory(folder.parent)


def _swapped(one: Path, other: Path) -> bool:
    """Exchange two folders in one step (Linux 3.15, glibc 2.28); False where that is not known."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(renameat2(_HERE, names[0], _HERE, names[1], _RENAME_EXCHANGE) == 0)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only one that writes a site beside ``folder``; the lock is on its parent, no file."""
    handle = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise BusyError(
                        f"another sparkbuild has been writing to {folder.parent} for "
                        f"{_PATIENCE:.0f} s",
                        next_step="run the same command again when it has ended",
                    ) from error
                time.sleep(0.1)
        yield
    finally:
        os.close(handle)
