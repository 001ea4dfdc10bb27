"""Diffs, mail headers and places: what is read from a patch file without any git."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.manifest import Recipes
from sparkbuild.source.patching.functions import same_function
from sparkbuild.source.patching.mail import HEADINGS, read_mail
from sparkbuild.source.patching.place import applied, change_lines, fit, nearest, occurrences
from sparkbuild.source.patching.unified import DiffError, Hunk, backwards, parse, split

MAIL = """From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001
From: =?UTF-8?q?J=C3=B6rg?= <j@x.org>
Date: Wed, 7 Oct 2026 12:00:00 +0200
Subject: [PATCH 2/5] common: a subject that
 is folded
MIME-Version: 1.0
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit

Why: because
 of this,
and more.

Upstream: nothing — yet.
Proof: tests/x.py::y
Gone-when: never

Signed-off-by: J
---
 src/a | 2 +-

diff --git a/src/a b/src/a
"""


def test_a_mail_header_with_all_headings() -> None:
    mail = read_mail(MAIL.encode())
    assert mail.problems == ()
    assert mail.author == "Jörg <j@x.org>"
    assert mail.subject == "common: a subject that is folded"
    assert mail.headings == {
        "Why": "because of this, and more.", "Upstream": "nothing — yet.",
        "Proof": "tests/x.py::y", "Gone-when": "never",
    }  # fmt: skip
    assert mail.message.startswith("common: a subject that is folded\n\nWhy: because\n of this,\n")
    assert mail.message.endswith("Signed-off-by: J\n")


def test_a_bare_diff_says_nothing_of_itself() -> None:
    mail = read_mail(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-Why: a\n+Why: b\n")
    assert mail.headings == {}
    assert len(mail.problems) == 2 + len(HEADINGS)


def test_an_empty_heading_is_missing() -> None:
    text = MAIL.replace("Proof: tests/x.py::y", "Proof:  ")
    assert read_mail(text.encode()).problems == ("the header has no Proof:",)


def test_every_patch_of_the_recipes_says_why_it_is_carried() -> None:
    from pathlib import Path

    recipes = Recipes(Path(__file__).parents[3])
    for name in recipes.patchset_names():
        patchset, manifest = recipes.patchset(name)
        for entry in patchset.patches:
            if entry.remote is None:
                data = (manifest.parent / entry.file).read_bytes()
                assert read_mail(data).problems == (), entry.file
                assert parse(data)
        files = {file.name for file in manifest.parent.glob("*.patch")}
        assert files == {entry.file for entry in patchset.patches if entry.remote is None}


def hunk(text: str, at: int = 1) -> Hunk:
    return Hunk(old_start=at, new_start=at, function="", lines=tuple(split(text.encode())))


def test_a_diff_of_several_kinds() -> None:
    text = """diff --git a/src/a b/src/a
index 1..2 100644
--- a/src/a
+++ b/src/a
@@ -1,2 +1,2 @@ void f(void)
 x
-y
+z
\\ No newline at end of file
@@ -9 +9,0 @@
-q
diff --git a/e b/e
new file mode 100644
index 0000000..e69de29
diff --git a/o b/n
similarity index 100%
rename from o
rename to n
diff --git a/d b/d
deleted file mode 100644
--- a/d
+++ /dev/null
@@ -1 +0,0 @@
-gone
--\x20
2.39.5

"""
    a, e, n, d = parse(text.encode())
    assert (a.old, a.new, len(a.hunks)) == ("src/a", "src/a", 2)
    assert a.hunks[0].function == "void f(void)"
    assert a.hunks[0].new == (b"x\n", b"z")
    assert (e.old, e.new, e.hunks) == (None, "e", ())
    assert (n.old, n.new) == ("o", "n")
    assert (d.old, d.new) == ("d", None)


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n"]), min_size=1, max_size=30)


@given(old=LINES, new=LINES)
def test_what_difflib_writes_is_read_and_put_back(old: list[str], new: list[str]) -> None:
    import difflib

    text = "".join(difflib.unified_diff(old, new, "a/f", "b/f"))
    if old == new:
        return
    (change,) = parse(text.encode())
    content = [line.encode() for line in old]
    pairs = [(one, max(one.old_start - 1, 0)) for one in change.hunks]
    assert applied(content, pairs) == "".join(new).encode()
    for one, line in pairs:
        assert line in fit(content, one).every
    back = [backwards(one) for one in change.hunks]
    result = [line.encode() for line in new]
    whole = applied(result, [(one, max(one.old_start - 1, 0)) for one in back])
    assert whole == "".join(old).encode()


@given(st.binary(max_size=400), st.integers(0, 300))
def test_any_bytes_are_changes_or_a_refusal(data: bytes, cut: int) -> None:
    start = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n"
    for text in (data, start + data, start[:cut] + data):
        try:
            parse(text)
        except DiffError:
            continue


def test_the_nearest_place_wins_and_the_lower_of_two_as_near() -> None:
    content = split(b"q\nx\ny\nz\nq\nx\ny\nz\nq\n")
    one = hunk(" x\n-y\n+Y\n z\n", at=4)
    assert fit(content, one).every == (1, 5)
    assert fit(content, one).taken == 5
    assert fit(content, hunk(" x\n-y\n+Y\n z\n", at=3)).taken == 1
    assert fit(content, one, floor=6).taken is None


def test_the_end_and_the_beginning_of_a_file_are_places() -> None:
    content = split(b"x\ny\nx\ny\n")
    at_end = hunk(" x\n-y\n", at=2)
    assert fit(content, at_end).taken == 2
    assert fit(split(b"x\ny\nz\n"), at_end).taken is None
    assert fit(split(b"q\nx\ny\nz\n"), hunk("-x\n y\n z\n", at=1)).taken is None


def test_a_hunk_s_runs_of_changes() -> None:
    assert change_lines(hunk(" a\n-b\n+c\n d\n+e\n f\n-g\n")) == (1, 3, 4)


def test_occurrences_overlap() -> None:
    assert occurrences(split(b"a\na\na\n"), split(b"a\na\n")) == (0, 1)
    assert occurrences([], [b"a"]) == ()


def test_the_nearest_lines_are_those_with_most_in_common() -> None:
    content = split("".join(f"line {number}\n" for number in range(100)).encode())
    one = hunk(" line 50\n-line X\n+line Y\n line 52\n line 53\n", at=10)
    begin, lines = nearest(content, one)
    assert begin == 48
    assert lines[2:6] == (b"line 50\n", b"line 51\n", b"line 52\n", b"line 53\n")
    assert nearest([], one) == (0, ())


def test_one_function_under_another_signature() -> None:
    assert same_function("int f(int a)", "int  f(int a)", still_there=False)
    assert same_function("int f(int a)", "long f(int a, int b)", still_there=False)
    assert not same_function("int f(int a)", "long f(int a, int b)", still_there=True)
    assert not same_function("int f(int a)", "int g(int a)", still_there=False)
    assert not same_function("int s::f(int a)", "int t::f(int a)", still_there=False)
    assert not same_function("struct a {", "struct b {", still_there=False)
