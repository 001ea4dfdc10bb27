"""Recipes that were changed after somebody checked them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.model import RecipesSeed
from sparkbuild.faults.seeds.changes import change
from sparkbuild.faults.seeds.ground import NOWHERE, own_recipes, own_work, words
from sparkbuild.files import sha256_file, write_atomic

_SETS: Final = "patchsets"


@contextmanager
def plant_recipes(seed: RecipesSeed, place: Place) -> Iterator[Planted]:
    """A copy of the recipes with the seed's changes; the pinned source is in the store."""
    recipes = own_recipes(place)
    change(recipes, seed.edits, words(place))
    for name in seed.signed:
        _sign(recipes / _SETS / seed.variant, name)
    work = own_work(place, store=True)
    where = ("--recipes", str(recipes), "--work", str(work), "--json")
    make = ("make", "--toolkit", "cpu", "--out", str(place.scratch / "out"))
    yield Planted(
        arguments=(
            *(("patch", "check") if seed.ask == "patch check" else make),
            "--variant",
            seed.variant,
            *where,
        ),
        stage="patches",
        environment=dict(NOWHERE),
    )


def _sign(folder: Path, name: str) -> None:
    """Whoever changed the patch also renewed its digest in the manifest."""
    manifest = folder / "patchset.toml"
    text = manifest.read_text(encoding="utf-8")
    read: Any = msgspec.toml.decode(text)
    for patch in read.get("patches", ()):
        if patch["file"] == name:
            new = sha256_file(folder / name)
            if new == patch["sha256"]:
                raise NotPlantedError(f"{name} was not changed")
            write_atomic(manifest, text.replace(patch["sha256"], new))
            return
    raise NotPlantedError(f"{manifest} names no patch {name}")
