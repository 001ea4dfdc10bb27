"""PTX text's heading: which compiler wrote it, for which target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_RELEASE: Final = re.compile(r"// Cuda compilation tools, release \S+, V(?P<version>\d+\.\d+\.\d+)")
_BUILD: Final = re.compile(r"// Compiler Build ID: CL-(?P<build>\d+)")
_ISA: Final = re.compile(r"\.version\s+(?P<isa>\d+\.\d+)")
_TARGET: Final = re.compile(r"\.target\s+(?P<target>sm_\d+[af]?)\b.*")


@dataclass(frozen=True, kw_only=True)
class PtxHeader:
    """What cicc writes at the top of its output; None where it is not there."""

    version: str | None
    """Of the compiler: ``13.0.88``."""
    build: str | None
    """Changelist number; CUDA 13.2's cicc writes ``UNKNOWN``, which is None here."""
    isa: str | None
    target: str | None
    """``sm_121a``, also for code made with ``compute_121a``."""


def read_ptx(text: str) -> PtxHeader:
    """Read the heading, which ends with the first directive after ``.version`` and ``.target``."""
    heading: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("//", ".version", ".target")):
            break
        heading.append(stripped)
    return PtxHeader(
        version=_first(_RELEASE, "version", heading),
        build=_first(_BUILD, "build", heading),
        isa=_first(_ISA, "isa", heading),
        target=_first(_TARGET, "target", heading),
    )


def _first(pattern: re.Pattern[str], name: str, lines: list[str]) -> str | None:
    return next((match[name] for line in lines if (match := pattern.fullmatch(line))), None)
