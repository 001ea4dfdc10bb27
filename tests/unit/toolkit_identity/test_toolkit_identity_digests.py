"""What was read from a file is remembered for as long as the file stays as it is."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.files import DigestCache, sha256_bytes


class Length(msgspec.Struct, frozen=True):
    bytes_: int


class Other(msgspec.Struct, frozen=True):
    bytes_: int


def measured(path: Path) -> Length:
    return Length(len(path.read_bytes()))


def test_files_are_read_once_and_again_when_they_change(tmp_path: Path) -> None:
    read: list[Path] = []

    def reader(path: Path) -> Length:
        read.append(path)
        return measured(path)

    files = [tmp_path / name for name in "abc"]
    for number, file in enumerate(files):
        file.write_bytes(b"x" * number)
    cache = tmp_path / "digests.json"
    first = DigestCache(cache).study(files, Length, reader)
    assert first == {file: (sha256_bytes(b"x" * n), Length(n)) for n, file in enumerate(files)}
    assert DigestCache(cache).study(files, Length, reader) == first
    assert sorted(read) == files
    files[1].write_bytes(b"y")
    again = DigestCache(cache).study(files, Length, reader)
    assert again[files[1]] == (sha256_bytes(b"y"), Length(1))
    assert read[3:] == [files[1]]


def test_the_digest_alone_shares_what_is_remembered(tmp_path: Path) -> None:
    file, cache = tmp_path / "file", tmp_path / "digests.json"
    file.write_bytes(b"one")
    DigestCache(cache).study([file], Length, measured)
    cache.write_text(cache.read_text().replace(sha256_bytes(b"one"), "f" * 64))
    assert DigestCache(cache).sha256(file) == "f" * 64
    assert DigestCache(cache).study([file], Length, measured) == {file: ("f" * 64, Length(3))}


def test_other_meanings_and_damaged_entries_are_read_anew(tmp_path: Path) -> None:
    file, cache = tmp_path / "file", tmp_path / "digests.json"
    file.write_bytes(b"one")
    right = (sha256_bytes(b"one"), Length(3))
    DigestCache(cache).study([file], Length, measured)
    found = DigestCache(cache).study([file], Other, lambda path: Other(7))
    assert found == {file: (sha256_bytes(b"one"), Other(7))}
    whole = json.loads(cache.read_text())
    for damage in (None, [], ["x"], [1, 2, 3], "text", {str(file): ["x", "y"]}):
        cache.write_text(json.dumps({**whole, str(file): damage}))
        assert DigestCache(cache).study([file], Length, measured) == {file: right}
    state = json.loads(cache.read_text())[str(file)][0]
    cache.write_text(json.dumps({str(file): [state, "f" * 64, {"Length": {"bytes_": "three"}}]}))
    assert DigestCache(cache).study([file], Length, measured) == {file: right}


def test_a_file_that_cannot_be_read_spoils_no_other(tmp_path: Path) -> None:
    good, gone, folder = tmp_path / "good", tmp_path / "gone", tmp_path / "folder"
    good.write_bytes(b"1")
    folder.mkdir()
    found = DigestCache(tmp_path / "digests.json").study([gone, good, folder], Length, measured)
    assert found[good] == (sha256_bytes(b"1"), Length(1))
    assert isinstance(found[gone], FileNotFoundError)
    assert isinstance(found[folder], IsADirectoryError)


def test_two_processes_keep_each_others_findings(tmp_path: Path) -> None:
    cache, files = tmp_path / "digests.json", [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_bytes(b"1")
    one, two = DigestCache(cache), DigestCache(cache)
    one.study(files[:1], Length, measured)
    two.study(files[1:], Length, measured)
    assert json.loads(cache.read_text()).keys() == {str(file) for file in files}


@settings(max_examples=20)
@given(st.lists(st.binary(min_size=4, max_size=4), min_size=2, max_size=4))
def test_a_change_at_once_after_the_reading_shows(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    """Same size, same modification time, and no time between: the change time alone tells."""
    folder = tmp_path_factory.mktemp("quick")
    file, cache = folder / "file", DigestCache(folder / "digests.json")
    for content in contents:
        file.write_bytes(content)
        os.utime(file, ns=(0, 0))
        assert cache.sha256(file) == sha256_bytes(content)
        assert cache.study([file], Length, measured)[file] == (sha256_bytes(content), Length(4))
