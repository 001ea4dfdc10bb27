"""Canaries that are not what they were when their numbers were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparkbuild.faults.contract import Place, Planted
from sparkbuild.faults.model import CanarySeed
from sparkbuild.faults.seeds.changes import change
from sparkbuild.faults.seeds.farm import farm
from sparkbuild.faults.seeds.ground import own_work, programs_of, words
from sparkbuild.faults.seeds.model import CANARIES

_SUITE: Final = "suites/one-canary.toml"


@contextmanager
def plant_canary(seed: CanarySeed, place: Place) -> Iterator[Planted]:
    """A folder of canaries with the seed's changes, asked with a suite of the smallest one."""
    data = farm(CANARIES, place.scratch / "canaries")
    change(data, seed.edits, words(place))
    asked = ("--data", str(data), "--suite", str(place.catalogue / _SUITE))
    yield Planted(
        arguments=(
            *("smoke", str(programs_of(place.work))),
            *asked,
            *("--work", str(own_work(place)), "--json"),
        ),
        stage="smoke",
    )
