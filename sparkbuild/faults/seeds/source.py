"""A patch of ours to the pinned source: built in a lane or beside a CUDA build, and asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparkbuild.faults.catalogue import PATCHES
from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.lane import build, find_lane, lane_of, patch, put_back
from sparkbuild.faults.model import SourceSeed
from sparkbuild.faults.overlay import Overlay, build_beside
from sparkbuild.manifest import find_recipes

_SERVERS: Final = 2
"""At least, on a GPU: with more than one the quickest canaries are asked first."""


@contextmanager
def plant_source(seed: SourceSeed, place: Place) -> Iterator[Planted]:
    """The patch in the source, and what it changes built; gone afterwards.

    Raises NotPlantedError where there is no build, the patch does not apply, does not compile, or
    changes no program and no library.
    """
    with _beside(seed, place) if seed.backend == "cuda" else _in_lane(seed, place) as planted:
        yield planted


@contextmanager
def _in_lane(seed: SourceSeed, place: Place) -> Iterator[Planted]:
    """The same build folder serves all faults: whatever an earlier one left is put back first."""
    lane = find_lane(place.lane)
    if lane is None:
        raise NotPlantedError(f"{place.lane} holds no finished build")
    put_back(lane)
    try:
        patch(lane, place.catalogue / PATCHES / seed.patch, place.log)
        build(lane, targets_of(seed.variant), jobs=place.jobs, log=place.log)
        yield _asked(lane.bin, place, place.jobs)
    finally:
        put_back(lane)


@contextmanager
def _beside(seed: SourceSeed, place: Place) -> Iterator[Planted]:
    """The CUDA build is read alone, so that other faults are planted beside it at the same time."""
    lane = lane_of(place.work, place.cuda) if place.cuda else None
    if lane is None:
        raise NotPlantedError(f"there is no finished CUDA build in {place.work}")
    root = place.scratch / "beside"
    root.mkdir(parents=True)
    overlay = Overlay(lane=lane, root=root, log=place.log, jobs=place.jobs)
    build_beside(overlay, place.catalogue / PATCHES / seed.patch, seed.units)
    yield _asked(overlay.bin, place, max(_SERVERS, place.jobs), "--backend", "cuda")


def _asked(binaries: Path, place: Place, servers: int, *more: str) -> Planted:
    return Planted(
        arguments=(
            "smoke", str(binaries), *more, "--first", "--json", "--work", str(place.scratch),
            "--processes", str(servers),
        ),
        stage="smoke",
    )  # fmt: skip


def targets_of(variant: str) -> tuple[str, ...]:
    """What a variant builds."""
    return find_recipes(None).patchset(variant)[0].build.targets
