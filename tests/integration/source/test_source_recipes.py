"""The recipes that come with sparkbuild, against the real package index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.manifest import GitOrigin, Recipes, SdistOrigin

if TYPE_CHECKING:
    from source.conftest import Lab

REPOSITORY = Path(__file__).parent.parent.parent.parent
RECIPES = Recipes(REPOSITORY)


@pytest.mark.parametrize(
    "name", ["text", "text-fork", "vision", "vision-132", "vision-fork", "vision-mtp"]
)
def test_every_recipe_is_valid(name: str) -> None:
    patchset, _ = RECIPES.patchset(name)
    assert "llama-server" in patchset.build.targets
    assert len(set(patchset.source.paths)) == len(patchset.source.paths)


def test_what_is_built_of_upstream_pins_the_same_source() -> None:
    names = ("text", "vision", "vision-mtp", "vision-132")
    text, vision, drafts, bytes_ = (RECIPES.patchset(name)[0] for name in names)
    assert text.source == vision.source == drafts.source == bytes_.source
    assert drafts.build == vision.build == bytes_.build
    assert text.build.cmake == vision.build.cmake
    assert isinstance(vision.source.origins[0], GitOrigin)


@pytest.mark.network
def test_the_real_source_comes_from_the_index_and_meets_its_pin(lab: Lab) -> None:
    patchset, _ = RECIPES.patchset("vision")
    sdist = next(one for one in patchset.source.origins if isinstance(one, SdistOrigin))
    origin = {"kind": "sdist", **{name: getattr(sdist, name) for name in sdist.__struct_fields__}}
    lab.write(origin, digest=patchset.source.digest, paths=patchset.source.paths)
    made = lab.prepare()
    assert made.source_digest == patchset.source.digest
    assert made.commit == "0f834b00eb9e554ff46a54f41660baebc1b016a3"
    assert (Path(made.directory) / "tools/server/server.cpp").is_file()
