"""What a person reads about the fault matrix: every fault with what became of it, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from sparkbuild.faults.model import Fault, Found, Matrix, Verdict
from sparkbuild.report.canaries import plain_table
from sparkbuild.report.ink import Ink, item

_VERDICTS: Final[tuple[Verdict, ...]] = ("caught", "late", "other words", "missed", "not run")
_SHOWN: Final = 300
"""Characters of a message on the screen; the report and the log have all of it."""


def faults_view(chosen: Sequence[Fault]) -> RenderableType:
    """The catalogue: one line a fault, and how many there are."""
    rows = [
        (
            fault.id,
            fault.kind,
            "subtle" if fault.subtle else "gross",
            fault.reach,
            fault.latest,
            "fast" if fault.fast else "",
            fault.summary,
        )
        for fault in chosen
    ]
    table = plain_table(("fault", "kind", "size", "reach", "latest", "", "summary"), rows)
    return Group(table, Text(f"\n{len(chosen)} faults"))


def matrix_view(matrix: Matrix, faults: Sequence[Fault], problems: Sequence[str]) -> RenderableType:
    """Every fault with its verdict, stage, seconds and check; at length what is not well."""
    return Group(_table(matrix), _Wrong(matrix, tuple(faults), tuple(problems)))


def _table(matrix: Matrix) -> RenderableType:
    rows = [
        (
            one.id,
            one.verdict,
            one.stage or "-",
            f"{one.planted_seconds:.1f}",
            f"{one.seconds:.1f}",
            one.check or one.reason or "-",
        )
        for one in matrix.found
    ]
    return plain_table(("fault", "verdict", "stage", "planted s", "seconds", "check"), rows)


@dataclass(frozen=True)
class _Wrong:
    """What was not caught as it must be, and the sum of it all."""

    matrix: Matrix
    faults: tuple[Fault, ...]
    problems: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        known = {fault.id: fault for fault in self.faults}
        yield Text("")
        for one in self.matrix.found:
            if one.verdict != "caught":
                yield from _at_length(one, known.get(one.id), ink)
        for number, clean in enumerate(self.matrix.clean, start=1):
            if clean.exit_code:
                text = f"clean run {number}: refused with exit code {clean.exit_code}"
                yield item("-", ink.text(text), "bold red")
                yield ink.labelled("found", clean.message[:_SHOWN])
                yield ink.labelled("log", clean.log)
        verdicts = [one.verdict for one in self.matrix.found]
        counted = [f"{verdicts.count(kind)} {kind}" for kind in _VERDICTS if kind in verdicts]
        alarms = sum(bool(clean.exit_code) for clean in self.matrix.clean)
        clean_told = f"; {alarms} false alarms in {len(self.matrix.clean)} clean runs"
        yield ink.text(
            f"{len(verdicts)} faults: {', '.join(counted) or 'none'}"
            f"{clean_told if self.matrix.clean else ''}",
            "bold red" if self.problems else "green",
        )


def _at_length(one: Found, fault: Fault | None, ink: Ink) -> Iterator[RenderableType]:
    style = "yellow" if one.verdict == "not run" else "bold red"
    summary = f": {fault.summary}" if fault else ""
    yield item("-", ink.text(f"{one.id}, {one.verdict}{summary}"), style)
    if fault:
        words = ", ".join(map(repr, fault.says))
        yield ink.labelled("expected", f"a refusal at {fault.latest} or before, saying {words}")
    if one.verdict == "not run":
        yield ink.labelled("reason", one.reason)
    else:
        said = one.message.replace("\n", "; ")[:_SHOWN] or "no refusal"
        yield ink.labelled("found", f"exit code {one.exit_code}, {one.stage or 'no stage'}: {said}")
    if one.log:
        yield ink.labelled("log", one.log)
