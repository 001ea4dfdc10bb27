"""What a variant's patches bring is asked of its builds, and of no other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec
import pytest

from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.canary.drafts import unasked
from sparkbuild.canary.model import DraftCheck
from sparkbuild.canary.suite import PICTURE, Limits, load_suite
from sparkbuild.canary_drafting import _promised
from sparkbuild.errors import ManifestError
from sparkbuild.manifest import Ability, Patchset, find_recipes, load

State = Literal["passed", "failed", "unsupported"]
MEDIA: Ability = "media-drafts"


def limits(draft_pictures: bool | Ability) -> Limits:
    return Limits(schema=1, bounds=(), draft_pictures=draft_pictures)


@pytest.mark.parametrize(
    ("pictures", "without", "with_it"),
    [(True, True, True), (False, False, False), (MEDIA, False, True)],
)
def test_pictures_are_asked_with_drafts_where_the_build_can(
    pictures: bool | Ability, without: bool, with_it: bool
) -> None:
    found = limits(pictures)
    assert found.drafts_pictures(()) is without
    assert found.drafts_pictures({"glm5-next-drafts"}) is without
    assert found.drafts_pictures({MEDIA}) is with_it


def test_a_build_that_can_is_asked_about_pictures_with_drafts() -> None:
    suite, shipped = load_suite(DATA / load_catalogue().canary("glm47-flash").suite)
    found = msgspec.structs.replace(shipped, draft_pictures=MEDIA)
    stock = unasked(suite, found)
    assert stock == unasked(suite, msgspec.structs.replace(shipped, draft_pictures=False))
    patched = unasked(suite, found, abilities={MEDIA})
    more = [entry for entry in suite.answers if entry.name in stock - patched]
    assert more
    assert all(PICTURE in str(entry.messages) for entry in more)
    assert patched < stock


def check(state: State) -> DraftCheck:
    return DraftCheck(depth=1, head="healthy", state=state, drafted=0, accepted=0, wrong=0,
                      share=0, bound=0.9, reason="no graph")  # fmt: skip


def test_a_graph_that_is_promised_has_to_be_there() -> None:
    found = [_promised(check(state)).state for state in get_args(State)]
    assert found == ["passed", "failed", "failed"]
    assert _promised(check("unsupported")).reason == "no graph"


def test_only_the_patched_variant_promises_anything() -> None:
    recipes = find_recipes(None)
    promised = {name: recipes.patchset(name)[0] for name in recipes.patchset_names()}
    assert {name for name, one in promised.items() if one.smoke.abilities} == {"vision-mtp"}
    assert set(promised["vision-mtp"].smoke.abilities) == {"glm5-next-drafts", "media-drafts"}
    _, found = load_suite(DATA / load_catalogue().canary("glm5-next").suite)
    assert found.drafts_need in promised["vision-mtp"].smoke.abilities


def test_an_ability_that_nothing_knows_is_refused(tmp_path: Path) -> None:
    whole = (find_recipes(None).root / "patchsets/vision/patchset.toml").read_text()
    file = tmp_path / "patchset.toml"
    file.write_text(whole + 'abilities = ["media-draft"]\n')
    with pytest.raises(ManifestError, match="abilities"):
        load(file, Patchset)
