"""The fast faults, planted in a real build: each is refused in time and in words, and taken out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.faults.catalogue import find_catalogue, load_faults
from sparkbuild.faults.lane import find_lane, mirror
from sparkbuild.faults.model import Matrix
from sparkbuild.faults_one import PATIENCE

pytestmark = [
    pytest.mark.real,
    pytest.mark.network,
    pytest.mark.skipif(
        not os.environ.get("SPARKBUILD_TEST_FAULTS"), reason="SPARKBUILD_TEST_FAULTS is not set"
    ),
]

KINDS = ("source", "speculation", "vision")


@pytest.fixture(scope="module")
def work(real_make: Any, real_again: Any) -> Path:
    """The work folder; the second build, which was compared already, is its lane."""
    lane = Path(real_make.work) / "faults" / "lane-1"
    if not lane.exists():
        lane.parent.mkdir(exist_ok=True)
        lane.symlink_to(real_again.place)
    return Path(real_make.work)


def run(run_sparkbuild: Any, work: Path, *more: str) -> tuple[Any, Matrix]:
    kinds = [argument for kind in KINDS for argument in ("--class", kind)]
    done = run_sparkbuild(
        "faults", "run", "--fast", *kinds, *more, "--lanes", "1", "--work", str(work), "--json",
        timeout=PATIENCE,
    )  # fmt: skip
    import msgspec

    return done, msgspec.json.decode(done.stdout, type=Matrix)


def test_each_fast_fault_is_caught_and_nothing_of_it_stays(run_sparkbuild: Any, work: Path) -> None:
    done, matrix = run(run_sparkbuild, work)
    chosen = load_faults(find_catalogue(None)).chosen(kinds=KINDS, fast=True)
    assert [one.id for one in matrix.found] == [one.id for one in chosen]
    told = {one.id: (one.verdict, one.reason or one.message[:300]) for one in matrix.found}
    assert [one for one in told.items() if one[1][0] != "caught"] == []
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == "passed"
    assert {one.kind for one in matrix.found} == set(KINDS)
    assert all(one.stage and one.check and one.message for one in matrix.found)
    lane = find_lane(work / "faults" / "lane-1")
    assert lane
    assert mirror(lane.clean_source, lane.source) == 0
    assert mirror(lane.clean_binary, lane.binary) == 0


def test_what_was_found_is_not_asked_again(run_sparkbuild: Any, work: Path) -> None:
    """A run that was killed goes on in this way."""
    results = sorted((work / "faults" / "results").glob("*.json"))
    one = results[0]
    before = {file: file.stat().st_mtime_ns for file in results}
    one.write_text("torn")
    done, matrix = run(run_sparkbuild, work)
    assert done.returncode == 0, done.stderr
    after = {file: file.stat().st_mtime_ns for file in results}
    assert {file for file in results if after[file] != before[file]} == {one}
    assert all(found.verdict == "caught" for found in matrix.found)
