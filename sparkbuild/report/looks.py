"""What a person reads about programs, libraries and wheels, and what such screens share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.build.model import GpuTarget, Look
from sparkbuild.model.finding import Finding, listed, named, shown
from sparkbuild.package.model import Making, WheelLook
from sparkbuild.report.findings import findings_table, reasons
from sparkbuild.report.ink import RULED, Ink
from sparkbuild.report.models import size

_LABEL: Final = 14
_HASH: Final = 12
_MOST_MEMBERS: Final = 40
"""Members that a screen lists; JSON has all."""


def binary_view(found: Look, exit_code: int) -> RenderableType:
    """One program or library."""
    return _Binary(found=found, exit_code=exit_code)


def wheel_view(found: WheelLook, exit_code: int) -> RenderableType:
    """One wheel: what it is, its making, its binaries, its members."""
    return _Wheel(found=found, exit_code=exit_code)


def whole(label: str, bytes_: str, path: str, ink: Ink) -> Text:
    """A path whole on one line, to be copied."""
    head = Text(f"  {label:<{_LABEL}}", style="bold")
    return Text.assemble(
        head, Text(f"{bytes_:<12}", style="dim"), ink.line(path), no_wrap=True, overflow="ignore"
    )


def grid(rows: Iterable[tuple[str, str]], ink: Ink) -> Table:
    """Labels and values; a long value goes on below itself."""
    table = Table.grid()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        head = Text(f"  {label:<{_LABEL}}", style="bold", no_wrap=True, overflow="ignore")
        table.add_row(head, ink.line(value))
    return table


def result(findings: Sequence[Finding], exit_code: int, ink: Ink) -> Text:
    """The last line: faults by name, warnings by number, the exit code where it is not 0."""
    faults = [one.name for one in findings if one.state == "fault"]
    warned = sum(one.state == "warning" for one in findings)
    warnings = f"{warned or 'no'} warning{'' if warned == 1 else 's'}"
    if not faults:
        return Text.assemble(ink.text("no fault", "bold green"), f", {warnings}")
    many = f"{len(faults)} fault{'' if len(faults) == 1 else 's'}"
    told = f": {', '.join(faults)}; {warnings}; exit code {exit_code}"
    return Text.assemble(ink.text(many, "bold red"), ink.text(told))


@dataclass(frozen=True, kw_only=True)
class _Binary:
    """See ``binary_view``."""

    found: Look
    exit_code: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.found
        yield whole(found.type if len(found.type) < _LABEL else "file", size(found.size),
                    found.path, ink)  # fmt: skip
        yield grid(_facts(found), ink)
        if found.gpu:
            yield Text("")
            yield _gpu(found, ink)
        yield Text("")
        yield findings_table(found.findings, ink, options.max_width)
        yield Text("")
        yield from reasons(found.findings, ink)
        yield Text("")
        yield result(found.findings, self.exit_code, ink)


def _facts(found: Look) -> Iterator[tuple[str, str]]:
    yield "machine", found.machine
    if found.soname is not None:
        yield "SONAME", named(found.soname)
    if found.interpreter is not None:
        yield "loader", shown(found.interpreter)
    yield "needs", ", ".join(named(name) for name in found.needed) or "nothing"
    for label, places in (("RUNPATH", found.runpath), ("RPATH", found.rpath)):
        if places or label == "RUNPATH":
            yield label, ":".join(places) or "none"
    yield "build id", found.build_id or "none"
    if found.build is not None or found.commit is not None:
        number = "not stated" if found.build is None else str(found.build)
        yield "llama.cpp", f"build {number}, commit {named(found.commit or 'not stated')}"
    if found.compilers:
        yield "ptxas", ", ".join(map(named, found.compilers))
    if found.kv_pairs:
        yield "K-V pairs", ", ".join(found.kv_pairs)
    if found.architectures:
        yield "models", f"{len(found.architectures)}: {', '.join(found.architectures)}"
    if found.drafts:
        yield "MTP graphs", ", ".join(map(named, found.drafts))


def _gpu(found: Look, ink: Ink) -> Table:
    table = _table("GPU code", "kind", "fat binaries", "on GB10")
    for one in found.gpu:
        share = f"{one.fat_binaries} of {found.fat_binaries}"
        style = {"made for it": "green", "no": "dim"}.get(one.gb10, "yellow")
        table.add_row(one.target, one.kind, share, ink.text(one.gb10, style))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


@dataclass(frozen=True, kw_only=True)
class _Wheel:
    """See ``wheel_view``."""

    found: WheelLook
    exit_code: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.found
        yield whole("wheel", size(found.size), found.path, ink)
        yield grid(_wheel_facts(found), ink)
        if found.binaries:
            yield Text("")
            yield _binaries(found.binaries, ink)
        yield Text("")
        yield from _members(found, ink)
        yield Text("")
        yield findings_table(found.findings, ink, options.max_width)
        yield Text("")
        yield from reasons(found.findings, ink)
        yield Text("")
        yield result(found.findings, self.exit_code, ink)


def _wheel_facts(found: WheelLook) -> Iterator[tuple[str, str]]:
    yield "name", f"{named(found.name or 'none stated')} {named(found.version or 'no version')}"
    if found.summary:
        yield "summary", shown(found.summary)
    yield "tags", ", ".join(map(named, found.tags)) or "none stated"
    if found.made is None:
        yield "made by", "another program than sparkbuild"
    else:
        yield from _making(found.made)


def _making(made: Making) -> Iterator[tuple[str, str]]:
    yield "made by", f"sparkbuild {named(made.sparkbuild)}, as it says itself"
    yield "variant", named(made.variant)
    number = "not stated" if made.build is None else str(made.build)
    yield "llama.cpp", f"build {number}, commit {named(made.commit)}"
    yield "source", named(made.source)
    for place, patch in enumerate(made.patches):
        yield "" if place else "patches", f"{named(patch.file)}: {patch.reason}"
    targets = f" for {', '.join(map(named, made.architectures))}" if made.architectures else ""
    yield "toolchain", f"{named(made.toolchain)}{targets}, {shown(made.host_compiler)[1:-1]}"
    parts = [f"{named(name)} {named(version)}" for name, version in made.parts.items()]
    if parts:
        yield "toolkit", listed(parts, most=20)
    yield "qualified", made.qualification or "not stated"
    yield "smoke", made.smoke or "not stated"
    if made.accepted:
        yield "accepted", ", ".join(map(named, made.accepted))


def _binaries(binaries: Sequence[Look], ink: Ink) -> Table:
    table = _table("binary", "bytes", "machine", "GPU code", "build id")
    for one in binaries:
        cells = (
            one.path.rpartition("/")[2],
            size(one.size),
            one.machine.removeprefix("EM_"),
            _targets(one.gpu),
            (one.build_id or "none")[:_HASH],
        )
        table.add_row(*map(ink.line, cells))
    return table


def _targets(gpu: Sequence[GpuTarget]) -> str:
    return " ".join(one.target for one in gpu) or "none"


def _members(found: WheelLook, ink: Ink) -> Iterator[RenderableType]:
    table = _table("member", "bytes", "sha256")
    for member in found.members[:_MOST_MEMBERS]:
        before, folder, rest = member.path.partition(".dist-info/")
        path = f"*{folder}{rest}" if folder else before  # the wheel's own name goes before it
        table.add_row(*map(ink.line, (path, f"{member.size:,}", member.sha256[:_HASH])))
    yield table
    if len(found.members) > _MOST_MEMBERS:
        yield ink.text(f"and {len(found.members) - _MOST_MEMBERS} more members", "dim")
