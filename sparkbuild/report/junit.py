"""JUnit XML, for the test page of a CI system: one suite for the stages, one for smoke checks."""

from __future__ import annotations

import io
from typing import Final

from junitparser import Failure as FailureElement
from junitparser import JUnitXml, Skipped, TestCase, TestSuite

from sparkbuild.report.model import Report, StageReport
from sparkbuild.report.text import visible
from sparkbuild.smoke.model import Check

STAGES: Final = "sparkbuild.stage"
SMOKE: Final = "sparkbuild.smoke"


def junit_xml(report: Report) -> str:
    """The report as JUnit XML, a UTF-8 document.

    A failed stage is a failure with its problems and next step, one that was not reached or does
    not apply is skipped with the reason, a reused one passes and says so in its output.
    """
    document = JUnitXml("sparkbuild")
    stages = _suite(report, STAGES)
    for stage in report.stages:
        stages.add_testcase(_stage_case(stage, report))
    document.add_testsuite(stages)
    if report.smoke_checks:
        smoke = _suite(report, SMOKE)
        for check in report.smoke_checks:
            smoke.add_testcase(smoke_case(check))
        document.add_testsuite(smoke)
    document.update_statistics()  # type: ignore[no-untyped-call]
    out = io.BytesIO()
    document.write(out, pretty=False)
    return out.getvalue().decode("utf-8") + "\n"


def _suite(report: Report, name: str) -> TestSuite:
    suite = TestSuite(name)
    suite.timestamp = visible(report.started)
    facts = {
        "sparkbuild": report.sparkbuild,
        "variant": report.variant,
        "toolchain": report.toolchain,
        "key": report.key or "",
        "result": report.result,
        "accepted": " ".join(accepted.id for accepted in report.accepted),
        **{f"machine.{name}": value for name, value in sorted(report.machine.items())},
    }
    for key, value in facts.items():
        suite.add_property(visible(key), visible(value))
    return suite


def _stage_case(stage: StageReport, report: Report) -> TestCase:
    case = TestCase(visible(stage.name), STAGES, stage.seconds)
    if stage.state == "failed":
        case.result = [_failure(stage)]
    elif stage.state == "not reached":
        case.result = [Skipped(visible(stage.summary or _why_not_reached(report)))]
    elif stage.state in {"not applicable", "not tried"}:
        case.result = [Skipped(visible(stage.summary or stage.state))]
    case.system_out = visible("\n".join(_output(stage)))
    return case


def _failure(stage: StageReport) -> FailureElement:
    failure = stage.failure
    if failure is None:
        return FailureElement(visible(stage.summary or f"{stage.name} failed"), "refused")
    element = FailureElement(visible(failure.message), visible(failure.title))
    lines = [failure.message, *(f"- {problem}" for problem in failure.problems)]
    lines += [f"next step: {failure.next_step}"] if failure.next_step else []
    lines += [f"evidence: {path}" for path in stage.evidence]
    lines += [f"exit code: {failure.exit_code}"]
    lines += ["", failure.detail] if failure.detail else []
    element.text = visible("\n".join(lines))
    return element


def _why_not_reached(report: Report) -> str:
    failed = [stage.name for stage in report.stages if stage.state == "failed"]
    return f"not reached: {failed[0]} failed" if failed else "not reached"


def _output(stage: StageReport) -> list[str]:
    reused = "reused: an earlier run finished this stage with the same inputs"
    return [
        *([reused] if stage.state == "reused" else []),
        *([stage.summary] if stage.summary else []),
        *(f"note: {note}" for note in stage.notes),
        *(f"input {name} {digest}" for name, digest in sorted(stage.inputs.items())),
        *(f"output {file.path} sha256 {file.sha256}" for file in stage.outputs),
        *(f"evidence {path}" for path in stage.evidence),
    ]


def smoke_case(check: Check) -> TestCase:
    """One smoke check; what it saw is in its output or its failure."""
    case = TestCase(visible(check.name), SMOKE, check.seconds)
    saw = f"expected: {check.expected}\nfound: {check.found}"
    if check.passed:
        case.system_out = visible(saw)
    else:
        element = FailureElement(visible(f"{check.name} failed"), "smoke")
        element.text = visible(saw)
        case.result = [element]
    return case
