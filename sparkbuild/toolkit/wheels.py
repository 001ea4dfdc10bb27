"""Which of NVIDIA's wheels bring the libraries that a build was linked with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sparkbuild.manifest import current_platform
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.model import Part, Toolkit
from sparkbuild.toolkit.parts import spec

LIBRARIES: Final = ("libcudart", "libcublas", "libcublasLt")
"""Parts that are loaded when a program starts."""

_VERSION: Final = re.compile(r"\d+(\.\d+)+")
_GENERATION: Final = re.compile(r"-cu\d+$")


def requirements(toolkit: Toolkit, book: Book) -> tuple[str, ...]:
    """What a wheel of this build requires: ``nvidia-cublas==13.1.0.3`` and the like, sorted.

    The names are the lock's; the version is that of the library the build was tested with, which
    NVIDIA's wheels bear too. Empty for a CPU build, and where the recipes have no lock.
    """
    locked = book.locked(toolkit.toolchain, current_platform())  # type: ignore[arg-type]
    if toolkit.kind != "cuda" or locked is None:
        return ()
    projects = {_GENERATION.sub("", wheel.project): wheel for wheel in locked.wheels}
    found = set()
    for name in LIBRARIES:
        wheel = projects.get(f"nvidia-{spec(name).project}")
        part = _part(toolkit, name)
        if wheel is not None and part is not None:
            version = part.version if _VERSION.fullmatch(part.version) else wheel.version
            found.add(f"{wheel.project}=={version}")
    return tuple(sorted(found))


def libraries(toolkit: Toolkit) -> tuple[Path, ...]:
    """The files of the toolkit that those wheels hold; empty for a CPU build."""
    parts = (_part(toolkit, name) for name in LIBRARIES)
    return tuple(Path(part.path) for part in parts if part is not None)


def _part(toolkit: Toolkit, name: str) -> Part | None:
    return next((part for part in toolkit.parts if part.name == name), None)
