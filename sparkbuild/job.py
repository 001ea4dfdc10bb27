"""What one run has in hand: its fixed surroundings, its build folder, what it has found so far."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkbuild.build.tools import Tools
from sparkbuild.manifest import Patchset
from sparkbuild.package.model import Wheel
from sparkbuild.smoke.model import SmokeReport
from sparkbuild.stages import Runner
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.select import Choice
from sparkbuild.toolkit.model import Accepted
from sparkbuild.workspace import BuildFolder, Workspace


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run's fixed surroundings."""

    patchset: Patchset
    manifest: Path
    choice: Choice
    architectures: tuple[str, ...]
    accept: tuple[str, ...]
    """Ids of advisories: ``--accept``."""
    book: Book
    """What is known of CUDA toolkits; empty for a CPU build."""
    jobs: int | None
    cache: Path | None
    """Folder of the compile cache: ``--cache``."""
    work: Workspace
    folder: Path
    runner: Runner


@dataclass(frozen=True, kw_only=True)
class Held:
    """A build key's folder while its lock is held, and the tools that its key counts."""

    place: BuildFolder
    key: str
    tools: Tools
    lock: int


@dataclass(kw_only=True)
class Known:
    """What a run has found so far, for the report of a run that may end anywhere."""

    key: str | None = None
    accepted: tuple[Accepted, ...] = ()
    smoke: SmokeReport | None = None
    wheel: Wheel | None = None
