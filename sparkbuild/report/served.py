"""What a person and a CI system read about a real model, and what its failures point to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from junitparser import Failure as FailureElement
from junitparser import Skipped, TestCase, TestSuite
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from sparkbuild.canary.model import Backend
from sparkbuild.model.facts import File
from sparkbuild.model.finding import Finding
from sparkbuild.report.canaries import plain_table
from sparkbuild.report.ink import Ink, item
from sparkbuild.report.junit_canaries import document
from sparkbuild.report.text import visible
from sparkbuild.smoke.model import Kept, ServedCheck

BEFORE: Final = "before the start"
_CLASS: Final = "sparkbuild.served"


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A whole suite on one build and one model."""

    suite: str
    suite_sha256: str
    backend: Backend
    build: str
    """What the server calls itself."""
    model: tuple[File, ...]
    """Its files and those of its vision tower; 100 GB are told by their sizes."""
    context: int
    """Tokens of all slots together."""
    looked: int
    """Checks of the headers before anything was started."""
    findings: tuple[Finding, ...]
    """Of these, warnings and faults."""
    memory: Finding
    """The sum of what a server will hold."""
    checks: tuple[ServedCheck, ...] = ()
    likely: tuple[str, ...] = ()
    """Kinds of cause of all failures together, the most likely first."""
    next_step: str = ""
    folder: str
    """With logs, pictures, prompts and answers."""
    kept: tuple[Kept, ...] = ()

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What kept everything from being started."""
        return tuple(one for one in self.findings if one.state == "fault")

    @property
    def failed(self) -> tuple[ServedCheck, ...]:
        """In the order in which they were made."""
        return tuple(one for one in self.checks if one.state == "failed")

    @property
    def unsupported(self) -> tuple[ServedCheck, ...]:
        """What this build or model cannot do."""
        return tuple(one for one in self.checks if one.state == "unsupported")

    @property
    def passed(self) -> bool:
        """True where something was asked and nothing is wrong."""
        return bool(self.checks) and not self.failed and not self.faults


def served_view(found: Served) -> RenderableType:
    """Whatever is wrong at length, what cannot be done, then every way and group in one table."""
    return Group(_Told(found), Text(""), _table(found))


@dataclass(frozen=True)
class _Told:
    """Everything but the table."""

    found: Served

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        yield from self._before(ink)
        for one in self.found.failed:
            yield item("-", ink.text(f"{one.way}, {one.group}: {one.name}"), "bold red")
            yield from _lines(ink, _pairs(one))
        for one in self.found.unsupported:
            yield item("!", ink.text(f"{one.way}: unsupported: {one.found}"), "yellow")
        for number, text in enumerate(self.found.likely, start=1):
            yield item(f"{number}.", ink.text(f"likely: {text}"))
        if self.found.next_step:
            yield ink.headed("next step: ", self.found.next_step, "green")

    def _before(self, ink: Ink) -> Iterator[RenderableType]:
        for one in self.found.findings:
            style = "bold red" if one.state == "fault" else "yellow"
            yield item("-", ink.text(f"{BEFORE}, {one.name}: {one.state}"), style)
            pairs = (
                ("expected", one.expected),
                ("found", one.found),
                ("reason", one.reason),
                ("next step", one.next_step),
            )
            yield from _lines(ink, pairs)
        yield item("=", ink.text(f"memory: {self.found.memory.found}"), "dim")


def _lines(ink: Ink, pairs: Sequence[tuple[str, str]]) -> Iterator[RenderableType]:
    for label, value in pairs:
        if value:
            yield item(" ", ink.headed(f"{label}: ", value))


def _pairs(one: ServedCheck) -> list[tuple[str, str]]:
    return [
        ("expected", one.expected),
        ("found", one.found),
        ("reason", one.reason),
        *(("likely", text) for text in one.likely[:1]),
        ("next step", one.next_step),
        ("evidence", ", ".join(one.evidence)),
    ]


def _table(found: Served) -> RenderableType:
    looked, faults = found.looked, len(found.faults)
    state = f"failed: {faults} faults, nothing was started" if faults else "passed"
    rows: list[tuple[object, ...]] = [(BEFORE, "-", f"{looked - faults}/{looked}", state)]
    places = dict.fromkeys((one.way, one.group) for one in found.checks)
    for way, group in places:
        those = [one for one in found.checks if (one.way, one.group) == (way, group)]
        rows.append((way, group, f"{sum(one.state == 'passed' for one in those)}/{len(those)}",
                     _state(those)))  # fmt: skip
    return plain_table(("way", "about", "passed", "state"), rows)


def _state(those: Sequence[ServedCheck]) -> str:
    failed = [one.name for one in those if one.state == "failed"]
    if failed:
        return f"failed: {', '.join(failed)}"
    without = sum(one.state == "unsupported" for one in those)
    figures = {key: value for one in those for key, value in one.figures.items()}
    told = ", ".join(f"{key} {_figure(value)}" for key, value in figures.items())
    return f"unsupported: {without}" if without else f"passed{f'; {told}' if told else ''}"


def served_junit(found: Served) -> str:
    """Every check as a test case, a UTF-8 document; what is unsupported is skipped."""
    return document("sparkbuild smoke", _suites(found))


def _suites(found: Served) -> Iterator[TestSuite]:
    suite = TestSuite(f"{_CLASS}.{BEFORE}")
    suite.add_testcase(_before_case(found))
    yield suite
    for way in dict.fromkeys(one.way for one in found.checks):
        suite = TestSuite(visible(f"{_CLASS}.{way}"))
        for one in found.checks:
            if one.way == way:
                suite.add_testcase(_case(one))
        yield suite


def _before_case(found: Served) -> TestCase:
    case = TestCase("model, build and machine fit", f"{_CLASS}.{BEFORE}", 0.0)
    lines = [
        f"{one.state}, {one.name}: expected {one.expected}, found {one.found}"
        for one in (*found.findings, found.memory)
    ]
    text = visible("\n".join(lines))
    if found.faults:
        element = FailureElement(f"{len(found.faults)} faults")
        element.text = text
        case.result = [element]
    else:
        case.system_out = text
    return case


def _case(one: ServedCheck) -> TestCase:
    case = TestCase(visible(one.name), visible(f"{_CLASS}.{one.way}.{one.group}"), one.seconds)
    lines = [f"{label}: {value}" for label, value in _pairs(one) if value]
    lines += [f"{key}: {value:g}" for key, value in one.figures.items()]
    text = visible("\n".join(lines))
    if one.state == "failed":
        element = FailureElement(visible(f"{one.group}: {one.name}"), "served")
        element.text = text
        case.result = [element]
    elif one.state == "unsupported":
        case.result = [Skipped(visible(f"unsupported: {one.found}"))]
    else:
        case.system_out = text
    return case


def _figure(value: float) -> str:
    """Three digits, and no powers of ten where a number of units is meant."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
