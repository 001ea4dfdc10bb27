"""What a person reads about a model before it is served: what it is, every check, the memory."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import structs
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sparkbuild.model.checks.serving import MEMORY
from sparkbuild.model.facts import Facts, Token, Vision
from sparkbuild.model.finding import Finding, named, shown
from sparkbuild.model.inspection import Inspection
from sparkbuild.model.memory import Part
from sparkbuild.model.roles import Weights
from sparkbuild.model.serve import Line
from sparkbuild.report.findings import findings_table, reasons
from sparkbuild.report.ink import RULED, Ink, item

_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS: Final = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))


def inspection_view(found: Inspection) -> RenderableType:
    """Facts, weights by role, findings with their reasons, and the sum of the memory."""
    return _Inspection(found=found)


@dataclass(frozen=True, kw_only=True)
class _Inspection:
    """See ``inspection_view``."""

    found: Inspection

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found = self.found
        yield from _files(found.facts, ink)
        yield _grid(_facts(found.facts), ink)
        yield Text("")
        yield _weights(found, ink)
        yield Text("")
        yield findings_table(_told(found), ink, options.max_width)
        yield Text("")
        yield from reasons(found.findings, ink)
        for one in found.mendable:
            changes = _many(len(one.changes), "change")
            told = (
                f"{changes} of its metadata: sparkbuild inspect {shlex.quote(one.path)} --fix OUT"
            )
            yield item("+", ink.headed("can be mended: ", told, "green"))
        yield Text("")
        yield _memory(found, ink)
        yield from _room(found, ink)
        yield Text("")
        if found.served is not None:
            yield from _served(found.served, ink)
            yield Text("")
        yield _result(found, ink)


def _told(found: Inspection) -> Iterator[Finding]:
    """The findings; that on memory without the parts of the sum, which have a table here."""
    for one in found.findings:
        if one.name == MEMORY:
            total = found.memory
            text = f"{total.needed:,} bytes at {total.context:,} tokens, summed up below"
            yield structs.replace(one, found=text)
        else:
            yield one


def size(count: int) -> str:
    """Bytes in the unit that reads best, powers of 1024."""
    unit, name = next(((unit, name) for unit, name in _UNITS if count >= unit), (1, "B"))
    return f"{count / unit:,.2f} {name}" if unit > 1 else f"{count} {name}"


def amount(count: int) -> str:
    """A number of weights, as the field writes it: 21.0M, 104.9B."""
    unit, name = next(((unit, name) for unit, name in _COUNTS if count >= unit), (1, ""))
    return f"{count / unit:,.1f}{name}" if unit > 1 else str(count)


def _files(facts: Facts, ink: Ink) -> Iterator[Text]:
    """Paths whole on one line, to be copied."""
    towers = facts.vision.files if facts.vision else ()
    for label, files in (("model", facts.files), ("mmproj", towers)):
        for file in files:
            yield _whole(label, size(file.bytes), ink.line(file.path))
    for path in facts.missing:
        yield _whole("missing", "", ink.line(path, "bold red"))


def _whole(label: str, bytes_: str, path: Text) -> Text:
    parts = (_label(label), Text(f"{bytes_:<12}", style="dim"), path)
    return Text.assemble(*parts, no_wrap=True, overflow="ignore")


def _label(label: str) -> Text:
    return Text(f"  {label:<14}", style="bold", no_wrap=True, overflow="ignore")


def _grid(rows: Iterable[tuple[str, str]], ink: Ink) -> Table:
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(_label(label), ink.text(value))
    return grid


def _facts(facts: Facts) -> Iterator[tuple[str, str]]:
    total = facts.total
    yield "architecture", named(facts.architecture) if facts.architecture else "none stated"
    yield "name", shown(facts.name) if facts.name else "none stated"
    yield "parameters", f"{amount(total.weights)}, {_bits(total)} bits each on average"
    yield "blocks", _blocks(facts)
    yield "feed-forward", _fed(facts)
    yield "context", f"{facts.context:,} tokens (what it was trained for)"
    tokenizer = ", ".join(named(name) for name in (facts.tokenizer, facts.pre) if name)
    yield "vocabulary", f"{facts.vocabulary:,} tokens, tokenizer {tokenizer or 'not stated'}"
    ends = ", ".join(f"{token.task} {_token(token)}" for token in facts.ends)
    yield "end tokens", ends or "none stated"
    none = facts.template is None
    yield "chat template", "none" if none else f"{facts.template:,} characters"
    if facts.vision:
        yield from _vision(facts.vision)


def _blocks(facts: Facts) -> str:
    blocks = facts.blocks
    details = [
        *(["MLA"] if blocks.latent else []),
        *([f"{blocks.sparse} sparse, with an indexer"] if blocks.sparse else []),
    ]
    attention = f"{blocks.attention} attention" + (f" ({'; '.join(details)})" if details else "")
    rest = f"{blocks.recurrent} linear attention, {blocks.nextn} NextN"
    return f"{blocks.total}: {attention}, {rest}"


def _fed(facts: Facts) -> str:
    blocks, experts = facts.blocks, facts.experts
    told = f"{blocks.dense} dense, {blocks.experts} with experts"
    if experts is None:
        return told
    return f"{told}: {experts.count} routed, {experts.used} a token, {experts.shared} shared"


def _vision(vision: Vision) -> Iterator[tuple[str, str]]:
    name = named(vision.projector) if vision.projector else "no projector stated"
    width = "width not known" if vision.width is None else f"{vision.width} wide"
    weights = amount(vision.total.weights)
    yield "vision", f"{name}, {width}, {vision.blocks} blocks, {weights} parameters"
    if vision.least is not None and vision.most is not None:
        yield "picture", f"{vision.least:,} to {vision.most:,} tokens"
    else:
        yield "picture", "tokens not bounded by the file"
    if vision.around:
        yield "", f"between {' and '.join(_token(token) for token in vision.around)}"


def _token(token: Token) -> str:
    number = "no number" if token.number is None else str(token.number)
    return f"{number} {'(no token)' if token.text is None else shown(token.text)}"


def _bits(weights: Weights) -> str:
    return "unknown" if weights.bits is None else f"{weights.bits:.2f}"


def _table(*columns: str) -> Table:
    """A table whose columns after the first are numbers, but for the last one."""
    table = Table(box=RULED, pad_edge=False, show_edge=False, padding=(0, 1))
    for at, name in enumerate(columns):
        last = at + 1 == len(columns)
        justify: Literal["left", "right"] = "left" if last or not at else "right"
        table.add_column(name, justify=justify, no_wrap=not last, overflow="fold")
    return table


def _weights(found: Inspection, ink: Ink) -> Table:
    table = weights_table((*found.facts.roles, found.facts.total), ink)
    for row in found.caches:
        cells = (row.role, "", amount(row.numbers), size(row.bytes), f"{row.bits:.2f}")
        table.add_row(*(ink.text(cell) for cell in cells), ink.text(f"{row.type} (asked)", "dim"))
    return table


def weights_table(rows: Iterable[Weights], ink: Ink) -> Table:
    """What each role weighs, with its types."""
    table = _table("weights", "tensors", "number", "bytes", "bits", "types")
    for row in rows:
        types = ", ".join(f"{kind}:{count}" for kind, count in row.types.items())
        cells = (row.role, str(row.tensors), amount(row.weights), size(row.bytes), _bits(row))
        style = "bold" if row.role == "all" else ""
        table.add_row(*(ink.text(cell, style) for cell in cells), ink.text(types, "dim"))
    return table


def _memory(found: Inspection, ink: Ink) -> Table:
    table = _table("memory", "bytes", "how")

    def row(name: str, count: int, how: str, style: str = "") -> None:
        table.add_row(ink.text(name, style), ink.text(f"{count:,}", style), ink.text(how, "dim"))

    def parts(growing: bool) -> list[Part]:
        return [part for part in found.memory.parts if (part.kind == "growth") is growing]

    for part in parts(growing=False):
        row(part.name, part.bytes, part.how)
    needed, lacks = found.memory.needed, found.margin < 0
    row("needed at the start", needed, f"{size(needed)}, all of the above", "bold")
    row("available", found.available, size(found.available), "bold")
    style = "bold red" if lacks else "bold green"
    row("lacking" if lacks else "margin", abs(found.margin), size(abs(found.margin)), style)
    for part in parts(growing=True):
        row(part.name, part.bytes, f"besides, while it serves: {part.how}")
    return table


def _room(found: Inspection, ink: Ink) -> Iterator[RenderableType]:
    """The largest context, and what of the sum is not known where no reason said it before."""
    yield Text("")
    slots, most = found.asked.slots, found.facts.context * found.asked.slots
    told = f"{found.largest:,} tokens" if found.largest else "none"
    if found.largest and slots > 1:
        told += f" in {slots} slots"
    if 0 < most <= found.largest:
        told += ", all that the model was trained for"
    yield ink.headed("largest context that fits: ", told, "" if found.largest else "bold red")
    said = any(one.name == MEMORY and one.state in {"warning", "fault"} for one in found.findings)
    for doubt in () if said else found.memory.doubts:
        yield item("!", ink.text(doubt), "yellow")


def _served(line: Line, ink: Ink) -> Iterator[RenderableType]:
    """The line as it may be copied, a flag a row; below it what each is for."""
    rows = [shlex.quote(line.program), *(f"  {shlex.join(flag.words)}" for flag in line.flags)]
    yield from (ink.text(f"{row} \\", whole=True) for row in rows[:-1])
    yield ink.text(rows[-1], whole=True)
    yield Text("")
    for flag in line.flags:
        yield item(
            "·" if not ink.ascii_only else ".", ink.headed(f"{flag.words[0]}: ", flag.reason)
        )
    for reason in line.left_out:
        yield item("!", ink.headed("left out: ", reason), "yellow")


def _result(found: Inspection, ink: Ink) -> Text:
    faults = [one.name for one in found.findings if one.state == "fault"]
    warned = _many(sum(one.state == "warning" for one in found.findings), "warning")
    if not faults:
        return Text.assemble(ink.text("no fault", "bold green"), f", {warned}")
    told = f": {', '.join(faults)}; {warned}; exit code {found.exit_code}"
    return Text.assemble(ink.text(_many(len(faults), "fault"), "bold red"), ink.text(told))


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
