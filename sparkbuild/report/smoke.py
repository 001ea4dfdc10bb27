"""What a person reads about a smoke run: every part, what failures point to, what cures them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from sparkbuild.canary.model import Backend
from sparkbuild.model.finding import Finding
from sparkbuild.report.canaries import Result, plain_table, result_view
from sparkbuild.report.ink import Ink, item
from sparkbuild.smoke.model import SmokeReport


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One switch that was changed to see whether a failure goes."""

    name: str
    cures: bool
    reason: str
    """What it was where this cures it."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One pass or switch of a plan.

    Of a failure: ``failed``, the groups; ``likely``, kinds of cause, the most likely first;
    ``ladder``, what was tried on it.
    """

    name: str
    reason: str
    result: Result
    failed: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()
    ladder: tuple[Rung, ...] = ()

    @property
    def cure(self) -> Rung | None:
        """The switch that cures it, where one was found."""
        return next((rung for rung in self.ladder if rung.cures), None)


class Fitting(msgspec.Struct, frozen=True, kw_only=True):
    """How a canary's files fit the build and the machine: what is not well of so many checks."""

    canary: str
    checks: int
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What would keep it from starting, or from answering."""
        return tuple(one for one in self.findings if one.state == "fault")


class Smoked(msgspec.Struct, frozen=True, kw_only=True):
    """A whole plan on one build.

    ``catalogue`` is the digest of the canaries' catalogue, which has that of every model, prompt,
    picture and number.
    """

    suite: str
    catalogue: str
    backend: Backend
    fitting: tuple[Fitting, ...] = ()
    basics: SmokeReport | None = None
    parts: tuple[Part, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        """Of every part, in order."""
        return tuple(part.result for part in self.parts)


def smoke_view(found: Smoked) -> RenderableType:
    """Whatever failed at length with what it points to, then every part in one table."""
    failed = [part for part in found.parts if not part.result.passed]
    return Group(_First(found), *(_Failed(part) for part in failed), _table(found))


@dataclass(frozen=True)
class _First:
    """What is wrong before the canaries are asked."""

    found: Smoked

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        for one in self.found.fitting:
            for finding in one.findings:
                style = "bold red" if finding.state == "fault" else "yellow"
                yield item("-", ink.text(f"{one.canary}, {finding.name}: {finding.state}"), style)
                yield ink.labelled("expected", finding.expected)
                yield ink.labelled("found", finding.found)
                yield ink.labelled("next step", finding.next_step)
        for check in self.found.basics.checks if self.found.basics else ():
            if not check.passed:
                yield item("-", ink.text(f"{check.name} failed"), "bold red")
                yield ink.labelled("expected", check.expected)
                yield ink.labelled("found", check.found)


@dataclass(frozen=True)
class _Failed:
    """One part that failed."""

    part: Part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        if self.part.name != self.part.result.canary:
            yield Text("")
            yield ink.text(f"{self.part.name}: {self.part.reason}", "bold")
        yield result_view(self.part.result)
        yield from self._pointed(ink)

    def _pointed(self, ink: Ink) -> Iterator[RenderableType]:
        yield Text("")
        for number, text in enumerate(self.part.likely, start=1):
            yield item(f"{number}.", ink.text(f"likely: {text}"))
        for rung in self.part.ladder:
            said = "passes then" if rung.cures else "fails all the same"
            yield item("-", ink.text(f"with {rung.name}: {said}"))
        cure = self.part.cure
        if cure:
            yield item("!", ink.text(f"cured by {cure.name}: it is in {cure.reason}"), "yellow")
        elif self.part.ladder:
            yield item("!", ink.text("no switch cures it: suspect the build itself"), "yellow")


def _table(found: Smoked) -> RenderableType:
    rows: list[tuple[object, ...]] = []
    if found.fitting:
        checks = sum(one.checks for one in found.fitting)
        faults = sum(len(one.faults) for one in found.fitting)
        state = f"failed: {faults} faults" if faults else "passed"
        rows.append(("before the start", "-", f"{checks - faults}/{checks}", state))
    if found.basics:
        wrong = [check.name for check in found.basics.checks if not check.passed]
        of = len(found.basics.checks)
        state = f"failed: {', '.join(wrong)}" if wrong else "passed"
        rows.append((f"suite {found.basics.suite}", "-", f"{of - len(wrong)}/{of}", state))
    rows += [
        (
            part.name,
            ", ".join(dict.fromkeys(ran.form for ran in part.result.ran)) or "-",
            _counted(part.result),
            "passed" if part.result.passed else f"failed: {', '.join(part.failed)}",
        )
        for part in found.parts
    ]
    return plain_table(("part", "forms", "right", "state"), rows)


def _counted(result: Result) -> str:
    items = [one for ran in result.ran for one in ran.items]
    return f"{sum(one.passed for one in items)}/{len(items)}"
