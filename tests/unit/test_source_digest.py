"""The content digest: what it is, and what changes it."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.source.digest import FileFacts, Inventory, content_digest
from sparkbuild.source.entries import Entry, UnsafeEntryError


def _entry(path: str, data: bytes, mode: str = "100644", size: int | None = None) -> Entry:
    return Entry(path=path, mode=mode, size=len(data) if size is None else size, chunks=[data])


def _taken(paths: list[str], *entries: Entry) -> Inventory:
    inventory = Inventory(paths)
    for entry in entries:
        assert b"".join(inventory.through(entry)) == b"".join(entry.chunks)
    inventory.finish()
    return inventory


def test_the_digest_is_the_one_that_its_description_says() -> None:
    files = [(b"a-b", b"100755", b"#!"), (b"a/b", b"100644", b""), ("ü".encode(), b"120000", b"x")]
    state = hashlib.sha256(b"sparkbuild source tree, version 1\n" + (3).to_bytes(8, "big"))
    for path, mode, data in files:
        state.update(len(path).to_bytes(8, "big") + path + mode)
        state.update(len(data).to_bytes(8, "big") + hashlib.sha256(data).digest())
    inventory = _taken(
        ["ü", "a", "a-b"],
        _entry("ü", b"x", "120000"),
        _entry("a/b", b""),
        _entry("a-b", b"#!", "100755"),
    )
    assert inventory.digest == state.hexdigest()


def test_the_digest_never_changes_between_releases() -> None:
    """Recipes in the world hold digests made by earlier releases."""
    inventory = _taken(["a"], _entry("a/x", b"1"), _entry("a/y", b"2", "100755"))
    assert inventory.digest == "f451fe6927be499b406a9f2dcab27600ceef2f813ff5cfc0cb0507023720cddb"


_FILES = st.dictionaries(
    st.text(alphabet="ab/-ü", min_size=1, max_size=6),
    st.builds(
        FileFacts,
        mode=st.sampled_from(["100644", "100755", "120000"]),
        size=st.integers(0, 2**40),
        sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
    ),
    max_size=5,
)


@given(one=_FILES, other=_FILES)
def test_different_trees_have_different_digests(
    one: dict[str, FileFacts], other: dict[str, FileFacts]
) -> None:
    assert (content_digest(one) == content_digest(other)) == (one == other)


@given(files=_FILES)
def test_order_of_arrival_does_not_count(files: dict[str, FileFacts]) -> None:
    assert content_digest(dict(reversed(files.items()))) == content_digest(files)


def test_only_declared_files_and_folders_are_wanted() -> None:
    inventory = Inventory(["src", "a.txt", "deep/er/"])
    assert [
        path
        for path in ["src/x", "src/y/z", "a.txt", "a.txt.bak", "srcs", "deep/er/x", "deep/x", "b"]
        if inventory.wants(path)
    ] == ["src/x", "src/y/z", "a.txt", "deep/er/x"]


def test_declared_paths_that_nothing_came_for_are_missing() -> None:
    inventory = _taken(["src", "a.txt", "lib/x"], _entry("src/deep/x", b""), _entry("a.txt", b""))
    assert inventory.missing == ["lib/x"]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([_entry("a", b""), _entry("a", b"")], "twice"),
        ([_entry("../a", b"")], "climbs out"),
        ([_entry("a", b"", "160000")], "mode 160000"),
        ([_entry("a", b"..", "120000")], "out of the tree"),
        ([_entry("a", b"\xff", "120000")], "UTF-8"),
        ([_entry("a", b"12", size=3)], "3 bytes announced, 2 came"),
        ([_entry("a", b""), _entry("a/b/c", b"")], "a file, and the folder of a/b/c"),
        # A link may never be passed through: a/b would be written where `a` points.
        ([_entry("a", b"b", "120000"), _entry("a/b", b"")], "a file, and the folder of a/b"),
    ],
)
def test_what_no_tree_may_hold_is_refused(entries: list[Entry], reason: str) -> None:
    with pytest.raises(UnsafeEntryError, match=reason):
        _taken(["a"], *entries)
