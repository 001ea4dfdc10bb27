"""``sparkbuild smoke`` from the command line, against a server that knows a few numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from sparkbuild.files import sha256_file

PLAN = """schema = 1
name = "mine"
summary = "x"
[[passes]]
canary = "toy"
forms = ["f32", "q8_0"]
[[switches]]
name = "micro-batch 64"
canary = "toy"
form = "q8_0"
flags = ["--ubatch-size", "64"]
reason = "seams"
[[ladder]]
name = "on a GPU only"
backends = ["cuda"]
reason = "never tried here"
[[ladder]]
name = "what it has already"
cache = "f16"
backends = ["cpu"]
reason = "tried on the form f32 alone"
[[ladder]]
name = "one slot"
slots = 1
reason = "company"
[[ladder]]
name = "loud"
environment = { SPEAK_UP = "1" }
reason = "silence"
[[ladder]]
name = "never reached"
reason = "x"
[[causes]]
failed = ".*"
likely = ["the first cause", "another"]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(PLAN)
    return file


def smoke(run: Any, tmp_path: Path, folder: Path, place: Path, plan: Path, *more: str) -> Any:
    return run("smoke", str(place), "--suite", str(plan), "--data", str(folder),
               "--work", str(tmp_path / "work"), *more)  # fmt: skip


@pytest.mark.parametrize("at_once", ["1", "3"])
def test_a_healthy_build_passes_every_part(
    run_sparkbuild: Any,
    tmp_path: Path,
    data: Path,
    build: Path,
    plan: Path,
    at_once: str,
) -> None:
    junit = tmp_path / "smoke.xml"
    done = smoke(run_sparkbuild, tmp_path, data, build, plan, "--json", "--junit", str(junit),
                 "--processes", at_once)  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["result"], said["suite"], said["backend"]) == ("passed", "mine", "cpu")
    assert said["catalogue"] == sha256_file(data / "catalogue.toml")
    forms = [[ran["form"] for ran in part["result"]["ran"]] for part in said["parts"]]
    assert forms == [["f32", "q8_0"], ["q8_0"]]
    assert [suite.name for suite in JUnitXml.fromfile(str(junit))] == [
        "sparkbuild.canary.toy", "sparkbuild.canary.micro-batch 64",
    ]  # fmt: skip
    place = tmp_path / "work/canaries/toy"
    assert sorted(entry.name for entry in place.iterdir()) == ["forms", "logs"]
    logs = place / "logs"
    switched = logs / "run-q8_0-cpu-f16-micro-batch-64.log"
    assert "--ubatch-size 64" in switched.read_text()
    assert "--ubatch-size 64" not in (logs / "run-q8_0-cpu-f16.log").read_text()


def test_a_failure_says_what_is_likely_and_the_ladder_what_cures_it(
    run_sparkbuild: Any,
    tmp_path: Path,
    data: Path,
    build: Path,
    change: Any,
    plan: Path,
) -> None:
    change(build, wrong_unless="SPEAK_UP=1")
    done = smoke(run_sparkbuild, tmp_path, data, build, plan)
    assert done.returncode == 14, done.stdout + done.stderr
    assert "likely: the first cause" in done.stdout
    assert "cured by" not in done.stdout
    done = smoke(run_sparkbuild, tmp_path, data, build, plan, "--diagnose", "--json")
    assert done.returncode == 14, done.stderr
    part, switch = json.loads(done.stdout)["parts"]
    assert part["failed"][-1] == "references"
    assert part["likely"] == ["the first cause", "another"]
    climbed = [(rung["name"], rung["cures"]) for rung in part["ladder"]]
    assert climbed == [("what it has already", False), ("one slot", False), ("loud", True)]
    assert climbed[1:] == [(rung["name"], rung["cures"]) for rung in switch["ladder"]]
    log = tmp_path / "work/canaries/toy/logs/run-f32-cpu-f32-one-slot.log"
    assert "--parallel 1" in log.read_text()


def test_what_nothing_cures_is_said_to_be_the_builds(
    run_sparkbuild: Any,
    tmp_path: Path,
    data: Path,
    build: Path,
    change: Any,
    plan: Path,
) -> None:
    change(build, sha256=[])
    done = smoke(run_sparkbuild, tmp_path, data, build, plan, "--diagnose")
    assert done.returncode == 14
    assert "no switch cures it: suspect the build itself" in done.stdout


def test_a_plan_of_what_there_is_not_is_refused_before_anything_starts(
    run_sparkbuild: Any,
    tmp_path: Path,
    data: Path,
    build: Path,
    plan: Path,
) -> None:
    plan.write_text(PLAN.replace('canary = "toy"\nform =', 'canary = "other"\nform ='))
    done = smoke(run_sparkbuild, tmp_path, data, build, plan)
    assert done.returncode not in {0, 14}
    assert "other: no such canary" in done.stderr
    assert f"correct {plan}" in done.stderr
    assert not (tmp_path / "work/canaries").exists()
    done = run_sparkbuild("smoke", str(build), "--suite", "canari", "--work", str(tmp_path / "w"))
    assert done.returncode != 0
    assert "canary" in done.stderr
