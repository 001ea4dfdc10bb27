"""Which toolkit and which compiler CMake would take by itself, in the user's own shell."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.process import capture, find_program, python_program
from sparkbuild.toolkit.choice.places import root_of

_PROJECT: Final = """\
cmake_minimum_required(VERSION 3.18)
project(choice LANGUAGES NONE)
find_package(CUDAToolkit)
file(WRITE "${CMAKE_BINARY_DIR}/found" "${CUDAToolkit_BIN_DIR}\\n${CUDAToolkit_VERSION}\\n")
set(CMAKE_CUDA_COMPILER_ID_RUN 1)
include(CMakeDetermineCUDACompiler)
"""
"""In llama.cpp's order: the toolkit first, then the compiler. The last line is the part of
``enable_language(CUDA)`` that chooses the compiler; the line before it leaves the compiler's
identification out, which would compile a file. CMake 3.25 then ends with an error about
architectures, after the choice is in the cache."""

_COMPILER: Final = re.compile(r"^CMAKE_CUDA_COMPILER:[A-Z]+=(?P<path>/.+)$", re.MULTILINE)

_SECONDS: Final = 60.0
"""CMake 4.4 took 2.5 s for it on two busy cores."""


@dataclass(frozen=True, kw_only=True)
class CMakeChoice:
    """What one ``cmake`` takes where nobody tells it: a toolkit's root, and a compiler."""

    program: str
    version: str
    toolkit: Path | None
    """Root that ``find_package(CUDAToolkit)`` found, links resolved."""
    toolkit_version: str
    """As CMake prints it, ``13.0.88``; empty where it found none."""
    compiler: Path | None
    """Program that ``enable_language(CUDA)`` takes, as CMake names it."""
    compiler_root: Path | None
    """Root that this program belongs to, links resolved and wrappers seen through."""

    @property
    def agrees(self) -> bool:
        """Whether toolkit and compiler are one; True as well where there is neither."""
        return self.toolkit == self.compiler_root


def cmake_choice(env: Mapping[str, str] = os.environ) -> tuple[CMakeChoice, ...]:
    """Run each ``cmake`` of a version of its own: sparkbuild's, then the one on ``PATH``.

    ``env`` is the user's real environment: here alone its ``CUDACXX``, ``CUDA_PATH`` and
    ``CUDAToolkit_ROOT`` are wanted. Raises HostError where sparkbuild's own is missing.
    """
    programs = {_version(own, env): own for own in [python_program("cmake")]}
    other = find_program("cmake", env={"PATH": env.get("PATH", os.defpath)})
    if other is not None:
        programs.setdefault(_version(other, env), other)
    return tuple(_ask(program, version, env) for version, program in programs.items() if version)


def _version(program: Path, env: Mapping[str, str]) -> str:
    found = re.search(r"version (\S+)", capture([str(program), "--version"], env=env).stdout)
    return found[1] if found else ""


def _ask(program: Path, version: str, env: Mapping[str, str]) -> CMakeChoice:
    with tempfile.TemporaryDirectory(prefix="sparkbuild-cmake-") as name:
        folder = Path(name)
        (folder / "CMakeLists.txt").write_text(_PROJECT)
        # No generator runs, but CMake wants one that is there: its default may be uninstalled.
        capture([str(program), "-S", name, "-B", f"{name}/b", "-G", "Ninja",
                 f"-DCMAKE_MAKE_PROGRAM={python_program('ninja')}"],
                env=env, timeout=_SECONDS)  # fmt: skip
        found = _lines(folder / "b/found")
        compiler = _COMPILER.search("\n".join(_lines(folder / "b/CMakeCache.txt")))
    binaries, number = (*found, "", "")[:2]
    nvcc = Path(compiler["path"]) if compiler else None
    return CMakeChoice(
        program=str(program),
        version=version,
        toolkit=Path(os.path.realpath(binaries)).parent if binaries.startswith("/") else None,
        toolkit_version=number,
        compiler=nvcc,
        compiler_root=Path(os.path.realpath(root_of(nvcc)[0])) if nvcc else None,
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
