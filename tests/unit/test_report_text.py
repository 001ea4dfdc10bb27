"""Text from logs and file names must steer nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.report.text import encodable, visible

ANY = st.text(st.characters(exclude_categories=[])) | st.text(
    st.sampled_from("\x1b[]m;0187\r\n\t\x00\x07\x9b\u202e\ud800\ufffe a<&]>\\")
)


@settings(deadline=None)
@given(ANY)
def test_only_harmless_characters_are_left(text: str) -> None:
    shown = visible(text)
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    shown.encode("utf-8")
    assert visible(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red]text[/] ✓ größe", "plain [red]text[/] ✓ größe"),
        ("\x1b[31;1merror:\x1b[0m no", "error: no"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("half \x1b[", "half \\x1b["),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("a\tb\nc", "a\tb\nc"),
        ("bell\x07 null\x00 c1\x9b2J", "bell\\x07 null\\x00 c1\\x9b2J"),
        ("turned \u202egpj.exe", "turned \\u202egpj.exe"),
        ("not UTF-8: \udcff", "not UTF-8: \\udcff"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_what_a_terminal_cannot_show_is_spelled_out() -> None:
    assert encodable("größe ✓", "ascii") == "gr\\xf6\\xdfe \\u2713"
    assert encodable("größe ✓", "utf-8") == "größe ✓"
