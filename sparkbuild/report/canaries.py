"""What a person reads about canaries: passes over them, their drafts, audits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.canary.model import LOG, CanaryReport, DraftCheck, Group, Item
from sparkbuild.errors import CanaryError, SmokeError
from sparkbuild.report.canary_logs import log_remarks
from sparkbuild.report.ink import RULED, Ink, item
from sparkbuild.report.model import Failure

_STYLES: Final = {"passed": "green", "failed": "bold red", "unsupported": "yellow"}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One canary on one build: passes by form, drafts, and what could not be asked at all."""

    canary: str
    ran: tuple[CanaryReport, ...] = ()
    drafts: tuple[DraftCheck, ...] = ()
    failures: dict[str, Failure] = {}
    """By form, or ``drafts``."""

    @property
    def exit_code(self) -> int:
        """0 where all is well; SmokeError's where an answer is wrong, else the first refusal's."""
        wrong = not all(ran.passed for ran in self.ran)
        if wrong or not all(check.passed for check in self.drafts):
            return SmokeError.exit_code
        codes = [failure.exit_code for failure in self.failures.values()]
        if SmokeError.exit_code in codes:
            return SmokeError.exit_code
        return next(iter(codes), 0 if self.ran else CanaryError.exit_code)

    @property
    def passed(self) -> bool:
        """True where all is well."""
        return self.exit_code == 0


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an audit: perturbations made, those that count, of these those noticed."""

    name: str
    made: int
    counted: int
    noticed: int
    checks: dict[str, int]


class Unnoticed(msgspec.Struct, frozen=True, kw_only=True):
    """A perturbation that no check noticed; ``nmse`` is the greatest one.

    ``counts`` is False where the perturbed model is known to compute the same.
    """

    name: str
    detail: str
    nmse: float
    counts: bool
    reason: str = ""


def result_view(result: Result) -> RenderableType:
    """One canary: groups by form, drafts, every item that is wrong."""
    return _Result(result=result)


def audit_view(
    total: Line, tables: Sequence[tuple[str, Sequence[Line]]], unnoticed: Sequence[Unnoticed]
) -> RenderableType:
    """An audit: each table of lines under its name, what was not noticed, the sum."""
    return _Audit(total=total, tables=tuple(tables), unnoticed=tuple(unnoticed))


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> RenderableType:
    """A table of values, of which the last one may fold; numbers stand to the right."""
    return _Plain(columns=tuple(columns), rows=tuple(tuple(row) for row in rows))


@dataclass(frozen=True, kw_only=True)
class _Plain:
    """See ``plain_table``."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        table = _table()
        for at, name in enumerate(self.columns):
            number = bool(self.rows) and all(isinstance(row[at], int | float) for row in self.rows)
            table.add_column(
                name,
                overflow="fold",
                no_wrap=at + 1 < len(self.columns),
                justify="right" if number else "left",
            )
        for row in self.rows:
            table.add_row(*(ink.text(str(value)) for value in row))
        yield table


@dataclass(frozen=True, kw_only=True)
class _Result:
    """See ``result_view``."""

    result: Result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.result
        word = "passed" if found.passed else "failed"
        yield Text("")
        yield ink.text(f"{found.canary} ", "bold").append_text(ink.text(word, _STYLES[word]))
        if found.ran:
            yield _groups(found.ran, ink)
        if found.drafts:
            yield Text("")
            yield _drafts(found.drafts, ink)
        yield from _remarks(found, ink)


@dataclass(frozen=True, kw_only=True)
class _Audit:
    """See ``audit_view``."""

    total: Line
    tables: tuple[tuple[str, Sequence[Line]], ...]
    unnoticed: tuple[Unnoticed, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        for name, lines in self.tables:
            yield _lines(name, lines, ink)
            yield Text("")
        counted = [one for one in self.unnoticed if one.counts]
        if counted:
            table = _table("not noticed", "change", "worst NMSE", "reason")
            for one in counted:
                reason = one.reason or "none is recorded"
                values = (one.name, one.detail, f"{one.nmse:.2g}", reason)
                table.add_row(*(ink.text(value) for value in values))
            yield table
            yield Text("")
        reasons = Counter(one.reason for one in self.unnoticed if not one.counts)
        for reason, count in reasons.items():
            yield item("-", ink.text(f"{count} alter nothing: {reason}"))
        if reasons:
            yield Text("")
        total = self.total
        yield ink.text(
            f"{_share(total)} noticed: {total.noticed} of {total.counted} perturbations that alter "
            f"what the model computes, {total.made} made",
            "bold",
        )


def _table(*columns: str) -> Table:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _groups(ran: Sequence[CanaryReport], ink: Ink) -> Table:
    """Groups downwards, forms across, numbers and times last."""
    first = ran[0]
    table = _table(first.backend)
    for one in ran:
        table.add_column(f"{one.form}, KV {one.cache}", overflow="fold")
    names = dict.fromkeys(group.name for one in ran for group in one.groups)
    for name in sorted(names, key=lambda name: name == LOG):
        cells = [{group.name: group for group in one.groups}.get(name) for one in ran]
        table.add_row(ink.text(name), *(_cell(group) for group in cells))
    for name, kind in (("worst NMSE", _is_reference), ("median NMSE", _is_median)):
        table.add_row(name, *(_nearest(filter(kind, one.items)) for one in ran))
    table.add_row("load", *(f"{one.load_seconds:.2f} s" for one in ran))
    table.add_row("questions", *(f"{one.seconds:.1f} s" for one in ran))
    return table


def _cell(group: Group | None) -> Text:
    if group is None:
        return Text("-", style="dim")
    least = "" if group.minimum == 1 else f" (at least {group.minimum:.0%})"
    text = f"{group.right}/{group.of}{least}"
    return Text(text, "") if group.passed else Text(f"{text} failed", "bold red")


def _nearest(items: Iterable[Item]) -> Text:
    """Of numbers with bounds, those that are nearest to theirs, or farthest above."""
    bounded = [one for one in items if one.bound is not None]
    if not bounded:
        return Text("-", style="dim")
    found = max(bounded, key=_closeness)
    if found.nmse is None:
        return Text("no numbers", "bold red")
    kept = _closeness(found) <= 1
    text = f"{found.nmse:.2g} {'<=' if kept else '>'} {found.bound:.2g}"
    return Text(text, "" if kept else "bold red")


def _closeness(one: Item) -> float:
    """An NMSE as a share of its bound; infinite where there are no whole numbers."""
    return math.inf if one.nmse is None or not one.bound else one.nmse / one.bound


def _drafts(checks: Sequence[DraftCheck], ink: Ink) -> Table:
    table = _table("draft depth", "head", "accepted", "share", "bound", "state")
    for check in checks:
        none = check.state == "unsupported"
        sign = "at least" if check.head == "healthy" else "at most"
        table.add_row(
            str(check.depth),
            check.how,
            "" if none else f"{check.accepted}/{check.drafted}",
            "" if none else f"{check.share:.1%}",
            f"{sign} {check.bound:.1%}",
            ink.text(check.state, _STYLES[check.state]),
        )
    return table


def _remarks(found: Result, ink: Ink) -> Iterator[RenderableType]:
    """What is wrong, item by item; then what is not, and should be known."""
    for where, failure in found.failures.items():
        yield item("-", ink.text(f"{where}: {failure.message}"), "bold red")
        for line in failure.problems:
            yield item("  ", ink.text(line))
    for ran in found.ran:
        for one in wrong_items(ran):
            head = ink.text(f"{ran.form} {one.group}: ", "red")
            yield item("-", head.append_text(ink.text(one.name, "bold")), "bold red")
            yield ink.labelled("expected", one.expected)
            yield ink.labelled("found", one.found)
    for check in found.drafts:
        if check.state == "failed" and check.wrong:
            text = f"{check.wrong} answers changed with drafts of {check.depth}, {check.head} head"
            yield item("-", ink.text(text), "bold red")
        if check.others:
            text = f"drafts of {check.depth} in float32 are not those recorded"
            yield item("-", ink.text(f"{text}: {', '.join(check.others)}"), "bold red")
    yield from log_remarks(found.ran, found.drafts, "fault", ink)
    reasons = {check.reason for check in found.drafts if check.state == "unsupported"}
    for reason in sorted(reasons):
        yield item("!", ink.text(f"drafts are unsupported by this build: {reason}"), "yellow")
    for ran in found.ran:
        for group in ran.groups:
            if group.passed and group.right < group.of:
                text = f"{ran.form} {group.name}: {group.of - group.right} wrong, allowed"
                yield item("!", ink.text(f"{text}: {group.reason}"), "yellow")
    yield from log_remarks(found.ran, found.drafts, "warning", ink)


def wrong_items(report: CanaryReport) -> list[Item]:
    """The items that failed in groups that failed, in order."""
    failed = {group.name for group in report.groups if not group.passed}
    return [one for one in report.items if not one.passed and one.group in failed]


def _lines(name: str, lines: Sequence[Line], ink: Ink) -> Table:
    table = _table(name, "made", "counted", "noticed", "share", "by")
    for line in lines:
        checks = sorted(line.checks.items(), key=lambda pair: -pair[1])
        table.add_row(
            ink.text(line.name),
            *(str(value) for value in (line.made, line.counted, line.noticed)),
            Text(_share(line), style="" if line.noticed == line.counted else "bold yellow"),
            ink.text(", ".join(f"{check} {count}" for check, count in checks), "dim"),
        )
    return table


def _share(line: Line) -> str:
    return f"{line.noticed / line.counted:.1%}" if line.counted else "-"


def _is_reference(one: Item) -> bool:
    return one.group == "references" and not _is_median(one)


def _is_median(one: Item) -> bool:
    return one.name.startswith("median ")
