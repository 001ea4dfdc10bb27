"""A patch of ours to the pinned source: built in a lane, asked as any build is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparkbuild.faults.catalogue import PATCHES
from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.lane import build, find_lane, patch, put_back
from sparkbuild.faults.model import SourceSeed
from sparkbuild.manifest import find_recipes


@contextmanager
def plant_source(seed: SourceSeed, place: Place) -> Iterator[Planted]:
    """The patch in the lane's source, and what it changes built; both put back afterwards.

    The same build folder serves all faults, so whatever an earlier one left is put back first.
    Raises NotPlantedError where the lane has no build, the patch does not apply, does not compile,
    or changes no program and no library.
    """
    lane = find_lane(place.lane)
    if lane is None:
        raise NotPlantedError(f"{place.lane} holds no finished build")
    put_back(lane)
    try:
        patch(lane, place.catalogue / PATCHES / seed.patch, place.log)
        build(lane, targets_of(seed.variant), jobs=place.jobs, log=place.log)
        yield Planted(
            arguments=(
                "smoke", str(lane.bin), "--first", "--json", "--work", str(place.scratch),
                "--processes", str(place.jobs),
            ),
            stage="smoke",
        )  # fmt: skip
    finally:
        put_back(lane)


def targets_of(variant: str) -> tuple[str, ...]:
    """What a variant builds."""
    return find_recipes(None).patchset(variant)[0].build.targets
