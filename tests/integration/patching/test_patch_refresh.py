"""Patches carried to another base: merged by git or by a person, and written as the same text."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.errors import PatchError, UsageError
from sparkbuild.patch_refresh import refresh, refreshed
from sparkbuild.source.patching.finish import Finished
from sparkbuild.source.patching.refresh import Reached
from sparkbuild.source.patching.worktree import NOTE

if TYPE_CHECKING:
    from patching.conftest import Kit

LINES = [f"line {number}\n" for number in range(1, 31)]
TEXT = "".join(LINES)


def edited(number: int, word: str, text: str = TEXT) -> str:
    return text.replace(f"line {number}\n", f"{word}\n")


def run(kit: Kit, base: str, name: str = "merge") -> tuple[Reached, Finished | None]:
    """Begin, and go on until a person is asked or all is written."""
    folder = kit.root / name
    reached = refresh(kit.desk, base, folder)
    if reached.state.waiting:
        return reached, None
    return refreshed(folder, kit.work, kit.live)


def go_on(kit: Kit, name: str = "merge") -> tuple[Reached, Finished | None]:
    return refreshed(kit.root / name, kit.work, kit.live)


def files(kit: Kit) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in kit.folder.iterdir()}


@pytest.fixture
def two(kit: Kit) -> Kit:
    kit.pin({"src/a.txt": TEXT, "src/b.txt": TEXT, "src/t.txt": "text\r\n$Id$\n",
             "src/.gitattributes": "* text eol=lf ident\n"})  # fmt: skip
    kit.commit("one", {"src/a.txt": edited(5, "five")})
    second = {"src/a.txt": edited(25, "ü", edited(5, "five")), "src/b.txt": edited(9, "nine")}
    kit.commit("two", second, extra='needs = ["one.patch"]  # it builds on it')
    return kit


def test_without_a_change_the_second_time_gives_the_same_bytes(two: Kit) -> None:
    _, first = run(two, "pin")
    assert first is not None
    before = files(two)
    _, second = run(two, "pin", "again")
    assert second is not None
    assert files(two) == before
    assert second.written == ()
    assert two.check().passed
    assert two.make() == first.tree == two.check().tree


def test_what_is_written_is_a_mail_without_versions_and_with_fixed_abbreviations(two: Kit) -> None:
    run(two, "pin")
    text = (two.folder / "two.patch").read_text()
    assert text.startswith(
        "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
    )
    assert "\nFrom: Ann Author <ann@x.org>\n" in text
    assert "\nDate: Wed, 7 Oct 2026 12:00:00 +0200\n" in text
    assert "\nSubject: [PATCH] two: change\n" in text
    assert "\nWhy: it has to.\n" in text
    index = [line for line in text.splitlines() if line.startswith("index ")]
    assert all(len(line.split()[1]) == 82 for line in index)
    assert "\n-- \n" not in text
    assert "+ü\n" in text


def test_the_manifest_keeps_its_comments_and_gets_digests_and_tree(two: Kit) -> None:
    _, done = run(two, "pin")
    assert done is not None
    text = two.manifest.read_text()
    assert "# declared" in text
    assert "# it builds on it" in text
    for name in ("one.patch", "two.patch"):
        digest = hashlib.sha256((two.folder / name).read_bytes()).hexdigest()
        assert f'sha256 = "{digest}"' in text
    assert two.patchset.patched is not None
    assert two.patchset.patched.tree == done.tree


def test_what_moved_is_carried_over_and_the_pin_is_the_new_base(two: Kit) -> None:
    base = two.base("later", {"src/a.txt": "up\n" + TEXT, "src/b.txt": TEXT + "down\n"})
    _, done = run(two, base)
    assert done is not None
    assert set(done.written) == {"one.patch", "two.patch", "patchset.toml"}
    assert two.check().passed
    assert two.make() == done.tree
    place = two.work.sources
    (text,) = place.glob("*/src/a.txt")
    assert text.read_text() == "up\n" + edited(25, "ü", edited(5, "five"))


def test_a_conflict_waits_for_a_person_who_is_told_what_to_do(two: Kit) -> None:
    base = two.base("later", {"src/a.txt": edited(5, "FIVE"), "src/b.txt": TEXT})
    before = files(two)
    reached, done = run(two, base)
    assert done is None
    assert reached.state.waiting == "conflicts in src/a.txt"
    folder = two.root / "merge"
    note = (folder / NOTE).read_text()
    assert "one.patch: WAITS FOR YOU: conflicts in src/a.txt" in note
    assert f"sparkbuild patch refresh --continue {folder}" in note
    with pytest.raises(PatchError, match="is not merged yet"):
        go_on(two)
    assert files(two) == before
    (folder / "src/a.txt").write_text(edited(5, "Five"))
    _, done = go_on(two)
    assert done is not None
    assert two.check().passed
    text = (two.folder / "one.patch").read_text()
    assert "From: Ann Author" in text
    assert "Why: it has to." in text
    assert "-FIVE\n+Five\n" in text
    assert "# Conflicts" not in text


def test_a_person_may_commit_the_merge_or_give_the_patch_up(two: Kit) -> None:
    from patching.conftest import git

    base = two.base("later", {"src/a.txt": edited(5, "FIVE"), "src/b.txt": edited(9, "NINE")})
    run(two, base)
    folder = two.root / "merge"
    git("checkout", "HEAD", "--", ".", at=folder)
    reached, done = go_on(two)
    assert done is None
    assert reached.state.steps[0].dropped
    (folder / "src/b.txt").write_text(edited(9, "nINE"))
    (folder / "src/a.txt").write_text(edited(25, "ü", edited(5, "FIVE")))
    git("add", "--all", at=folder)
    git("-c", "core.editor=true", "cherry-pick", "--continue", at=folder)
    _, done = go_on(two)
    assert done is not None
    assert set(done.dropped) == {"one.patch"}
    assert not (two.folder / "one.patch").exists()
    (entry,) = two.patchset.patches
    assert (entry.file, entry.needs) == ("two.patch", ())
    assert two.check().passed


def test_bytes_come_back_as_they_are_whatever_the_source_s_attributes_say(kit: Kit) -> None:
    crlf = TEXT.replace("\n", "\r\n")
    kit.pin({"src/a.txt": crlf})
    kit.commit("one", {"src/a.txt": crlf.replace("line 5\r", "five $Id$\r")})
    base = {"src/.gitattributes": "* text eol=lf ident\n", "src/a.txt": crlf.replace("5\r", "V\r")}
    run(kit, kit.base("later", base))
    merged = crlf.replace("line 5\r", "FIVE $Id$\r").encode()
    (kit.root / "merge/src/a.txt").write_bytes(merged)
    _, done = go_on(kit)
    assert done is not None
    kit.make()
    assert next(kit.work.sources.glob("*/src/a.txt")).read_bytes() == merged


def test_two_commits_for_one_patch_are_refused(two: Kit) -> None:
    from patching.conftest import git

    run(two, two.base("later", {"src/a.txt": edited(5, "FIVE"), "src/b.txt": TEXT}))
    folder = two.root / "merge"
    for word in ("first", "second"):
        (folder / "src/a.txt").write_text(edited(5, word))
        git("commit", "--quiet", "--all", "--message", word, at=folder)
    with pytest.raises(PatchError, match="2 commits came"):
        go_on(two)


def test_what_the_base_has_already_is_dropped(two: Kit) -> None:
    base = two.base("later", {"src/a.txt": edited(5, "five"), "src/b.txt": TEXT})
    _, done = run(two, base)
    assert done is not None
    assert done.dropped == {"one.patch": "the base has all of it"}
    assert [entry.file for entry in two.patchset.patches] == ["two.patch"]


def test_a_clean_merge_into_another_function_waits_for_a_person(kit: Kit) -> None:
    def function(name: str, step: str = "x += 3;") -> str:
        steps = ["int x = a;", "x += 1;", "x += 2;", step, "x += 4;", "x += 5;", "return x;"]
        inside = "".join(f"    {line}\n" for line in steps)
        return f"static int {name}(int a) {{\n{inside}}}\n\n"

    kit.pin({"src/a.c": function("one") + function("two")})
    kit.commit("one", {"src/a.c": function("one") + function("two", "x *= 3;")})
    reached, done = run(kit, kit.base("later", {"src/a.c": function("one") + function("new")}))
    assert done is None
    assert reached.state.waiting == (
        "merged cleanly, and elsewhere: src/a.c: static int new(int a) { instead of static int "
        "two(int a) {"
    )
    _, done = go_on(kit)  # the person says that it is right
    assert done is not None
    assert kit.check().passed


def test_hunks_get_as_much_context_as_tells_their_place(kit: Kit) -> None:
    block = "a\nb\nc\nx\nd\ne\nf\n"
    kit.pin({"src/a.txt": f"top\n{block}{block}{block}bottom\n"})
    kit.commit("one", {"src/a.txt": f"top\n{block}{block.replace('x', 'y')}{block}bottom\n"})
    assert kit.only().hunks[0].fits == 3
    _, done = run(kit, "pin")
    assert done is not None
    (hunk,) = kit.only().hunks
    assert hunk.fits == 1
    _, again = run(kit, "pin", "again")
    assert again is not None
    assert again.written == ()


def test_a_patch_that_fits_nowhere_is_made_by_hand_with_its_own_header(two: Kit) -> None:
    text = two.patches["one.patch"].replace(b"-line 5\n", b"-line V\n")
    two.patches.pop("two.patch")
    two.patch("one.patch", text)
    reached, _ = run(two, "pin")
    assert "make its change by hand" in reached.state.waiting
    (two.root / "merge/src/a.txt").write_text(edited(5, "five"))
    _, done = go_on(two)
    assert done is not None
    assert two.check().passed
    assert "Subject: [PATCH] one: change" in (two.folder / "one.patch").read_text()


def test_a_folder_with_something_in_it_and_one_without_a_refresh_are_refused(
    two: Kit, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is not empty"):
        refresh(two.desk, "pin", two.root)
    with pytest.raises(UsageError, match="holds no refresh"):
        refreshed(tmp_path / "nothing", two.work, two.live)
