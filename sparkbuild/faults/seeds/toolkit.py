"""A CUDA toolkit that is not what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.model import ToolkitSeed
from sparkbuild.faults.seeds.changes import Words, change, filled
from sparkbuild.faults.seeds.farm import farm
from sparkbuild.faults.seeds.ground import NOWHERE, VARIANT, own_recipes, own_work, words
from sparkbuild.manifest import current_platform

_RECORD: Final = "sparkbuild-toolkit.json"
"""What ``toolkit install`` leaves in a root; one of somebody else's has none."""


@contextmanager
def plant_toolkit(seed: ToolkitSeed, place: Place) -> Iterator[Planted]:
    """A root of linked parts with the seed's changes; what is not refused ends at the source."""
    known = words(place)
    if seed.root:
        root = farm(
            place.work / "toolkits" / seed.root / current_platform(), place.scratch / "root"
        )
        if seed.foreign:
            (root / _RECORD).unlink(missing_ok=True)
        change(root, seed.edits, known)
        known["root"] = root
    recipes: tuple[str, ...] = ()
    if seed.recipes:
        folder = own_recipes(place)
        change(folder, seed.recipes, known)
        recipes = ("--recipes", str(folder))
    yield Planted(
        arguments=(*_command(seed, place, known), *recipes),
        stage="qualify" if seed.ask == "qualify" else "toolkit",
        environment={
            **NOWHERE,
            **{name: filled(text, known) for name, text in seed.environment.items()},
        },
    )


def _command(seed: ToolkitSeed, place: Place, known: Words) -> tuple[str, ...]:
    toolkit = filled(seed.toolkit, known)
    if toolkit.startswith("{"):
        raise NotPlantedError(f"no root is there for {toolkit}")
    judged = seed.ask == "qualify"
    onward = judged or seed.sources
    work = own_work(place, store=onward, sources=onward)
    where = ("--work", str(work), "--json")
    archs = tuple(text for name in seed.architectures for text in ("--arch", name))
    if seed.ask == "show":
        return ("toolkit", "show", toolkit, *archs, *where)
    if judged:
        return ("toolkit", "qualify", toolkit, "--variant", VARIANT, *archs, *where)
    out = ("--out", str(place.scratch / "out"))
    return ("make", "--variant", VARIANT, "--toolkit", toolkit, *archs, *out, *where)
