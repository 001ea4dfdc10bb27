"""What a patch file may not be: refused by the check and by stage 3, with nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.errors import PatchError

if TYPE_CHECKING:
    from patching.conftest import Kit

LINES = "".join(f"line {number}\n" for number in range(1, 21))
NEW = b"--- /dev/null\n+++ b/src/new.txt\n@@ -0,0 +1 @@\n+text\n"
EDIT = (
    b"diff --git a/src/a.txt b/src/a.txt\n--- a/src/a.txt\n+++ b/src/a.txt\n"
    b"@@ -2,7 +2,7 @@ line 1\n line 2\n line 3\n line 4\n-line 5\n+line five\n line 6\n"
    b" line 7\n line 8\n"
)
MAIL = b"""From: A <a@b>
Subject: [PATCH] x

Why: w
Upstream: u
Proof: p
Gone-when: g
---
"""

RENAME_OUT = b"""diff --git a/src/a.txt b/a.txt
similarity index 100%
rename from src/a.txt
rename to a.txt
"""
LINK = b"""diff --git a/src/l b/src/l
new file mode 120000
--- /dev/null
+++ b/src/l
@@ -0,0 +1 @@
+../../etc
\\ No newline at end of file
"""
SUBMODULE = b"""diff --git a/src/m b/src/m
new file mode 160000
--- /dev/null
+++ b/src/m
@@ -0,0 +1 @@
+Subproject commit 1111111111111111111111111111111111111111
"""
BINARY = b"""diff --git a/src/x b/src/x
index 1111111..2222222 100644
Binary files a/src/x and b/src/x differ
"""

REFUSED: list[tuple[str, bytes, str]] = [
    ("climbs out", NEW.replace(b"src/new.txt", b"../new.txt"), "climbs out"),
    ("climbs out in the middle", NEW.replace(b"src/new.txt", b"src/../../new.txt"), "climbs out"),
    ("absolute", NEW.replace(b"b/src/new.txt", b"/etc/new.txt"), "begins with a/ or b/"),
    ("absolute inside", NEW.replace(b"src/new.txt", b"/etc/new.txt"), "absolute"),
    ("in .git", NEW.replace(b"src/new.txt", b"src/.git/config"), "inside .git"),
    ("undeclared", NEW.replace(b"src/new.txt", b"docs/new.txt"), "outside the declared paths"),
    ("rename out", RENAME_OUT, "outside the declared paths"),
    ("link", LINK, "mode 120000"),
    ("submodule", SUBMODULE, "mode 160000"),
    ("too few lines", EDIT.replace(b" line 8\n", b""), ""),
    ("cut off in a line", EDIT[:-4], ""),
    ("too many lines", EDIT + b" line 9\n", "more lines than"),
    ("too many added lines", EDIT + b"+line 9\n", "more lines than"),
    ("wrong count", EDIT.replace(b"-2,7 +2,7", b"-2,6 +2,6"), ""),
    ("blanks cut off", EDIT.replace(b" line 6\n", b"\n"), ""),
    ("not UTF-8", EDIT.replace(b"five", b"f\xefve"), "not UTF-8"),
    ("NUL", EDIT.replace(b"five", b"f\0ve"), "NUL"),
    ("all CRLF", EDIT.replace(b"\n", b"\r\n"), "CRLF"),
    ("CRLF heading", EDIT.replace(b"@@ line 1\n", b"@@ line 1\r\n"), "CRLF"),
    ("changes nothing", EDIT.replace(b"-line 5\n+line five\n", b" line 5\n"), ""),
    ("twice the same file", EDIT + EDIT, "changed twice"),
    ("two names", EDIT.replace(b"diff --git a/src/a.txt b/src/a.txt\n", b"")
     .replace(b"+++ b/src/a.txt", b"+++ b/src/q.txt"), ""),
    ("prose only", b"", "no change of any file"),
    ("binary", BINARY, ""),
]  # fmt: skip


@pytest.fixture
def lines(kit: Kit) -> Kit:
    kit.pin({"src/a.txt": LINES, "src/b.txt": "x\n"})
    return kit


@pytest.mark.parametrize(("text", "reason"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_it_is_refused_with_its_reason_by_check_and_by_make(
    lines: Kit, text: bytes, reason: str
) -> None:
    lines.patch("one.patch", MAIL + text)
    found = lines.only()
    assert found.state in {"refused", "conflicts"}
    assert not found.applied
    assert found.problems
    assert reason in " ".join(found.problems)
    with pytest.raises(PatchError) as refusal:
        lines.make()
    assert "one.patch" in refusal.value.message
    assert not lines.work.sources.exists()
    assert not any(Path("/etc").glob("new.txt"))


def test_nothing_is_written_through_a_link_of_the_source(lines: Kit) -> None:
    place = lines.root / "bases" / "pin"
    (place / "src" / "deep").mkdir()
    (place / "src" / "deep" / "c.txt").write_text("c\n")
    (place / "src" / "door").symlink_to("deep")
    lines.patch("one.patch", MAIL + NEW.replace(b"src/new.txt", b"src/door/new.txt"))
    assert lines.only().state == "conflicts"
    assert "symbolic link" in " ".join(lines.only().problems)
    with pytest.raises(PatchError, match="does not apply"):
        lines.make()
    lines.patch("one.patch", MAIL + b"--- a/src/door\n+++ b/src/door\n@@ -1 +1 @@\n-deep\n"
                b"\\ No newline at end of file\n+/etc\n\\ No newline at end of file\n")  # fmt: skip
    assert lines.only().state in {"refused", "conflicts"}
    with pytest.raises(PatchError):
        lines.make()


def test_a_patch_applied_twice_is_there_already(lines: Kit) -> None:
    lines.patch("one.patch", MAIL + EDIT)
    lines.patch("two.patch", MAIL + EDIT)
    assert [one.state for one in lines.check().patches] == ["applies", "already upstream"]
    with pytest.raises(PatchError, match=r"two\.patch is in the source already"):
        lines.make()


FINE: list[tuple[str, dict[str, str | bytes | None]]] = [
    ("edit", {"src/a.txt": LINES.replace("line 5", "line five")}),
    ("new file", {"src/new.txt": "text\n"}),
    ("new empty file", {"src/empty.txt": ""}),
    ("new file without a last line end", {"src/new.txt": "text"}),
    ("deletion", {"src/b.txt": None}),
    ("to empty", {"src/b.txt": ""}),
    ("last line end gone", {"src/a.txt": LINES[:-1]}),
    ("first line", {"src/a.txt": "new\n" + LINES}),
    ("last line", {"src/a.txt": LINES + "new\n"}),
    ("two files", {"src/a.txt": LINES.replace("line 5", "line five"), "src/b.txt": "y\n"}),
    ("far apart", {"src/a.txt": LINES.replace("line 2\n", "two\n").replace("line 19", "nineteen")}),
    ("unusual name", {"src/ö b\tc.txt".replace("\t", " "): "text\n"}),
    ("looks like a heading", {"src/a.txt": LINES.replace("line 5\n", "-- a/x\n++ b/x\n")}),
    ("form feed", {"src/a.txt": LINES.replace("line 5\n", "line\f5\x0bx\n")}),
]  # fmt: skip


@pytest.mark.parametrize("files", [one[1] for one in FINE], ids=[one[0] for one in FINE])
def test_what_git_makes_of_a_plain_change_applies(
    lines: Kit, files: dict[str, str | bytes | None]
) -> None:
    from patching.conftest import git

    lines.commit("one", files)
    found = lines.check()
    assert [patch.state for patch in found.patches] == ["applies"]
    assert found.tree == git("rev-parse", "HEAD^{tree}", at=lines.repo)
    assert lines.make() == found.tree


def test_crlf_in_a_source_is_bytes_like_others(kit: Kit) -> None:
    kit.pin({"src/a.txt": LINES.replace("\n", "\r\n").encode()})
    kit.commit("one", {"src/a.txt": LINES.replace("\n", "\r\n").replace("5", "five").encode()})
    assert kit.only().state == "applies"
    kit.make()


def test_renames_and_modes_are_carried(lines: Kit) -> None:
    text = (
        b"diff --git a/src/b.txt b/src/c.txt\nold mode 100644\nnew mode 100755\n"
        b"similarity index 100%\nrename from src/b.txt\nrename to src/c.txt\n"
    )
    lines.patch("one.patch", MAIL + text)
    found = lines.check()
    assert found.patches[0].state == "applies"
    assert lines.make() == found.tree


def test_a_rename_with_a_change_is_judged_in_the_old_file(lines: Kit) -> None:
    text = EDIT.replace(b"+++ b/src/a.txt", b"+++ b/src/c.txt").replace(
        b"diff --git a/src/a.txt b/src/a.txt\n",
        b"diff --git a/src/a.txt b/src/c.txt\nsimilarity index 90%\nrename from src/a.txt\n"
        b"rename to src/c.txt\n",
    )
    lines.patch("one.patch", MAIL + text)
    assert lines.only().state == "applies"
    found = lines.only(lines.base("later", {"src/a.txt": "up\n" + LINES, "src/b.txt": "x\n"}))
    assert found.state == "applies with offset"
    assert found.hunks[0].offset == 1


def test_a_tree_other_than_the_pinned_one_is_refused_with_both(lines: Kit) -> None:
    lines.patch("one.patch", MAIL + EDIT)
    tree = lines.check().tree
    lines.tail = f'[patched]\ntree = "{tree}"'
    lines.write()
    assert lines.check().passed
    assert lines.make() == tree
    lines.patch("one.patch", MAIL + EDIT.replace(b"five", b"FIVE"))
    other = lines.check().tree
    assert not lines.check().passed
    for _ in range(2):  # what is remembered is refused too
        with pytest.raises(PatchError, match="is not the tree that its manifest pins") as refusal:
            lines.make()
        assert refusal.value.problems == (f"expected tree {tree}", f"found tree {other}")
    later = lines.check(lines.base("later", {"src/a.txt": LINES, "src/b.txt": "y\n"}))
    assert later.expected_tree is None


def test_a_file_with_another_digest_is_still_read(lines: Kit) -> None:
    lines.patch("one.patch", MAIL + EDIT)
    (lines.folder / "one.patch").write_bytes(MAIL + EDIT.replace(b"five", b"FIVE"))
    found = lines.only()
    assert found.state == "refused"
    assert "expected sha256" in found.problems[0]
    (lines.folder / "one.patch").unlink()
    assert "No such file" in lines.only().problems[0]
