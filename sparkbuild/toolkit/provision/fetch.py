"""Bring a lock's wheels here: kept by digest, gone on from where a line was cut."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkbuild.errors import DiskFullError, SourceUnavailableError
from sparkbuild.files import exclusive
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.net.download import Download
from sparkbuild.net.index import find_file
from sparkbuild.toolkit.lock import LockedWheel

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Wheels on disk, in the order asked for, and the bytes that came over the network now."""

    files: tuple[Path, ...]
    downloaded: int


def fetch_wheels(
    wheels: Sequence[LockedWheel], downloads: Path, progress: Progress, *, room: int = 0
) -> Fetched:
    """Bring every wheel to ``downloads``, verified; the network is asked for missing ones only.

    ``room`` is the bytes that must be left free beside the downloads. ``progress`` gets bytes
    here, bytes in all and what is done. Raises SourceUnavailableError, SourceMismatchError,
    DiskFullError, and BusyError where another process fetches the same wheel.
    """
    total = sum(wheel.size for wheel in wheels)
    done = 0
    wanted: list[tuple[LockedWheel, Download]] = []
    files = []
    for wheel in wheels:
        download = Download(downloads, wheel.file, sha256=wheel.sha256, size=wheel.size)
        files.append(download.file)
        progress(done, total, f"checking {wheel.file}")
        if download.finished():
            done += wheel.size
        else:
            wanted.append((wheel, download))
    missing = sum(wheel.size - _begun(downloads, wheel) for wheel, _ in wanted)
    check_space(downloads, missing + room)
    for wheel, download in wanted:
        base = done

        def here(arrived: int, _size: int, *, base: int = base, name: str = wheel.file) -> None:
            progress(base + arrived, total, f"downloading {name}")

        with exclusive(downloads / f"{wheel.sha256}.lock", what=f"the download of {wheel.file}"):
            if not download.finished():  # another process may have brought it meanwhile
                _bring(wheel, download, here)
        done += wheel.size
    return Fetched(files=tuple(files), downloaded=missing)


def check_space(place: Path, wanted: int) -> None:
    """Raise DiskFullError unless ``wanted`` bytes are free where ``place`` is or will be."""
    here = place
    while not here.exists():
        here = here.parent
    free = shutil.disk_usage(here).free
    if free < wanted:
        found = f"{wanted / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free"
        raise DiskFullError(
            f"too little space for {place}",
            problems=[f"{found} on the file system of {here}"],
            next_step="free some space, or choose another place with --work DIR; what was "
            "downloaded is kept",
        )


def _begun(downloads: Path, wheel: LockedWheel) -> int:
    """Bytes that an earlier run brought."""
    part = downloads / f"{wheel.sha256}.part"
    return min(part.stat().st_size, wheel.size) if part.is_file() else 0


def _bring(wheel: LockedWheel, download: Download, progress: Callable[[int, int], None]) -> None:
    try:
        address = find_file(wheel.project, wheel.file, sha256=wheel.sha256)
        download.fetch(address, progress)
    except OriginUnavailableError as error:
        raise SourceUnavailableError(
            f"{wheel.file} cannot be downloaded",
            problems=[str(error)],
            next_step="check the network, then run the same command again: it goes on from where "
            "it was cut",
        ) from error
