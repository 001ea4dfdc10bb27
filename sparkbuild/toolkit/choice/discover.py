"""Every CUDA toolkit of this machine, identified; and which one CMake would take by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sparkbuild.files import DigestCache
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.cmake_view import CMakeChoice, cmake_choice
from sparkbuild.toolkit.choice.found import Found, identified
from sparkbuild.toolkit.choice.places import THIS_MACHINE, System, places

__all__ = ["CMakeChoice", "Found", "cmake_choice", "discover"]


def discover(
    book: Book,
    digests: DigestCache,
    *,
    provisioned: Path,
    env: Mapping[str, str] = os.environ,
    system: System = THIS_MACHINE,
) -> tuple[Found, ...]:
    """Every toolkit root, whole or not, each once, in the order of ``places``.

    ``provisioned`` is ``Workspace.toolkits``.
    """
    there = places(provisioned=provisioned, env=env, system=system)
    return tuple(identified(there, book, digests))
