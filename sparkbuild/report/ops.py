"""What a person and a CI system read about upstream's operator tests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from junitparser import Failure as FailureElement
from junitparser import Skipped, TestCase, TestSuite
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from sparkbuild.canary.model import Backend
from sparkbuild.errors import SmokeError
from sparkbuild.report.canaries import plain_table
from sparkbuild.report.ink import Ink, item
from sparkbuild.report.junit_canaries import document
from sparkbuild.report.text import visible

GroupState = Literal[
    "passed", "wrong", "crashed", "not reached", "not supported", "nothing to compare with",
    "not tested",
]  # fmt: skip
BAD: Final = frozenset({"wrong", "crashed", "not reached"})
_SHOWN: Final = 4
_CLASS: Final = "sparkbuild.ops"
_MEANING: Final[dict[str, str]] = {
    "not supported": "the back end leaves this operator to the CPU, which is slow and no fault",
    "nothing to compare with": "both sides ran the same code, or nobody looked: it says nothing",
    "not tested": "upstream has no case for this",
    "not reached": "the run ended before it",
}


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """A case that failed: as upstream takes it with ``-o``, and what was printed of it."""

    case: str
    told: str


class OpGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One operator, for one type where results are told apart by it."""

    op: str
    type: str
    reason: str
    state: GroupState
    cases: int
    """All that upstream has for it, as far as known."""
    passed: int = 0
    """Compared with other code and within upstream's bound."""
    failed: int = 0
    same: int = 0
    """Compared with the same bits, or unseen: on a CPU that says nothing."""
    unsupported: int = 0
    left: int = 0
    """Not asked, or without memory for their tensors."""
    error: float | None = None
    """The worst of those that failed, by upstream's measure; null where a number is none."""
    bound: float | None = None
    """Upstream's for that case."""
    wrong: tuple[Wrong, ...] = ()

    @property
    def name(self) -> str:
        """Operator and type."""
        return f"{self.op} {self.type}".strip()


class OpCrash(msgspec.Struct, frozen=True, kw_only=True):
    """A case that ended the process; ``alone``: whether it did so again when asked alone."""

    op: str
    type: str
    case: str
    alone: bool | None
    kind: str
    message: str
    running: str
    printed: tuple[str, ...]
    likely: tuple[str, ...]


class OpsReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole suite on one build."""

    suite: str
    suite_sha256: str
    backend: Backend
    device: str
    build: str
    """What the build calls itself."""
    program: str
    witness: bool
    models: tuple[str, ...]
    architectures: tuple[str, ...]
    unknown: tuple[str, ...]
    """Architectures whose operators nobody looked up: the general ones were asked."""
    groups: tuple[OpGroup, ...]
    crashes: tuple[OpCrash, ...]
    near: tuple[Wrong, ...] = ()
    """Cases that were wrong by little once, and right in further draws: no failure."""
    stopped: str
    """Why not everything was asked."""
    likely: tuple[str, ...]
    """Of wrong numbers: kinds of cause, the most likely first."""
    next_step: str
    logs: str
    seconds: float

    @property
    def compared(self) -> int:
        """Cases that were compared with something."""
        return sum(one.passed + one.failed for one in self.groups)

    @property
    def exit_code(self) -> int:
        """0 where something was compared, and nothing is wrong, crashed or left."""
        bad = any(one.state in BAD for one in self.groups) or self.crashes or self.stopped
        return SmokeError.exit_code if bad or not self.compared else 0

    @property
    def result(self) -> str:
        """In words."""
        failed = sum(one.failed for one in self.groups)
        count = len(self.crashes)
        told = [
            f"{failed} cases gave wrong numbers" if failed else "",
            f"{count} case{'s' if count > 1 else ''} ended the process" if count else "",
            f"not finished: {self.stopped}" if self.stopped else "",
        ]
        bad = "; ".join(filter(None, told))
        if bad:
            return bad
        if not self.compared:
            return "nothing was compared"
        left = sum(one.left for one in self.groups)
        if left and self.exit_code:
            return f"{left} cases were not reached"
        return f"passed, {self.compared} cases compared"


def ops_view(found: OpsReport) -> RenderableType:
    """Crashes and wrong numbers at length, then every group in one table."""
    return Group(*_crashes(found), _Wrong(found), _table(found), _Last(found))


def _crashes(found: OpsReport) -> Iterator[RenderableType]:
    for crash in found.crashes:
        yield _Crash(crash)


@dataclass(frozen=True)
class _Crash:
    crash: OpCrash

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        crash, ink = self.crash, Ink(options.encoding, options.ascii_only)
        name = f"{crash.op} {crash.type}".strip()
        yield item("-", ink.text(f"{name} ended the process: {crash.kind}"), "bold red")
        yield ink.labelled("case", crash.case or "not known")
        if crash.running:
            yield ink.labelled("it ran", crash.running)
        if crash.message:
            yield ink.labelled("message", crash.message)
        told = {True: "it ends the process too", False: "it ends well", None: "not tried"}
        yield ink.labelled("alone", told[crash.alone])
        for text in crash.likely:
            yield ink.labelled("likely", text)


@dataclass(frozen=True)
class _Wrong:
    found: OpsReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        for group in self.found.groups:
            if group.failed:
                yield item("-", ink.text(f"{group.name} is wrong: {_worst(group)}"), "bold red")
            for wrong in group.wrong[:_SHOWN]:
                yield ink.labelled("case", wrong.case)
                yield ink.labelled("told", wrong.told)
            if len(group.wrong) > _SHOWN:
                yield ink.labelled("more", f"{len(group.wrong) - _SHOWN} cases, in the JSON")
        for text in self.found.likely:
            yield ink.labelled("likely", text)


@dataclass(frozen=True)
class _Last:
    found: OpsReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        found, ink = self.found, Ink(options.encoding, options.ascii_only)
        yield Text("")
        for name in found.unknown:
            told = (
                f"operators of the architecture {name} are not known here: general ones were asked"
            )
            yield item("!", ink.text(told), "yellow")
        silent = sum(one.state == "nothing to compare with" for one in found.groups)
        if silent:
            told = (
                f"{silent} of {len(found.groups)} had nothing to compare with: both sides ran the "
                "same code, or nobody could see whether they did; nothing is known of them"
            )
            yield item("!", ink.text(told), "yellow")
        for one in found.near:
            told = f"at upstream's bound once, right in further draws: {one.case}: {one.told}"
            yield item("!", ink.text(told), "yellow")
        if found.backend == "cpu":
            told = (
                "the CPU was compared with its own reference mode: a fault of both is not seen "
                "here; the canaries see it"
            )
            yield item("!", ink.text(told), "yellow")
        style = "bold red" if found.exit_code else "green"
        yield ink.headed(f"{found.device}: ", found.result, style)
        if found.next_step:
            yield ink.labelled("next step", found.next_step)


def _worst(group: OpGroup) -> str:
    told = f"{group.failed} of {group.cases} cases"
    if group.bound is None:
        return told
    error = "no number" if group.error is None else f"{group.error:.3g}"
    return f"{told}, the worst {error}, allowed are {group.bound:.3g}"


def _table(found: OpsReport) -> RenderableType:
    columns = ("operator", "type", "compared", "wrong", "state")
    rows = [
        (one.op, one.type or "-", f"{one.passed + one.failed}/{one.cases}", one.failed, _said(one))
        for one in found.groups
    ]
    return plain_table(columns, rows)


def _said(group: OpGroup) -> str:
    """A group's state, and what else its cases were."""
    told = [
        f"{group.unsupported} not supported" if group.unsupported else "",
        f"{group.left} left" if group.left else "",
    ]
    return "; ".join(filter(None, [group.state, *told]))


def ops_junit(found: OpsReport) -> str:
    """Every group as a test case of JUnit XML; what says nothing is skipped, never passed."""
    suite = TestSuite(f"{_CLASS}.{found.backend}")
    crashed = {(one.op, one.type): one for one in found.crashes}
    for group in found.groups:
        suite.add_testcase(_case(group, crashed.pop((group.op, group.type), None)))
    for crash in crashed.values():
        case = TestCase(visible(f"{crash.op} {crash.type}".strip()), _CLASS, 0.0)
        _fail(case, f"ended the process: {crash.kind}", _crash_text(crash))
        suite.add_testcase(case)
    whole = TestCase("the whole suite", _CLASS, found.seconds)
    if found.exit_code:
        _fail(whole, found.result, "\n".join((*found.likely, found.next_step)))
    suite.add_testcase(whole)
    return document("sparkbuild smoke ops", [suite])


def _case(group: OpGroup, crash: OpCrash | None) -> TestCase:
    case = TestCase(visible(group.name), _CLASS, 0.0)
    counts = (
        f"{group.cases} cases: {group.passed} passed, {group.failed} wrong, {group.same} with "
        f"nothing to compare with, {group.unsupported} not supported, {group.left} left"
    )
    if crash is not None:
        _fail(case, f"ended the process: {crash.kind}", _crash_text(crash))
    elif group.state in BAD:
        told = [f"{one.case}: {one.told}" for one in group.wrong]
        _fail(case, f"{group.name}: {group.state}", "\n".join((counts, _worst(group), *told)))
    elif group.state == "passed":
        case.system_out = visible(counts)
    else:
        case.result = [Skipped(visible(f"{group.state}: {_MEANING[group.state]}"))]
    return case


def _crash_text(crash: OpCrash) -> str:
    lines = [crash.case, crash.message, *crash.printed, *(f"likely: {one}" for one in crash.likely)]
    return "\n".join(filter(None, lines))


def _fail(case: TestCase, message: str, text: str) -> None:
    element = FailureElement(visible(message), "ops")
    element.text = visible(text)
    case.result = [element]


def finite(number: float | None) -> float | None:
    """A number as JSON can hold it."""
    return number if number is not None and math.isfinite(number) else None
