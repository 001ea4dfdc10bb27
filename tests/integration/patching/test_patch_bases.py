"""Bases: named in a table, folders, commits; and the real builds that the recipes name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkbuild.errors import SourceUnavailableError, UnknownNameError
from sparkbuild.manifest import Recipes, SdistOrigin
from sparkbuild.patch_work import Desk, all_bases, check_on, on_bases
from sparkbuild.source.patching.bases import base_table
from sparkbuild.workspace import Workspace

if TYPE_CHECKING:
    from patching.conftest import Kit

REPOSITORY = Path(__file__).parents[3]
TEXT = "".join(f"line {number}\n" for number in range(1, 21))


@pytest.fixture
def one(kit: Kit) -> Kit:
    kit.pin({"src/a.txt": TEXT})
    kit.commit("one", {"src/a.txt": TEXT.replace("line 5\n", "five\n")})
    return kit


def table(kit: Kit, **bases: dict[str, str]) -> None:
    text = "schema = 1\n"
    for name, origin in bases.items():
        text += f'[[bases]]\nname = "{name}"\nbuild = 1\n[[bases.origins]]\n'
        text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in origin.items())
    (kit.recipes / "patchsets" / "bases.toml").write_text(text)


def test_a_commit_or_tag_of_a_repository_is_a_base(one: Kit) -> None:
    from patching.conftest import git

    git("tag", "-a", "-m", "t", "v1", "HEAD^", at=one.repo)
    commit = git("rev-parse", "HEAD^", at=one.repo)
    for ref in (f"{one.repo}#{commit}", f"{one.repo}#v1"):
        assert one.only(ref).state == "applies"
    assert one.only(f"{one.repo}#{git('rev-parse', 'HEAD', at=one.repo)}").state == (
        "already upstream"
    )


def test_a_folder_is_read_anew_each_time(one: Kit) -> None:
    base = one.base("work", {"src/a.txt": TEXT})
    assert one.only(base).state == "applies"
    Path(base, "src/a.txt").write_text("up\n" + TEXT)
    assert one.only(base).state == "applies with offset"


def test_the_table_names_bases_and_all_of_them_are_tried(
    one: Kit, run_sparkbuild: Callable[..., Any]
) -> None:
    from patching.conftest import git

    git("checkout", "--quiet", "-b", "next", "HEAD^", at=one.repo)
    one.put(one.repo, {"src/a.txt": TEXT.replace("line 6\n", "six\n")})
    git("commit", "--quiet", "--all", "--message", "next", at=one.repo)
    known = {
        "b1": git("rev-parse", "HEAD^", at=one.repo),
        "b2": git("rev-parse", "HEAD", at=one.repo),
    }
    origins = {name: {"kind": "git", "url": str(one.repo), "commit": commit}
               for name, commit in known.items()}  # fmt: skip
    gone = {"kind": "git", "url": str(one.root / "gone"), "commit": "f" * 40}
    table(one, **origins, b3=gone)
    assert all_bases(one.desk) == ("pin", "b1", "b2", "b3")
    found = on_bases(one.desk, all_bases(one.desk))
    states = {checked.base: checked.patches[0].state for checked in found.checked}
    assert states == {"pin": "applies", "b1": "applies", "b2": "conflicts"}
    assert list(found.failures) == ["b3"]
    assert not found.passed
    places = ("--recipes", str(one.recipes), "--work", str(one.work.root))
    done = run_sparkbuild("patch", "table", "--variant", "tiny", "--json", *places)
    assert done.returncode == 8
    answer = json.loads(done.stdout)
    assert [base["base"] for base in answer["checked"]] == ["pin", "b1", "b2"]
    done = run_sparkbuild("patch", "table", "--variant", "tiny", "--base", "b1", "--base", "b2",
                          *places, COLUMNS="120")  # fmt: skip
    assert done.returncode == 0
    assert "conflicts" in done.stdout


def test_an_unknown_base_is_refused_with_those_that_are_known(one: Kit) -> None:
    table(one, b11401={"kind": "git", "url": "u", "commit": "f" * 40})
    with pytest.raises(UnknownNameError) as refusal:
        one.check("b11410")
    assert "b11401" in refusal.value.next_step
    with pytest.raises(UnknownNameError, match="no folder"):
        one.check("/no/such/place")
    with pytest.raises(SourceUnavailableError):
        one.check("b11401")


def test_an_empty_folder_is_no_base(one: Kit) -> None:
    (one.root / "empty").mkdir()
    with pytest.raises(SourceUnavailableError) as refusal:
        one.check(str(one.root / "empty"))
    assert "none of the declared paths" in refusal.value.problems[0]


def test_every_base_of_the_recipes_is_an_archive_by_digest() -> None:
    known = base_table(REPOSITORY)
    assert [base.name for base in known.bases] == ["b10679", "b11003", "b11200", "b11401", "b11434"]
    for base in known.bases:
        assert base.name == f"b{base.build}"
        assert all(isinstance(origin, SdistOrigin) for origin in base.origins)
    patchset, _ = Recipes(REPOSITORY).patchset("vision")
    assert known.bases[-1].origins[0] in patchset.source.origins


@pytest.mark.network
def test_the_real_bases_are_had_and_an_old_one_lacks_what_it_lacks(
    kit: Kit, tmp_path: Path
) -> None:
    patchset, manifest = Recipes(REPOSITORY).patchset("vision")
    work = Workspace(tmp_path / "real")
    work.prepare()
    desk = Desk(patchset=patchset, manifest=manifest, work=work, live=kit.live)
    found, ground = check_on(desk, "b10679")
    assert found.absent == ("tools/ui/ui.cpp.in", "tools/ui/ui.h.in")
    assert ground.source.build == 10679
    again, _ = check_on(desk, "b10679")
    assert again == found
