"""A green night on a newer base: the product itself carries patches, the re-pin is written."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path

import pytest

from sparkbuild.manifest import Recipes
from sparkbuild.nightly_tell import after
from sparkbuild.source.digest import tree_digest

from .conftest import HOUR, PLAN, Nights, git

ROOT = Path(__file__).parents[3]
TOY = ROOT / "tests" / "data" / "build" / "toy"
WORDS = "Why: it has to.\nUpstream: does not.\nProof: a test.\nGone-when: merged.\n"
MANIFEST = """schema = 1
name = "{name}"
summary = "s"
[source]
build = 100
paths = ["CMakeLists.txt", "engine", "server"]
digest = "{digest}"
[[source.origins]]
kind = "git"
url = "{upstream}"
tag = "b100"
{patches}
[build]
targets = ["llama-server", "llama-quantize"]
[smoke]
suite = "canary"
"""
HEAD = "// a\n// b\n// c\n// d\n// e\n"
REAL = {"when": ["patch"], "real": True}


def tag(nights: Nights, name: str, hours: float) -> None:
    git(nights.upstream, "add", "--all")
    git(nights.upstream, "commit", "--quiet", "-m", name, when=time.time() - hours * HOUR)
    git(nights.upstream, "tag", name)


@pytest.fixture
def real(nights: Nights) -> Nights:
    """The toy project as upstream, with a patch of the variant ``vision-mtp`` on b100."""
    shutil.rmtree(nights.upstream)
    shutil.copytree(TOY, nights.upstream)
    git(nights.upstream, "init", "--quiet", "--initial-branch=main")
    file = nights.upstream / "engine" / "base.c"
    start = file.read_text()
    file.write_text(HEAD + "// one\n// two\n// three\n" + start)
    tag(nights, "b100", 500)
    digest = _digest(nights)
    file.write_text(HEAD + "// one\n// two, patched\n// three\n" + start)
    git(nights.upstream, "commit", "--quiet", "-a", "-m", f"base : patched\n\n{WORDS}")
    patch = git(nights.upstream, "format-patch", "--stdout", "-1") + "\n"
    git(nights.upstream, "reset", "--quiet", "--hard", "b100")
    recipes = nights.root / "recipes"
    shutil.rmtree(recipes)
    shutil.copytree(ROOT / "toolchains", recipes / "toolchains")
    for name, entry in (("vision", ""), ("vision-mtp", _entry(patch))):
        folder = recipes / "patchsets" / name
        folder.mkdir(parents=True)
        text = MANIFEST.format(name=name, upstream=nights.upstream, patches=entry, digest=digest)
        (folder / "patchset.toml").write_text(text)
    (recipes / "patchsets" / "vision-mtp" / "0001-base.patch").write_text(patch)
    nights.plan(PLAN + "[proposal]\ndrop_check = true\n")
    nights.scenario(REAL)
    return nights


def _entry(patch: str) -> str:
    digest = hashlib.sha256(patch.encode()).hexdigest()
    return f'[[patches]]\nfile = "0001-base.patch"\nsha256 = "{digest}"\nreason = "base : patched"'


def _digest(nights: Nights) -> str:
    return tree_digest(nights.upstream, ("CMakeLists.txt", "engine", "server"))


def test_the_re_pin_is_a_branch_and_a_patch(real: Nights) -> None:
    """A line that upstream put before the patch's place moves it: the patch is made anew."""
    git(real.root / "recipes", "init", "--quiet", "--initial-branch=main")
    git(real.root / "recipes", "add", "--all")
    git(real.root / "recipes", "commit", "--quiet", "-m", "recipes")
    file = real.upstream / "engine" / "base.c"
    file.write_text("// zero\n// zero\n" + file.read_text())
    tag(real, "b101", 20)
    ended = real.run()
    assert ended.night.state == "green", ended.night.reason
    lines = after(real.order(), ended, real.live, token="")
    (told,) = [line for line in lines if "can be taken" in line]
    place = real.history / "proposals" / "b101"
    assert str(place / "repin.patch") in told
    proposal = json.loads((place / "proposal.json").read_text())
    bare, patched = proposal["variants"]
    assert bare["build"] == [100, 101]
    assert patched["tree"][1]
    before, made = patched["patches"]["0001-base.patch"]
    assert before != made
    assert "no proof given" in patched["needed"]["0001-base.patch"]
    # A person takes it: into a checkout of the recipes, from the patch and from the branch.
    for number, how in enumerate((
        ["am", "--quiet", str(place / "repin.patch")],
        ["pull", "--quiet", "--ff-only", str(place / "recipes.git"), "repin-b101"],
    )):  # fmt: skip
        clone = real.root / f"clone{number}"
        git(real.root, "clone", "--quiet", str(real.root / "recipes"), str(clone))
        git(clone, *how)
        patchset, manifest = Recipes(clone).patchset("vision-mtp")
        assert patchset.source.build == 101
        assert patchset.patches[0].sha256 == made
        data = (manifest.parent / "0001-base.patch").read_bytes()
        assert hashlib.sha256(data).hexdigest() == made
    assert git(real.root / "recipes", "status", "--porcelain") == ""
    assert git(real.root / "recipes", "branch", "--list") == "* main"


def test_recipes_outside_a_checkout_are_proposed_too(real: Nights) -> None:
    tag_file = real.upstream / "server" / "new.h"
    tag_file.write_text("// new\n")
    tag(real, "b101", 20)
    ended = real.run()
    assert any("can be taken" in line for line in after(real.order(), ended, real.live, token=""))
    text = (real.history / "proposals" / "b101" / "PROPOSAL.md").read_text()
    assert "build 100 -> 101" in text
    assert "0001-base.patch: " in text


def test_a_conflict_is_prepared_for_a_person(real: Nights) -> None:
    file = real.upstream / "engine" / "base.c"
    file.write_text(file.read_text().replace("// two", "// another two"))
    tag(real, "b101", 20)
    ended = real.run()
    assert (ended.night.state, ended.night.blame) == ("red", "patches")
    lines = after(real.order(), ended, real.live, token="")
    (told,) = [line for line in lines if "wait in" in line]
    assert "hunk 1 of engine/base.c, made for line" in told
    tree = Path(told.partition("wait in ")[2].partition(":")[0])
    assert "<<<<<<<" in (tree / "engine" / "base.c").read_text()
    assert (tree / "REFRESH.txt").is_file()
    assert not (real.history / "proposals").exists()


def test_nothing_is_proposed_without_a_newer_base_or_a_green_night(nights: Nights) -> None:
    assert not after(nights.order(), nights.run(), nights.live, token="")
    nights.release("b101", hours=10)
    nights.scenario({"when": ["make"], "answer": "runs/vision-cuda-13.0-121a-on-sm90.json",
                     "code": 14})  # fmt: skip
    assert not after(nights.order(), nights.run(), nights.live, token="")


def test_a_newer_base_that_cannot_be_made_is_told_with_the_way_to_its_commit(
    nights: Nights,
) -> None:
    nights.release("b101", hours=10)
    once = [{"when": ["make", name], "times": 1} for name in ("vision", "vision-mtp")]
    bad = {"answer": "runs/vision-cuda-13.0-121a-on-sm90.json", "code": 14}
    nights.scenario(*once, {"when": ["make"], **bad})
    (told,) = after(nights.order(), nights.run(), nights.live, token="")
    words = f"--repo {nights.upstream} --good b100 --bad b101 --variant vision --toolkit cpu"
    assert words in told
    assert told.endswith("--check start")
