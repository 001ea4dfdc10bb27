"""Disks: their room, and a short read past the page cache."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from sparkbuild.doctor.captured import Disk, Speed
from sparkbuild.doctor.read.reader import Reader

_MIB: Final = 1 << 20
_CHUNK: Final = 8 * _MIB
"""Bytes of one read; a multiple of every drive's block size."""
_MOST: Final = 512 * _MIB
_SECONDS: Final = 2.0
_LEAST: Final = 64 * _MIB
"""Below it a time says more about the drive's own cache than about the drive."""
_SPARE: Final = 4 << 30
"""A file is made only where this much stays free."""
_LOOKED_AT: Final = 2000
"""Files among which a large one is looked for."""


def read_disks(reader: Reader, folders: Sequence[Path], *, work: Path) -> tuple[Disk, ...]:
    """The file systems below ``folders``, each once, the work folder's first and measured."""
    found: dict[int, Disk] = {}
    for folder in (work, *folders):
        there = _existing(folder)
        try:
            state, device = os.statvfs(there), there.stat().st_dev
        except OSError as error:
            reader.lack("disks", f"{there}: {error.strerror}")
            continue
        if device in found:
            continue
        free = state.f_bavail * state.f_frsize
        found[device] = Disk(
            folder=str(folder),
            kind=_kind(reader, there),
            size=state.f_blocks * state.f_frsize,
            free=free,
            speed=measure(reader, there, free=free) if folder == work else None,
        )
    return tuple(found.values())


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next((one for one in (folder, *folder.parents) if one.is_dir()), Path("/"))


def _kind(reader: Reader, folder: Path) -> str:
    """Type of the file system: of the longest mount point above the folder."""
    best, kind = "", "unknown"
    for row in (line.split() for line in (reader.text("proc/self/mounts") or "").splitlines()):
        if len(row) > 2 and folder.is_relative_to(row[1]) and len(row[1]) >= len(best):
            best, kind = row[1], row[2]
    return kind


def measure(
    reader: Reader, folder: Path, *, free: int, most: int = _MOST, seconds: float = _SECONDS
) -> Speed | None:
    """Read a large file below ``folder`` with O_DIRECT, or one that is made and removed again.

    Reading ends after ``seconds`` or ``most`` bytes, making the file too.
    """
    large = next(_large_files(folder, most), None)
    try:
        if large is not None:
            return _timed(large, "existing", most, seconds)
        if free < most + _SPARE:
            reader.lack("disks.speed", "too little room for a file to read")
            return None
        with tempfile.NamedTemporaryFile(dir=folder, prefix="sparkbuild-speed-") as file:
            _fill(file.fileno(), most, seconds)
            return _timed(Path(file.name), "temporary", most, seconds)
    except OSError as error:
        reader.lack("disks.speed", f"{folder}: {error.strerror} (O_DIRECT)")
    except ValueError as error:
        reader.lack("disks.speed", error)
    return None


def _large_files(folder: Path, most: int) -> Iterator[Path]:
    looked = 0
    for above, _, names in os.walk(folder):
        for name in names:
            looked += 1
            if looked > _LOOKED_AT:
                return
            path = Path(above) / name
            with suppress(OSError):
                if not path.is_symlink() and path.stat().st_size >= most:
                    yield path


def _fill(handle: int, most: int, seconds: float) -> None:
    """Bytes that neither a drive nor a file system can leave out."""
    chunk, end = os.urandom(_CHUNK), time.monotonic() + seconds
    for _ in range(most // _CHUNK):
        os.write(handle, chunk)
        if time.monotonic() > end:
            break
    os.fsync(handle)


def _timed(path: Path, kind: Literal["existing", "temporary"], most: int, seconds: float) -> Speed:
    """Raises ValueError where too little could be read, OSError where O_DIRECT is not had."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    total, started = 0, time.monotonic()
    try:
        with mmap.mmap(-1, _CHUNK) as buffer:  # its pages are aligned as O_DIRECT wants them
            while total < most and time.monotonic() - started < seconds:
                count = os.preadv(handle, [buffer], total)
                if count <= 0:
                    break
                total += count
                if count % 4096:
                    break  # the end of the file
            taken = time.monotonic() - started
    finally:
        os.close(handle)
    if total < _LEAST:
        raise ValueError(f"only {total} bytes were read in {taken:.1f} s")
    return Speed(bytes=total, seconds=round(taken, 3), file=kind)
