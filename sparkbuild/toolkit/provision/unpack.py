"""Unpack wheels of a CUDA release into one tree, every byte checked against RECORD on its way."""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from sparkbuild.files import disk_full_refused
from sparkbuild.toolkit.parts import spec
from sparkbuild.toolkit.provision.tree import TreeFile, file_mode
from sparkbuild.toolkit.provision.wheel import Recorded, Wheel, damage_refused, read_wheel, refused

_CHUNK: Final = 1 << 20
_LARGE: Final = 16 << 20
"""Bytes from which on a file is worth a thread of its own."""

_REPORT: Final = 0.1
"""Seconds between two reports of progress."""

_PROGRAMS: Final = frozenset(
    path
    for name in ("nvcc", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink")
    for path in spec(name).files
)
"""What must be executable even where a wheel's maker forgot it."""


@dataclass(kw_only=True)
class Unpacked:
    """What wheels brought: files by path below the destination, licence names by project."""

    files: dict[str, TreeFile] = field(default_factory=dict)
    licences: dict[str, str] = field(default_factory=dict)


def unpack(
    wheels: Sequence[Path],
    destination: Path,
    *,
    progress: Callable[[int, int, str], None] = lambda _done, _total, _text: None,
) -> Unpacked:
    """Unpack ``wheels`` into the folder ``destination``, which must not exist yet.

    ``nvidia/cu13/`` and ``nvidia/<part>/`` become the destination itself; licence texts go to
    ``licenses/<project>.txt``. ``progress`` gets bytes written, bytes in all and what is done, on
    the caller's thread. Raises ArchiveError for a member that no toolkit's wheel may hold, for
    bytes that RECORD does not announce and for two wheels that bring other bytes under one path;
    DiskFullError.
    """
    with disk_full_refused(destination):
        destination.mkdir(parents=True)
        unpacking = _Unpacking(destination, progress)
        for path in wheels:
            unpacking.add(path)
        return unpacking.finish()


def unpacked_size(wheels: Sequence[Path]) -> int:
    """Bytes that the wheels' files will have. Raises ArchiveError."""
    total = 0
    for path in wheels:
        with path.open("rb") as file:
            wheel, _ = read_wheel(file, path.name)
        total += sum(wheel.record[member].size for member in wheel.toolkit_files().values())
    return total


class _StoppedError(Exception):
    """Another thread failed; never seen outside this module."""


@dataclass(frozen=True)
class _Share:
    """One thread's work: members of one wheel by path below the destination."""

    path: Path
    wheel: Wheel
    wanted: dict[str, str]
    size: int


class _Unpacking:
    """One tree in the making: plan every file first, then write them."""

    def __init__(self, destination: Path, progress: Callable[[int, int, str], None]) -> None:
        self._destination = destination
        self._progress = progress
        self._plans: list[tuple[Path, Wheel, dict[str, str]]] = []
        self._result = Unpacked()
        self._recorded: dict[str, Recorded] = {}
        self._folders: set[str] = set()
        self._done = self._total = 0
        self._counting = threading.Lock()
        self._stop = threading.Event()

    def add(self, path: Path) -> None:
        """Plan a wheel's files. Raises ArchiveError where they cannot be together."""
        with path.open("rb") as file:
            wheel, _ = read_wheel(file, path.name)
        wanted = {}
        for place, member in (*wheel.toolkit_files().items(), *_licences(wheel).items()):
            if place in wanted:
                raise refused(path.name, place, "this is where the wheel's licence goes")
            recorded = wheel.record[member]
            known = self._recorded.setdefault(place, recorded)
            if known != recorded:
                raise refused(path.name, place, "another wheel brings other bytes there")
            if known is recorded:
                wanted[place] = member
                self._total += recorded.size
                above = PurePosixPath(place).parents
                self._folders.update(str(folder) for folder in above)
        for place in sorted(self._folders & self._recorded.keys()):
            raise refused(path.name, place, "a file here, a folder in another wheel")
        self._plans.append((path, wheel, wanted))
        self._result.licences[wheel.project] = wheel.licence

    def finish(self) -> Unpacked:
        """Write every planned file, on as many threads as there are processors."""
        for folder in sorted(self._folders):
            (self._destination / folder).mkdir(exist_ok=True)
        shares = sorted(self._shares(), key=lambda share: -share.size)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                running = {pool.submit(self._write_all, share) for share in shares}
                while running:
                    ended, running = wait(running, timeout=_REPORT, return_when=FIRST_EXCEPTION)
                    for future in ended:
                        future.result()
                    # Here and not on the threads: whoever shows progress need not be prepared.
                    self._progress(self._done, self._total, "unpacking")
            except BaseException:
                self._stop.set()
                raise
        return self._result

    def _shares(self) -> Iterator[_Share]:
        """A large file is one thread's work, the small ones of a wheel together are."""
        for path, wheel, wanted in self._plans:
            sizes = {place: wheel.record[member].size for place, member in wanted.items()}
            small = {place: wanted[place] for place in wanted if sizes[place] < _LARGE}
            yield _Share(path, wheel, small, sum(sizes[place] for place in small))
            for place in wanted.keys() - small.keys():
                yield _Share(path, wheel, {place: wanted[place]}, sizes[place])

    def _write_all(self, share: _Share) -> None:
        with damage_refused(share.path.name), zipfile.ZipFile(share.path) as archive:
            for place, member in share.wanted.items():
                self._write(archive, share.wheel, place, member)

    def _write(self, archive: zipfile.ZipFile, wheel: Wheel, place: str, member: str) -> None:
        recorded = wheel.record[member]
        mode = archive.getinfo(member).external_attr >> 16
        program = bool(mode & 0o111) or place in _PROGRAMS
        target = self._destination / place
        state = hashlib.sha256()
        size = 0
        with archive.open(member) as source, target.open("xb") as out:
            while size <= recorded.size and (chunk := source.read(_CHUNK)):
                state.update(chunk)
                out.write(chunk)
                size += len(chunk)
                self._count(len(chunk))
            os.fchmod(out.fileno(), file_mode(program=program))
        if (state.hexdigest(), size) != (recorded.sha256, recorded.size):
            raise refused(
                wheel.file,
                member,
                f"RECORD announces {recorded.size} bytes with sha256 {recorded.sha256}, found "
                f"{size} with {state.hexdigest()}",
            )
        self._result.files[place] = TreeFile(recorded.sha256, recorded.size, program)

    def _count(self, size: int) -> None:
        if self._stop.is_set():
            raise _StoppedError
        with self._counting:
            self._done += size


def _licences(wheel: Wheel) -> dict[str, str]:
    """Licence texts: path below the root to member name."""
    names = wheel.licence_texts()
    places = [f"licenses/{wheel.project}{f'-{n}' if n else ''}.txt" for n in range(len(names))]
    return dict(zip(places, names, strict=True))
