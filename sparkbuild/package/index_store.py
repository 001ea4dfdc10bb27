"""An index on disk: files that are never replaced, and pages that change all at once.

``simple`` is a link to one generation of pages below ``.generations``; publishing writes a whole
new generation and then moves the link, one rename. A run that is killed before leaves the old
pages; what it left is swept up by the next one. Readers meanwhile see the one or the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from sparkbuild.errors import PackageError
from sparkbuild.files import disk_full_refused, exclusive, fsync_directory, sha256_file
from sparkbuild.package.index_pages import EVIDENCE, FILES, JSON, Project, pages, read_project

SIMPLE: Final = "simple"
GENERATIONS: Final = ".generations"
_LOCK: Final = ".lock"
_PART: Final = ".part-"
_KEPT: Final = 2
"""Generations: the one that is served, and the one that a slow reader may still be in."""

_PATIENCE: Final = 120.0
"""Seconds that a publisher waits for others: a large wheel takes some to copy."""

_CHUNK: Final = 1 << 20


class Store:
    """The folder of an index, held by one publisher."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only publisher, in a folder swept of what killed ones left.

        Raises BusyError, or PackageError where the folder holds something else.
        """
        with disk_full_refused(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        with exclusive(self.root / _LOCK, what=f"the index {self.root}", wait=_PATIENCE):
            self._refuse_foreign()
            with disk_full_refused(self.root):
                for name in (FILES, EVIDENCE, GENERATIONS):
                    _folder(self.root / name)
            self._sweep()
            yield

    def projects(self) -> dict[str, Project]:
        """What is published, by project."""
        found = [read_project(path) for path in (self.root / SIMPLE).glob(f"*/{JSON}")]
        return {one.name: one for one in found}

    def place(self, source: Path | bytes, where: str, *, sha256: str) -> bool:
        """Put a file at ``where`` (below the root) for good; False where it was there already.

        Raises PackageError where there is another file of that name, or where ``source`` is not
        what ``sha256`` says.
        """
        target = self.root / where
        if os.path.lexists(target):
            found = sha256_file(target) if target.is_file() else "no file"
            if found != sha256:
                raise _other(target, sha256, found)
            return False
        with disk_full_refused(target):
            _folder(target.parent)
            with self._part(target) as (file, part):
                found = _copied(source, file)
                if found != sha256:
                    raise PackageError(
                        f"{where} changed while it was published",
                        problems=[f"expected sha256 {sha256}", f"found {found}"],
                        next_step="run the same command again when nobody writes to it",
                    )
                part.replace(target)
            fsync_directory(target.parent)
            fsync_directory(target.parent.parent)
        return True

    def publish(self, projects: Sequence[Project]) -> None:
        """Make these pages the index, all at once."""
        place = self.root / GENERATIONS
        numbers = [int(path.name) for path in place.iterdir() if path.name.isdigit()]
        new = place / f"{max(numbers, default=0) + 1:08d}"
        with disk_full_refused(place):
            _write_tree(new, pages(projects))
            link = place / f"{_PART}link"
            link.unlink(missing_ok=True)
            link.symlink_to(f"{GENERATIONS}/{new.name}", target_is_directory=True)
            link.replace(self.root / SIMPLE)
            fsync_directory(self.root)
        self._sweep()

    def _refuse_foreign(self) -> None:
        simple = self.root / SIMPLE
        ours = simple.is_symlink() and simple.readlink().parts[:1] == (GENERATIONS,)
        if os.path.lexists(simple) and not ours:
            raise PackageError(
                f"{simple} is there, and sparkbuild did not make it",
                problems=[f"expected a link into {GENERATIONS}/, found something else"],
                evidence=[simple],
                next_step="name an empty folder, or the index that `sparkbuild wheel index` made",
            )

    def _sweep(self) -> None:
        """Remove what killed publishers left, and generations that nobody is in any more."""
        place = self.root / GENERATIONS
        simple = self.root / SIMPLE
        served = simple.readlink().name if simple.is_symlink() else ""
        names = sorted(one.name for one in place.iterdir() if one.name.isdigit())
        done = [name for name in names if name <= served]
        for one in place.iterdir():
            if one.name not in done[-_KEPT:]:
                one.unlink() if one.is_symlink() else shutil.rmtree(one)
        for folder in (FILES, EVIDENCE):
            for part in (self.root / folder).rglob(f"{_PART}*"):
                part.unlink()

    @contextlib.contextmanager
    def _part(self, target: Path) -> Iterator[tuple[BinaryIO, Path]]:
        """A file under a name that nobody asks for; durable when it is left without an error."""
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=_PART)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file, part
        finally:
            part.unlink(missing_ok=True)


def _copied(source: Path | bytes, file: BinaryIO) -> str:
    """Copy to ``file`` and on to the disk; gives the digest of the bytes that were copied."""
    digest = hashlib.sha256()
    os.fchmod(file.fileno(), 0o644)  # a server's user reads it, whatever the publisher's umask
    if isinstance(source, bytes):
        digest.update(source)
        file.write(source)
    else:
        with source.open("rb") as old:
            while chunk := old.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
    file.flush()
    os.fsync(file.fileno())
    return digest.hexdigest()


def _write_tree(root: Path, texts: Mapping[str, bytes]) -> None:
    """Write pages below a new folder, all of them on the disk before this returns."""
    folders = {root}
    _folder(root)
    for name, text in texts.items():
        path = root / name
        _folder(path.parent)
        folders.add(path.parent)
        with path.open("xb") as file:
            _copied(text, file)
    for folder in (*folders, root.parent):
        fsync_directory(folder)


def _folder(path: Path) -> None:
    if not path.is_dir():
        path.mkdir()
        path.chmod(0o755)


def _other(target: Path, sha256: str, found: str) -> PackageError:
    return PackageError(
        f"there is another {target.name} in the index, and published files are never replaced",
        problems=[f"published: sha256 {found}", f"to be published: {sha256}"],
        evidence=[target],
        next_step="give it another version (another source, patch or variant does); if the file "
        "there is on no page and nobody can have it, remove it by hand",
    )
