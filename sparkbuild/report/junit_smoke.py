"""A smoke run as JUnit XML: what came before the canaries, then a suite for every part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from junitparser import Failure, TestCase, TestSuite

from sparkbuild.report.junit import smoke_case
from sparkbuild.report.junit_canaries import document, suite_of
from sparkbuild.report.smoke import Fitting, Smoked
from sparkbuild.report.text import visible

_FITTING: Final = "sparkbuild.fitting"


def smoke_junit(found: Smoked) -> str:
    """Everything that was asked, a UTF-8 document."""
    return document("sparkbuild smoke", _suites(found))


def _suites(found: Smoked) -> Iterator[TestSuite]:
    if found.fitting:
        suite = TestSuite(_FITTING)
        for one in found.fitting:
            suite.add_testcase(_fitting_case(one))
        yield suite
    if found.basics:
        suite = TestSuite(visible(f"sparkbuild.smoke.{found.basics.suite}"))
        for check in found.basics.checks:
            suite.add_testcase(smoke_case(check))
        yield suite
    for part in found.parts:
        yield suite_of(part.result, part.name)


def _fitting_case(one: Fitting) -> TestCase:
    """One model; it fails where a finding is a fault, warnings are its output."""
    case = TestCase(visible(one.canary), _FITTING, 0.0)
    lines = [
        f"{finding.state}, {finding.name}: expected {finding.expected}, found {finding.found}"
        for finding in one.findings
    ]
    if one.faults:
        failure = Failure(visible(f"{len(one.faults)} faults"))
        failure.text = visible("\n".join(lines))
        case.result = [failure]
    elif lines:
        case.system_out = visible("\n".join(lines))
    return case
