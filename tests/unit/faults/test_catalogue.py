"""The faults as data: what is wrong in a file is refused by name, before anything is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.errors import ManifestError, UnknownNameError
from sparkbuild.faults.catalogue import PATCHES, described, find_catalogue, load_faults
from sparkbuild.faults.model import SourceSeed
from sparkbuild.faults.planters import PLANTERS

CHECKOUT = Path(__file__).parents[3] / "tests" / "faults"

FAULT = """
[[fault]]
id = "{id}"
kind = "{kind}"
summary = "a sign is lost"
imitates = "a kernel that lost one"
reach = "everything"
subtle = false
latest = "smoke"
says = {says}
{more}
seed = {{ how = "source", patch = "{patch}" }}
"""


def fault(**values: str) -> str:
    """A ``[[fault]]`` table that is well but for what is given."""
    well = {"id": "one", "kind": "source", "says": '["NMSE"]', "patch": "one.patch", "more": ""}
    return FAULT.format(**{**well, **values})


def folder(tmp_path: Path, *tables: str, name: str = "source", patches: str = "one") -> Path:
    (tmp_path / PATCHES).mkdir(exist_ok=True)
    for patch in patches.split():
        (tmp_path / PATCHES / f"{patch}.patch").write_text(patch)
    (tmp_path / f"{name}.toml").write_text("schema = 1\n" + "".join(tables))
    return tmp_path


def refusal(place: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        load_faults(place)
    error = caught.value
    return "\n".join([error.message, *error.problems, error.next_step])


def test_a_fault_is_read_with_its_seed(tmp_path: Path) -> None:
    (one,) = load_faults(folder(tmp_path, fault(more="fast = true"))).every
    assert (one.id, one.latest, one.fast, one.says) == ("one", "smoke", True, ("NMSE",))
    assert one.seed == SourceSeed(patch="one.patch")


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path: Path) -> None:
    told = refusal(folder(tmp_path, fault(more='sumary = "twice"')))
    assert "sumary" in told
    assert "`summary`" in told


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (fault() + fault(), "two faults are named 'one'"),
        (fault(patch="gone.patch"), "there is no patches/gone.patch"),
        (fault(patch="../one.patch"), "no file's name"),
        (fault(says="[]"), "`says`"),
        (fault(says='[" "]'), "`says`"),
        (fault(id="One_fault"), "no id"),
        (fault(kind="vision"), "its place says 'source'"),
        (fault(kind="weather"), "weather"),
        (fault(more='latest2 = "end"'), "latest2"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, table: str, words: str) -> None:
    assert words in refusal(folder(tmp_path, table))


def test_a_file_of_no_kind_is_refused(tmp_path: Path) -> None:
    assert "'weather' is no kind" in refusal(folder(tmp_path, fault(), name="weather"))


def test_the_same_id_in_two_files_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, fault())
    folder(tmp_path, fault(kind="vision"), name="vision")
    assert "two faults are named 'one'" in refusal(tmp_path)


def test_what_is_asked_for_is_chosen(tmp_path: Path) -> None:
    folder(tmp_path, fault(more="fast = true"), fault(id="two"))
    faults = load_faults(folder(tmp_path, fault(id="three", kind="vision"), name="vision"))
    ids = [one.id for one in faults.chosen()]
    assert ids == ["one", "two", "three"]
    assert [one.id for one in faults.chosen(only=["three", "one"])] == ["one", "three"]
    assert [one.id for one in faults.chosen(kinds=["vision"])] == ["three"]
    assert [one.id for one in faults.chosen(fast=True)] == ["one"]
    with pytest.raises(UnknownNameError, match="there is no fault 'tow'") as caught:
        faults.chosen(only=["tow"])
    assert "two" in caught.value.next_step


def test_the_digest_follows_data_and_patches(tmp_path: Path) -> None:
    first = load_faults(folder(tmp_path, fault())).digest
    assert load_faults(tmp_path).digest == first
    (tmp_path / PATCHES / "one.patch").write_text("otherwise")
    assert load_faults(tmp_path).digest != first
    before = described(tmp_path, load_faults(tmp_path).every[0])
    folder(tmp_path, fault(more="fast = true"))
    assert described(tmp_path, load_faults(tmp_path).every[0]) != before


def test_the_checkout_has_a_catalogue_and_another_place_is_refused(tmp_path: Path) -> None:
    assert find_catalogue(None) == CHECKOUT
    assert find_catalogue(folder(tmp_path, fault())) == tmp_path
    with pytest.raises(UnknownNameError, match="no catalogue of faults in"):
        find_catalogue(tmp_path / "empty")


def test_every_fault_of_the_checkout_has_a_planter_and_a_size() -> None:
    every = load_faults(CHECKOUT).every
    assert {type(one.seed) for one in every} <= set(PLANTERS)
    sources = [one for one in every if isinstance(one.seed, SourceSeed)]
    assert len(sources) >= 45
    assert {one.kind for one in sources} == {"source", "speculation", "vision"}
    named = {one.seed.patch for one in sources if isinstance(one.seed, SourceSeed)}
    assert named == {file.name for file in (CHECKOUT / PATCHES).glob("*.patch")}
    assert {one.reach for one in sources} == {
        "everything", "one type", "beyond some tokens", "second request", "drafts", "pictures",
        "concurrency",
    }  # fmt: skip
