"""Every CUDA path in CMake's reply, and which of them lead out of the one root."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sparkbuild.build.reply import Reply

NO_TOOLKIT_PART: Final = frozenset({"CUDA_cuda_driver_LIBRARY", "CUDAToolkit_rt_LIBRARY"})
"""libcuda belongs to the driver and librt to the C library."""

ALWAYS_JUDGED: Final = frozenset(
    {"CUDA_CUDART", "CUDA_cudart_LIBRARY", "CUDA_cublas_LIBRARY", "CUDA_cublasLt_LIBRARY"}
)
"""Libraries of the CUDA back end. CMake looks for a dozen more (OpenCL, cuFFT ...): where a
toolkit has none, it takes the system's, which says something only where it is linked."""

ALL_BELOW: Final = (
    "CMAKE_CUDA_COMPILER", "CMAKE_CUDA_COMPILER_LIBRARY_ROOT",
    "CMAKE_CUDA_COMPILER_TOOLKIT_LIBRARY_ROOT", "CMAKE_CUDA_COMPILER_TOOLKIT_ROOT",
    "CMAKE_CUDA_DEVICE_LINKER", "CMAKE_CUDA_FATBINARY",
    "CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES", "CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES",
)  # fmt: skip
"""Variables of ``CMakeCUDACompiler.cmake`` that name nothing but the toolkit."""

_VERSIONS: Final = ("CMAKE_CUDA_COMPILER_TOOLKIT_VERSION", "CMAKE_CUDA_COMPILER_VERSION")
_HOSTS: Final = ("CMAKE_CUDA_HOST_COMPILER", "CMAKE_CUDA_HOST_LINK_LAUNCHER")

_SYSTEM: Final = frozenset({"/", "/usr", "/usr/local"})
"""Prefixes that hold everything: a distribution's own toolkit does not make all of them CUDA."""

_LIBRARY: Final = re.compile(r"lib(?:cudart|cudadevrt|cublas|cublasLt)(?:_static)?\.(?:so|a)\b")
_PATH: Final = re.compile(r"(?:^|[=,:;])(?:-I|-L|-isystem)?(/[^=,:;]*)")
_CACHED: Final = re.compile(r"(?:^|[;\[])(/[^;\[\]]+)")

Stranger = tuple[str, str]
"""Where a path stands, and the path."""


def strangers(
    reply: Reply, roots: Sequence[str], linked: Collection[str], printed: Mapping[str, str]
) -> Iterator[Stranger]:
    """Every CUDA path that is not below one of ``roots``, each place and path once, sorted.

    ``roots`` are the names of the one root, ``linked`` the absolute paths on the link lines,
    ``printed`` paths from CMake's output. What is named for CUDA must be below the root, links
    followed too; anything else must not be inside any other toolkit, which ``bin/nvcc`` or
    ``include/cuda_runtime_api.h`` on the way up gives away.
    """
    named = {*_named(reply, linked), *printed.items()}
    others = {*_cached(reply), *_compiled(reply), *_linked(reply), *_implicit(reply)}
    found = {(where, path) for where, path in named if _leads_out(path, roots)}
    found |= {(where, path) for where, path in others if _stray(path, roots)}
    yield from sorted(found)


def settings(reply: Reply, nvcc: str, host: str) -> Iterator[tuple[str, str, str]]:
    """What CMake learnt by running nvcc and that is not so: (variable, found, expected)."""
    if "CUDA" not in reply.compilers:
        return
    expected = dict.fromkeys(_VERSIONS, nvcc) | dict.fromkeys(_HOSTS, host)
    for name, wanted in expected.items():
        found = reply.cuda.get(name, "none")
        if found != wanted and os.path.realpath(found) != os.path.realpath(wanted):
            yield f"{name} in CMakeCUDACompiler.cmake", found, wanted


def toolkit_above(path: str) -> str | None:
    """The toolkit that a path lies in, whatever it is called; None where it lies in none."""
    for folder in (path, *map(str, Path(path).parents)):
        if folder not in _SYSTEM and _is_toolkit(folder):
            return folder
    return None


@functools.lru_cache(maxsize=4096)
def _is_toolkit(folder: str) -> bool:
    marks = ("bin/nvcc", "include/cuda_runtime_api.h")
    return any(os.path.lexists(f"{folder}/{mark}") for mark in marks)


def _named(reply: Reply, linked: Collection[str]) -> Iterator[Stranger]:
    for name, entry in reply.cache.items():
        if _is_toolkit_name(name):
            for value in entry.value.split(";"):
                if name in ALWAYS_JUDGED or not name.endswith("_LIBRARY") or value in linked:
                    yield name, value
    for name in ALL_BELOW:
        for value in reply.cuda.get(name, "").split(";"):
            yield f"{name} in CMakeCUDACompiler.cmake", value
    compiler = reply.compilers.get("CUDA")
    yield "CUDA compiler in the file API", compiler.path if compiler else ""


def _is_toolkit_name(name: str) -> bool:
    library = name.startswith("CUDA_") and name.endswith(("_LIBRARY", "_EXECUTABLE", "_CUDART"))
    named = name.startswith("CUDAToolkit_") or name in {"CMAKE_CUDA_COMPILER", "CUDA_CUDART"}
    return (library or named) and name not in NO_TOOLKIT_PART


def _cached(reply: Reply) -> Iterator[Stranger]:
    """Paths in the cache: CMake's own (its tools, its folders) are the installation's matter."""
    for name, entry in reply.cache.items():
        cuda = "CUDA" in name.upper() and name != "CMAKE_CUDA_HOST_COMPILER"
        found = entry.type in {"PATH", "FILEPATH"} and not name.startswith("CMAKE_")
        if (cuda or found) and not name.endswith("_LAUNCHER"):
            yield from ((name, path) for path in _CACHED.findall(entry.value))
    yield from (("a CMake file that was read", path) for path in reply.inputs)


def _compiled(reply: Reply) -> Iterator[Stranger]:
    for target in reply.targets:
        for group in target.compile_groups:
            where = f"{group.language} of {target.name}"
            yield from ((f"include folder of the {where}", item.path) for item in group.includes)
            for fragment in group.compile_command_fragments:
                paths = _in_words(fragment.fragment)
                yield from ((f"compile options of the {where}", path) for path in paths)


def _linked(reply: Reply) -> Iterator[Stranger]:
    for target in reply.targets:
        for fragment in target.link.command_fragments:
            for path in _in_words(fragment.fragment):
                yield f"link line of {target.name}", path


def _implicit(reply: Reply) -> Iterator[Stranger]:
    for language, compiler in reply.compilers.items():
        for path in compiler.implicit.include_directories:
            yield f"{language} compiler's own include folder", path
        for path in compiler.implicit.link_directories:
            yield f"{language} compiler's own library folder", path
    for name, value in reply.cuda.items():
        if name not in _HOSTS:
            for path in value.split(";"):
                yield f"{name} in CMakeCUDACompiler.cmake", path


def _in_words(fragment: str) -> Iterator[str]:
    try:
        words = shlex.split(fragment)
    except ValueError:
        words = fragment.split()
    for word in words:
        yield from _PATH.findall(word)


def _outside(path: str, roots: Sequence[str]) -> bool:
    return path.startswith("/") and not any(_below(path, root) for root in roots)


def _leads_out(path: str, roots: Sequence[str]) -> bool:
    """Of a CUDA path: out of the root by its name, or by a link on the way."""
    if not path.startswith("/"):
        return False
    real = [os.path.realpath(root) for root in roots]
    return _outside(path, roots) or _outside(os.path.realpath(path), real)


def _stray(path: str, roots: Sequence[str]) -> bool:
    """Of a path that has no CUDA name: in another toolkit, or one of its libraries anywhere."""
    if not _leads_out(path, roots):
        return False
    library = _LIBRARY.match(path.rpartition("/")[2]) is not None
    real = os.path.realpath(path)
    return library or any(toolkit_above(each) is not None for each in (path, real)
                          if _outside(each, roots))  # fmt: skip


def _below(place: str, root: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")
