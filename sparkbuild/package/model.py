"""What the package stage takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sparkbuild.build.model import Look
from sparkbuild.manifest import Patchset
from sparkbuild.model.finding import Finding
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


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a wheel; ``size`` in bytes, unpacked."""

    path: str
    size: int
    sha256: str


class Patched(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that a wheel says it was built with."""

    file: str
    sha256: str
    reason: str = ""


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """What a wheel of sparkbuild's says of its making, in its own words: nothing was verified."""

    sparkbuild: str
    variant: str
    toolchain: str
    architectures: tuple[str, ...]
    accepted: tuple[str, ...]
    """Ids of known defects that were taken on."""
    build: int | None
    commit: str
    source: str
    """The source's content digest."""
    patches: tuple[Patched, ...]
    parts: dict[str, str]
    """Version of each of the toolkit's parts."""
    host_compiler: str
    qualification: str
    """The verdict; empty where the wheel holds no statement that can be read."""
    smoke: str


class WheelLook(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel from anywhere. Texts are its own, so they may hold anything."""

    path: str
    size: int
    name: str
    version: str
    summary: str
    tags: tuple[str, ...]
    made: Making | None
    """None of a wheel that sparkbuild did not make."""
    members: tuple[Member, ...]
    """RECORD left out."""
    binaries: tuple[Look, ...] = ()
    findings: tuple[Finding, ...]
