"""``sparkbuild make`` on real llama.cpp, as a user runs it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.network]

MAKE = ("make", "--variant", "vision", "--toolkit", "cpu")


def states(report: dict[str, Any]) -> dict[str, str]:
    return {stage["name"]: stage["state"] for stage in report["stages"]}


def test_twenty_kills_then_a_good_run(real_make: Any) -> None:
    if not real_make.kills:
        pytest.skip("the work folder was warm: SPARKBUILD_TEST_WORK is set")
    assert len(real_make.kills) == 20
    assert {"configure", "build", "smoke", "package"} <= set(real_make.kills)
    assert real_make.report["result"] == "passed"


def test_every_stage_is_reported_with_digests_and_evidence(real_make: Any) -> None:
    report = real_make.report
    assert [stage["name"] for stage in report["stages"]] == [
        "toolkit", "source", "patches", "qualify", "configure", "build", "inspect", "smoke",
        "package",
    ]  # fmt: skip
    assert states(report)["qualify"] == "not applicable"
    assert set(states(report).values()) <= {"done", "reused", "not applicable"}
    for stage in report["stages"]:
        assert stage["inputs"], stage
        assert len(stage["result"]) == 64, stage
        for path in stage["evidence"]:
            assert Path(path).exists(), path
    assert len(report["key"]) == 64
    assert report["smoke_checks"]
    assert all(check["passed"] for check in report["smoke_checks"])


def test_the_binaries_know_their_identity(real_make: Any) -> None:
    assert real_make.build == 11434
    assert len(real_make.identity) == 12
    source = next(s for s in real_make.report["stages"] if s["name"] == "source")
    assert real_make.identity in source["summary"]


def test_a_second_make_does_nothing(real_make: Any, run_sparkbuild: Any, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in real_make.bin.parent.parent.rglob("*.so*")}
    done = run_sparkbuild(*MAKE, "--work", str(real_make.work), "--out", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    resumable = ("configure", "build", "inspect", "smoke", "package")
    assert {states(report)[name] for name in resumable} == {"reused"}
    assert report["wheel"]["sha256"] == real_make.report["wheel"]["sha256"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_junit_xml_has_every_stage_and_check(real_make: Any) -> None:
    root = ET.parse(real_make.out / "vision-cpu-report.xml").getroot()  # noqa: S314 - our own file
    names = {case.get("name") for case in root.iter("testcase")}
    assert {"toolkit", "build", "package"} <= names
    assert {check["name"] for check in real_make.report["smoke_checks"]} <= names
    assert not list(root.iter("failure"))


def test_an_edited_binary_is_not_trusted(
    real_make: Any, run_sparkbuild: Any, tmp_path: Path
) -> None:
    library = real_make.bin / "llama-quantize"
    good = library.read_bytes()
    library.write_bytes(good + b"tampered")
    done = run_sparkbuild(*MAKE, "--work", str(real_make.work), "--out", str(tmp_path), "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert states(report)["build"] == "done"
    assert library.read_bytes() == good
    assert report["wheel"]["sha256"] == real_make.report["wheel"]["sha256"]


def test_without_network_the_store_is_enough(
    real_make: Any, run_sparkbuild: Any, tmp_path: Path
) -> None:
    """Every origin is made unreachable; the pin is in the store, so nothing is asked."""
    done = run_sparkbuild(
        "source", "fetch", "--variant", "vision", "--work", str(real_make.work), "--json",
        https_proxy="http://127.0.0.1:9", PIP_INDEX_URL="http://127.0.0.1:9/simple",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["origin"] == "store"


def test_source_verify_reads_everything_back(real_make: Any, run_sparkbuild: Any) -> None:
    done = run_sparkbuild(
        "source", "verify", "--variant", "vision", "--work", str(real_make.work), "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] > 2000
