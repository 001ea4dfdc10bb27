"""What the package stage takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sparkbuild.manifest import Patchset
from sparkbuild.qualify.model import Qualification
from sparkbuild.smoke.model import SmokeReport
from sparkbuild.source.model import PatchedTree, SourceTree
from sparkbuild.toolkit.model import Toolkit


@dataclass(frozen=True, kw_only=True)
class Made:
    """What went into a build and what came of its tests: all that a wheel tells of its making."""

    patchset: Patchset
    source: SourceTree
    tree: PatchedTree
    toolkit: Toolkit
    arguments: tuple[str, ...]
    """CMake's, with placeholders where this machine's folders would stand."""
    qualification: Qualification
    smoke: SmokeReport


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel: its file, digest, version with local label, tag, and the scripts it installs."""

    path: str
    sha256: str
    size: int
    version: str
    tag: str
    scripts: tuple[str, ...]
