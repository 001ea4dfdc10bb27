"""Every patch on a base is one of seven things, and a run that fails early still tells all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from patching.conftest import Kit


def body(name: str, value: int = 1, pad: int = 0) -> str:
    """A function whose inside is the same in all functions."""
    lines = [f"static int {name}(int a) {{"]
    lines += ["    int x = a;", "    x += 1;", "    x += 2;", f"    x *= {value};", "    x += 3;",
              "    x += 4;", "    return x;", "}", ""]  # fmt: skip
    return "\n".join([*["// pad"] * pad, *lines]) + "\n"


def unlike(name: str) -> str:
    """A function with lines of its own."""
    inside = "\n".join(f"    {name}_{number}();" for number in range(8))
    return f"void {name}(void) {{\n{inside}\n}}\n\n"


PIN = unlike("top") + body("one") + body("two") + unlike("bottom")


def changed(text: str, *, name: str) -> str:
    """``text`` with the function ``name`` multiplying by nine."""
    return text.replace(body(name), body(name, 9))


def test_a_patch_on_its_own_base_applies(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    kit.commit("one", {"src/a.c": PIN.replace("top_3();", "top_9();")})
    found = kit.check()
    (patch,) = found.patches
    assert (patch.state, patch.applied, patch.problems) == ("applies", True, ())
    (hunk,) = patch.hunks
    assert (hunk.state, hunk.line, hunk.offset, hunk.fits) == ("exact", 2, 0, 1)
    assert hunk.function == "void top(void) {"
    assert found.passed
    assert found.tree == kit.make()


def test_each_hunk_is_told_by_how_many_lines_it_is_off(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    new = PIN.replace("top_3();", "top_9();").replace("bottom_4();", "bottom_9();")
    kit.commit("one", {"src/a.c": new})
    base = PIN.replace(body("two"), "// more\n" * 5 + body("two"))
    found = kit.only(kit.base("later", {"src/a.c": "// new\n// new\n" + base}))
    assert found.state == "applies with offset"
    assert [hunk.offset for hunk in found.hunks] == [2, 7]
    assert [hunk.state for hunk in found.hunks] == ["offset", "offset"]


def test_a_hunk_that_git_puts_into_another_function_is_misplaced(kit: Kit) -> None:
    """Upstream put a function with the same inside where it was."""
    kit.pin({"src/a.c": PIN})
    kit.commit("one", {"src/a.c": changed(PIN, name="two")})
    base = PIN.replace(body("two"), body("new") + body("two"))
    found = kit.only(kit.base("later", {"src/a.c": base}))
    assert found.state == "misplaced"
    (hunk,) = found.hunks
    assert hunk.fits == 3
    assert hunk.function == "static int new(int a)"
    assert hunk.expected_function == "static int two(int a)"
    assert "its lines also stand there, at line 33" in hunk.reason
    assert not found.applied


def test_it_is_misplaced_where_its_own_function_is_gone(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    kit.commit("one", {"src/a.c": changed(PIN, name="two")})
    base = PIN.replace(body("two"), unlike("other"))
    found = kit.only(kit.base("later", {"src/a.c": base}))
    assert found.state == "misplaced"
    assert "was made for static int two(int a)" in found.hunks[0].reason


def test_a_function_that_moved_or_got_a_parameter_is_still_its_own(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    kit.commit("one", {"src/a.c": changed(PIN, name="two")})
    base = unlike("top") + body("two").replace("(int a)", "(int a, int b)") + unlike("bottom")
    found = kit.only(kit.base("later", {"src/a.c": base}))
    assert found.state == "applies with offset"
    assert found.hunks[0].offset == -10


def test_the_right_function_far_away_wins_over_a_near_one_of_the_same_name(kit: Kit) -> None:
    """An overload: the name is the same, and the one that it was made for is still there."""
    pin = body("f") + unlike("middle") + body("f").replace("(int a)", "(long a)")
    kit.pin({"src/a.c": pin})
    new = body("f") + unlike("middle") + body("f", 9).replace("(int a)", "(long a)")
    kit.commit("one", {"src/a.c": new})
    long = body("f").replace("(int a)", "(long a)")
    base = long + unlike("middle") * 2 + body("f")
    found = kit.only(kit.base("later", {"src/a.c": base}))
    assert found.state == "misplaced"
    assert found.hunks[0].function == "static int f(int a)"


def test_the_ordinal_of_equal_places_in_one_function_decides(kit: Kit) -> None:
    block = "    a();\n    b();\n    c();\n    x();\n    d();\n    e();\n    f();\n"
    pin = f"void f(void) {{\n{block}{block}{block}}}\n" + unlike("tail")
    kit.pin({"src/a.c": pin})
    second = f"void f(void) {{\n{block}{block.replace('x()', 'y()')}{block}}}\n" + unlike("tail")
    kit.commit("one", {"src/a.c": second})
    assert kit.only().state == "applies"
    assert kit.only().hunks[0].fits == 3
    before = f"void f(void) {{\n{block}{block}{block}{block}}}\n" + unlike("tail")
    found = kit.only(kit.base("later", {"src/a.c": before}))
    assert found.state == "misplaced"
    assert "stand 4 times in void f(void): made for number 2 of 3" in found.hunks[0].reason


def test_what_was_never_made_for_its_own_base_is_seen_by_its_heading(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    text = kit.commit("one", {"src/a.c": changed(PIN, name="two")})
    kit.patch("one.patch", text.replace(b"@@ static int two(", b"@@ static int one("))
    found = kit.only()
    assert found.state == "misplaced"
    assert found.hunks[0].expected_function == "static int one(int a) {"
    assert found.hunks[0].function == "static int two(int a) {"


def test_a_method_inside_a_class_is_told_apart_by_its_signature(kit: Kit) -> None:
    """Git names the class for both methods; the nearest signature names the method."""
    inside = (
        "        int x = 1;\n        x += 1;\n        x += 2;\n        use(x);\n        x += 3;\n"
    )
    inside += "        x += 4;\n        x += 5;\n"
    one = f"    void one() {{\n{inside}    }}\n"
    two = f"    void two() {{\n{inside}    }}\n"
    kit.pin({"src/a.cpp": f"struct s {{\n{one}{two}}};\n"})
    new = two.replace("use(x)", "use(-x)")
    kit.commit("one", {"src/a.cpp": f"struct s {{\n{one}{new}}};\n"})
    assert kit.only().state == "applies"
    swapped = f"struct s {{\n{two}{one}}};\n"
    found = kit.only(kit.base("later", {"src/a.cpp": swapped}))
    assert found.state == "misplaced"
    assert found.hunks[0].function == "void one()"


def test_a_patch_that_upstream_took_is_already_there(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    kit.commit("one", {"src/a.c": changed(PIN, name="two")})
    assert kit.only(kit.base("took", {"src/a.c": changed(PIN, name="two")})).state == (
        "already upstream"
    )
    moved = kit.only(kit.base("later", {"src/a.c": "// up\n" + changed(PIN, name="two")}))
    assert moved.state == "already upstream"
    assert moved.notes


def test_a_conflict_shows_both_sides_and_hides_nothing_behind_it(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN, "src/b.c": PIN})
    new = PIN.replace("top_3();", "top_9();").replace("bottom_4();", "bottom_9();")
    kit.commit("one", {"src/a.c": new})
    kit.commit("two", {"src/b.c": new})
    base = PIN.replace("    top_4();\n", "    other();\n").replace("bottom_0", "renamed")
    found = kit.check(kit.base("later", {"src/a.c": "// up\n" + base, "src/b.c": PIN}))
    one, two = found.patches
    assert (one.state, two.state) == ("conflicts", "applies")
    wrong, well = one.hunks
    assert wrong.state == "conflict"
    assert "    top_4();" in wrong.expected
    assert "    other();" in wrong.found
    assert wrong.found_at is not None
    lines = ("// up\n" + base).splitlines()
    assert tuple(lines[wrong.found_at - 1 :][: len(wrong.found)]) == wrong.found
    assert (well.state, well.offset) == ("offset", 1)
    assert not found.passed


def test_whitespace_counts(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    kit.commit("one", {"src/a.c": PIN.replace("top_3();", "top_9();")})
    base = PIN.replace("    top_4();", "\ttop_4();")
    assert kit.only(kit.base("later", {"src/a.c": base})).state == "conflicts"
    assert kit.only(kit.base("crlf", {"src/a.c": PIN.replace("\n", "\r\n")})).state == "conflicts"


def test_a_file_that_is_not_there_is_a_conflict(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN})
    kit.commit("one", {"src/a.c": PIN.replace("top_3();", "top_9();")})
    found = kit.only(kit.base("old", {"src/b.c": PIN}))
    assert found.state == "conflicts"
    assert found.hunks[0].reason == "there is no file src/a.c"


def test_one_that_needs_a_failed_one_is_held_up(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN, "src/b.c": PIN})
    first = PIN.replace("top_3();", "top_9();")
    kit.commit("one", {"src/a.c": first})
    kit.commit("two", {"src/b.c": first}, extra='needs = ["one.patch"]')
    kit.commit("three", {"src/a.c": first.replace("top_9();", "top_10();")})
    found = kit.check(kit.base("later", {"src/a.c": unlike("else"), "src/b.c": PIN}))
    one, two, three = found.patches
    assert one.state == "conflicts"
    assert (two.state, two.held_up_by, two.applied) == ("held up", ("one.patch",), False)
    assert two.notes == ("by itself: applies",)
    assert three.state == "conflicts"
    assert any("one.patch (conflicts) would bring" in note for note in three.notes)


def test_what_upstream_has_satisfies_a_need(kit: Kit) -> None:
    kit.pin({"src/a.c": PIN, "src/b.c": PIN})
    first = PIN.replace("top_3();", "top_9();")
    kit.commit("one", {"src/a.c": first})
    kit.commit("two", {"src/b.c": first}, extra='needs = ["one.patch"]')
    found = kit.check(kit.base("later", {"src/a.c": first, "src/b.c": PIN}))
    assert [patch.state for patch in found.patches] == ["already upstream", "applies"]


def test_declared_paths_that_an_old_layout_lacks_are_named(kit: Kit) -> None:
    kit.paths = ("src", "tools/new.txt")
    kit.pin({"src/a.c": PIN, "tools/new.txt": "x\n"})
    kit.commit("one", {"src/a.c": PIN.replace("top_3();", "top_9();")})
    found = kit.check(kit.base("old", {"src/a.c": PIN}))
    assert found.absent == ("tools/new.txt",)
    assert found.patches[0].state == "applies"


@pytest.mark.parametrize("heading", ["Why", "Upstream", "Proof", "Gone-when"])
def test_a_patch_that_does_not_say_why_it_is_carried_is_refused(kit: Kit, heading: str) -> None:
    from patching.conftest import HEADER

    kit.pin({"src/a.c": PIN})
    lines = [line for line in HEADER.splitlines() if not line.startswith(heading)]
    kit.commit("one", {"src/a.c": PIN.replace("top_3();", "top_9();")}, body="\n".join(lines))
    found = kit.only()
    assert found.state == "refused"
    assert found.problems == (f"the header has no {heading}:",)
    assert found.applied  # those behind it are judged all the same
