"""Upstream's test-backend-ops for a build: made from the build's own sources, or the build's own.

The program is one source file that uses nothing but ggml's public interface, so it is compiled by
itself and linked to the very libraries of the build: nothing of the build is configured or made
again, no build key changes, no wheel grows, and a wheel can be tested like a folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.build.elf import read_elf
from sparkbuild.build.loader import resolve
from sparkbuild.errors import BinaryError, BuildError, UsageError
from sparkbuild.files import digest_of, exclusive, sha256_file
from sparkbuild.manifest import Recipes
from sparkbuild.smoke.identity import parse_version
from sparkbuild.source.obtain import obtain
from sparkbuild.source.prepare import prepare
from sparkbuild.source.store import Store
from sparkbuild.stages import Observer
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.workspace import Workspace

NAME: Final = "test-backend-ops"
WITNESS: Final = Path(__file__).parent / "smoke/ops/witness.cpp"
_SOURCE: Final = f"tests/{NAME}.cpp"
_HEADERS: Final = "ggml/include"
_LIBRARIES: Final = ("libggml.so", "libggml-base.so")
_FLAGS: Final = ("-std=c++17", "-O1", "-pthread")
"""The program only makes inputs and compares results: -O1 compiles in a third of the time of -O3
and its cases take as long, for the libraries compute them."""
_WAIT: Final = 600.0
"""Seconds for another sparkbuild that is compiling it: 20 s on a free core."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The program and the folder of the libraries that it tests."""

    path: Path
    libraries: Path
    version: str
    """What the build calls itself."""
    witness: bool
    """Whether it tells what is computed, and what has the same bits."""

    @property
    def environment(self) -> dict[str, str]:
        """That of a run: the build's libraries before all others."""
        return process.environment(extra={"LD_LIBRARY_PATH": str(self.libraries)})


def program_for(server: Path, work: Workspace, recipes: Recipes, live: Observer) -> Program:
    """The program for the build that ``server`` belongs to; compiled where it is not there yet.

    Raises UsageError where neither sources nor a program are at hand, BuildError where it does not
    compile, BinaryError where it would load other libraries than the build's, HostError.
    """
    folder = server.parent
    done = process.capture([str(server), "--version"], cwd=Path("/"))
    found = parse_version(f"{done.stdout}\n{done.stderr}")
    identity = found[1] if found else ""
    version = f"build {found[0]}, commit {found[1]}" if found else "unknown"
    tree = _tree(identity, work, recipes, live) if identity else None
    own = folder / NAME
    if tree is None and not own.is_file():
        raise _missing(folder, version, recipes)
    path = own if tree is None else _made(tree, folder, work, live)
    program = Program(path=path, libraries=folder, version=version, witness=tree is not None)
    _check_libraries(program)
    return program


def _tree(identity: str, work: Workspace, recipes: Recipes, live: Observer) -> Path | None:
    """The folder with the sources that call themselves so: on disk, or in the store."""
    for place in sorted(work.sources.glob(f"{identity}*")):
        if (place / _SOURCE).is_file() and len(place.name) > len(identity):
            return place
    store = Store(work.store)
    for name in _variants(recipes):
        patchset, manifest = recipes.patchset(name)
        if store.find(patchset.source) is None:
            continue
        source = obtain(patchset.source, manifest, work, live)
        tree = prepare(source, patchset, manifest, work, live)
        if tree.identity == identity:
            return Path(tree.directory)
    return None


def _variants(recipes: Recipes) -> Iterator[str]:
    """Variants whose sources have the program."""
    for name in recipes.patchset_names():
        if "tests" in recipes.patchset(name)[0].source.paths:
            yield name


def _made(tree: Path, folder: Path, work: Workspace, live: Observer) -> Path:
    """The program, compiled once for these sources and this compiler."""
    host = find_host_compiler()
    key = digest_of(
        {
            "sources": tree.name,
            "witness": sha256_file(WITNESS),
            "flags": _FLAGS,
            "compiler": [host.identification, host.target, host.sha256],
        }
    )
    place = work.root / "ops" / key[:16]
    program = place / NAME
    if program.is_file():
        return program
    live.started(f"compiling {NAME}")
    place.mkdir(parents=True, exist_ok=True)
    with exclusive(place.with_name(f"{place.name}.lock"), what=NAME, wait=_WAIT):
        if program.is_file():
            return program
        partial, log = place / f".{NAME}.part", place / "compile.log"
        log.unlink(missing_ok=True)
        argv = _compile(host.cxx, tree, folder, partial)
        done = process.run(argv, log=log, env=process.environment(), cwd=place)
        if done.returncode != 0:
            raise BuildError(
                f"{NAME} of these sources does not compile or link",
                problems=[f"command: {process.quoted(argv)}"],
                evidence=[log],
                detail=done.tail,
                next_step=f"read the first error in {log}",
            )
        partial.replace(program)
    return program


def _compile(cxx: str, tree: Path, folder: Path, program: Path) -> list[str]:
    libraries = [_library(folder, name) for name in _LIBRARIES]
    missing = [name for name, path in zip(_LIBRARIES, libraries, strict=True) if path is None]
    if missing:
        raise UsageError(
            f"{folder} has no shared {' and no '.join(missing)}",
            problems=["its operators can be tested only through ggml's own libraries"],
            next_step="build with shared libraries, as `sparkbuild make` does",
        )
    return [
        cxx, *_FLAGS, "-I", str(tree / _HEADERS), str(tree / _SOURCE), str(WITNESS),
        "-o", str(program), *map(str, libraries), f"-Wl,-rpath-link,{folder}", "-ldl",
    ]  # fmt: skip


def _library(folder: Path, name: str) -> Path | None:
    found = sorted(folder.glob(f"{name}*"), key=lambda path: len(path.name))
    return found[0] if found else None


def _check_libraries(program: Program) -> None:
    """Refuse where the loader takes a libggml from elsewhere, or the program has one inside."""
    interpreter = read_elf(program.path).interpreter
    if interpreter is None:
        return _refuse(program, ["it is linked with everything inside"])
    here = program.libraries.resolve()
    ggml = [
        one
        for one in resolve(program.path, interpreter, search=[program.libraries])
        if one.name.startswith("libggml")
    ]
    problems = [
        f"{one.name}: expected it in {here}, the loader takes {one.place or 'none'}"
        for one in ggml
        if one.place is None or Path(one.place).resolve().parent != here
    ]
    if not ggml:
        problems = ["it loads no libggml: it carries one of its own"]
    if problems:
        _refuse(program, problems)
    return None


def _refuse(program: Program, problems: list[str]) -> None:
    raise BinaryError(
        f"{program.path} would not test the libraries of this build",
        problems=problems,
        evidence=[program.path],
        next_step="fetch the build's sources (sparkbuild source fetch), and it is made from them",
    )


def _missing(folder: Path, version: str, recipes: Recipes) -> UsageError:
    variants = list(_variants(recipes))
    named = " or ".join(f"`sparkbuild source fetch --variant {name}`" for name in variants)
    return UsageError(
        f"there is no {NAME} for this build ({version})",
        problems=[
            f"expected the sources of that commit in the work folder, with {_SOURCE}; found none",
            f"expected {NAME} beside llama-server; found none in {folder}",
        ],
        next_step=f"{named}: the variant that this build was made of; then run this again with the "
        f"same --work. Of sources without tests/ put the build's own {NAME} into {folder}",
    )
