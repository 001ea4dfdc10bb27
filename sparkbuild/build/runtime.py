"""The CUDA run time that built files really meet: by name, by bytes, by what it says when asked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild import process
from sparkbuild.build import loader
from sparkbuild.build.elf import ElfFacts, read_soname
from sparkbuild.errors import BinaryError
from sparkbuild.toolkit.model import Part, Toolkit

LIBRARIES: Final = ("libcudart", "libcublas", "libcublasLt")
"""Parts of a toolkit that llama.cpp's CUDA back end loads."""

Digest = Callable[[Path], str]
Loaded = Mapping[str, Sequence[loader.Resolved]]
"""What the loader takes for each built file."""

_SONAME: Final = re.compile(r"(?P<name>lib(?:cudart|cublas|cublasLt))\.so(?:\..*)?")
_STATED: Final = re.compile(r"\d+(\.\d+)*")

_ASK: Final = """
import ctypes, json, sys
places = json.loads(sys.argv[1])
said = {}
def number(function, *arguments):
    value = ctypes.c_int()
    status = function(*arguments, ctypes.byref(value))
    if status:
        raise SystemExit(f"{function.__name__} returned {status}")
    return value.value
if "libcudart" in places:
    cudart = ctypes.CDLL(places["libcudart"])
    said["libcudart"] = number(cudart.cudaRuntimeGetVersion)
    try:
        said["driver"] = number(cudart.cudaDriverGetVersion)
    except SystemExit:
        said["driver"] = 0
if "libcublas" in places:
    cublas = ctypes.CDLL(places["libcublas"])
    said["libcublas"] = ".".join(str(number(cublas.cublasGetProperty, n)) for n in range(3))
if "libcublasLt" in places:
    lt = ctypes.CDLL(places["libcublasLt"]).cublasLtGetVersion
    lt.restype = ctypes.c_size_t
    value = lt()
    said["libcublasLt"] = f"{value // 10000}.{value // 100 % 100}.{value % 100}"
print(json.dumps(said))
"""
"""Asks libraries for their versions, in a process of its own: they are loaded, so a broken one may
end it. ``cublasGetProperty`` counts major, minor, patch as 0, 1, 2 (library_types.h);
``cublasLtGetVersion`` is major * 10000 + minor * 100 + patch (cublas_api.h)."""


class _Said(msgspec.Struct, frozen=True):
    libcudart: int = 0
    driver: int = 0
    libcublas: str = ""
    libcublas_lt: str = msgspec.field(default="", name="libcublasLt")


def problems(
    files: Mapping[str, ElfFacts], loaded: Loaded, toolkit: Toolkit, *, digest: Digest
) -> Iterator[str]:
    """Every way in which the CUDA run time is not the one of ``toolkit``; none for a CPU build.

    ``digest`` gives a file's SHA-256.
    """
    if toolkit.kind != "cuda":
        return
    try:
        yield from _names(files, toolkit)
    except BinaryError as refusal:
        yield from (f"{refusal.message}: {problem}" for problem in refusal.problems)
    places = _places(loaded)
    for name, by_library in places.items():
        for place, users in by_library.items():
            yield from _bytes(name, place, users, toolkit, digest)
    taken = {name: next(iter(by_library)) for name, by_library in places.items()}
    if taken:
        yield from _versions(taken, toolkit)


def notes(
    directory: Path,
    files: Mapping[str, ElfFacts],
    interpreter: str,
    toolkit: Toolkit,
    *,
    digest: Digest,
) -> Iterator[str]:
    """What files take that are started without the toolkit's search path, where that differs.

    So they do where NVIDIA's wheels are not installed beside them: the system's libcudart may be of
    another release.
    """
    if toolkit.kind != "cuda" or not interpreter:
        return
    known = {part.name: part for part in toolkit.parts}
    loaded: dict[str, Sequence[loader.Resolved]] = {}
    for name, facts in files.items():
        if any(_SONAME.fullmatch(needed) for needed in facts.needed):
            try:
                loaded[name] = loader.resolve(directory / name, interpreter)
            except BinaryError:
                continue  # told where the loader was asked with the search path
    for name, by_library in _places(loaded).items():
        for place, users in by_library.items():
            part = known.get(name)
            if part is not None and digest(Path(place)) != part.sha256:
                yield (
                    f"without a search path {', '.join(users)} would load {place}, which is not "
                    f"the {name} {part.version} of the toolkit"
                )


def library(toolkit: Toolkit, name: str) -> Path:
    """The file of the toolkit that a linker takes for ``name``, which may be missing."""
    known = [Path(part.path) for part in toolkit.parts if part.name == name]
    plain = Path(toolkit.root or "") / "lib64" / f"{name}.so"
    return next((path for path in (plain, *known) if path.is_file()), plain)


def _names(files: Mapping[str, ElfFacts], toolkit: Toolkit) -> Iterator[str]:
    """NEEDED names against the SONAMEs of the toolkit's own libraries."""
    sonames: dict[str, str | None] = {}
    for file, facts in files.items():
        for needed in facts.needed:
            match = _SONAME.fullmatch(needed)
            if match is None:
                continue
            name, place = match["name"], library(toolkit, match["name"])
            if name not in sonames:
                sonames[name] = read_soname(place) if place.is_file() else None
            if needed != sonames[name]:
                found = f"the toolkit's is {sonames[name] or 'missing'} ({place})"
                yield f"{file}: needs {needed}, {found}"


def _places(loaded: Loaded) -> dict[str, dict[str, list[str]]]:
    """By library and real file, the built files that take it."""
    found: dict[str, dict[str, list[str]]] = {}
    for file, libraries in loaded.items():
        for resolved in libraries:
            match = _SONAME.fullmatch(resolved.name)
            if match is not None and resolved.place is not None:
                place = str(Path(resolved.place).resolve())
                found.setdefault(match["name"], {}).setdefault(place, []).append(file)
    return found


def _bytes(
    name: str, place: str, users: Sequence[str], toolkit: Toolkit, digest: Digest
) -> Iterator[str]:
    part = next((part for part in toolkit.parts if part.name == name), None)
    if part is None:
        return
    found = digest(Path(place))
    if found != part.sha256:
        expected = f"the {name} {part.version} of the toolkit ({part.sha256[:12]})"
        yield f"{', '.join(users)}: expected {expected}, the loader takes {place} ({found[:12]})"


def _versions(taken: Mapping[str, str], toolkit: Toolkit) -> Iterator[str]:
    """Load the libraries and ask them; the driver's limit too, where there is a driver."""
    search = [library(toolkit, "libcudart").parent]
    argv = [sys.executable, "-I", "-c", _ASK, msgspec.json.encode(dict(taken)).decode()]
    answer = process.capture(argv, env=loader.loader_environment(search), cwd=Path("/"))
    try:
        said = msgspec.json.decode(answer.stdout, type=_Said)
    except msgspec.DecodeError:
        last = (answer.stderr.strip() or "nothing").splitlines()[-1]
        names = ", ".join(taken.values())
        yield f"{names}: asked for their versions, ended with {answer.returncode}, saying {last}"
        return
    parts = {part.name: part for part in toolkit.parts}
    headers = parts.get("cudart headers") or parts.get("nvcc")
    if said.libcudart:
        found = f"{said.libcudart // 1000}.{said.libcudart % 1000 // 10}"
        yield from _differs("libcudart", headers, found, taken)
    yield from _differs("libcublas", parts.get("libcublas"), said.libcublas, taken)
    yield from _differs("libcublasLt", parts.get("libcublasLt"), said.libcublas_lt, taken)
    if 0 < said.driver // 1000 < said.libcudart // 1000:
        limit = f"{said.driver // 1000}.{said.driver % 1000 // 10}"
        yield f"driver: expected CUDA {said.libcudart // 1000}.0 or newer, found CUDA {limit}"


def _differs(name: str, part: Part | None, found: str, taken: Mapping[str, str]) -> Iterator[str]:
    if part is None or not found or not _STATED.fullmatch(part.version):
        return
    pairs = zip(part.version.split("."), found.split("."), strict=False)
    if any(one != other for one, other in pairs):
        expected = f"{part.version} ({part.name})"
        yield f"{name}: expected {expected}, at run time it says {found} ({taken[name]})"
