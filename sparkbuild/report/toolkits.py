"""What a person reads about CUDA toolkits: one root part by part, or all roots of a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from msgspec import structs
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.report.ink import RULED, Ink, item
from sparkbuild.toolkit.model import Identity, State

_STYLES: Final[dict[State, str]] = {
    "good": "green",
    "known bad": "bold red",
    "mixed": "bold red",
    "incomplete": "yellow",
    "unknown": "yellow",
}
_DIGEST_DIGITS: Final = 12
_LISTED: Final = 3
"""Problems of each root that a list shows; `toolkit show` has them all."""


@dataclass(frozen=True, kw_only=True)
class Warned:
    """An advisory that matches a root: its id, whether it refuses, what it does."""

    id: str
    refuses: bool
    effect: str


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A root in a list, and the ways by which it was found."""

    identity: Identity
    where: tuple[str, ...]


def identity_view(identity: Identity, warned: Sequence[Warned] = ()) -> RenderableType:
    """One root: its parts in a table, then what is wrong and what should be known."""
    return _One(identity=identity, warned=tuple(warned))


def list_view(roots: Sequence[Listed], lines: Sequence[str]) -> RenderableType:
    """Every root in a table, each one's first problem below; ``lines`` say what CMake would do."""
    return _All(roots=tuple(roots), lines=tuple(lines))


@dataclass(frozen=True, kw_only=True)
class _One:
    """See ``identity_view``."""

    identity: Identity
    warned: tuple[Warned, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.identity
        yield ink.labelled("root", found.root, "bold")
        yield ink.labelled("platform", found.platform)
        yield ink.labelled("toolchain", found.toolchain or "none that the recipes know")
        yield ink.labelled("state", found.state, _STYLES[found.state])
        yield Text("")
        yield _parts(found, ink)
        yield from _remarks(found, ink)
        for advisory in self.warned:
            word = "known bad" if advisory.refuses else "reported"
            text = ink.text(f"{word} ({advisory.id}): {advisory.effect}")
            yield item("!", text, "bold red" if advisory.refuses else "yellow")


@dataclass(frozen=True, kw_only=True)
class _All:
    """See ``list_view``."""

    roots: tuple[Listed, ...]
    lines: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        if not self.roots:
            yield ink.text("no CUDA toolkit on this machine")
        for listed in self.roots:
            found = listed.identity
            nvcc = found.part("nvcc")
            version = f"nvcc {nvcc.version}" if nvcc else "no nvcc"
            heading = ink.text(f"{found.state:<11}", _STYLES[found.state])
            heading.append_text(ink.text(f"{found.toolchain or 'unknown':<12} {version:<16} "))
            yield heading.append_text(ink.text(found.root, "bold", whole=True))
            yield ink.labelled("found as", ", ".join(listed.where), "dim")
            shown = found.problems[:_LISTED]
            yield from _remarks(structs.replace(found, problems=shown, notes=()), ink)
            more = len(found.problems) - len(shown)
            if more:
                yield ink.labelled(
                    "", f"and {more} more: sparkbuild toolkit show {found.root}", "dim"
                )
        if self.lines:
            yield Text("")
        for line in self.lines:
            yield ink.text(line)


def _parts(found: Identity, ink: Ink) -> Table:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in ("part", "version", "digest", "read from", "file"):
        table.add_column(name, overflow="fold", no_wrap=name in {"part", "version", "digest"})
    for part in found.parts:
        place = PurePath(part.path)
        inside = place.is_relative_to(found.root)
        table.add_row(
            ink.text(part.name),
            ink.text(part.version),
            ink.text(part.sha256[:_DIGEST_DIGITS]),
            ink.text(part.read_from, "dim"),
            ink.text(str(place.relative_to(found.root) if inside else place), "dim"),
        )
    return table


def _remarks(found: Identity, ink: Ink) -> Iterator[RenderableType]:
    for problem in found.problems:
        yield item("-", ink.text(f"{problem.kind}: {problem.text}"), "red")
    for note in found.notes:
        yield item("!", ink.text(note), "yellow")
