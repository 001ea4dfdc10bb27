"""Make a toolkit's root from locked wheels: all of it, verified, in place at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.errors import ToolkitMismatchError, UsageError
from sparkbuild.files import digest_of, disk_full_refused, exclusive, fsync_directory, sha256_file
from sparkbuild.manifest import unknown_name
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.lock import LockedPlatform, Platform
from sparkbuild.toolkit.parts import SPECS, canonical, part_digests
from sparkbuild.toolkit.provision import tree
from sparkbuild.toolkit.provision.stub import can_make_stub, make_stub
from sparkbuild.toolkit.provision.tree import STUB, Installed, TreeFile, beside
from sparkbuild.toolkit.provision.unpack import Unpacked, unpack, unpacked_size

Progress = Callable[[int, int, str], None]

_LAYOUT: Final = 1
"""Number of the tree's layout: another one makes every root anew."""

_GROWTH: Final = 2.0
"""Bytes unpacked for a byte of wheel, at most: 13.0's 0.53 GB become 0.88 GB."""


class Provisioned(msgspec.Struct, frozen=True, kw_only=True):
    """A root that is whole.

    ``licence`` is what the wheels name, its texts lie in ``licenses/``. ``downloaded`` and
    ``size`` are bytes: over the network now, and on disk. ``reused`` where nothing was to be made.
    """

    root: str
    licence: str
    files: int
    size: int
    downloaded: int
    reused: bool
    notes: tuple[str, ...] = ()


def install(
    book: Book,
    toolchain: str,
    platform: Platform,
    *,
    root: Path,
    downloads: Path,
    progress: Progress,
    compilers: bool = False,
) -> Provisioned:
    """Make ``root`` from a toolchain's locked wheels for ``platform``, unless it is there.

    Wheels are kept in ``downloads`` by digest, shared between releases; with all of them there no
    network is needed. ``compilers`` leaves out the libraries of products, which are four fifths of
    a release: enough to qualify it, too little to build with. ``progress`` gets bytes done, bytes
    in all and what is done. An older root stays until the new one is complete. Raises
    ToolkitMismatchError where the release cannot be made from wheels or a wheel is not what the
    lock says, SourceUnavailableError, ArchiveError, DiskFullError, BusyError, and UsageError where
    ``root`` is a folder of somebody else's.
    """
    locked = _locked(book, toolchain, platform)
    if compilers:
        locked = compilers_of(locked)
    job = _Job(toolchain, platform, locked, root, downloads, progress)
    with exclusive(beside(root, "lock"), what=f"the toolkit {root}"):
        return job.run()


def compilers_of(locked: LockedPlatform) -> LockedPlatform:
    """A lock without cuBLAS: the wheels and parts that device code is compiled with."""
    left_out = {spec.name for spec in SPECS if spec.group == "cublas"}
    projects = {f"nvidia-{spec.project}" for spec in SPECS if spec.name in left_out}
    return msgspec.structs.replace(
        locked,
        wheels=tuple(w for w in locked.wheels if not w.project.startswith(tuple(projects))),
        parts={name: part for name, part in locked.parts.items() if name not in left_out},
    )


class _Job:
    """One root in the making."""

    def __init__(
        self,
        toolchain: str,
        platform: Platform,
        locked: LockedPlatform,
        root: Path,
        downloads: Path,
        progress: Progress,
    ) -> None:
        self._toolchain = toolchain
        self._platform: Platform = platform
        self._locked = locked
        self._root = root
        self._downloads = downloads
        self._progress = progress
        self._notes: list[str] = []

    def run(self) -> Provisioned:
        """Reuse the root or make it; the caller holds its lock."""
        self._recover()
        known = tree.read_manifest(self._root)
        if known is not None and self._still_good(known):
            return self._provisioned(known, downloaded=0, reused=True)
        self._check_place(known)
        # httpx and the index's client take half a second to load: only where they are needed.
        from sparkbuild.toolkit.provision.fetch import check_space, fetch_wheels  # noqa: PLC0415

        part = beside(self._root, "part")
        wheels = self._locked.wheels
        room = int(_GROWTH * sum(wheel.size for wheel in wheels))
        check_space(part, room)
        fetched = fetch_wheels(wheels, self._downloads, self._progress, room=self._room_at(room))
        check_space(part, unpacked_size(fetched.files))
        try:
            installed = self._make(part, fetched.files)
            self._put_in_place(part)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        tree.seal(self._root, installed)
        return self._provisioned(installed, downloaded=fetched.downloaded, reused=False)

    def _recover(self) -> None:
        """Clean up after a run that was killed."""
        shutil.rmtree(beside(self._root, "part"), ignore_errors=True)
        old = beside(self._root, "old")
        if old.exists() and not self._root.exists():
            old.rename(self._root)
        shutil.rmtree(old, ignore_errors=True)
        for half_written in self._root.parent.glob(f".{beside(self._root, 'seal').name}.*"):
            half_written.unlink()

    def _still_good(self, known: Installed) -> bool:
        """True where the root is the one asked for and nothing of it changed."""
        if known.lock != self._digest():
            return False
        if STUB not in known.files and can_make_stub(self._platform):
            return False
        if tree.sealed(self._root, known):
            return True
        self._progress(0, 0, f"checking {self._root}")
        changed = list(tree.differences(self._root, known))
        if changed:
            more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
            self._notes.append(f"the root was made anew: {', '.join(changed[:3])}{more}")
            return False
        tree.seal(self._root, known)
        return True

    def _check_place(self, known: Installed | None) -> None:
        if known is None and self._root.exists() and any(self._root.iterdir()):
            raise UsageError(
                f"{self._root} is there, and sparkbuild did not make it",
                evidence=[self._root],
                next_step="name another place, or remove that folder yourself",
            )

    def _make(self, part: Path, wheels: Sequence[Path]) -> Installed:
        """The whole tree at ``part``, on disk to its last byte."""
        with disk_full_refused(part):
            unpacked = unpack(wheels, part, progress=self._progress)
            self._check_parts(unpacked)
            links = tree.links_wanted(unpacked.files)
            tree.make_links(part, links)
            note = self._add_stub(part, unpacked)
            installed = Installed(
                schema=1,
                toolchain=self._toolchain,
                platform=self._platform,
                lock=self._digest(),
                licence=", ".join(sorted(set(unpacked.licences.values()))),
                wheels=self._locked.wheels,
                links=links,
                files=unpacked.files,
                notes=() if note is None else (note,),
            )
            tree.write_manifest(part, installed)
            os.sync()  # thousands of small files: one call instead of one each
        return installed

    def _check_parts(self, unpacked: Unpacked) -> None:
        """Every part must be the one that the lock knows."""
        digests = {canonical(path): file.sha256 for path, file in unpacked.files.items()}
        found = part_digests(digests)
        problems = [
            f"{name} {part.version}: expected sha256 {part.sha256}, found {found.get(name)}"
            for name, part in sorted(self._locked.parts.items())
            if found.get(name) != part.sha256
        ]
        if problems:
            raise ToolkitMismatchError(
                f"the wheels of {self._toolchain} are not what its lock says",
                problems=problems,
                next_step=f"`sparkbuild toolkit lock {self._toolchain}` asks the index again; "
                "compare what it writes",
            )

    def _add_stub(self, part: Path, unpacked: Unpacked) -> str | None:
        """Add the driver stub; the note where there is none."""
        trouble = make_stub(part / "include", part / STUB, self._platform)
        if trouble is not None:
            return f"without the driver stub {STUB}: {trouble}"
        size = (part / STUB).stat().st_size
        unpacked.files[STUB] = TreeFile(sha256_file(part / STUB), size, program=False)
        return None

    def _put_in_place(self, part: Path) -> None:
        """Swap the new root in; a kill between the two renames is mended by the next run."""
        old = beside(self._root, "old")
        beside(self._root, "seal").unlink(missing_ok=True)
        if self._root.exists():
            self._root.rename(old)
        part.rename(self._root)
        fsync_directory(self._root.parent)
        shutil.rmtree(old, ignore_errors=True)

    def _room_at(self, room: int) -> int:
        """Bytes that the tree itself will take on the file system of the downloads."""
        self._downloads.mkdir(parents=True, exist_ok=True)
        same = self._downloads.stat().st_dev == self._root.parent.stat().st_dev
        return room if same else 0

    def _digest(self) -> str:
        """Digest of all that decides what the root will be."""
        return digest_of(
            {
                "layout": _LAYOUT,
                "toolchain": self._toolchain,
                "platform": self._platform,
                "lock": msgspec.to_builtins(self._locked),
            }
        )

    def _provisioned(self, installed: Installed, *, downloaded: int, reused: bool) -> Provisioned:
        return Provisioned(
            root=str(self._root),
            licence=installed.licence,
            files=len(installed.files),
            size=sum(file.size for file in installed.files.values()),
            downloaded=downloaded,
            reused=reused,
            notes=(*installed.notes, *self._notes),
        )


def _locked(book: Book, toolchain: str, platform: Platform) -> LockedPlatform:
    """What the lock says. Raises where it says nothing, or where no wheels make the release."""
    if toolchain not in book.toolchains:
        names = sorted(book.toolchains)
        raise unknown_name("CUDA toolchain", toolchain, names, Path("toolchains"))
    locked = book.locked(toolchain, platform)
    if locked is None:
        raise ToolkitMismatchError(
            f"{toolchain} has no lock for {platform}",
            next_step=f"make one: `sparkbuild toolkit lock {toolchain}`",
        )
    if locked.missing:
        raise ToolkitMismatchError(
            f"{toolchain} cannot be made from wheels for {platform}",
            problems=[f"no wheel of this release brings {name}" for name in locked.missing],
            next_step=f"install NVIDIA's own packages of {toolchain}, then "
            "`sparkbuild toolkit show ROOT` checks every part of them",
        )
    return locked
