"""A lane: a build of its own whose source is changed for one fault, and put back for the next.

Beside the build lie copies of the clean source and of the clean build with their times, made
before the first change. Putting back is copying what differs in size or time, so that it does not
matter how the last fault ended, and ninja sees what it had made: nothing is compiled for it.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.faults.contract import NotPlantedError
from sparkbuild.files import disk_full_refused

CLEAN: Final = "clean"
"""Below a lane: what it was before the first fault."""
_HOME: Final = re.compile(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(?P<folder>.+)$", re.MULTILINE)
_SEARCHED: Final = re.compile(r"^Hunk #\d+ succeeded at .*|^Context reduced.*", re.MULTILINE)
_TOOLS: Final = ".sparkbuild"
"""Below a build: the ``git`` that knows this source's identity and nothing else."""
_BIN: Final = "bin"
_EPOCH: Final = "315532800"
"""1980-01-01, as the product's own builds have it: another date would make other objects."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A folder with a finished build: where its source, its build and the clean copies are."""

    root: Path
    source: Path
    binary: Path
    """CMake's folder."""

    @property
    def bin(self) -> Path:
        """The programs and libraries."""
        return self.binary / _BIN

    @property
    def clean_source(self) -> Path:
        """The copy of the source."""
        return self.root / CLEAN / "source"

    @property
    def clean_binary(self) -> Path:
        """The copy of CMake's folder."""
        return self.root / CLEAN / "build"


def find_lane(root: Path) -> Lane | None:
    """The newest finished build below ``root``, or None: then ``sparkbuild make`` is still due."""
    caches = [*root.glob("builds/*/cmake/CMakeCache.txt"), *root.glob("cmake*/CMakeCache.txt")]
    newest = sorted(caches, key=lambda cache: -cache.stat().st_mtime_ns)
    return next(filter(None, (lane_of(root, cache.parent) for cache in newest)), None)


def lane_of(root: Path, binary: Path) -> Lane | None:
    """The lane whose CMake folder is ``binary``, or None where nothing finished is there."""
    binary = binary.resolve()
    try:
        home = _HOME.search((binary / "CMakeCache.txt").read_text(errors="replace"))
    except OSError:
        return None
    if home is None or not (binary / _BIN / "llama-server").is_file():
        return None
    return Lane(root=root, source=Path(home["folder"]), binary=binary)


def put_back(lane: Lane) -> int:
    """Make source and build what they were before the first fault; the number of files changed.

    The first call makes the copies. Raises DiskFullError.
    """
    changed = 0
    for place, copy in ((lane.source, lane.clean_source), (lane.binary, lane.clean_binary)):
        with disk_full_refused(copy):
            if copy.is_dir():
                changed += mirror(copy, place)
                continue
            part = copy.with_name(f"{copy.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(place, part, symlinks=True)
            part.rename(copy)
    return changed


def mirror(copy: Path, place: Path) -> int:
    """Make ``place`` the same as ``copy``, by size and time; the number of files that were not."""
    wanted, found = _states(copy), _states(place)
    for name in found.keys() - wanted.keys():
        (place / name).unlink()
    different = [name for name, state in wanted.items() if found.get(name) != state]
    for name in different:
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy2(copy / name, target, follow_symlinks=False)
    return len(different) + len(found.keys() - wanted.keys())


def _states(root: Path) -> dict[str, tuple[int, int] | str]:
    """Size and time of each file, the target of each link."""
    return dict(_walked(root, str(root)))


def _walked(root: Path, folder: str) -> Iterator[tuple[str, tuple[int, int] | str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = os.path.relpath(entry.path, root)
            if entry.is_symlink():
                yield name, str(Path(entry.path).readlink())
            elif entry.is_dir():
                yield from _walked(root, entry.path)
            else:
                stat = entry.stat()
                yield name, (stat.st_size, stat.st_mtime_ns)


def patch(lane: Lane, file: Path, log: Path) -> None:
    """Apply a patch to the source, where it was made for. Raises NotPlantedError."""
    env = process.environment(extra={"GIT_CEILING_DIRECTORIES": str(lane.source.parent)})
    argv = ["git", "apply", "--verbose", "--whitespace=nowarn", "-p1", str(file.absolute())]
    done = process.run(argv, log=log, env=env, cwd=lane.source)
    if done.returncode != 0:
        raise NotPlantedError(f"{file.name} does not apply: {told(done.tail, 'error')}")
    moved = _SEARCHED.search(done.tail)
    if moved:
        raise NotPlantedError(f"{file.name} lands elsewhere than it was made for: {moved[0]}")


def build(lane: Lane, targets: Sequence[str], *, jobs: int, log: Path) -> tuple[str, ...]:
    """Build what a change asks for; names of the programs and libraries that came out otherwise.

    Raises NotPlantedError where it does not compile, or nothing is otherwise.
    """
    env = tools_environment(lane.binary)
    ninja = str(process.python_program("ninja"))
    argv = [ninja, "-C", str(lane.binary), "-j", str(jobs), *targets]
    done = process.run(argv, log=log, env=env)
    if done.returncode != 0:
        raise NotPlantedError(f"it does not compile: {told(done.tail, 'error')}")
    before = lane.clean_binary / _BIN
    other = tuple(
        sorted(
            file.name
            for file in lane.bin.iterdir()
            if not file.is_symlink() and not _same(file, before / file.name)
        )
    )
    if not other:
        raise NotPlantedError("nothing that is built came out otherwise: it changes no code here")
    return other


def tools_environment(binary: Path) -> dict[str, str]:
    """What a build's own compilers and linkers see; ``binary`` is CMake's folder."""
    tools = binary / _TOOLS
    return process.environment(
        path=[tools], extra={"HOME": str(tools), "SOURCE_DATE_EPOCH": _EPOCH}
    )


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)


def told(text: str, word: str) -> str:
    """The first line with the word, which says why; the last line where there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if word in line), lines[-1] if lines else "no word of why")
