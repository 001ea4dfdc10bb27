"""The install tree: exactly the programs asked for and the libraries below them, as real files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.build.elf import read_elf
from sparkbuild.build.model import Artifact
from sparkbuild.errors import BinaryError
from sparkbuild.files import disk_full_refused, fsync_directory, sha256_file

BIN: Final = "bin"
"""Programs and libraries share one directory, so that ``$ORIGIN`` is all a RUNPATH needs."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file of the tree: its name there, where it comes from, whether it is a program."""

    name: str
    origin: Path
    program: bool


def plan_tree(artifacts: Iterable[Artifact], binary_dir: Path) -> tuple[Entry, ...]:
    """Name every file: programs as they are, libraries by their SONAME.

    Raises BinaryError listing artifacts that are missing and names that two files claim.
    """
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for artifact in artifacts:
        origin = binary_dir / artifact.path
        if not origin.is_file():
            problems.append(f"{artifact.target}: {artifact.path} was not made")
            continue
        program = artifact.kind == "EXECUTABLE"
        name = origin.name if program else _library_name(origin)
        entry = Entry(name=name, origin=origin.resolve(), program=program)
        first = entries.setdefault(name, entry)
        if first.origin != entry.origin and sha256_file(first.origin) != sha256_file(entry.origin):
            problems.append(f"{name}: both {first.origin} and {entry.origin} claim this name")
    if problems:
        raise BinaryError(
            "the build did not make the files of an install tree",
            problems=problems,
            evidence=[binary_dir],
            next_step="name targets whose files have different names",
        )
    return tuple(entries.values())


def write_tree(entries: Iterable[Entry], directory: Path) -> None:
    """Copy the files to ``directory``/bin; the tree appears whole, in one rename.

    A tree that is already there is replaced: whoever calls this does not trust it. Raises
    DiskFullError.
    """
    prefix = f".{directory.name}."
    with disk_full_refused(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        for stale in directory.parent.glob(f"{prefix}*"):
            shutil.rmtree(stale, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=prefix))
        try:
            temporary.chmod(0o755)
            bin_dir = temporary / BIN
            bin_dir.mkdir(mode=0o755)
            for entry in entries:
                _copy(entry.origin, bin_dir / entry.name)
            fsync_directory(bin_dir)
            fsync_directory(temporary)
            if directory.exists():
                shutil.rmtree(directory)
            temporary.rename(directory)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync_directory(directory.parent)


def _library_name(path: Path) -> str:
    name = read_elf(path).soname or path.name
    if "/" in name or name in {"", ".", ".."}:
        raise BinaryError(f"{path.name} has {name!r} for a SONAME", evidence=[path])
    return name


def _copy(origin: Path, target: Path) -> None:
    shutil.copyfile(origin, target)
    target.chmod(0o755)
    handle = os.open(target, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
