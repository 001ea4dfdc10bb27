"""Results are believed only while all that they depend on is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from sparkbuild.faults.catalogue import PATCHES
from sparkbuild.faults.kept import Kept
from sparkbuild.faults.model import Fault, Found, SourceSeed

FAULT = Fault(
    id="one", kind="source", summary="s", imitates="i", reach="everything", subtle=False,
    latest="smoke", says=("m",), seed=SourceSeed(patch="one.patch"),
)  # fmt: skip
FOUND = Found(
    id="one", kind="source", verdict="caught", stage="smoke", check="c", message="m", exit_code=14,
    command=("smoke",), planted_seconds=1.0, seconds=2.0, log="l",
)  # fmt: skip
AROUND = {"sparkbuild": "a", "source": "b", "compiler": "c"}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    (tmp_path / PATCHES).mkdir()
    (tmp_path / PATCHES / "one.patch").write_text("a patch")
    return Kept(folder=tmp_path / "results", catalogue=tmp_path, around=AROUND)


def test_what_was_found_is_found_again(kept: Kept) -> None:
    assert kept.read(FAULT) is None
    kept.write(FAULT, kept.key(FAULT), FOUND)
    assert kept.read(FAULT) == FOUND


@pytest.mark.parametrize("name", AROUND)
def test_another_sparkbuild_source_or_compiler_asks_anew(kept: Kept, name: str) -> None:
    kept.write(FAULT, kept.key(FAULT), FOUND)
    assert replace(kept, around={**AROUND, name: "other"}).read(FAULT) is None


def test_another_seed_or_another_patch_asks_anew(kept: Kept) -> None:
    kept.write(FAULT, kept.key(FAULT), FOUND)
    (kept.catalogue / PATCHES / "two.patch").write_text("a patch")
    other = SourceSeed(patch="two.patch")
    assert kept.read(msgspec.structs.replace(FAULT, seed=other)) is None
    (kept.catalogue / PATCHES / "one.patch").write_text("another patch")
    assert kept.read(FAULT) is None


def test_what_is_expected_is_judged_anew(kept: Kept) -> None:
    kept.write(FAULT, kept.key(FAULT), FOUND)
    for change, judged in (
        ({"says": ("colour",)}, "other words"),
        ({"latest": "build"}, "late"),
        ({"says": ("M",)}, "caught"),
    ):
        found = kept.read(msgspec.structs.replace(FAULT, **change))
        assert found
        assert found.verdict == judged


def test_what_was_missed_stays_missed(kept: Kept) -> None:
    missed = msgspec.structs.replace(
        FOUND, verdict="missed", stage=None, check="", message="", exit_code=0
    )
    kept.write(FAULT, kept.key(FAULT), missed)
    assert kept.read(FAULT) == missed


def test_what_could_not_be_run_is_tried_again(kept: Kept) -> None:
    kept.write(FAULT, kept.key(FAULT), msgspec.structs.replace(FOUND, verdict="not run"))
    assert kept.read(FAULT) is None


def test_a_torn_result_is_none(kept: Kept) -> None:
    kept.write(FAULT, kept.key(FAULT), FOUND)
    file = kept.folder / "one.json"
    file.write_bytes(file.read_bytes()[:-9])
    assert kept.read(FAULT) is None


def test_the_key_is_that_of_the_time_when_the_run_began(kept: Kept) -> None:
    key = kept.key(FAULT)
    (kept.catalogue / PATCHES / "one.patch").write_text("changed while it ran")
    kept.write(FAULT, key, FOUND)
    assert kept.read(FAULT) is None
