"""Every planter plants, leaves what it was given as it was, and says where it cannot."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path

import pytest

from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.edit import Flip, Key, Remove, Replace, Write
from sparkbuild.faults.model import (
    AnySeed,
    BinarySeed,
    CanarySeed,
    ModelSeed,
    ProjectSeed,
    RecipesSeed,
    ServerSeed,
    ToolkitSeed,
    WheelSeed,
)
from sparkbuild.faults.planters import PLANTERS
from sparkbuild.faults.seeds import project, wheel
from sparkbuild.faults.seeds.ground import NOWHERE, build_of, wheel_of
from sparkbuild.faults.seeds.model import CANARIES
from sparkbuild.files import sha256_file
from sparkbuild.manifest import Patchset, current_platform, load
from sparkbuild.model.read import read_model

CATALOGUE = Path(__file__).parents[2] / "faults"
PATCH = "0001-nvcc-13.2-bytes.patch"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A work folder with the shape of a finished build, and a toolkit."""
    work = tmp_path / "work"
    files = {
        "builds/vision-cpu-1234/stages/package.json": "{}",
        "builds/vision-cpu-1234/install/bin/llama-server": "real",
        "builds/vision-cpu-1234/install/bin/libllama.so.0": "library",
        "store.git/HEAD": "ref",
        "runs/vision-cpu/report.json": "{}",
        f"toolkits/cuda-1.0/{current_platform()}/bin/nvcc": "nvcc 1.0",
        f"toolkits/cuda-1.0/{current_platform()}/sparkbuild-toolkit.json": "{}",
    }
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    (tmp_path / "scratch").mkdir()
    return Place(
        scratch=tmp_path / "scratch",
        catalogue=CATALOGUE,
        work=work,
        lane=tmp_path / "lane",
        log=tmp_path / "log",
    )


def planted(seed: AnySeed, place: Place) -> Planted:
    """What a planter gives, with the fault still in place when it returns."""
    context = PLANTERS[type(seed)](seed, place)
    return context.__enter__()


def state(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def after(arguments: tuple[str, ...], option: str) -> str:
    return arguments[arguments.index(option) + 1]


def test_a_toolkit_is_a_changed_root_of_linked_files(place: Place) -> None:
    before = state(place.work)
    seed = ToolkitSeed(
        root="cuda-1.0",
        foreign=True,
        edits=(Write(path="bin/nvcc", text="other"), Write(path="new", text="{toolkits}")),
        architectures=("121a",),
        environment={"CUDA_PATH": "{root}"},
    )
    found = planted(seed, place)
    root = Path(after(found.arguments, "--toolkit"))
    assert (root / "bin/nvcc").read_text() == "other"
    assert (root / "new").read_text() == str(place.work / "toolkits")
    assert not (root / "sparkbuild-toolkit.json").exists()
    assert found.arguments[:3] == ("make", "--variant", "vision")
    assert after(found.arguments, "--arch") == "121a"
    assert found.environment == {**NOWHERE, "CUDA_PATH": str(root)}
    assert state(place.work) == before


def test_a_release_needs_no_root(place: Place) -> None:
    found = planted(ToolkitSeed(toolkit="13.2.1"), place)
    assert after(found.arguments, "--toolkit") == "13.2.1"
    assert found.stage == "toolkit"


def test_a_server_is_started_by_the_first_line_of_its_own(place: Place) -> None:
    before = state(place.work)
    with PLANTERS[ServerSeed](ServerSeed(breaks="cut", setting=0.5), place) as found:
        folder = Path(found.arguments[1])
        server = (folder / "llama-server").read_text()
        asked = json.loads((folder / "between.json").read_text())
        assert (folder / "llama-server.real").read_text() == "real"
        Path(asked["left"]).write_text("left")
    assert server.startswith("#!/")
    assert (asked["breaks"], asked["setting"]) == ("cut", 0.5)
    assert found.arguments[2:3] == ("--first",)
    assert not Path(asked["left"]).exists()
    assert state(place.work) == before


def test_a_model_is_changed_cut_split_or_something_else(place: Place) -> None:
    file = "llama/llama-q8_0.gguf"
    edits = (Key(key="llama.block_count", value=7),)
    seen = planted(ModelSeed(file=file, edits=edits, shards=3, without=2), place).arguments
    model = read_model(Path(seen[1]))
    assert model.number("llama.block_count") == 7
    assert [path.name for path in model.missing] == ["llama-q8_0-00002-of-00003.gguf"]
    assert after(seen, "--build").endswith("install/bin")
    text = planted(ModelSeed(file=file, text="a pointer"), place).arguments
    assert Path(text[1]).read_text() == "a pointer"
    seed = ModelSeed(
        file=file, keep=0.5, ask="smoke", suite="llama.toml", arguments=("--x", "{work}")
    )
    cut = planted(seed, place).arguments
    assert Path(after(cut, "--model")).stat().st_size == 2181248 // 2
    assert after(cut, "--x") == str(place.work)
    assert after(cut, "--suite") == str(CATALOGUE / "suites" / "llama.toml")


def test_recipes_are_a_changed_copy_with_the_digest_renewed(place: Place) -> None:
    edit = Replace(path=f"patchsets/vision-132/{PATCH}", old="< 86", new="< 78", count=2)
    found = planted(RecipesSeed(variant="vision-132", edits=(edit,), signed=(PATCH,)), place)
    recipes = Path(after(found.arguments, "--recipes")) / "patchsets/vision-132"
    manifest = load(recipes / "patchset.toml", Patchset)
    assert manifest.patches[0].sha256 == sha256_file(recipes / PATCH)
    assert found.arguments[0] == "make"
    assert (Path(after(found.arguments, "--work")) / "store.git/HEAD").read_text() == "ref"


def test_a_projects_recipe_is_one_that_the_product_reads(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_text("")
    file = tmp_path / "patchset.toml"
    file.write_text(project._recipe(tmp_path, {"X": 'a"b'}, "0" * 64))
    found = load(file, Patchset)
    assert (found.name, found.source.digest, found.build.cmake) == ("small", "0" * 64, {"X": 'a"b'})
    assert found.source.paths == ("a",)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_wheels_record_fits_or_not(tmp_path: Path, recorded: bool) -> None:
    file = tmp_path / "x.whl"
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("p/one", "one")
        out.writestr("p/two", "two")
        out.writestr(
            "p-1.dist-info/RECORD", "p/one,sha256=x,3\np/two,sha256=y,3\np-1.dist-info/RECORD,,\n"
        )
    edits = (Write(path="p/one", text="other"), Remove(path="p/two"))
    wheel._changed(file, edits, {}, recorded=recorded)
    with zipfile.ZipFile(file) as opened:
        assert opened.namelist() == ["p/one", "p-1.dist-info/RECORD"]
        rows = list(csv.reader(opened.read("p-1.dist-info/RECORD").decode().splitlines()))
    fits = [["p/one", "sha256=2Mtl3c2ctyEPlsp5wvs04JMI2E6zgNyqcLQOIJHUl3k", "5"],
            ["p-1.dist-info/RECORD", "", ""]]  # fmt: skip
    assert (rows[1:] == fits[1:]) is recorded
    assert rows[0][2] == ("5" if recorded else "3")
    assert list(tmp_path.iterdir()) == [file]


NOT_PLANTED: tuple[tuple[AnySeed, str], ...] = (
    (ToolkitSeed(root="cuda-9"), "there is no"),
    (ToolkitSeed(root="cuda-1.0", edits=(Remove(path="bin/ptxas"),)), "nothing to change"),
    (ToolkitSeed(), "no root"),
    (BinarySeed(toolkit="cuda-9", code=()), "there is no"),
    (CanarySeed(edits=(Remove(path="none/x"),)), "nothing to change"),
    (ModelSeed(file="none.gguf"), "there is no"),
    (ModelSeed(file="llama/llama-q8_0.gguf", of="mmproj"), "mmproj"),
    (ModelSeed(file="llama/llama-q8_0.gguf", without=2), "1 shards"),
    (ModelSeed(file="llama/llama-q8_0.gguf", ask="smoke", suite="none.toml"), "there is no"),
    (RecipesSeed(variant="vision", edits=(), signed=("x.patch",)), "names no patch"),
    (RecipesSeed(variant="vision-132", edits=(), signed=(PATCH,)), "was not changed"),
    (WheelSeed(members=(Flip(path="x", at=0.5),)), "no wheel"),
    (ProjectSeed(edits=(Remove(path="none.c"),)), "nothing to change"),
)


@pytest.mark.parametrize(("seed", "why"), NOT_PLANTED)
def test_what_cannot_be_planted_is_said(seed: AnySeed, why: str, place: Place) -> None:
    with pytest.raises(NotPlantedError, match=why):
        planted(seed, place)


def test_without_a_finished_build_there_is_nothing_to_plant_in(place: Place) -> None:
    (place.work / "builds/vision-cpu-1234/stages/package.json").unlink()
    for find in (build_of, wheel_of):
        with pytest.raises(NotPlantedError, match="no finished build"):
            find(place.work)
    with pytest.raises(NotPlantedError, match="no finished build"):
        planted(ServerSeed(breaks="cut"), place)


def test_without_its_program_no_server_is_broken(place: Place, tmp_path: Path) -> None:
    elsewhere = Place(scratch=place.scratch, catalogue=tmp_path, work=place.work, lane=place.lane,
                      log=place.log)  # fmt: skip
    with pytest.raises(NotPlantedError, match=r"between\.py"):
        planted(ServerSeed(breaks="cut"), elsewhere)


def test_a_library_is_compiled_for_what_is_asked(place: Place) -> None:
    """By a stand-in that notes what it was told."""
    nvcc = place.work / f"toolkits/cuda-1.0/{current_platform()}/bin/nvcc"
    nvcc.write_text(f'#!/bin/sh\necho "$@" > {place.scratch}/told\n')
    nvcc.chmod(0o755)
    found = planted(BinarySeed(toolkit="cuda-1.0", code=("arch=compute_90,code=sm_90",)), place)
    told = (place.scratch / "told").read_text().split()
    assert told[told.index("-gencode") + 1] == "arch=compute_90,code=sm_90"
    assert found.arguments[:2] == ("inspect", told[told.index("-o") + 1])
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(NotPlantedError, match="does not compile"):
        planted(BinarySeed(toolkit="cuda-1.0", code=()), place)


def test_canaries_are_changed_in_a_folder_of_their_own(place: Place) -> None:
    file = "llama/llama-q8_0.gguf"
    whole = (CANARIES / file).read_bytes()
    found = planted(CanarySeed(edits=(Flip(path=file, at=0.5),)), place).arguments
    assert (Path(after(found, "--data")) / file).read_bytes() != whole
    assert (CANARIES / file).read_bytes() == whole
