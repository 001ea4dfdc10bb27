"""Read the declared files of a plain folder on this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

from sparkbuild.errors import SourceMismatchError
from sparkbuild.source.entries import LINK, Entry, normal_mode, parents

_CHUNK: Final = 1 << 20


def read_folder(
    place: Path, paths: Sequence[str], wants: Callable[[str], bool]
) -> Generator[Entry, None, None]:
    """Entries of the declared paths below ``place`` in the order of their names.

    Raises SourceMismatchError where one is neither file, folder nor link, OSError where one
    cannot be read.
    """
    files: dict[str, Path] = {}
    strange = []
    for declared in paths:
        if any((place / folder).is_symlink() for folder in parents(declared)):
            continue  # git would not look behind a link either: it counts as missing
        for file in _below(place / declared):
            name = file.relative_to(place).as_posix()
            mode = file.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                strange.append(name)
            elif wants(name):
                files[name] = file
    if strange:
        raise SourceMismatchError(
            f"{place} holds what no source may",
            problems=[f"neither file, folder nor link: {name}" for name in sorted(strange)],
            evidence=[place],
            next_step="remove it from that folder, or from `source.paths`",
        )
    for name, file in sorted(files.items()):
        yield _entry(name, file)


def _below(place: Path) -> Iterator[Path]:
    if place.is_symlink() or not place.is_dir():
        if os.path.lexists(place):
            yield place
        return
    for directory, folders, names in os.walk(place, onerror=_raise):
        base = Path(directory)
        links = [name for name in folders if (base / name).is_symlink()]
        yield from (base / name for name in [*names, *links])


def _entry(name: str, file: Path) -> Entry:
    facts = file.lstat()
    if stat.S_ISLNK(facts.st_mode):
        target = os.fsencode(file.readlink())
        return Entry(path=name, mode=LINK, size=len(target), chunks=[target])
    mode = normal_mode(facts.st_mode)
    return Entry(path=name, mode=mode, size=facts.st_size, chunks=_chunks(file))


def _chunks(file: Path) -> Iterator[bytes]:
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _raise(error: OSError) -> None:
    raise error
