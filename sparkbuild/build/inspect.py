"""Stage 7: read every file of the install tree, ask the loader, ask the server who it is."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sparkbuild import fatbin, process
from sparkbuild.build import loader, policy, runtime, traces
from sparkbuild.build.elf import ElfFacts, read_elf
from sparkbuild.build.model import Binaries, Binary, BinaryFacts
from sparkbuild.errors import BinaryError
from sparkbuild.files import sha256_file, write_atomic
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

SERVER: Final = "llama-server"

Containers = tuple[tuple[str, ...], ...]
"""Targets of each fat binary in a file."""

_Answer = TypeVar("_Answer")

_MACHINES: Final = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
"""ELF's name for each of Python's ``platform.machine()`` that sparkbuild builds on."""

_VERSION: Final = re.compile(
    r"version: (?:\S+ \(build (?P<build>\d+), commit (?P<commit>\S+)\)"
    r"|(?P<old_build>\d+) \((?P<old_commit>\S+)\))"
)
"""Upstream since September 2026, and before."""


def inspect(
    binaries: Binaries,
    toolkit: Toolkit,
    tree: PatchedTree,
    *,
    log: Path,
    digest: Callable[[Path], str] = sha256_file,
) -> BinaryFacts:
    """Prove that the install tree is what was asked for, and return its facts.

    ``log`` gets them as JSON, problems first. ``digest`` gives the SHA-256 of the toolkit's
    libraries, which are large. Raises BinaryError with every problem of every file.
    """
    directory = Path(binaries.directory)
    names = sorted([*binaries.executables, *binaries.libraries])
    problems: list[str] = []
    files = _collected(problems, {name: partial(read_elf, directory / name) for name in names})
    images = _collected(problems, {name: partial(_images, elf) for name, elf in files.items()})
    expected, places = policy.runpath(toolkit), traces.places_of(directory, toolkit, tree)
    version = _version_line(directory, toolkit) if SERVER in binaries.executables else ""
    interpreter = next((f.interpreter for f in files.values() if f.interpreter), "")
    loaded = _loaded(problems, directory, files, toolkit, interpreter)
    problems += [
        *_contents(directory, names),
        *(problem for name, elf in files.items() for problem in _static(name, elf, expected)),
        *_libraries(files, cuda=toolkit.kind == "cuda"),
        *_gpu_code(images, toolkit),
        *_places(loaded, directory, files, toolkit),
        *runtime.problems(files, loaded, toolkit, digest=digest),
        *(text for name in files for text in traces.traces(directory / name, places)),
        *identity_problems(version, tree),
    ]
    facts = BinaryFacts(
        binaries=tuple(
            _binary(directory / name, elf, images.get(name, ())) for name, elf in files.items()
        ),
        system_libraries=tuple(sorted(_outside(files))),
        version_line=version,
        notes=tuple(runtime.notes(directory, files, interpreter, toolkit, digest=digest)),
    )
    record = msgspec.json.encode({"problems": problems, "facts": facts})
    write_atomic(log, msgspec.json.format(record) + b"\n")
    if problems:
        raise BinaryError(
            "the binaries are not what was asked for",
            problems=problems,
            evidence=[log, directory],
            next_step="correct the recipe that the problems name, then run the same command again",
        )
    return facts


def identity_problems(version: str, tree: PatchedTree) -> list[str]:
    """Differences between what the server says of itself and the tree that was built.

    An unknown build number (a fork's) is not compared; the commit always is.
    """
    match = _VERSION.search(version)
    if match is None:
        return [f"{SERVER} --version: expected its build and commit, found {version or 'nothing'}"]
    build = match["build"] or match["old_build"]
    commit = match["commit"] or match["old_commit"]
    problems = []
    if tree.build is not None and build != str(tree.build):
        problems.append(f"build number: expected {tree.build}, found {build}")
    if commit != tree.identity:
        problems.append(f"commit: expected {tree.identity}, found {commit}")
    return problems


def _collected(
    problems: list[str], questions: Mapping[str, Callable[[], _Answer]]
) -> dict[str, _Answer]:
    """Ask about every file; a refusal is one more problem, not the end."""
    answers = {}
    for name, ask in questions.items():
        try:
            answers[name] = ask()
        except BinaryError as refusal:
            problems += [f"{name}: {refusal.message}", *refusal.problems]
    return answers


def _images(elf: ElfFacts) -> tuple[tuple[str, ...], ...]:
    return tuple(images for data in elf.fatbins for images in fatbin.fatbin_targets(data))


def _contents(directory: Path, names: Sequence[str]) -> Iterator[str]:
    for path in sorted(directory.rglob("*")):
        if path.name not in names or path.parent != directory:
            yield f"{path.relative_to(directory)}: is in the tree and no target made it"
        elif path.is_symlink() or not path.is_file():
            yield f"{path.name}: is no regular file"


def _static(name: str, facts: ElfFacts, runpath: Sequence[str]) -> Iterator[str]:
    expected = _MACHINES.get(platform.machine(), "a known machine")
    if facts.machine != expected:
        yield f"{name}: machine: expected {expected}, found {facts.machine}"
    if facts.rpath:
        yield f"{name}: RPATH: expected none, found {':'.join(facts.rpath)}"
    if facts.runpath != tuple(runpath):
        found = ":".join(facts.runpath) or "none"
        yield f"{name}: RUNPATH: expected {':'.join(runpath)}, found {found}"
    if facts.build_id is None:
        yield f"{name}: has no build id"
    if facts.soname is not None and facts.interpreter is None and facts.soname != name:
        yield f"{name}: SONAME: expected the file's own name, found {facts.soname}"
    if facts.text_relocations:
        yield f"{name}: has text relocations, its code must be made writable to be loaded"
    if facts.executable_stack:
        yield f"{name}: asks for an executable stack"


def _libraries(files: Mapping[str, ElfFacts], *, cuda: bool) -> Iterator[str]:
    for name, facts in files.items():
        for needed in facts.needed:
            if needed not in files and policy.provider(needed, cuda=cuda) is None:
                hint = policy.hint(needed)
                text = f"{name}: needs {needed}, which is neither in the tree nor allowed"
                yield f"{text} ({hint})" if hint else text


def _gpu_code(images: Mapping[str, Containers], toolkit: Toolkit) -> Iterator[str]:
    asked = [f"sm_{name}" for name in toolkit.architectures]
    holders = {name: containers for name, containers in images.items() if containers}
    if toolkit.kind == "cpu":
        yield from (f"{name}: holds GPU code in a CPU build" for name in holders)
        return
    if not holders:
        yield f"GPU code: expected {' '.join(asked)}, found none in any file"
    for name, containers in holders.items():
        yield from (f"{name}: {text}" for text in fatbin.wrong_targets(containers, asked))


def _loaded(
    problems: list[str],
    directory: Path,
    files: Mapping[str, ElfFacts],
    toolkit: Toolkit,
    interpreter: str,
) -> dict[str, tuple[loader.Resolved, ...]]:
    """Ask the loader about every file: a library may be loaded at run time, without NEEDED."""
    if policy.provider(Path(interpreter).name, cuda=False) is None:
        found = interpreter or "none in any program"
        problems.append(f"loader: expected glibc's ld-linux, found {found}")
        return {}
    search = _toolkit_search(toolkit)
    questions = {
        name: partial(loader.resolve, directory / name, interpreter, search=search)
        for name, facts in files.items()
        if facts.needed
    }
    return _collected(problems, questions)


def _places(
    loaded: Mapping[str, Sequence[loader.Resolved]],
    directory: Path,
    files: Mapping[str, ElfFacts],
    toolkit: Toolkit,
) -> Iterator[str]:
    root = Path(toolkit.root).resolve() if toolkit.root else None
    for name, libraries in loaded.items():
        for library in libraries:
            yield from (f"{name}: {text}" for text in _place(library, files, directory, root))


def _place(
    library: loader.Resolved, files: Mapping[str, ElfFacts], directory: Path, root: Path | None
) -> Iterator[str]:
    place = Path(library.place) if library.place else None
    owner = policy.provider(library.name, cuda=root is not None)
    if library.name in files:
        if place is None or place.resolve() != (directory / library.name).resolve():
            yield f"{library.name}: expected from the tree, the loader takes {place or 'none'}"
    elif place is None:
        if owner != "driver":  # a machine without a GPU may build for one that has it
            yield f"{library.name}: the loader finds none"
    elif owner == "toolkit" and root is not None and not place.resolve().is_relative_to(root):
        yield f"{library.name}: expected from {root}, the loader takes {place}"


def _toolkit_search(toolkit: Toolkit) -> list[Path]:
    return [runtime.library(toolkit, "libcudart").parent] if toolkit.root else []


def _version_line(directory: Path, toolkit: Toolkit) -> str:
    """The line with build and commit; run from ``/`` so that nothing is found by chance."""
    answer = process.capture(
        [str(directory / SERVER), "--version"],
        env=loader.loader_environment(_toolkit_search(toolkit)),
        cwd=Path("/"),
    )
    lines = [*answer.stdout.splitlines(), *answer.stderr.splitlines()]
    said = [line for line in lines if line.startswith("version:")]
    if answer.returncode == 0 and said:
        return said[0]
    return f"status {answer.returncode}: {' / '.join(lines[-3:])}"


def _outside(files: Mapping[str, ElfFacts]) -> set[str]:
    return {needed for facts in files.values() for needed in facts.needed} - set(files)


def _binary(path: Path, elf: ElfFacts, containers: Containers) -> Binary:
    return Binary(
        name=path.name,
        sha256=sha256_file(path),
        size=path.stat().st_size,
        soname=elf.soname,
        needed=elf.needed,
        runpath=elf.runpath,
        build_id=elf.build_id or "",
        machine=elf.machine,
        sm_targets=tuple(sorted({image for images in containers for image in images})),
    )
