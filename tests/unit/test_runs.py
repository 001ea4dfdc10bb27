"""Reports kept from hardware that a test machine lacks are whole, and say what is claimed."""

import json
from pathlib import Path

import msgspec

from sparkbuild.manifest import find_recipes
from sparkbuild.report.model import Report
from sparkbuild.toolkit.lock import read_locks

RUNS = Path(__file__).parent.parent / "data" / "runs"


def test_a_cuda_make_for_sm_90_passed_on_a_gpu() -> None:
    file = RUNS / "vision-cuda-13.0-sm90.json"
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    stages = {stage.name: stage for stage in report.stages}
    assert report.result == "passed"
    assert report.machine["gpu"].startswith("NVIDIA")
    assert "nvcc 13.0.88" in stages["toolkit"].summary
    assert stages["inspect"].summary.endswith("sm_90")
    assert stages["qualify"].state == "not applicable"
    assert stages["qualify"].notes
    assert len(report.smoke_checks) >= 15
    assert all(check.passed for check in report.smoke_checks)
    assert report.wheel is not None
    assert "+cu130.vision.g" in report.wheel.path


def test_a_full_build_for_gb10_is_refused_by_the_smoke_stage_on_another_gpu() -> None:
    file = RUNS / "vision-cuda-13.0-121a-on-sm90.json"
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    stages = {stage.name: stage for stage in report.stages}
    assert stages["build"].state == stages["inspect"].state == "done"
    assert stages["inspect"].summary.endswith("sm_121a")
    assert (report.exit_code, stages["smoke"].state) == (14, "failed")
    assert stages["smoke"].failure is not None
    assert "no kernel image is available" in stages["smoke"].failure.detail
    assert report.wheel is None


def test_nvidias_packages_and_wheels_of_a_release_hold_the_same_bytes() -> None:
    (found,) = json.loads((RUNS / "show-cuda-13.0-packages.json").read_text())["toolkits"]
    assert (found["state"], found["problems"]) == ("good", [])
    lock = read_locks(find_recipes(None))["cuda-13.0"].platform["linux-x86_64"]
    digests = {part["name"]: part["sha256"] for part in found["parts"]}
    assert digests == {name: part.sha256 for name, part in lock.parts.items()}
    assert any("targets/x86_64-linux" in part["path"] for part in found["parts"])
