"""Reports kept from hardware that a test machine lacks are whole, and say what is claimed."""

from pathlib import Path

import msgspec

from sparkbuild.report.model import Report

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
