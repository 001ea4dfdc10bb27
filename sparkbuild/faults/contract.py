"""What a planter is given and gives back: the runner knows no more of any kind of fault."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from sparkbuild.faults.model import Seed, Stage


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fault may be planted.

    ``scratch`` is an empty folder for this fault alone, gone afterwards. ``catalogue`` is the
    folder of the faults' data. ``work`` is a work folder with the clean product's own build in it,
    to be read and copied, never written to. ``lane`` is a work folder for changed builds, used by
    one fault at a time. ``cuda`` is CMake's folder of a finished CUDA build, which many faults read
    at once; None where none is needed. ``log`` takes everything that planting prints. ``jobs`` are
    the cores that planting and asking may use.
    """

    scratch: Path
    catalogue: Path
    work: Path
    lane: Path
    log: Path
    jobs: int = 1
    cuda: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A fault in place: the product's command that has to refuse it.

    ``arguments`` are sparkbuild's own (without its name). ``stage`` is the stage that a refusal
    belongs to where the command's report does not tell.
    """

    arguments: tuple[str, ...]
    stage: Stage
    environment: dict[str, str] = field(default_factory=dict)


class NotPlantedError(Exception):
    """A fault could not be planted, which says nothing of the product."""


S_contra = TypeVar("S_contra", bound=Seed, contravariant=True)


class Planter(Protocol[S_contra]):
    """Plants one kind of seed; leaving the context takes it out again, however the run ended.

    Raises NotPlantedError where the seed does not take (a patch that no longer applies, a build
    that does not compile, a file that is not there).
    """

    def __call__(self, seed: S_contra, place: Place) -> AbstractContextManager[Planted]:
        """The fault in place for as long as the context lasts."""
