"""Canaries as JUnit XML: a suite for each, a case for each question, group and draft depth."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from junitparser import Failure as FailureElement
from junitparser import JUnitXml, Skipped, TestCase, TestSuite

from sparkbuild.canary.model import LOG, CanaryReport, DraftCheck, Group, Item
from sparkbuild.llama.log import LogReport
from sparkbuild.report.canaries import Result
from sparkbuild.report.text import visible

_CLASS: Final = "sparkbuild.canary"


def canaries_junit(results: Sequence[Result]) -> str:
    """Passes as JUnit XML, a UTF-8 document.

    A question that was missed fails only where its group does; what is unsupported is skipped.
    """
    return document("sparkbuild canary", [suite_of(one, one.canary) for one in results])


def suite_of(result: Result, name: str) -> TestSuite:
    """Everything of one canary."""
    suite = TestSuite(visible(f"{_CLASS}.{name}"))
    for case in _cases(result):
        suite.add_testcase(case)
    return suite


def document(name: str, suites: Iterable[TestSuite]) -> str:
    """Suites as a UTF-8 document."""
    found = JUnitXml(name)
    for suite in suites:
        found.add_testsuite(suite)
    found.update_statistics()  # type: ignore[no-untyped-call]
    out = io.BytesIO()
    found.write(out, pretty=False)
    return out.getvalue().decode("utf-8") + "\n"


def _cases(result: Result) -> Iterator[TestCase]:
    for where, failure in result.failures.items():
        case = _case(result.canary, where, "start", 0.0)
        lines = [failure.message, *failure.problems, f"next step: {failure.next_step}", ""]
        _fail(case, failure.title, "\n".join([*lines, failure.detail]))
        yield case
    for ran in result.ran:
        well = {group.name: group.passed for group in ran.groups}
        for item in ran.items:
            yield _item(ran, item, fails=not item.passed and not well.get(item.group))
        for group in ran.groups:
            yield _group(ran, group)
    for check in result.drafts:
        yield _draft(result.canary, check)


def _item(report: CanaryReport, item: Item, *, fails: bool) -> TestCase:
    case = _case(report.canary, report.form, f"{item.group}: {item.name}", item.seconds)
    saw = f"expected: {item.expected}\nfound: {item.found}"
    if fails:
        _fail(case, f"{item.name} is wrong", saw)
    else:
        case.system_out = visible(saw)
    return case


def _group(report: CanaryReport, group: Group) -> TestCase:
    case = _case(report.canary, report.form, f"group {group.name}", 0.0)
    saw = f"{group.right} of {group.of} right, expected at least {group.minimum:.1%}"
    saw = f"{saw}: {group.reason}" + (_told(report.log) if group.name == LOG else "")
    if group.passed:
        case.system_out = visible(saw)
    else:
        _fail(case, f"{group.name} failed", saw)
    return case


def _draft(canary: str, check: DraftCheck) -> TestCase:
    head = f"{check.head} head"
    case = _case(
        canary, "drafts", f"depth {check.depth}, {check.how.replace(check.head, head, 1)}", 0.0
    )
    sign = "at least" if check.head == "healthy" else "at most"
    saw = (
        f"{check.accepted} of {check.drafted} drafted tokens accepted, {check.share:.1%}, expected "
        f"{sign} {check.bound:.1%}; {check.wrong} answers changed{_told(check.log)}"
    )
    if check.state == "unsupported":
        case.result = [Skipped(visible(f"unsupported: {check.reason}"))]
    elif check.passed:
        case.system_out = visible(saw)
    else:
        faults = check.log.count("fault") if check.log else 0
        told = f"{faults} faults in the log" if faults else "acceptance is outside its band"
        if check.others:
            told = f"not as recorded: {', '.join(check.others)}"
        _fail(case, told, saw)
    return case


def _told(log: LogReport | None) -> str:
    """The counts of a log, and what is no note; on lines of their own."""
    if log is None:
        return ""
    seen = [one for one in log.seen if one.severity != "note"]
    return "".join(f"\n{line}" for line in (f"log: {log}", *map(str, seen)))


def _case(canary: str, form: str, name: str, seconds: float) -> TestCase:
    return TestCase(visible(name), visible(f"{_CLASS}.{canary}.{form}"), seconds)


def _fail(case: TestCase, message: str, text: str) -> None:
    element = FailureElement(visible(message), "canary")
    element.text = visible(text)
    case.result = [element]
