"""Known defects of a toolkit's parts: which advisories match, which cannot be ruled out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sparkbuild.toolkit.advisories import Advisory, KnownBad
from sparkbuild.toolkit.identity.versions import agree
from sparkbuild.toolkit.model import UNSTATED, Part
from sparkbuild.toolkit.parts import SPECS

DEFAULT_ARCHITECTURES: Final = ("121a",)
"""GB10, the target of every CUDA toolchain that names no other."""

_GROUPS: Final = {part.name: part.group for part in SPECS}


def matching(
    known_bad: KnownBad, parts: Sequence[Part], architectures: tuple[str, ...]
) -> tuple[Advisory, ...]:
    """The advisories that strike these parts when they compile for these architectures.

    An advisory's versions are exact. A part whose own version is inexact or unstated is taken to
    be of its group's (the compiler's is nvcc's): a defect must not pass because a file was
    stripped of its version. ``121``, ``121a`` and ``121f`` are one chip. Without architectures
    the default is meant.
    """
    exact = _exact_versions(parts)
    return tuple(
        advisory
        for advisory in known_bad.advisory
        if exact.get(advisory.part) in advisory.versions and _strikes(advisory, architectures)
    )


def undecided(
    known_bad: KnownBad, parts: Sequence[Part], architectures: tuple[str, ...]
) -> tuple[str, ...]:
    """What cannot be ruled out: parts that state too little to compare with an advisory."""
    exact = _exact_versions(parts)
    notes = []
    for advisory in known_bad.advisory:
        version = exact.get(advisory.part)
        if version is None or version in advisory.versions or not _strikes(advisory, architectures):
            continue
        possible = [bad for bad in advisory.versions if version == UNSTATED or agree(version, bad)]
        if possible:
            notes.append(
                f"{advisory.id} cannot be ruled out: {advisory.part} is {version}, and "
                f"{', '.join(possible)} has the defect: {advisory.effect}"
            )
    return tuple(notes)


def _strikes(advisory: Advisory, architectures: tuple[str, ...]) -> bool:
    if not advisory.architectures:
        return True
    struck = {_chip(name) for name in advisory.architectures}
    return any(_chip(name) in struck for name in architectures or DEFAULT_ARCHITECTURES)


def _chip(architecture: str) -> str:
    """``121`` of ``121a``, ``121f``, ``sm_121`` and ``121a-real``."""
    number = re.search(r"\d+", architecture)
    return number[0] if number else architecture


def _exact_versions(parts: Sequence[Part]) -> dict[str, str]:
    """Each part's version, as exact as another part of its group states it."""
    return {part.name: _exact(part, parts) for part in parts}


def _exact(part: Part, parts: Sequence[Part]) -> str:
    group = _GROUPS.get(part.name)
    siblings = [
        other.version
        for other in parts
        if other.version != UNSTATED
        and _GROUPS.get(other.name) == group
        and (part.version == UNSTATED or agree(part.version, other.version))
    ]
    return max([part.version, *siblings], key=lambda version: version.count("."))
