"""JUnit XML that a CI system can read, whatever a log held."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Failure as FailureElement
from junitparser import JUnitXml, Skipped, TestCase

from sparkbuild.report.junit import junit_xml
from sparkbuild.report.model import Failure, FileRef, Report, StageReport
from sparkbuild.report.text import visible
from sparkbuild.smoke.model import Check

FAILURE = Failure(
    title="binary",
    exit_code=13,
    message="two mismatches",
    problems=("RUNPATH is /tmp", "commit unknown"),
    next_step="sparkbuild make --variant vision",
    detail="last <line> & more",
)


def report(*stages: StageReport, checks: tuple[Check, ...] = ()) -> Report:
    return Report(
        sparkbuild="0.1.0",
        variant="vision",
        toolchain="cpu",
        command=("sparkbuild", "make"),
        started="2026-10-06T12:00:00+00:00",
        seconds=2.0,
        result="failed",
        exit_code=13,
        key=None,
        machine={"cpu": "some"},
        stages=stages,
        smoke_checks=checks,
    )


FULL = report(
    StageReport(name="build", state="reused", seconds=0.0, summary="220 steps"),
    StageReport(name="qualify", state="not applicable", seconds=0.0, summary="no CUDA here"),
    StageReport(
        name="configure",
        state="done",
        seconds=1.25,
        summary="CMake 4.4.5",
        notes=("no OpenSSL",),
        outputs=(FileRef(path="/w/cache", sha256="0" * 64),),
    ),
    StageReport(
        name="inspect",
        state="failed",
        seconds=0.5,
        summary="two mismatches",
        evidence=("/w/inspect.log",),
        failure=FAILURE,
    ),
    StageReport(name="smoke", state="not reached", seconds=0.0, summary=""),
    checks=(
        Check(name="health", passed=True, seconds=0.1, expected="200", found="200"),
        Check(name="tokens", passed=False, seconds=0.2, expected="1 2", found="3 4"),
    ),
)


@pytest.fixture
def cases() -> dict[str, TestCase]:
    document = JUnitXml.fromstring(junit_xml(FULL).encode())
    return {case.name: case for suite in document for case in suite}


def test_two_suites_with_their_counts() -> None:
    stages, smoke = JUnitXml.fromstring(junit_xml(FULL).encode())
    assert (stages.name, stages.tests, stages.failures, stages.skipped) == (
        "sparkbuild.stage", 5, 1, 2,
    )  # fmt: skip
    assert (smoke.name, smoke.tests, smoke.failures, smoke.skipped) == ("sparkbuild.smoke", 2, 1, 0)
    assert stages.time == pytest.approx(1.75)
    assert stages.timestamp == "2026-10-06T12:00:00+00:00"
    assert '<property name="machine.cpu" value="some"' in junit_xml(FULL)


def test_no_smoke_suite_where_no_check_ran() -> None:
    (suite,) = JUnitXml.fromstring(junit_xml(report(*FULL.stages)).encode())
    assert suite.name == "sparkbuild.stage"


def test_a_failed_stage_says_all_that_the_refusal_said(cases: dict[str, TestCase]) -> None:
    (failure,) = cases["inspect"].result
    assert isinstance(failure, FailureElement)
    assert (failure.message, failure.type) == ("two mismatches", "binary")
    for part in (
        *FAILURE.problems,
        FAILURE.next_step,
        FAILURE.detail,
        "/w/inspect.log",
        "code: 13",
    ):
        assert part in str(failure.text)


def test_skipped_stages_give_their_reason(cases: dict[str, TestCase]) -> None:
    assert isinstance(cases["smoke"].result[0], Skipped)
    assert cases["smoke"].result[0].message == "not reached: inspect failed"
    assert cases["qualify"].result[0].message == "no CUDA here"


def test_done_and_reused_stages_pass(cases: dict[str, TestCase]) -> None:
    assert cases["configure"].is_passed
    assert "note: no OpenSSL" in str(cases["configure"].system_out)
    assert cases["build"].is_passed
    assert str(cases["build"].system_out).startswith("reused")


def test_smoke_checks_show_what_they_saw(cases: dict[str, TestCase]) -> None:
    assert cases["health"].is_passed
    (failure,) = cases["tokens"].result
    assert "expected: 1 2\nfound: 3 4" in str(failure.text)


@settings(deadline=None, max_examples=60)
@given(
    st.text(st.characters(exclude_categories=[]))
    | st.text(st.sampled_from("\x00\x0b\x1b\ufffe\ud800<>&]\"'\n\r\t x"))
)
def test_any_text_gives_xml_that_parses(text: str) -> None:
    failure = Failure(
        title=text, exit_code=1, message=text, problems=(text,), next_step=text, detail=text
    )
    stages = [
        StageReport(name=text, state="failed", seconds=0.0, summary=text, failure=failure),
        StageReport(name=text, state="not reached", seconds=0.0, summary=text),
        StageReport(name=text, state="reused", seconds=0.0, summary=text, notes=(text,)),
    ]
    check = Check(name=text, passed=False, seconds=0.0, expected=text, found=text)
    document = report(*stages, checks=(check,))
    tree = ET.fromstring(junit_xml(document).encode())  # noqa: S314 - our own text
    assert len(tree.findall(".//testcase")) == 4
    found = tree.find(".//failure")
    assert found is not None
    assert found.get("message", "") == visible(text)
