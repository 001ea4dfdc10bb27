"""What a person reads about a compiler that was tried: kinds, wrong probes, coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.qualify.model import (
    Against,
    Fate,
    Mistake,
    Outcome,
    Probed,
    Qualification,
    Sowed,
    Verdict,
)
from sparkbuild.report.ink import RULED, Ink, item

_STYLES: Final[dict[Verdict, str]] = {
    "right": "green",
    "wrong": "bold red",
    "incomplete": "yellow",
    "not applicable": "dim",
    "not tried": "yellow",
}
_COLUMNS: Final[dict[Outcome, str]] = {
    "right": "right", "wrong": "wrong", "unsupported": "unknown", "not compiled": "failed",
}  # fmt: skip
"""Outcome to its column's name: a probe that needs what the executor lacks is unknown."""
_DIGITS: Final = 12


def qualification_view(found: Qualification, *, missed: bool = False) -> RenderableType:
    """A verdict with its evidence; ``missed`` names every device function that was not executed."""
    return _View(found=found, missed=missed)


@dataclass(frozen=True, kw_only=True)
class _View:
    """See ``qualification_view``."""

    found: Qualification
    missed: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.found
        if found.compiler:
            one = found.compiler
            yield ink.labelled(
                "compiler", f"{one.toolkit}, cicc {one.cicc}, {one.platform}", "bold"
            )
            yield ink.labelled("target", one.architecture)
            if one.device:
                yield ink.labelled("device", one.device)
            yield ink.labelled("source", f"tree {one.tree[:_DIGITS]}")
            yield ink.labelled("flags", " ".join(one.flags))
        seconds = "known from before" if found.cached else f"{found.seconds:.1f} s"
        yield ink.labelled("verdict", f"{found.verdict}: {found.reason}", _STYLES[found.verdict])
        yield ink.labelled("took", seconds, "dim")
        yield Text("")
        yield _kinds(found)
        yield from _remarks(found, ink)
        if found.coverage:
            yield Text("")
            yield from _coverage(found, ink, missed=self.missed)
        if any(probe.against for probe in found.probes):
            yield Text("")
            yield from _agreement(found)
        if found.remark:
            yield item("!", ink.text(found.remark), "dim")


def grid_view(found: Sequence[Qualification]) -> RenderableType:
    """Compilers by targets: right, or what wrong code breaks."""
    return _Grid(found=tuple(found))


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """See ``grid_view``."""

    found: tuple[Qualification, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
        table.add_column("compiler", no_wrap=True)
        judged = [(one.compiler, one) for one in self.found if one.compiler]
        targets = list(dict.fromkeys(compiler.architecture for compiler, _ in judged))
        for target in targets:
            table.add_column(target, overflow="fold")
        rows: dict[str, dict[str, Qualification]] = {}
        for compiler, one in judged:
            machine = compiler.platform.removeprefix("linux-")
            name = f"{compiler.toolkit.removeprefix('cuda-')} ({compiler.cicc}, {machine})"
            rows.setdefault(name, {})[compiler.architecture] = one
        for name, there in rows.items():
            table.add_row(name, *(_cell(there.get(target)) for target in targets))
        yield table


def _cell(found: Qualification | None) -> Text:
    if found is None:
        return Text("")
    if found.verdict != "wrong":
        return Text(found.verdict, _STYLES[found.verdict])
    named = ", ".join(found.broken_types) or f"{len(found.wrong)} probes"
    return Text(f"wrong: {named}", _STYLES["wrong"])


def sowed_view(sowed: Sowed) -> RenderableType:
    """Seeded faults by kind, then those that were not noticed."""
    return _Sowed(sowed=sowed)


@dataclass(frozen=True, kw_only=True)
class _Sowed:
    """See ``sowed_view``."""

    sowed: Sowed

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        sowed = self.sowed
        table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
        table.add_column("seeded fault", no_wrap=True)
        for fate in get_args(Fate):
            table.add_column(fate, justify="right", no_wrap=True)
        for kind in dict.fromkeys(one.kind for one in sowed.tried):
            table.add_row(kind, *(str(sowed.count(fate, kind) or "") for fate in get_args(Fate)))
        yield table
        for one in sowed.tried:
            if one.fate == "within bounds":
                edit = f"{one.kernel}, {one.kind}: {one.before} became {one.after} ({one.source})"
                yield item("!", ink.line(edit), "yellow")
        changed = sowed.count("caught") + sowed.count("within bounds")
        yield Text(
            f"  {sowed.count('caught')} of {changed} faults that change an output were caught "
            f"({sowed.share:.1%}); {sowed.count('same output')} change no bit of any"
        )


def _kinds(found: Qualification) -> Table:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("probes", no_wrap=True)
    for name in (*_COLUMNS.values(), "values", "of bound"):
        table.add_column(name, justify="right", no_wrap=True)
    by_kind: dict[str, list[Probed]] = {}
    for probe in found.probes:
        by_kind.setdefault(probe.kind, []).append(probe)
    for kind, probes in by_kind.items():
        counts = Counter(probe.outcome for probe in probes)
        margin = max((probe.margin for probe in probes if probe.margin is not None), default=None)
        table.add_row(
            kind,
            *(Text(str(counts[name] or ""), _style(name)) for name in _COLUMNS),
            f"{sum(probe.compared for probe in probes):,}",
            "" if margin is None else f"{margin:.0%}",
        )
    return table


def _agreement(found: Qualification) -> Iterator[RenderableType]:
    """The GPU against the executor, by kind."""
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("GPU and executor", no_wrap=True)
    for name in ("native", "retargeted", "same bits", "values", "equal", "apart", "of bound"):
        table.add_column(name, justify="right", no_wrap=True)
    by_kind: dict[str, list[tuple[Probed, Against]]] = {}
    for probe in found.probes:
        if probe.against:
            by_kind.setdefault(probe.kind, []).append((probe, probe.against))
    for kind, pairs in by_kind.items():
        made = Counter(probe.made for probe, _ in pairs)
        same = sum(0 < one.compared == one.equal for _, one in pairs)
        compared, equal = (sum(getattr(one, name) for _, one in pairs)
                           for name in ("compared", "equal"))  # fmt: skip
        apart = sum(one.apart for _, one in pairs)
        table.add_row(
            kind,
            str(made["native"] or ""),
            str(made["retargeted"] or ""),
            str(same or ""),
            f"{compared:,}",
            f"{equal:,}",
            Text(str(apart or ""), "yellow"),
            f"{max(one.difference for _, one in pairs):.0%}",
        )
    yield table
    held = sum(1 for pairs in by_kind.values() for _ in pairs)
    yield Text(f"  {found.same_bits} of {held} probes gave the executor's bits on the GPU")


def _style(outcome: str) -> str:
    return {"wrong": "bold red", "right": "green"}.get(outcome, "yellow")


def _remarks(found: Qualification, ink: Ink) -> Iterator[RenderableType]:
    for probe in found.probes:
        if probe.mistake:
            yield item("✗" if not ink.ascii_only else "x", ink.text(_head(probe)), "bold red")
            for line in (*_lines(probe.mistake), *_executors(probe.against)):
                yield ink.labelled("", line, "dim")
        elif probe.outcome != "right":
            yield item("!", ink.text(f"{probe.name}: {probe.outcome}: {probe.reason}"), "yellow")
        elif probe.against and probe.against.outcome != "right":
            (said, *_) = _executors(probe.against)
            yield item("!", ink.text(f"{probe.name}: right on the GPU; {said}"), "yellow")
    if found.uncovered:
        yield item("!", ink.text(f"no probe is there for: {', '.join(found.uncovered)}"), "yellow")


def _head(probe: Probed) -> str:
    types = f" ({', '.join(probe.types)})" if probe.types else ""
    mistake = probe.mistake
    return f"{probe.name}{types}: {mistake.text if mistake else probe.reason}"


def _lines(mistake: Mistake) -> Iterator[str]:
    share = ""
    if mistake.compared:
        nmse = f", NMSE {mistake.nmse:.2g}" if mistake.nmse is not None else ""
        share = f"; {mistake.wrong} of {mistake.compared} values wrong{nmse}"
    yield f"first in: {mistake.case}{share}"
    where = mistake.where
    if where.source:
        yield f"source: {where.source}"
    if where.ptx_line:
        yield f"PTX: line {where.ptx_line}, {where.instruction}"


def _executors(against: Against | None) -> Iterator[str]:
    """What the executor makes of what a GPU got wrong."""
    if against is None:
        return
    yield f"executor: {against.outcome}" + (f": {against.text}" if against.text else "")
    if against.where.source:
        yield f"executor's source: {against.where.source}"


def _coverage(found: Qualification, ink: Ink, *, missed: bool) -> Iterator[RenderableType]:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("file", no_wrap=True)
    table.add_column("device functions executed", justify="right")
    if missed:
        table.add_column("not executed", overflow="fold")
    executed = total = 0
    for one in found.coverage:
        executed += len(one.executed)
        total += len(one.executed) + len(one.missed)
        row = [one.file, f"{len(one.executed)} of {len(one.executed) + len(one.missed)}"]
        table.add_row(*row, *([ink.text(", ".join(one.missed), "dim")] if missed else []))
    yield table
    more = "" if missed else "; --missed names the others"
    yield Text(f"  {executed} of {total} device functions of these files were executed{more}")
