"""Changes below a folder: each is made, or the fault is not planted, and no other link sees it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from sparkbuild.faults.contract import NotPlantedError
from sparkbuild.faults.edit import (
    AnyEdit,
    Assign,
    Cut,
    Flip,
    Link,
    Remove,
    Replace,
    Take,
    Write,
)
from sparkbuild.faults.seeds.changes import change, filled
from sparkbuild.faults.seeds.farm import copied, farm


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "whole"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "one.so").write_bytes(b"one one\0")
    (folder / "lib" / "two.so").write_bytes(bytes(range(100)))
    (folder / "lib" / "two.so").chmod(0o755)
    (folder / "lib" / "link.so").symlink_to("one.so")
    (folder / "report.json").write_text(json.dumps({"checks": [{"passed": False}], "n": 1}))
    return folder


@pytest.fixture
def linked(whole: Path, tmp_path: Path) -> Path:
    return farm(whole, tmp_path / "linked")


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


CHANGES: tuple[tuple[AnyEdit, str, bytes | None], ...] = (
    (Remove(path="lib/two.so"), "lib/two.so", None),
    (Write(path="lib/one.so", text="new {name}"), "lib/one.so", b"new value"),
    (Write(path="fresh/file", text="x"), "fresh/file", b"x"),
    (Replace(path="lib/one.so", old="one", new="{name}", count=2), "lib/one.so", b"value value\0"),
    (Cut(path="lib/two.so", keep=0.5), "lib/two.so", bytes(range(50))),
    (Take(path="lib/two.so", source="{whole}/lib/one.so"), "lib/two.so", b"one one\0"),
)


@pytest.mark.parametrize(("edit", "name", "expected"), CHANGES)
def test_a_change_is_made_and_the_source_of_the_links_stays(
    edit: AnyEdit, name: str, expected: bytes | None, whole: Path, linked: Path
) -> None:
    before = bytes_of(whole)
    assert (whole / "lib/one.so").samefile(linked / "lib/one.so")
    changed = change(linked, [edit], {"name": "value", "whole": whole})
    assert changed == (linked / name,)
    assert bytes_of(linked).get(name) == expected
    assert bytes_of(whole) == before


def test_one_bit_is_another(whole: Path, linked: Path) -> None:
    change(linked, [Flip(path="lib/two.so", at=0.9)], {})
    old, new = bytes_of(whole)["lib/two.so"], bytes_of(linked)["lib/two.so"]
    assert [(at, a ^ b) for at, (a, b) in enumerate(zip(old, new, strict=True)) if a != b] == [
        (90, 1)
    ]
    assert (linked / "lib/two.so").stat().st_mode & 0o777 == 0o755


def test_a_value_of_json_is_another(linked: Path) -> None:
    change(linked, [Assign(path="*.json", at=("checks", 0, "passed"), value=True)], {})
    assert json.loads((linked / "report.json").read_bytes())["checks"] == [{"passed": True}]


def test_a_link_takes_a_files_place_and_a_folder_is_taken_whole(whole: Path, linked: Path) -> None:
    edits: list[AnyEdit] = [Link(path="lib/one.so", to="{whole}/lib/one.so"),
             Take(path="other", source="{whole}/lib")]  # fmt: skip
    change(linked, edits, {"whole": whole})
    assert (linked / "lib/one.so").readlink() == whole / "lib/one.so"
    assert sorted(path.name for path in (linked / "other").iterdir()) == [
        "link.so", "one.so", "two.so",
    ]  # fmt: skip


def test_a_pattern_means_every_file_that_fits(linked: Path) -> None:
    assert len(change(linked, [Remove(path="lib/*.so")], {})) == 3
    assert not list((linked / "lib").iterdir())


@pytest.mark.parametrize(
    "edit",
    [
        Remove(path="lib/three.so"),
        Replace(path="lib/one.so", old="one", new="two"),
        Replace(path="lib/one.so", old="three", new="two"),
        Cut(path="none", keep=0.5),
        Take(path="lib/one.so", source="{whole}/none"),
        Assign(path="report.json", at=("checks", 1, "passed"), value=True),
        Assign(path="report.json", at=("n",), value=1),
    ],
)
def test_what_finds_nothing_to_change_is_not_planted(
    edit: AnyEdit, whole: Path, linked: Path
) -> None:
    with pytest.raises(NotPlantedError):
        change(linked, [edit], {"whole": whole})


def test_names_that_nobody_knows_stay_as_they_are() -> None:
    assert filled("{a} {b} {", {"a": 1}) == "1 {b} {"


def test_a_folder_that_is_not_there_is_not_planted(tmp_path: Path) -> None:
    for make in (farm, copied):
        with pytest.raises(NotPlantedError, match="there is no"):
            make(tmp_path / "none", tmp_path / "new")


def test_a_copy_shares_no_file(whole: Path, tmp_path: Path) -> None:
    new = copied(whole, tmp_path / "new")
    assert bytes_of(new) == bytes_of(whole)
    assert not (new / "lib/one.so").samefile(whole / "lib/one.so")
    assert (new / "lib/link.so").is_symlink()


def test_an_edit_that_nobody_knows_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"do": "paint", "path": "x"}, AnyEdit)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"do": "cut", "path": "x", "keep": 0.5, "hold": 1}, AnyEdit)
