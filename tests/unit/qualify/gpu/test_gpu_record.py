"""What a real GPU made of the probes: it agrees with the executor, about every single one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.book import read_book

_FILE = Path(__file__).parents[3] / "data/runs/qualify-gpu-sm90.json"
RUNS: list[dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))["runs"]
FP4 = {"mxfp4", "nvfp4"}
"""Kernels for these types have instructions that no Hopper has, when they are for a GB10."""


class Row(NamedTuple):
    """A row of the record, in the order of its ``columns``."""

    probe: str
    outcome: str
    made: str
    executor: str = ""
    compared: int = 0
    equal: int = 0
    apart: int = 0
    difference: float = 0.0
    mistake: str = ""
    executors: str = ""


def rows(run: dict[str, Any]) -> list[Row]:
    return [Row(*values) for values in run["probes"]]


def named(run: dict[str, Any]) -> str:
    return f"{run['toolkit']} {run['architecture']}"


@pytest.mark.parametrize("run", RUNS, ids=named)
def test_the_gpu_and_the_executor_say_the_same_of_every_probe(run: dict[str, Any]) -> None:
    judged = [row for row in rows(run) if row.outcome != "unsupported"]
    assert len(judged) > 290
    for row in judged:
        assert row.executor == row.outcome, row
        assert row.compared > 0 or row.outcome == "wrong", row
        assert row.apart == 0, row
        assert row.difference <= 1, row
    same = sum(0 < row.compared == row.equal for row in judged)
    assert same == run["same_bits"] > 200


@pytest.mark.parametrize("run", RUNS, ids=named)
def test_what_a_hopper_cannot_run_is_fp4_for_a_gb10_alone(run: dict[str, Any]) -> None:
    lacking = [row for row in rows(run) if row.outcome == "unsupported"]
    assert len(lacking) == (0 if run["architecture"] == "90" else 15)
    assert all(FP4 & set(row.probe.split()) for row in lacking)
    made = {row.made for row in rows(run)}
    assert made == {"native" if run["architecture"] == "90" else "retargeted"}


@pytest.mark.parametrize("run", RUNS, ids=named)
def test_a_release_that_is_known_bad_is_wrong_on_the_gpu_too(run: dict[str, Any]) -> None:
    advisories = read_book(find_recipes(None)).known_bad.advisory
    known = [
        one for one in advisories
        if one.action == "refuse" and run["cicc"] in one.versions
        and run["architecture"] in one.architectures
    ]  # fmt: skip
    wrong = [row for row in rows(run) if row.outcome == "wrong"]
    kinds = {part for row in wrong for part in row.probe.split() if part.startswith("iq")}
    assert kinds == {kind for one in known for kind in one.tensor_types}
    # The GPU reads what lies there and answers; the executor says what was read, and where.
    for row in wrong:
        assert "expected" in row.mistake, row
        assert "beyond the end of iq" in row.executors, row
