"""What GPU code was or is to be compiled with: as asked, as a wheel says, as the code itself says.

Known defects are those of ``toolchains/known-bad.toml``, matched as ``make`` matches them.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkbuild.build.look import Looked, look
from sparkbuild.errors import BinaryError
from sparkbuild.files import DigestCache
from sparkbuild.manifest import PatchEntry, Recipes
from sparkbuild.model.miscompiled import Compiler, Defect
from sparkbuild.model.opening import IrregularError, opened
from sparkbuild.package import identity
from sparkbuild.package.making import making
from sparkbuild.package.model import Making, Patched
from sparkbuild.toolkit.advisories import Advisory
from sparkbuild.toolkit.book import cuda, read_book
from sparkbuild.toolkit.choice.releases import release_advisories
from sparkbuild.toolkit.choice.select import choose
from sparkbuild.toolkit.identity.advise import matching
from sparkbuild.toolkit.identity.identify import identity_of
from sparkbuild.toolkit.model import UNSTATED, Part
from sparkbuild.toolkit.parts import SPECS
from sparkbuild.toolkit.trial.cubin import read_note

if TYPE_CHECKING:
    from sparkbuild.workspace import Workspace

_LIBRARIES: Final = ("libggml-cuda.so*", "llama-server")
"""Where a build's GPU code is."""
_FOLDERS: Final = ("", "bin", "lib", "lib64")
_LARGEST_INFO: Final = 16 << 20
"""Bytes of a ``build-info.json``; real ones have some kilobytes."""
_COMPILER: Final = tuple(spec.name for spec in SPECS if spec.group == "compiler")

_book = functools.cache(read_book)
"""A wheel's libraries are judged one after another."""


def asked_compiler(
    name: str,
    variant: str | None,
    architectures: tuple[str, ...],
    *,
    recipes: Recipes,
    workspace: Workspace,
) -> Compiler:
    """The toolkit that ``--toolkit`` names: a release as its lock has it, or a root as it is.

    ``variant`` is whose patches may work around its defects. Raises UnknownNameError, UsageError,
    ToolkitMismatchError.
    """
    book, choice = _book(recipes), choose(recipes, name)
    told = f"--toolkit {name}"
    if choice.toolchain.cuda is None:
        return Compiler(told_by=told, version="a toolkit without GPU code")
    if choice.root is None:
        parts: tuple[Part, ...] = ()
        found = release_advisories(book, choice.toolchain, architectures)
        nvcc = cuda(choice.toolchain).nvcc
    else:
        workspace.prepare()
        identity = identity_of(
            choice.root, book, DigestCache(workspace.digests), architectures=architectures
        )
        known = book.known_bad.advisory
        parts = identity.parts
        found = tuple(one for one in known if one.id in identity.advisories)
        nvcc = choice.toolchain.cuda.nvcc
    lifts = _lifted_by_variant(recipes, variant)
    versions = {part.name: part.version for part in parts}
    return Compiler(
        told_by=told if variant is None else f"{told}, variant {variant}",
        version=f"nvcc {nvcc}",
        defects=tuple(_defect(one, versions.get(one.part, nvcc), lifts) for one in found),
    )


def wheel_compiler(made: Making, told_by: str, recipes: Recipes) -> Compiler | None:
    """What a wheel of sparkbuild's says it was compiled with; None of one without GPU code."""
    nvcc = made.parts.get("nvcc")
    if nvcc is None:
        return None
    parts = [
        Part(name=name, version=version, read_from="wheel", path="", sha256="")
        for name, version in made.parts.items()
    ]
    book = _book(recipes)
    lifts = _lifted_by_patches(recipes, made.patches)
    found = matching(book.known_bad, parts, made.architectures)
    return Compiler(
        told_by=told_by,
        version=f"nvcc {nvcc}",
        defects=tuple(_defect(one, made.parts.get(one.part, nvcc), lifts) for one in found),
    )


def code_compiler(
    looked: Looked, told_by: str, recipes: Recipes, variant: str | None = None
) -> Compiler | None:
    """What the GPU code in a file says of its maker; None where there is none, or it says nothing.

    Each piece names its ptxas, and the other parts of a compiler have the release's version.
    """
    versions = compilers(looked)
    if not versions:
        return None
    book, lifts = _book(recipes), _lifted_by_variant(recipes, variant)
    targets = tuple(one.target.removeprefix("sm_") for one in looked.look.gpu if one.kind == "SASS")
    defects = {
        one.id: _defect(one, version, lifts)
        for version in versions
        for one in matching(book.known_bad, _parts_of(version), targets)
    }
    return Compiler(
        told_by=told_by if variant is None else f"{told_by}, variant {variant}",
        version=f"nvcc {' and '.join(versions)}",
        defects=tuple(defects.values()),
    )


def build_compiler(folder: Path, recipes: Recipes, variant: str | None = None) -> Compiler | None:
    """The same of a build's folder; None of a build for the CPU.

    An installed wheel of sparkbuild's tells of its patches beside it; elsewhere ``variant`` does.
    """
    made = None if variant else _installed(folder)
    if made is not None:
        return wheel_compiler(made, identity.INFO_FILE.rpartition("/")[2], recipes)
    for path in _gpu_files(folder):
        try:
            found = code_compiler(look(path), path.name, recipes, variant)
        except BinaryError:
            continue  # what is not to be read there is told by the checks of the build
        if found is not None:
            return found
    return None


def compilers(looked: Looked) -> tuple[str, ...]:
    """Versions of ptxas in the notes of some of a file's machine code, each once."""
    found = set()
    for cubin in looked.cubins:
        try:
            found.add(read_note(cubin).version)
        except ValueError:
            continue
    return tuple(sorted(version for version in found if version))


def _installed(folder: Path) -> Making | None:
    """What the wheel says of its making that a folder of programs was installed from."""
    for place in (folder.parent, folder):
        file = place / identity.INFO_FILE.rpartition("/")[2]
        with contextlib.suppress(OSError, IrregularError), opened(file) as (handle, size):
            if size <= _LARGEST_INFO and (made := making(os.pread(handle, size, 0), None)):
                return made
    return None


def _gpu_files(folder: Path) -> Iterator[Path]:
    for pattern in _LIBRARIES:
        for name in _FOLDERS:
            files = [path for path in (folder / name).glob(pattern) if path.is_file()]
            yield from sorted(files, key=lambda path: len(path.name))[:1]


def _parts_of(version: str) -> list[Part]:
    return [
        Part(
            name=name,
            version=version if name == "ptxas" else UNSTATED,
            read_from="GPU code",
            path="",
            sha256="",
        )
        for name in _COMPILER
    ]


def _defect(advisory: Advisory, version: str, lifts: dict[str, str]) -> Defect:
    return Defect(
        id=advisory.id,
        part=advisory.part,
        version=version,
        action=advisory.action,
        effect=advisory.effect,
        tensor_types=advisory.tensor_types,
        lifted=lifts.get(advisory.id, ""),
    )


def _lifted_by_variant(recipes: Recipes, variant: str | None) -> dict[str, str]:
    """Id of an advisory to the patch that works around it, of a variant's patches."""
    return _lifted(recipes.patchset(variant)[0].patches) if variant else {}


def _lifted_by_patches(recipes: Recipes, patches: Iterable[Patched]) -> dict[str, str]:
    """The same of patches that a wheel names by digest, as far as the recipes know them."""
    held = {one.sha256 for one in patches}
    known = [
        entry for name in recipes.patchset_names() for entry in recipes.patchset(name)[0].patches
    ]
    return _lifted(entry for entry in known if entry.sha256 in held)


def _lifted(entries: Iterable[PatchEntry]) -> dict[str, str]:
    return {name: f"{entry.file} ({entry.reason})" for entry in entries for name in entry.lifts}
