"""What a person reads about carried patches: every patch on a base, every base, what is needed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.report.ink import RULED, Ink, item
from sparkbuild.source.model import Checked, HunkFinding, PatchFinding, PatchState, ValueChange

_STYLES: Final[dict[PatchState, str]] = {
    "applies": "green",
    "applies with offset": "yellow",
    "already upstream": "cyan",
    "conflicts": "bold red",
    "misplaced": "bold red",
    "refused": "bold red",
    "held up": "yellow",
}
_SHOWN: Final = 60
"""Rows of a conflict shown on the screen; ``--json`` has all."""

Answer = Literal["needed", "not needed", "proof fails with it too", "no proof given", "cannot tell"]
_ANSWERS: Final[dict[Answer, str]] = {
    "needed": "green",
    "not needed": "cyan",
    "proof fails with it too": "bold red",
    "no proof given": "yellow",
    "cannot tell": "bold red",
}


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """One proof of a patch on one build."""

    proof: str
    passed: bool
    seconds: float
    summary: str
    log: str


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a patch is still needed at a base."""

    file: str
    answer: Answer
    reason: str
    state: PatchState
    """What ``patch check`` says of it there."""
    with_it: tuple[Proven, ...] = ()
    without_it: tuple[Proven, ...] = ()


class DropChecked(msgspec.Struct, frozen=True, kw_only=True):
    """Every patch of a variant at one base."""

    variant: str
    base: str
    patches: tuple[Dropped, ...]

    @property
    def passed(self) -> bool:
        """Whether each patch was shown to be needed."""
        return all(patch.answer == "needed" for patch in self.patches)


class OnBases(msgspec.Struct, frozen=True, kw_only=True):
    """A variant's patches on several bases; ``failures`` are bases that could not be had."""

    variant: str
    checked: tuple[Checked, ...]
    dropped: tuple[DropChecked, ...] = ()
    failures: dict[str, str] = {}

    @property
    def passed(self) -> bool:
        """Whether every base could be looked at: what a patch does there is a finding."""
        return not self.failures


def check_view(found: Checked) -> RenderableType:
    """One base: a table of all patches, then every hunk that is not where it was made for."""
    return _Check(found)


def bases_view(found: OnBases) -> RenderableType:
    """Patches in rows, bases in columns."""
    return _Bases(found)


def dropped_view(found: DropChecked) -> RenderableType:
    """Whether each patch is still needed, and what says so."""
    return _Dropped(found)


@dataclass(frozen=True)
class _Check:
    """See ``check_view``."""

    found: Checked

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.found
        yield ink.headed(f"{found.variant} on {found.base}: ", f"commit {found.base_commit[:12]}")
        if found.absent:
            yield ink.headed("not in this base: ", ", ".join(found.absent), "dim")
        if found.patches:
            yield _patches(found.patches, ink)
        for patch in found.patches:
            yield from _patch(patch, ink)
        yield from _values(found.values, ink)
        yield from _end(found, ink)


def _patches(patches: Sequence[PatchFinding], ink: Ink) -> Table:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    for heading in ("patch", "state", "hunks"):
        table.add_column(heading, overflow="fold")
    for patch in patches:
        table.add_row(
            ink.text(patch.file, "bold"),
            ink.text(patch.state, _STYLES[patch.state]),
            ink.text(_counted(patch.hunks)),
        )
    return table


def _counted(hunks: Sequence[HunkFinding]) -> str:
    states = dict.fromkeys(hunk.state for hunk in hunks)
    return ", ".join(f"{sum(h.state == state for h in hunks)} {state}" for state in states)


def _patch(patch: PatchFinding, ink: Ink) -> Iterator[RenderableType]:
    """What is to be said of a patch beyond its state."""
    lines: list[RenderableType] = []
    if patch.held_up_by:
        lines.append(item("!", ink.line(f"needs {', '.join(patch.held_up_by)}"), "yellow"))
    lines += [item("x", ink.line(problem), "bold red") for problem in patch.problems]
    lines += [item(".", ink.line(note), "cyan") for note in patch.notes]
    for hunk in patch.hunks:
        lines += _hunk(hunk, ink)
    if lines:
        yield Text("")
        yield ink.text(patch.file, "bold")
        yield from lines


def _hunk(hunk: HunkFinding, ink: Ink) -> Iterator[RenderableType]:
    if hunk.state == "exact" and hunk.fits <= 1:
        return
    where = f"{hunk.file}, hunk {hunk.number}, made for line {hunk.made_for}"
    if hunk.state == "offset":
        text = f"{where}: at line {hunk.line} ({hunk.offset:+d} lines), in {hunk.function}"
        yield item("!", ink.line(text), "yellow")
    elif hunk.state in {"misplaced", "conflict"}:
        yield item("x", ink.line(f"{where}: {hunk.state}, {hunk.reason}"), "bold red")
    elif hunk.state == "already there":
        yield item(".", ink.line(f"{where}: {hunk.reason}, at line {hunk.line}"), "cyan")
    if hunk.fits > 1:
        text = f"{where}: its lines stand at {hunk.fits} places of the file"
        yield item(".", ink.line(text), "cyan")
    if hunk.state == "conflict":
        yield _side_by_side(hunk, ink)


def _side_by_side(hunk: HunkFinding, ink: Ink) -> Table:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1), expand=True)
    table.add_column("what the patch expects", overflow="fold", ratio=1)
    table.add_column("", width=1)
    start = f"what {hunk.file} has from line {hunk.found_at}" if hunk.found_at else "nothing"
    table.add_column(start, overflow="fold", ratio=1)
    for left, right in list(_aligned(hunk.expected, hunk.found))[:_SHOWN]:
        same = left == right
        table.add_row(
            ink.line(left or "", "dim" if same else "red"),
            Text(" " if same else "|"),
            ink.line(right or "", "dim" if same else "green"),
        )
    return table


def _aligned(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    """Lines of both sides, equal ones beside each other."""
    matcher = difflib.SequenceMatcher(a=left, b=right, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        for number in range(max(b - a, d - c)):
            yield (
                left[a + number] if a + number < b else None,
                right[c + number] if c + number < d else None,
            )


def _values(values: Sequence[ValueChange], ink: Ink) -> Iterator[RenderableType]:
    if values:
        yield Text("")
        yield ink.text("values that model files hold", "bold")
    for value in values:
        was, now = (text if text is not None else "nothing" for text in (value.before, value.after))
        reason = f": {value.refused}" if value.refused else ""
        text = f"{value.name} ({value.file}): {was} -> {now}{reason}"
        yield item("x" if value.refused else ".", ink.line(text), _style(refused=value.refused))


def _style(*, refused: str) -> str:
    return "bold red" if refused else "cyan"


def _end(found: Checked, ink: Ink) -> Iterator[RenderableType]:
    yield Text("")
    if found.expected_tree is not None:
        same = found.expected_tree == found.tree
        words = "as the manifest pins it" if same else f"the manifest pins {found.expected_tree}"
        style = "green" if same else "bold red"
        yield ink.headed("tree: ", f"{found.tree}, {words}", style)
    else:
        yield ink.headed("tree: ", found.tree)
    if found.compiled is not None:
        style = "green" if found.compiled.passed else "bold red"
        yield ink.headed("compiled: ", found.compiled.summary, style)
    good = sum(patch.state == "applies" for patch in found.patches)
    style = "green" if found.passed else "bold red"
    told = f"{good} of {len(found.patches)} patches apply exactly"
    yield ink.text(told if found.patches else "this variant carries no patches", style)


@dataclass(frozen=True)
class _Bases:
    """See ``bases_view``."""

    found: OnBases

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.found
        table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
        table.add_column("patch", overflow="fold")
        for one in found.checked:
            table.add_column(one.base, overflow="fold")
        names = dict.fromkeys(patch.file for one in found.checked for patch in one.patches)
        for name in names:
            cells = [_cell(found, one, name, ink) for one in found.checked]
            table.add_row(ink.text(name, "bold"), *cells)
        moved = [sum(bool(value.refused) for value in one.values) for one in found.checked]
        if any(moved):
            cells = [ink.text(f"{count} moved" if count else "") for count in moved]
            table.add_row(ink.text("values in files", "bold"), *cells)
        yield table
        for one in found.checked:
            if one.absent:
                yield ink.headed(f"{one.base} has no ", ", ".join(one.absent), "dim")
        for base, reason in found.failures.items():
            yield item("x", ink.line(f"{base}: {reason}"), "bold red")


def _cell(found: OnBases, one: Checked, name: str, ink: Ink) -> Text:
    patch = next((patch for patch in one.patches if patch.file == name), None)
    if patch is None:
        return Text("")
    text = ink.text(patch.state, _STYLES[patch.state])
    for dropped in found.dropped:
        for answer in dropped.patches:
            if dropped.base == one.base and answer.file == name:
                text.append_text(ink.text(f"\n{answer.answer}", _ANSWERS[answer.answer]))
    return text


@dataclass(frozen=True)
class _Dropped:
    """See ``dropped_view``."""

    found: DropChecked

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        yield ink.headed(f"{self.found.variant} on ", self.found.base)
        table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
        for heading in ("patch", "still needed?", "why"):
            table.add_column(heading, overflow="fold")
        for patch in self.found.patches:
            table.add_row(
                ink.text(patch.file, "bold"),
                ink.text(patch.answer, _ANSWERS[patch.answer]),
                ink.line(patch.reason),
            )
        yield table
        for patch in self.found.patches:
            for words, proofs in (("with", patch.with_it), ("without", patch.without_it)):
                for proof in proofs:
                    state = "passed" if proof.passed else "failed"
                    text = f"{patch.file}, {words} it: {proof.proof} {state}, {proof.summary}"
                    style = "green" if proof.passed else "yellow"
                    yield item(".", ink.line(f"{text} ({proof.log})"), style)
