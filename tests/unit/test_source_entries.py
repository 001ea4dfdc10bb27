"""Which names and links a source may hold."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.source.entries import link_problem, normal_mode, path_problem


@pytest.mark.parametrize(
    "path", ["a", "src/a b.txt", "ünï/ç", "a/...", "..a", "a/.gitignore", 'say "hi"', "a:b", "-x"]
)
def test_plain_relative_names_are_accepted(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("..", "climbs out"),
        ("a/../../b", "climbs out"),
        ("a//b", "not a plain"),
        ("./a", "not a plain"),
        ("a/", "not a plain"),
        ("a\\b", "backslash"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("\udcff", "UTF-8"),
        (".git/hooks/post-checkout", ".git"),
        ("a/.GIT/config", ".git"),
        ("x" * 256, "255"),
        ("ü" * 128, "255"),
        ("a/" * 2048 + "a", "4095"),
    ],
)
def test_other_names_are_refused_with_their_reason(path: str, reason: str) -> None:
    assert reason in (path_problem(path) or "")


@pytest.mark.parametrize(
    ("path", "target"),
    [("a", "b"), ("a/b", "../c"), ("a/b/c", "../../d/e"), ("a", "./b"), ("a/b", "c/d")],
)
def test_links_inside_the_tree_are_accepted(path: str, target: str) -> None:
    assert link_problem(path, target) is None


@pytest.mark.parametrize(
    ("path", "target", "reason"),
    [
        ("a", "/etc/passwd", "absolute"),
        ("a", "..", "out of the tree"),
        ("a", "../b", "out of the tree"),
        ("a/b", "../../c", "out of the tree"),
        ("a/b", "./../../c", "out of the tree"),
        ("a", "", "empty"),
        ("a", "b\0c", "control"),
        ("a", "..\\b", "backslash"),
        # `u` a link to `.`: then u/u/../.. is outside, although the words alone stay inside.
        ("m", "u/u/../..", "down and up again"),
    ],
)
def test_other_links_are_refused_with_their_reason(path: str, target: str, reason: str) -> None:
    assert reason in (link_problem(path, target) or "")


_PARTS = st.sampled_from(["..", ".", "", "a", "b", "/", "\\", "\0", "..."])
_NAMES = st.lists(_PARTS, min_size=1, max_size=8).map("/".join)


@given(path=_NAMES)
def test_an_accepted_name_stays_below_its_root(path: str) -> None:
    if path_problem(path) is None:
        assert posixpath.normpath(posixpath.join("/root", path)) == f"/root/{path}"


@given(path=_NAMES, target=_NAMES)
def test_an_accepted_link_stays_below_its_root(path: str, target: str) -> None:
    if path_problem(path) is None and link_problem(path, target) is None:
        base = posixpath.dirname(posixpath.join("/root", path))
        end = posixpath.normpath(posixpath.join(base, target))
        assert end == "/root" or end.startswith("/root/")


def test_only_the_owners_execute_bit_counts() -> None:
    assert normal_mode(0o744) == "100755"
    assert normal_mode(0o4755) == "100755"
    assert normal_mode(0o655) == "100644"
    assert normal_mode(0o000) == "100644"
