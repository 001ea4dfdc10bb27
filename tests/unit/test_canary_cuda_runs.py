"""What a real GPU gave, against the bounds that ship."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.canary.suite import load_suite
from sparkbuild.smoke.plan import load_plan, plan_file

_DATA = Path(__file__).parents[1] / "data/runs"
RUNS = json.loads((_DATA / "canaries-cuda-sm90.json").read_text(encoding="utf-8"))["runs"]
PATCHED = json.loads((_DATA / "drafts-vision-mtp-cuda-sm90.json").read_text(encoding="utf-8"))
SMOKE = json.loads((_DATA / "smoke-cuda-sm90.json").read_text(encoding="utf-8"))
MARGIN = 4
"""That the median's bound leaves above what was measured; the worst's leaves six."""


@pytest.mark.parametrize(
    "run", [run for run in RUNS if "nmse" in run],
    ids=lambda run: f"{run['canary']} {run['form']} {run['cache']}",
)  # fmt: skip
def test_bounds_leave_a_margin_above_what_a_gpu_gave(run: dict[str, Any]) -> None:
    whole, limits = load_suite(DATA / load_catalogue().canary(run["canary"]).suite_of(run["form"]))
    suite = whole.in_form(run["form"])
    bound = limits.bound(backend="cuda", cache=run["cache"], form=run["form"])
    assert set(run["nmse"]) == {reference.name for reference in suite.references}
    assert max(run["nmse"].values()) * 6 < bound.worst
    assert statistics.median(run["nmse"].values()) * MARGIN < bound.median
    assert all(group["right"] == group["of"] for group in run["groups"])
    assert not [seen for seen in run["log"]["seen"] if seen["severity"] == "fault"]


@pytest.mark.parametrize("run", [run for run in RUNS if "drafts" in run],
                         ids=lambda run: f"{run['canary']} {run['drafts']['head']}")  # fmt: skip
def test_a_gpu_accepts_what_the_cpu_does(run: dict[str, Any]) -> None:
    suite, limits = load_suite(DATA / load_catalogue().canary(run["canary"]).suite)
    found = run["drafts"]
    band = next(band for band in limits.drafts if band.depth == found["depth"])
    share = found["accepted"] / found["drafted"]
    assert share >= band.healthy if found["head"] == "healthy" else share <= band.damaged
    assert (found["state"], found["wrong"]) == ("passed", 0)
    assert suite.drafted is not None


def test_a_gpu_passed_the_whole_plan() -> None:
    plan = load_plan(plan_file("canary"))
    switches = [one.name for one in plan.switches if "cuda" in one.backends]
    parts = {part["name"]: part for part in SMOKE["parts"]}
    assert list(parts) == [*(entry.canary for entry in plan.passes), *switches]
    for entry in plan.passes:
        forms = [form for form in entry.forms if form != "f32"]
        assert [ran["form"] for ran in parts[entry.canary]["ran"]] == forms
    every = [ran for part in parts.values() for ran in part["ran"]]
    assert all(group["right"] == group["of"] for ran in every for group in ran["groups"])
    assert not [seen for ran in every for seen in ran["log"]["seen"] if seen["severity"] == "fault"]
    drafts = [one for part in parts.values() for one in part["drafts"]]
    assert {one["state"] for one in drafts} == {"passed", "unsupported"}
    assert not any(part["failures"] for part in parts.values())


@pytest.mark.parametrize(
    "found", [one for one in PATCHED["drafts"] if not one["pictures"]],
    ids=lambda one: f"{one['canary']} {one['head']} {one['depth']}",
)  # fmt: skip
def test_a_gpu_with_the_patches_drafts_within_the_bands(found: dict[str, Any]) -> None:
    _, limits = load_suite(DATA / load_catalogue().canary(found["canary"]).suite)
    band = next(band for band in limits.drafts if band.depth == found["depth"])
    share = found["accepted"] / found["drafted"]
    if found["head"] == "damaged":
        assert share <= band.damaged
    elif "asked" not in found:  # the bands of glm5-next are of texts alone, as it is asked now
        assert share >= band.healthy
    assert found["wrong"] == 0
    assert not [seen for seen in found["log"]["seen"] if seen["severity"] == "fault"]
