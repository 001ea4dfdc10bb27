"""The build tools that sparkbuild's own installation brings, with their versions."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.build.cache import CompileCache, compile_cache
from sparkbuild.errors import HostError
from sparkbuild.toolkit.model import Toolkit

_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Tools:
    """CMake and ninja: absolute paths and versions; the compile cache, where one is used."""

    cmake: Path
    cmake_version: str
    ninja: Path
    ninja_version: str
    cache: CompileCache | None = None


def find_tools() -> Tools:
    """The tools of this installation. Raises HostError when one is missing or does not run."""
    cmake, ninja = process.python_program("cmake"), process.python_program("ninja")
    return Tools(
        cmake=cmake,
        cmake_version=_version(cmake, "cmake"),
        ninja=ninja,
        ninja_version=_version(ninja, "ninja"),
    )


def with_cache(tools: Tools, folder: Path | None, toolkit: Toolkit) -> Tools:
    """The same tools, with the toolkit's own part of the compile cache where ``folder`` is given.

    Raises HostError where sccache is missing.
    """
    return replace(tools, cache=compile_cache(folder, toolkit)) if folder else tools


def _version(program: Path, project: str) -> str:
    """From the package's metadata, which costs nothing; from the program where there is none.

    A package that lies is found out by ``enforce``: CMake's reply names the version that ran.
    """
    if program.parent == Path(sys.executable).parent:
        try:
            return importlib.metadata.version(project)
        except importlib.metadata.PackageNotFoundError:
            pass
    answer = process.capture([str(program), "--version"])
    match = _VERSION.search(answer.stdout)
    if answer.returncode != 0 or match is None:
        raise HostError(
            f"{program} does not tell its version",
            problems=[answer.stderr.strip() or answer.stdout.strip()],
            next_step=f"run {program} --version and repair that installation",
        )
    return match[0]
