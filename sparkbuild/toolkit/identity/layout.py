"""Where a root's parts lie: NVIDIA's packages, wheels, provisioned roots and conda prefixes.

One part may be reached on several ways (``lib64``, ``targets/x86_64-linux/lib``): all are walked,
since nvcc, CMake and the linker do not all take the same.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sparkbuild.toolkit.identity.elf import elf_machine
from sparkbuild.toolkit.model import Problem
from sparkbuild.toolkit.parts import SPECS, Spec

TARGETS: Final = {
    "x86_64": ("x86_64-linux",),
    "aarch64": ("sbsa-linux", "aarch64-linux"),
}
"""Folders below ``targets/`` by machine: NVIDIA's own names, and conda's."""

_ALL_TARGETS: Final = tuple(name for names in TARGETS.values() for name in names)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One file of a part: its canonical path, the place in the root, where that really is."""

    canonical: str
    place: str
    real: Path
    mode: int


@dataclass(kw_only=True)
class Layout:
    """Every file of every part, by the part's name, and what is wrong with the way to them.

    ``absent`` holds, by part, files that the part's table names and the root lacks; ``strays``,
    by place, where links lead that leave the root.
    """

    root: str
    machine: str | None
    files: dict[str, list[Found]] = field(default_factory=dict)
    absent: dict[str, list[str]] = field(default_factory=dict)
    strays: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def locate(root: str) -> Layout:
    """Find the parts below ``root``, an absolute path without links."""
    layout = Layout(root=root, machine=machine_of(root))
    folders = _Folders(layout)
    for part in SPECS:
        found: dict[tuple[str, Path], Found] = {}
        for pattern in part.files:
            here = list(folders.matches(pattern))
            if not here and "*" not in pattern:
                layout.absent.setdefault(part.name, []).append(pattern)
            found.update({(file.canonical, file.real): file for file in here})
        if part.kind == "library":
            found = _library(folders, layout, part, found)
        if found:
            layout.files[part.name] = list(found.values())
    folders.check_library_folder()
    return layout


def machine_of(root: str) -> str | None:
    """The machine of the first of nvcc, cicc and ptxas whose ELF header states one."""
    for place in ("bin/nvcc", "nvvm/bin/cicc", "bin/ptxas"):
        try:
            with Path(root, place).open("rb", buffering=0) as file:
                head = file.read(64)
        except OSError:
            continue
        if machine := elf_machine(head):
            return machine
    return None


def _library(
    folders: _Folders, layout: Layout, part: Spec, found: dict[tuple[str, Path], Found]
) -> dict[tuple[str, Path], Found]:
    """A library by what its names resolve to: the linker's ``libX.so`` and the loader's."""
    plain = part.files[0].removesuffix(".*")
    name = plain.rpartition("/")[2]
    links = list(folders.matches(plain))
    said = any(f"/{name} is a link" in problem.text for problem in layout.problems)
    if found and not links and not said:
        file = Path(next(iter(found.values())).place)
        link = file.with_name(name)
        text = f"{link} is missing: CMake and the linker look for that name; to make it: "
        text += f"ln -s {file.name} {link}"
        layout.problems.append(Problem(kind="missing", text=text))
    files: dict[tuple[str, Path], Found] = {}
    for each in (*found.values(), *links):
        files.setdefault((plain, each.real), replace(each, canonical=plain))
    return files


class _Folders:
    """The real folders that a canonical one may mean, and the files in them."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._root = layout.root
        names = TARGETS.get(layout.machine or "", _ALL_TARGETS)
        self._targets = [name for name in names if _is_folder(f"{self._root}/targets/{name}")]
        self._ways: dict[str, list[tuple[str, str]]] = {}
        self._names: dict[str, list[str]] = {}

    def matches(self, pattern: str) -> Iterator[Found]:
        """The files that a canonical path or pattern names, on every way to its folder."""
        folder, _, name = pattern.rpartition("/")
        for place, real in self._reach(folder):
            names = fnmatch.filter(self._list(real), name) if "*" in name else [name]
            for each in sorted(names):
                found = self._file(f"{folder}/{each}", f"{place}/{each}", f"{real}/{each}")
                if found is not None:
                    yield found

    def check_library_folder(self) -> None:
        """Note a missing ``lib64``, which the wheels do not have."""
        root, ways = self._root, ("lib64", *self._below(self._targets, "lib"))
        if any(_is_folder(f"{root}/{way}") for way in ways):
            return
        if _is_folder(f"{root}/lib"):
            text = f"{root}/lib64 is missing: CMake and nvcc.profile look for libraries there; "
            text += f"to make it: ln -s lib {root}/lib64"
            self._layout.problems.append(Problem(kind="missing", text=text))

    @staticmethod
    def _below(targets: list[str], folder: str) -> list[str]:
        return [f"targets/{name}/{folder}" for name in targets]

    def _reach(self, folder: str) -> list[tuple[str, str]]:
        """Places below the root that a canonical folder may mean: (place, what it really is)."""
        if folder not in self._ways:
            first, _, rest = folder.partition("/")
            places = [first]
            if first == "lib":
                places = ["lib64", *self._below(self._targets, "lib"), "lib"]
            elif first == "include":
                places = ["include", *self._below(self._targets, "include")]
                places += [f"{place}/cccl" for place in places]
            ways: dict[str, str] = {}
            for place in places:
                full = f"{place}/{rest}" if rest else place
                real = os.path.realpath(f"{self._root}/{full}")
                if _is_folder(real):
                    self._note_stray(full, real)
                    ways.setdefault(real, full)
            self._ways[folder] = [(place, real) for real, place in ways.items()]
        return self._ways[folder]

    def _list(self, real: str) -> list[str]:
        if real not in self._names:
            try:
                with os.scandir(real) as entries:
                    self._names[real] = [entry.name for entry in entries]
            except OSError as error:
                text = f"{real} cannot be read: {error.strerror}"
                self._layout.problems.append(Problem(kind="damaged", text=text))
                self._names[real] = []
        return self._names[real]

    def _file(self, canonical: str, place: str, path: str) -> Found | None:
        try:
            state = os.lstat(path)
        except OSError:
            return None
        real = path
        if stat.S_ISLNK(state.st_mode):
            real = os.path.realpath(path)
            try:
                state = Path(real).stat()
            except OSError:
                target = Path(path).readlink()
                text = f"{self._root}/{place} is a link to {target}, which is not there"
                self._layout.problems.append(Problem(kind="missing", text=text))
                return None
            self._note_stray(place, real)
        if stat.S_ISDIR(state.st_mode) and not canonical.startswith("lib/"):
            return None
        if not stat.S_ISREG(state.st_mode):
            text = f"{self._root}/{place} is no file"
            self._layout.problems.append(Problem(kind="damaged", text=text))
            return None
        return Found(canonical=canonical, place=f"{self._root}/{place}", real=Path(real),
                     mode=state.st_mode)  # fmt: skip

    def _note_stray(self, place: str, real: str) -> None:
        """Remember the first folder or file on the way to ``place`` that leaves the root."""
        if inside(real, self._root):
            return
        steps = place.split("/")
        for count in range(1, len(steps) + 1):
            part = "/".join(steps[:count])
            target = os.path.realpath(f"{self._root}/{part}")
            if not inside(target, self._root):
                self._layout.strays.setdefault(part, target)
                return


def _is_folder(path: str) -> bool:
    """False also where nobody may look: a root must be told of, not stumbled over."""
    return os.access(f"{path}/", os.F_OK)


def inside(path: str, root: str) -> bool:
    """True where ``path`` is ``root`` or below it; both without links."""
    return path == root or path.startswith(root.rstrip("/") + "/")
