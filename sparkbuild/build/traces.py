"""What a file holds of the machine that made it: the places of sources, build and toolkit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

_TEMPORARY: Final = "tmpxft_"
"""nvcc's temporary files, named after a process: one name left, and no build is like another."""


def places_of(directory: Path, toolkit: Toolkit, tree: PatchedTree) -> tuple[str, ...]:
    """Texts that may be in no file of the install tree ``directory``, links followed too.

    The build's folder is the one that holds the install tree.
    """
    given = [
        tree.directory,
        str(directory.parent.parent),
        *([toolkit.root] if toolkit.root else []),
    ]
    both = dict.fromkeys([*given, *map(os.path.realpath, given)])
    return (*(place for place in both if place.strip("/")), _TEMPORARY)


def traces(file: Path, places: Sequence[str]) -> Iterator[str]:
    """Those of ``places`` that are in the file's bytes, each as a problem."""
    data = file.read_bytes()
    for place in places:
        if place.encode(errors="surrogateescape") in data:
            yield f"{file.name}: holds {place}, which is this machine's and no other's"
